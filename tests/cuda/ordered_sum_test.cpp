#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <tuple>

#include "tests/cuda/differential.h"

using namespace zl;
using namespace zl::test;

namespace {

template <class T>
using Ranks = std::vector<std::vector<T>>;  // one buffer each

template <class T>
Ranks<T> random_ranks(int ranks, int64_t n) {
  Ranks<T> all(static_cast<size_t>(ranks), std::vector<T>(static_cast<size_t>(n)));
  for (int r = 0; r < ranks; ++r)
    for (int64_t i = 0; i < n; ++i) {
      const PhiloxStream random{20261121, uint64_t(r)};
      T& to = all[size_t(r)][size_t(i)];
      if constexpr (std::is_same_v<T, int32_t>)
        to = int32_t(random.block(uint64_t(i))[0]);  // sums wrap around
      else
        to = T(Compute<T>(random.normal(uint64_t(i))));
    }
  return all;
}

// All NaNs are equal: a GPU gives them other bits.
template <class T>
bool same_value(T a, T b) {
  if constexpr (!std::is_same_v<T, int32_t>)
    if (std::isnan(Compute<T>(a)) && std::isnan(Compute<T>(b))) return true;
  return std::memcmp(&a, &b, sizeof a) == 0;
}

template <class T>
bool same(const Ranks<T>& a, const Ranks<T>& b) {
  return std::ranges::equal(
      a, b, [](const auto& x, const auto& y) { return std::ranges::equal(x, y, same_value<T>); });
}

struct What {
  int64_t begin, end;
  bool mean = false;
  int64_t added = 0;
};

// Adds on one side; `results` and `buffers` may be one object.
template <class T>
void add_on(Backend& backend, Ranks<T>& buffers, Ranks<T>& results, What what) {
  Side side(backend);
  const auto upload = [&](const Ranks<T>& values) {
    std::vector<Tensor> there;
    for (const std::vector<T>& v : values) {
      there.push_back(
          Tensor::empty(side.memory, MemoryUse::gradient, {int64_t(v.size())}, dtype_of<T>));
      backend.upload(v.data(), there.back());
    }
    return there;
  };
  const auto addresses = [](const std::vector<Tensor>& tensors) {
    std::vector<char*> at;
    for (const Tensor& t : tensors) at.push_back(static_cast<char*>(t.address()));
    return at;
  };
  const std::vector<Tensor> from = upload(buffers),
                            to = &buffers == &results ? from : upload(results);
  const std::vector<char*> from_at = addresses(from), to_at = addresses(to);
  backend.ordered_sum({from_at, to_at, what.begin, what.end, dtype_of<T>, what.mean, what.added});
  backend.synchronize();
  for (size_t r = 0; r < to.size(); ++r) backend.download(to[r], results[r].data());
}
// By the reference, and by tensor/cpu with the same bits.
template <class T>
void on_cpu(Ranks<T>& buffers, Ranks<T>& results, What what) {
  Ranks<T> from = buffers, to = results;
  add_on(cpu_backend(), from, &buffers == &results ? from : to, what);
  add_on(reference_backend(), buffers, results, what);
  CHECK(same(&buffers == &results ? from : to, results));
}
template <class T>
void on_gpu(Ranks<T>& buffers, Ranks<T>& results, What what) {
  add_on(test_gpu(), buffers, results, what);
}

}  // namespace

using AnyType = std::tuple<float, bf16, f16, double, int32_t>;

TEMPLATE_LIST_TEST_CASE(
    "on the GPU sums over ranks have the bits of the CPU, in place and out of place", "[cuda]",
    AnyType) {
  const int ranks = GENERATE(1, 2, 3, 5, 8, 64);
  const bool mean = GENERATE(false, true);
  if (mean && std::is_same_v<TestType, int32_t>) return;
  CAPTURE(ranks, mean);
  for (const int64_t n : {0, 1, 33, 1024, 1025}) {
    const Ranks<TestType> in = random_ranks<TestType>(ranks, n);
    for (const What what :
         {What{0, n, mean},
          What{n / 3, n - n / 4, mean}}) {  // all, and a part that leaves both ends
      Ranks<TestType> cpu = in, gpu = in, from = in, to_cpu = random_ranks<TestType>(2, n),
                      to_gpu = to_cpu;
      on_cpu(cpu, cpu, what);
      on_gpu(gpu, gpu, what);
      on_cpu(from, to_cpu, what);
      on_gpu(from, to_gpu, what);
      CAPTURE(n, what.begin, what.end);
      CHECK(same(gpu, cpu));
      CHECK(same(to_gpu, to_cpu));
      CHECK(same(from, in));
    }
  }
}

TEST_CASE("on the GPU every half, also subnormal, infinite and NaN, is added as on the CPU",
          "[cuda]") {
  Ranks<f16> cpu(2, std::vector<f16>(1 << 16));
  for (size_t i = 0; i < cpu[0].size(); ++i) cpu[0][i].bits = uint16_t(i);
  std::ranges::fill(cpu[1], f16(1e-7f));
  Ranks<f16> gpu = cpu;
  on_cpu(cpu, cpu, {0, 1 << 16, true});
  on_gpu(gpu, gpu, {0, 1 << 16, true});
  CHECK(same(gpu, cpu));
}

TEMPLATE_TEST_CASE(
    "a sum that was added elsewhere is divided by what was added there, with the same bits on CPU "
    "and GPU",
    "[cuda]", float, bf16, f16, double) {
  const int64_t added = GENERATE(1, 3, 4), n = 1025;
  const Ranks<TestType> in = random_ranks<TestType>(1, n);
  Ranks<TestType> cpu = in, gpu = in, expected = in, multiplied = in;
  for (TestType& x : expected[0]) x = TestType(Compute<TestType>(x) / Compute<TestType>(added));
  for (TestType& x : multiplied[0])
    x = TestType(Compute<TestType>(x) * (Compute<TestType>(1) / Compute<TestType>(added)));
  on_cpu(cpu, cpu, {0, n, true, added});
  on_gpu(gpu, gpu, {0, n, true, added});
  CHECK(same(cpu, expected));
  CHECK(same(gpu, expected));
  if (added == 3 && !std::is_same_v<TestType, bf16> && !std::is_same_v<TestType, f16>)
    CHECK_FALSE(same(multiplied, expected));
}

TEST_CASE("ranks in another order have another sum, so the equalities above compare something",
          "[cuda]") {
  Ranks<float> cpu = random_ranks<float>(5, 1025), gpu = cpu;
  std::swap(gpu[0], gpu[4]);
  on_cpu(cpu, cpu, {0, 1025});
  on_gpu(gpu, gpu, {0, 1025});
  CHECK_FALSE(same(gpu, cpu));
}

TEST_CASE("on the GPU more than 64 ranks and a start, and the mean of integers, are refused",
          "[cuda]") {
  require_gpu();
  Ranks<float> many = random_ranks<float>(66, 3);
  CHECK_THROWS_AS(on_gpu(many, many, {0, 3}), std::invalid_argument);
  Ranks<int32_t> integers = random_ranks<int32_t>(2, 3);
  CHECK_THROWS_AS(on_gpu(integers, integers, {0, 3, true}), std::invalid_argument);
}
