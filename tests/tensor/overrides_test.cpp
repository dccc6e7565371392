// Which functions of Backend the backends override. The class Backend has every kernel, for memory
// of the host: one that a GPU's backend forgets would be found only on a GPU.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>

#include "tensor/cpu/cpu_backend.h"
#include "tensor/cuda/cuda_backend.h"
#include "tests/paths.h"

namespace {

using namespace zl;

template <class Class, class Result, class... Arguments>
Class class_of(Result (Class::*)(Arguments...));
template <class Class, class Result, class... Arguments>
Class class_of(Result (Class::*)(Arguments...) const);

template <class B, class... Members>
constexpr bool overrides(Members...) {
  return (std::is_same_v<decltype(class_of(Members())), B> && ...);
}

// Of every backend that computes.
#define ZL_KERNELS(B)                                                                     \
  &B::fill, &B::copy, &B::normal, &B::add, &B::accumulate, &B::gelu, &B::gelu_backward,   \
      &B::matmul, &B::sum_rows, &B::layer_norm, &B::layer_norm_backward, &B::attention,   \
      &B::attention_backward, &B::embedding, &B::embedding_backward, &B::add_positions,   \
      &B::add_positions_backward, &B::cross_entropy, &B::cross_entropy_backward,          \
      &B::update_parameters, &B::sums_of_squares, &B::squares_of_blocks, &B::ordered_sum, \
      &B::allocate, &B::release, &B::workspace, &B::name
// Of those whose memory the host cannot read.
#define ZL_OF_A_DEVICE(B) &B::host_addressable, &B::poison, &B::upload, &B::download, &B::move_bytes
// Of those with streams.
#define ZL_OF_A_GPU(B)                                                                   \
  &B::segment, &B::padded_columns, &B::start_download, &B::host_waits, &B::record_event, \
      &B::wait_event, &B::synchronize, &B::select_for_this_thread, &B::native_stream, &B::timing

using cuda::CudaBackend;
static_assert(overrides<CpuBackend>(ZL_KERNELS(CpuBackend)), "a kernel is the reference's");
static_assert(overrides<CudaBackend>(ZL_KERNELS(CudaBackend)), "a kernel is the host's");
static_assert(overrides<CudaBackend>(ZL_OF_A_DEVICE(CudaBackend), ZL_OF_A_GPU(CudaBackend)),
              "a function is the host's");
static_assert(!overrides<CpuBackend>(&CpuBackend::upload));  // the twin

// The names that `pattern` finds in a text.
std::set<std::string> names(const std::string& text, const std::string& pattern) {
  const std::regex regex(pattern);
  std::set<std::string> all;
  for (std::sregex_iterator at(text.begin(), text.end(), regex), end; at != end; ++at)
    all.insert((*at)[1]);
  return all;
}
std::string text_of(const std::string& path) {
  std::ifstream file(ZEROLAB_SOURCE_DIR "/" + path);
  return {std::istreambuf_iterator<char>(file), {}};
}

#define ZL_TEXT(...) #__VA_ARGS__
#define ZL_NAMES(...) names(ZL_TEXT(__VA_ARGS__), R"(::(\w+))")

}  // namespace

TEST_CASE("each function of Backend is in a list of those that backends override", "[tensor]") {
  std::set<std::string> listed =
      ZL_NAMES(ZL_KERNELS(Backend), ZL_OF_A_DEVICE(Backend), ZL_OF_A_GPU(Backend));
  listed.insert({"holds_data", "start_copy"});  // meta's and the disk's
  auto all = names(text_of("tensor/backend.h"),
                   R"(\n  (?:\[\[nodiscard\]\] )?virtual [^;{]*?[ *&](\w+)\()");
  all.erase("done");  // of StreamEvent
  CHECK(all == listed);
}

TEST_CASE("meta and the disk leave nothing to the host that would read their memory", "[tensor]") {
  constexpr const char* kOverride = R"((\w+)\([^;{]*\) (?:const |noexcept )*override)";
  const auto kernels = ZL_NAMES(ZL_KERNELS(Backend)), of_a_device = ZL_NAMES(ZL_OF_A_DEVICE(B)),
             meta = names(text_of("tensor/meta/meta_backend.cpp"), kOverride),
             disk = names(text_of("tensor/io/disk.cpp"), kOverride);
  for (const auto& wanted : {kernels, of_a_device}) CHECK(std::ranges::includes(meta, wanted));
  CHECK(std::ranges::includes(disk, of_a_device));
  CHECK_FALSE(std::ranges::includes(disk, kernels));  // the twin: others refuse such tensors
}
