#include "stages/residual/constant_buffers.h"

#include <algorithm>
#include <numeric>

#include "stages/predict/closed_form.h"
#include "stages/predict/prediction_rows.h"

namespace zl {
namespace {

int64_t peak(const TrainingSpec& spec, StageKind stage, int64_t elements) {
  TrainingSpec fused = spec;
  fused.engine = with_fused_buffer(spec.engine, elements);
  fused.engine.stage = stage;
  return predict(prediction_input(fused)).device.peak_of(MemoryUse::communication);
}

}  // namespace

EngineOptions with_fused_buffer(EngineOptions options, int64_t elements) {
  if (options.precision == Dtype::f32) options.precision = Dtype::bf16;
  options.grad_accum_dtype.reset();
  options.communication_data_type = Dtype::f32;
  options.reduce_bucket_size = elements;
  options.given.reduce_bucket_size = true;
  options.reproducible = false;
  return options;
}

std::vector<BufferSize> constant_buffers(const TrainingSpec& spec) {
  require(parent(spec.engine.stage) == spec.engine.stage, name(spec.engine.stage),
          " reduces in buckets of its system; take one of ddp, zero1, zero2 and zero3");
  const std::vector<int64_t> units = prediction_input(spec).units;
  const int64_t all = std::accumulate(units.begin(), units.end(), int64_t(0)),
                unit = *std::max_element(units.begin(), units.end());
  TrainingSpec shipped = spec;
  shipped.engine = EngineOptions{};  // as shipped: deepspeed-2 refuses some settings of others
  shipped.engine.precision = spec.engine.precision;
  std::vector<BufferSize> sizes;
  for (const auto& [bucket, elements] : {std::pair{"one unit", unit},
                                         {"5e7", int64_t(50'000'000)},
                                         {"5e8", int64_t(500'000'000)},
                                         {"all gradients", all}}) {
    BufferSize& size = sizes.emplace_back();
    size.bucket = bucket;
    size.elements = elements;
    size.constant = std::min(elements, all) * 4;
    size.here = peak(spec, spec.engine.stage, elements == unit ? 1 : elements);
    size.shipped = peak(shipped, StageKind::deepspeed_2, elements);
  }
  return sizes;
}

}  // namespace zl
