#include "stages/variants/quantized.h"

#include <memory>
#include <utility>

namespace zl {
namespace {

Work both(Work codes, Work scales, std::function<void()> then) {
  const auto held = std::make_shared<Work>(std::move(scales));
  return and_then(std::move(codes), [held, then = std::move(then)] {
    held->wait();
    then();
  });
}

static_assert(Quantized::kGroup == UnitCall::kScaleGroup);  // as sent, and as predicted

}  // namespace

const Options& without_gradient_type(const Options& o) {
  require_input(!o.communication_data_type, name(o.stage),
                " communicates gradients in 4 bits; leave communication_data_type out");
  return o;
}

Quantized new_quantized(Memory& memory, const Shape& shape, int bits) {
  const int64_t n = shape[1], groups = (n + Quantized::kGroup - 1) / Quantized::kGroup;
  const auto empty = [&](int64_t columns, Dtype type) {
    return Tensor::empty(memory, MemoryUse::communication, {shape[0], columns}, type);
  };
  return {bits, empty(n * bits / 8, Dtype::u8), empty(groups, Dtype::f32)};
}

Quantized rows(const Quantized& all, int64_t first, int64_t count) {
  const auto of = [&](const Tensor& t) { return t.slice(first * t.dim(-1), {count, t.dim(-1)}); };
  return {all.bits, of(all.codes), of(all.scales)};
}

Tensor sum_of_ranks(Quantized received, const Shape& shape, int64_t ranks) {
  const Tensor sum =
      Tensor::zeros(received.codes.memory(), MemoryUse::communication, shape, Dtype::f32);
  for (int64_t r = 0; r < ranks; ++r)
    kernel::dequantize(rows(received, r * shape[0], shape[0]), sum, Write::add);
  return sum;
}

Work gather_quantized(Communicator& comm, const Quantized& all, const std::string& name,
                      std::function<void()> then) {
  Work codes = comm.all_gather(all.codes, {name, Purpose::parameter});
  return both(std::move(codes), comm.all_gather(all.scales, {name + " scales", Purpose::scales}),
              std::move(then));
}

Work exchange_quantized(Communicator& comm, const Quantized& from, const Quantized& to,
                        const std::string& name, std::function<void()> then) {
  Work codes = comm.all_to_all(from.codes, to.codes, {name, Purpose::gradient});
  return both(std::move(codes),
              comm.all_to_all(from.scales, to.scales, {name + " scales", Purpose::scales}),
              std::move(then));
}

}  // namespace zl
