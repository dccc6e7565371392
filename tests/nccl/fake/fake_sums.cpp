#include "tests/nccl/fake/fake_sums.h"

#include <cstdint>
#include <type_traits>

#include "tensor/dtype.h"

namespace zl::test {
namespace {

template <class T>
void add_around(const std::vector<const void*>& terms, size_t count, T* sums) {
  for (size_t i = 0; i < count; ++i) {
    T total = static_cast<const T*>(terms[1 % terms.size()])[i];
    for (size_t r = 2; r <= terms.size(); ++r) {
      const T next = static_cast<const T*>(terms[r % terms.size()])[i];
      if constexpr (std::is_same_v<T, int32_t>)
        total = int32_t(uint32_t(total) + uint32_t(next));
      else
        total = T(Compute<T>(total) + Compute<T>(next));
    }
    sums[i] = total;
  }
}

}  // namespace

size_t size_of_type(NcclType type) {
  switch (type) {
    case NcclType::uint8: return 1;
    case NcclType::float64: return 8;
    case NcclType::float16:
    case NcclType::bfloat16: return 2;
    default: return 4;
  }
}

void add_around(const std::vector<const void*>& terms, size_t count, NcclType type, void* sums) {
  switch (type) {
    case NcclType::float32: return add_around(terms, count, static_cast<float*>(sums));
    case NcclType::bfloat16: return add_around(terms, count, static_cast<bf16*>(sums));
    case NcclType::float16: return add_around(terms, count, static_cast<f16*>(sums));
    case NcclType::float64: return add_around(terms, count, static_cast<double*>(sums));
    case NcclType::int32: return add_around(terms, count, static_cast<int32_t*>(sums));
    case NcclType::uint8: throw std::logic_error("bytes are not added");
  }
}

}  // namespace zl::test
