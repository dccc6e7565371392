#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "tensor/kernels.h"
#include "tests/tensor/cpu_case.h"

namespace {

using namespace zl;
using namespace zl::test;

Tensor ids_of(Cpu& cpu, const std::vector<int32_t>& ids) {
  const Tensor t = cpu.empty({1, int64_t(ids.size())}, Dtype::i32);
  kernel::upload<int32_t>(ids, t);
  return t;
}

TEST_CASE("embedding copies the rows that the ids name, bit for bit", "[tensor]") {
  Cpu cpu;
  const Dtype dtype = any_type();
  for (int64_t C : {1, 5, 16, 33}) {
    const Tensor table = cpu.of(random_values(7 * C, 1), {7, C}, dtype),
                 y = cpu.nan({1, 4, C}, dtype);
    kernel::embedding(ids_of(cpu, {6, 0, 3, 6}), table, y);
    int64_t row = 0;
    for (int64_t id : {6, 0, 3, 6})
      CHECK(same_bits(y.slice(row++ * C, {C}), table.slice(id * C, {C})));
    CHECK_FALSE(same_bits(y.slice(0, {C}), y.slice(C, {C})));
  }
}

TEST_CASE("an id outside the table is an error that names id, row and table", "[tensor]") {
  Cpu cpu;
  const Tensor table = cpu.of(Values(12, 1), {4, 3}, Dtype::f32),
               y = cpu.nan({1, 2, 3}, Dtype::f32);
  for (int32_t id : {4, -1, INT32_MAX, INT32_MIN}) {
    CAPTURE(id);
    CHECK_THROWS_AS(kernel::embedding(ids_of(cpu, {0, id}), table, y), std::invalid_argument);
    CHECK_THROWS_AS(kernel::embedding_backward(ids_of(cpu, {0, id}), y, table),
                    std::invalid_argument);
  }
  try {
    kernel::embedding(ids_of(cpu, {3, 4}), table, y);
    FAIL();
  } catch (const std::invalid_argument& error) {
    CHECK(std::string(error.what()) ==
          "embedding: token id 4 of row 1 is out of range for a table of 4 rows");
  }
}

TEST_CASE("embedding_backward adds every row to its token's, also for tokens that repeat",
          "[tensor]") {
  Cpu cpu;
  const Dtype dtype = any_type();
  for (int64_t C : {1, 5, 16, 33}) {
    const std::vector<int32_t> ids{2, 0, 2, 2, 4};
    const Tensor dy = cpu.of(random_values(5 * C, 1), {1, 5, C}, dtype),
                 dtable = cpu.of(Values(size_t(5 * C), 0.5), {5, C}, dtype);
    kernel::embedding_backward(ids_of(cpu, ids), dy, dtable);
    Values expected(size_t(5 * C), 0.5);
    const Values d = doubles(dy);
    for (int64_t r = 0; r < 5; ++r)
      for (int64_t c = 0; c < C; ++c)
        expected[size_t(ids[size_t(r)] * C + c)] += d[size_t(r * C + c)];
    const double tolerance = 4 * 4 * epsilon(dtype);  // four additions of numbers up to 4
    CHECK(largest_difference(doubles(dtable), expected) <= tolerance);
    expected[size_t(2 * C)] -= d[0];  // as if the repeated token had been counted once less
    CHECK(largest_difference(doubles(dtable), expected) > tolerance);
  }
}

TEST_CASE("embedding_backward rounds the sum of a token's rows once", "[tensor]") {
  Cpu cpu;
  const Dtype dtype = GENERATE(Dtype::bf16, Dtype::f16);
  // Between the rows of token 1 are some of token 2, whose sum is rounded when it is added to 1.
  std::vector<int32_t> ids(2 * 4096, 1);
  for (size_t r = 0; r < ids.size(); r += 2) ids[r] = 2;
  Values dy(2 * ids.size(), 1);
  for (size_t r = 0; r < ids.size(); r += 2) dy[2 * r + 1] = 0x1p-19;
  const Tensor dtable = cpu.of({7, 7, 0, 0, 0, 1}, {3, 2}, dtype);
  kernel::embedding_backward(ids_of(cpu, ids), cpu.of(dy, {1, 2 * 4096, 2}, dtype), dtable);
  // Counting one by one stops at 256 in bf16, at 2048 in f16; 1 + 2^-19 is 1 in both.
  CHECK(doubles(dtable) == Values{7, 7, 4096, 4096, 4096, 1 + 0x1p-7});
}

TEST_CASE("add_positions adds row t of the table to token t of every sequence, also in place",
          "[tensor]") {
  Cpu cpu;
  const Dtype dtype = any_type();
  const int64_t B = 3, T = 5, C = 7;
  const Tensor x = cpu.of(random_values(B * T * C, 1), {B, T, C}, dtype),
               table = cpu.of(random_values(9 * C, 2), {9, C}, dtype);
  const Tensor y = cpu.nan({B, T, C}, dtype);
  kernel::add_positions(x, table, y);
  Values expected = doubles(x);
  for (int64_t i = 0; i < B * T * C; ++i) {
    const double sum = expected[size_t(i)] + doubles(table)[size_t(i % (T * C))];
    expected[size_t(i)] = dtype == Dtype::f64 ? sum : double(float(sum));
  }
  CHECK(same_bits(y, cpu.of(expected, {B, T, C}, dtype)));
  CHECK_FALSE(same_bits(y, x));
  kernel::add_positions(x, table, x);
  CHECK(same_bits(y, x));
}

TEST_CASE("add_positions_backward adds the sum over the batch and leaves the positions beyond T",
          "[tensor]") {
  Cpu cpu;
  const Dtype dtype = any_type();
  const int64_t B = 4, T = 5, C = 27;  // 135 columns: two full chunks and a rest
  const Tensor dy = cpu.of(random_values(B * T * C, 1), {B, T, C}, dtype),
               dtable = cpu.of(Values(size_t(6 * C), 0.25), {6, C}, dtype);
  kernel::add_positions_backward(dy, dtable);
  Values expected(size_t(6 * C), 0.25);
  for (int64_t i = 0; i < B * T * C; ++i) expected[size_t(i % (T * C))] += doubles(dy)[size_t(i)];
  CHECK(largest_difference(doubles(dtable), expected) <= 4 * epsilon(dtype));
  CHECK(same_bits(dtable.slice(T * C, {C}), cpu.of(Values(size_t(C), 0.25), {C}, dtype)));
}

TEST_CASE("add_positions_backward rounds to a 16-bit type once, not for every window", "[tensor]") {
  Cpu cpu;
  const Dtype dtype = GENERATE(Dtype::bf16, Dtype::f16);
  const Tensor dtable = cpu.of({0, 0}, {1, 2}, dtype);
  kernel::add_positions_backward(cpu.of(Values(2 * 4096, 1), {4096, 1, 2}, dtype), dtable);
  CHECK(doubles(dtable) ==
        Values{4096, 4096});  // counting one by one stops at 256 in bf16, at 2048 in f16
}

}  // namespace
