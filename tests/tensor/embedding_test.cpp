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

TEST_CASE("an id outside the table is an error that names id, row and table", "[tensor]") {
  Cpu cpu(any_host_backend());
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

TEST_CASE("embedding_backward rounds the sum of a token's rows once", "[tensor]") {
  Cpu cpu(any_host_backend());
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

TEST_CASE("add_positions_backward rounds to a 16-bit type once, not for every window", "[tensor]") {
  Cpu cpu(any_host_backend());
  const Dtype dtype = GENERATE(Dtype::bf16, Dtype::f16);
  const Tensor dtable = cpu.of({0, 0}, {1, 2}, dtype);
  kernel::add_positions_backward(cpu.of(Values(2 * 4096, 1), {4096, 1, 2}, dtype), dtable);
  CHECK(doubles(dtable) ==
        Values{4096, 4096});  // counting one by one stops at 256 in bf16, at 2048 in f16
}

}  // namespace
