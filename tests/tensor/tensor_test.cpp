#include "tensor/tensor.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>

#include "tensor/kernels.h"
#include "tests/tensor/cpu_case.h"

namespace {

using namespace zl;
using namespace zl::test;

TEST_CASE("a slice and its tensor share their elements", "[tensor]") {
  Cpu cpu;
  const Tensor t = cpu.of({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, {3, 4}, Dtype::f32);
  const Tensor row = t.slice(4, {4}), inner = row.slice(1, {2});
  CHECK(doubles(row) == Values{4, 5, 6, 7});
  CHECK(doubles(inner) == Values{5, 6});
  inner.data<float>()[0] = -1;
  CHECK(t.data<float>()[5] == -1);
  CHECK((row.same_storage(t) && !cpu.of({1}, {1}, Dtype::f32).same_storage(t)));
}

TEST_CASE("slices count elements, whatever their size in bytes", "[tensor]") {
  Cpu cpu;
  for (Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f16, Dtype::f64}) {
    const Tensor t = cpu.of({1, 2, 3, 4}, {4}, dtype);
    CHECK(doubles(t.slice(1, {2}).slice(1, {1})) == Values{3});
    CHECK(static_cast<char*>(t.slice(3, {1}).address()) - static_cast<char*>(t.address()) ==
          3 * size_of(dtype));
    CHECK(t.bytes() == 4 * size_of(dtype));
  }
}

TEST_CASE("a slice outside its tensor is refused, also of a slice and with absurd numbers",
          "[tensor]") {
  Cpu cpu;
  const Tensor t = cpu.of({0, 1, 2, 3, 4, 5}, {6}, Dtype::f32), part = t.slice(2, {3});
  CHECK_NOTHROW(t.slice(6, {0}));
  CHECK_THROWS_AS(t.slice(4, {3}), std::invalid_argument);
  CHECK_THROWS_AS(t.slice(-1, {1}), std::invalid_argument);
  CHECK_THROWS_AS(t.slice(7, {0}), std::invalid_argument);
  CHECK_THROWS_AS(part.slice(1, {3}), std::invalid_argument);
  CHECK_THROWS_AS(t.slice(0, {-1}), std::invalid_argument);
  CHECK_THROWS_AS(Tensor().slice(0, {0}), std::invalid_argument);
  CHECK_THROWS_AS(t.slice(INT64_MAX, {1}), std::invalid_argument);
}

TEST_CASE("shapes with two negative dimensions are refused although numel would be positive",
          "[tensor]") {
  Cpu cpu;
  const Tensor t = cpu.of({0, 1, 2, 3, 4, 5}, {6}, Dtype::f32);
  CHECK_THROWS_AS(t.slice(0, {-2, -3}), std::invalid_argument);
  CHECK_THROWS_AS(t.view({-2, -3}), std::invalid_argument);
  CHECK_THROWS_AS(cpu.empty({-2, -3}, Dtype::f32), std::invalid_argument);
}

TEST_CASE("a view has the same elements in another shape of the same size", "[tensor]") {
  Cpu cpu;
  const Tensor t = cpu.of({0, 1, 2, 3, 4, 5}, {2, 3}, Dtype::f32);
  CHECK(t.view({3, 2}).shape() == Shape{3, 2});
  CHECK(doubles(t.view({6})) == doubles(t));
  CHECK_THROWS_AS(t.view({4}), std::invalid_argument);
  CHECK((t.dim(0) == 2 && t.dim(-1) == 3 && t.dim(-2) == 2 && t.rows() == 2));
  CHECK_THROWS_WITH(t.dim(2), "dimension 2 is out of range for shape (2, 3)");
  CHECK_THROWS_WITH(t.dim(-3), "dimension -3 is out of range for shape (2, 3)");
}

TEST_CASE("unique is true for the only handle to a storage", "[tensor]") {
  Cpu cpu;
  Tensor t = cpu.of({1, 2}, {2}, Dtype::f32).view({2});
  CHECK(t.unique());
  {
    const Tensor other = t.slice(1, {1});
    CHECK_FALSE(t.unique());
  }
  CHECK(t.unique());
  CHECK((t.defined() && !Tensor().defined()));
}

TEST_CASE("data of the wrong type or of nothing is refused with both types named", "[tensor]") {
  Cpu cpu;
  const Tensor t = cpu.of({1}, {1}, Dtype::bf16);
  CHECK_THROWS_AS(t.data<float>(), std::invalid_argument);
  CHECK_NOTHROW(t.data<bf16>());
  CHECK_THROWS_AS(Tensor().data<float>(), std::invalid_argument);
  try {
    t.data<double>();
  } catch (const std::invalid_argument& error) {
    CHECK(std::string(error.what()) == "data<f64>() of a tensor of bf16");
  }
}

TEST_CASE("tensors without elements have a shape and may be filled and copied", "[tensor]") {
  Cpu cpu;
  const Tensor none = Tensor::zeros(cpu.memory, MemoryUse::activation, {0, 4}),
               other = cpu.empty({0, 4}, Dtype::bf16);
  CHECK((none.numel() == 0 && none.bytes() == 0 && none.defined() && none.address() == nullptr));
  CHECK_NOTHROW(kernel::copy(none, other));
  CHECK_NOTHROW(kernel::gelu(none, none));
  CHECK(kernel::download<float>(none).empty());
}

TEST_CASE("upload and download bring values there and back in every type", "[tensor]") {
  Cpu cpu;
  const std::vector<int32_t> ids{1, -2, 3};
  const Tensor t = cpu.empty({3}, Dtype::i32);
  kernel::upload<int32_t>(ids, t);
  CHECK(kernel::download<int32_t>(t) == ids);
  CHECK(kernel::download<int32_t>(t.slice(1, {2})) == std::vector<int32_t>{-2, 3});
  CHECK_THROWS_AS(kernel::upload<int32_t>(std::span(ids).first(2), t), std::invalid_argument);
  CHECK_THROWS_AS(kernel::download<float>(t), std::invalid_argument);
  CHECK(kernel::read(cpu.of({2.5}, {1}, Dtype::f32)) == 2.5);
  CHECK_THROWS_AS(kernel::read(t), std::invalid_argument);
}

TEST_CASE("like makes an activation of the same type in the same memory", "[tensor]") {
  Cpu cpu;
  const Tensor t = Tensor::empty(cpu.memory, MemoryUse::parameter, {2}, Dtype::f16),
               other = activation_like(t, {5, 2});
  CHECK((other.dtype() == Dtype::f16 && other.use() == MemoryUse::activation &&
         other.shape() == Shape{5, 2}));
  CHECK(&other.memory() == &cpu.memory);
}

}  // namespace
