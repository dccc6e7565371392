// The gradient of a token table at the size of a large batch: 512 sequences of 32 tokens.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "tensor/kernels.h"
#include "tests/tensor/cpu_case.h"

using namespace zl;
using namespace zl::test;

namespace {

constexpr int64_t R = 512 * 32, V = 256, C = 32;

// As in a text, a few tokens make most of the rows.
std::vector<int32_t> ids_of_a_text() {
  std::vector<int32_t> ids;
  for (const double v : random_values(R, 1)) ids.push_back(int32_t(std::abs(v * v * v) * V));
  return ids;
}

// Of 2-norms.
double relative_error(const Values& values, const Values& right) {
  double difference = 0, squares = 0;
  for (size_t i = 0; i < right.size(); ++i) {
    difference += (values[i] - right[i]) * (values[i] - right[i]);
    squares += right[i] * right[i];
  }
  return std::sqrt(difference / squares);
}

}  // namespace

TEST_CASE("the gradient of a token table is right to 1 % in 16 bits, whatever the batch",
          "[tensor]") {
  Cpu cpu;
  const Dtype dtype = GENERATE(Dtype::bf16, Dtype::f16);
  const std::vector<int32_t> ids = ids_of_a_text();
  const Tensor id = cpu.empty({512, 32}, Dtype::i32), dtable = cpu.of(Values(V * C), {V, C}, dtype),
               dy = cpu.of(random_values(R * C, 2), {512, 32, C}, dtype);
  kernel::upload<int32_t>(ids, id);
  kernel::embedding_backward(id, dy, dtable);

  const Values terms = doubles(dy);
  Values right(V * C), rounded_each_time(V * C);  // sums of the rows, in double
  for (int64_t r = 0; r < R; ++r)
    for (int64_t c = 0; c < C; ++c) {
      const size_t to = size_t(ids[size_t(r)] * C + c);
      right[to] += terms[size_t(r * C + c)];
      const double sum = rounded_each_time[to] + terms[size_t(r * C + c)];
      rounded_each_time[to] =
          dtype == Dtype::bf16 ? double(float(bf16(float(sum)))) : double(float(f16(float(sum))));
    }
  CHECK(relative_error(doubles(dtable), right) < 0.01);
  if (dtype == Dtype::bf16) CHECK(relative_error(rounded_each_time, right) > 0.02);  // the twin
}
