// The CPU kernels have the same bits on several threads, at odd sizes that exceed the grain, and,
// like those of the reference, at every offset of their buffers.

#include <catch2/catch_test_macros.hpp>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/tensor/kernel_cases.h"
#include "tests/with_threads.h"

namespace {

using namespace zl;
using namespace zl::test;
using namespace zl::test::kernel_cases;

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("every kernel has the same bits on 1, 2, 3 and 5 threads", "[tensor]") {
  Cpu cpu;
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f64}) {
    for (const KernelCase& c : kCases) {
      const std::vector<Tensor> alone = c.outputs({cpu, dtype});
      for (const int threads : {2, 3, 5}) {
        CAPTURE(name(dtype), c.name, threads);
        const WithThreads with(threads);
        const std::vector<Tensor> together = c.outputs({cpu, dtype});
        REQUIRE(together.size() == alone.size());
        for (size_t i = 0; i < alone.size(); ++i) {
          CAPTURE(i);
          CHECK(same_bits(alone[i], together[i]));
        }
      }
    }
  }
}

TEST_CASE("every kernel has the same bits at every offset of its buffers, and when repeated",
          "[tensor]") {
  Cpu cpu(any_host_backend());
  for (const Dtype dtype : kTypes) {
    for (const KernelCase& c : kCases) {
      const std::vector<Tensor> aligned = c.outputs({cpu, dtype, false});
      for (int64_t offset = 0; offset < 16; ++offset) {
        const std::vector<Tensor> moved = c.outputs({cpu, dtype, false, offset});
        for (size_t i = 0; i < aligned.size(); ++i) {
          CAPTURE(name(dtype), c.name, offset, i);
          CHECK(same_bits(aligned[i], moved[i]));
        }
      }
      const std::vector<Tensor> other = c.outputs({cpu, dtype, false, 0, 1000});
      CHECK_FALSE(same_bits(aligned.back(), other.back()));
    }
  }
}

TEST_CASE("a sum that is split among threads has other bits", "[tensor]") {
  Cpu cpu;
  Operands make{cpu, Dtype::f32};
  const Tensor x = make.noise(make.x()),
               all = cpu.of(Values(make.columns(), 0), {make.columns()}, Dtype::f32),
               upper = cpu.of(Values(make.columns(), 0), {make.columns()}, Dtype::f32),
               lower = cpu.of(Values(make.columns(), 0), {make.columns()}, Dtype::f32);
  kernel::sum_rows(x, all);
  const int64_t half = make.rows() / 2;
  kernel::sum_rows(x.slice(0, {half, make.columns()}), upper);
  kernel::sum_rows(x.slice(half * make.columns(), {make.rows() - half, make.columns()}), lower);
  kernel::add(upper, lower, upper);
  CHECK_FALSE(same_bits(all, upper));
  CHECK(largest_difference(doubles(all), doubles(upper)) < 1e-4);
}

TEST_CASE("of several invalid ids the first row is reported, as on one thread", "[tensor]") {
  Cpu cpu;
  Operands make{cpu, Dtype::f32};
  const Tensor ids = make.ids(make.rows(), kVocab), table = make.noise({kVocab, make.columns()}),
               y = make.nan(make.x());
  for (const int row : {60, 150, 299}) ids.data<int32_t>()[size_t(row)] = int32_t(kVocab + row);
  const auto call = [&] { kernel::embedding(ids, table, y); };
  const std::string alone = message_of(call);
  CHECK(alone.find("token id 97 of row 60 ") != std::string::npos);
  const WithThreads with(5);
  CHECK(message_of(call) == alone);
}
