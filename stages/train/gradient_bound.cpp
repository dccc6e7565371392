#include "stages/train/gradient_bound.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "stages/schedule/step_schedule.h"
#include "tensor/kernels.h"

namespace zl {
namespace {

// Of a type: half the distance between 1 and the next number, and the smallest number above 0.
struct Grain {
  double unit_roundoff = 0, smallest = 0;
};

// Of the coarsest types that gradients pass through.
Grain grain(const Options& o) {
  const Dtype types[] = {o.precision, gradient_type(o), communication_type(o)};
  const bool bf16 = std::ranges::count(types, Dtype::bf16) > 0,
             f16 = std::ranges::count(types, Dtype::f16) > 0;
  return {bf16 ? 0x1p-8 : f16 ? 0x1p-11 : 0x1p-24, f16 ? 0x1p-24 : bf16 ? 0x1p-133 : 0x1p-149};
}

constexpr double kConversions = 8;  // to and from the types of communication and accumulation

constexpr size_t kGroup = size_t(UnitCall::kScaleGroup);
constexpr double kSmallestScale = std::numeric_limits<float>::min();

// Infinite if one of them is not finite.
double largest_magnitude(const std::vector<float>& values, size_t begin, size_t end) {
  double largest = 0;
  for (size_t i = begin; i < end; ++i)
    largest = std::max(largest, std::isfinite(values[i]) ? std::abs(double(values[i]))
                                                         : std::numeric_limits<double>::infinity());
  return largest;
}

// How far the gradients of a stage may be from ddp's.
struct Bound {
  Bound(const TrainingSpec& spec, const FlatLayout& layout, const GradientMagnitudes& measured);
  void add_four_bits(const TrainingSpec& spec, const FlatLayout& layout);
  // Whether element i is not a number to be compared: beyond f16 in a micro-batch or in ddp, or in
  // this stage's sums, which may be larger than ddp's by as much as is allowed.
  bool overflows(size_t i, float gradient, float of_ddp) const;

  GradientMagnitudes magnitudes;  // with what 4 bits may add to what is rounded
  // An element may differ by part * rounded + absolute. The second is what subnormal numbers lose.
  double part, absolute;
  double overflow;  // an element may be infinite if its sum and what it may differ reach this
};

Bound::Bound(const TrainingSpec& spec, const FlatLayout& layout, const GradientMagnitudes& measured)
    : magnitudes(measured) {
  const Options& o = spec.engine;
  constexpr double kRowsPerAddition = 512.0 / 4;
  const double rows = double(spec.micro_batch * numel(spec.row_of_inputs())),
               in_fp32 = rows / kRowsPerAddition + spec.ranks,
               per_value = spec.device == DeviceKind::cuda ? 2 : 1;  // a matmul may add two parts
  part = per_value * grain(o).unit_roundoff + in_fp32 * 0x1p-24;
  absolute = (6 * per_value * double(o.accumulation) + kConversions) * grain(o).smallest / 2;
  const bool in_f16 = o.grad_accum_dtype.value_or(o.precision) == Dtype::f16 ||
                      o.communication_data_type.value_or(o.precision) == Dtype::f16;
  overflow = in_f16 ? 65504 : double(std::numeric_limits<float>::max());
  if (o.stage == StageKind("zero3_qgz")) add_four_bits(spec, layout);
}

// What zero3_qgz may add to the mean gradient, in units of `part`: a group of 256 elements has the
// scale max / 7, of which rounding takes half. N ranks do that once each, and nodes once more with
// sums, which half a scale of each rank makes larger: 1/14 + 15/14 * 1/14 of what the ranks'
// largest elements add up to. With n micro-batches in all, that is at most n times the largest
// mean. A scale is never below kSmallestScale: n times 2 halves of it more. Where a micro-batch is
// not finite, its group is not.
void Bound::add_four_bits(const TrainingSpec& spec, const FlatLayout& layout) {
  const double n = double(spec.engine.accumulation * spec.ranks);
  for (const FlatLayout::UnitRange& u : layout.units())
    for (int r = 0; r < spec.ranks; ++r) {
      const size_t shard = size_t(u.partition.shard()), end = size_t(u.begin) + (r + 1) * shard;
      for (size_t first = end - shard; first < end; first += kGroup) {
        const size_t last = std::min(first + kGroup, end);
        const double largest = largest_magnitude(magnitudes.sum, first, last);
        const double added = n * (largest * 29 / 196 + kSmallestScale) / part;
        for (size_t i = first; i < last; ++i) magnitudes.rounded[i] += float(added);
      }
    }
}

bool Bound::overflows(size_t i, float gradient, float of_ddp) const {
  const double rounded = double(magnitudes.rounded[i]);
  if (!std::isfinite(of_ddp) || !std::isfinite(rounded)) return true;
  return !std::isfinite(gradient) &&
         double(magnitudes.sum[i]) + part * rounded + absolute >= overflow;
}

}  // namespace

std::vector<FlatValues> of_all_ranks(Communicator& comm, std::span<const float> values) {
  std::vector<FlatValues> all;
  for (const std::string& bytes : comm.all_gather_object(
           {reinterpret_cast<const char*>(values.data()), values.size_bytes()}, "gradient shards"))
    std::memcpy(all.emplace_back(bytes.size() / sizeof(float)).data(), bytes.data(), bytes.size());
  return all;
}

// Of a replica's shard, a rank takes the part that it has where all ranks are one replica: part i
// of N. Rank y * p + x holds parts x * R to x * R + R - 1, and sends part x * R + y.
FlatValues gradient_shards(Trainer& trainer) {
  Stage& stage = trainer.engine().stage();
  const int p = stage.shard_group().size(), R = stage.comm().size() / p, rank = stage.comm().rank();
  FlatValues all;
  for (const UnitState& u : stage.units()) {
    FlatValues shard = kernel::download_floats(stage.gradient_shard(u));
    const size_t n = shard.size() / size_t(R);
    if (R > 1)
      shard = of_all_ranks(
          stage.comm(),
          std::span(shard).subspan(size_t(rank / p) * n, n))[size_t(rank % R * p + rank / R)];
    all.insert(all.end(), shard.begin(), shard.end());
  }
  return all;
}

double weights_part_of_bound(Trainer& trainer) {
  Stage& stage = trainer.engine().stage();
  double most = 0;
  for (UnitState& u : stage.units()) {
    unshard(stage, u);
    const std::vector<float> kept = kernel::download_floats(u.parameter_shard),
                             gathered =
                                 kernel::download_floats(stage.local_shard(u.full_parameter));
    reshard(stage, u);
    const Grain type = grain(trainer.spec().engine);
    for (size_t begin = 0; begin < kept.size(); begin += kGroup) {
      const size_t end = std::min(kept.size(), begin + kGroup);
      const double largest = largest_magnitude(kept, begin, end),
                   half_a_scale = std::max(largest / 127, kSmallestScale) / 2,
                   allowed = half_a_scale * (1 + 0x1p-15) + largest * type.unit_roundoff +
                             type.smallest / 2;
      for (size_t i = begin; i < end; ++i) {
        const double one = std::abs(double(kept[i]) - double(gathered[i]));
        if (one > 0 && std::isfinite(one)) most = std::max(most, one / allowed);
      }
    }
  }
  return std::ranges::max(RankNumbers(stage.comm(), stage.memory(), std::span(&most, 1),
                                      {"largest deviation", Purpose::check})
                              .wait());
}

GradientMagnitudes gradient_magnitudes(const TrainingSpec& spec) {
  PlainTraining plain(spec);
  const FlatValues zeros(size_t(plain.layout().size()), 0.0f);
  GradientMagnitudes all{zeros, zeros}, of_rank;
  FlatValues earlier;  // the sum of the rank's earlier micro-batches
  // Values of the buffer from element `first` on. Nothing has been added to one that is 0.
  const auto see = [&](size_t first, const FlatValues& values) {
    for (size_t i = 0; i < values.size(); ++i)
      if (const float v = values[i]; v != 0)
        of_rank.rounded[first + i] += std::abs(v) + std::abs(earlier[first + i] + v);
  };
  for (const Partition::Piece& piece : plain.layout().parameters())
    piece.parameter->before_addition = [&see, &piece] {
      see(size_t(piece.at), kernel::download_floats(piece.parameter->grad));
    };
  for (int r = 0; r < spec.ranks; ++r) {
    of_rank = {zeros, zeros}, earlier = zeros;
    for (int64_t a = 0; a < spec.engine.accumulation; ++a) {
      const FlatValues gradient = plain.gradient(a, r);
      see(0, gradient);
      for (size_t i = 0; i < gradient.size(); ++i) {
        of_rank.sum[i] += std::abs(gradient[i]);
        earlier[i] += gradient[i];
        // The sum of the means over ranks, and conversions.
        of_rank.rounded[i] += std::abs(earlier[i]) + float(kConversions) * std::abs(gradient[i]);
      }
    }
    for (size_t i = 0; i < zeros.size(); ++i)
      all.sum[i] += of_rank.sum[i], all.rounded[i] += of_rank.rounded[i];
  }
  for (FlatValues* values : {&all.sum, &all.rounded})
    for (float& value : *values) value /= float(spec.ranks);
  return all;
}

namespace {

// A piece of a parameter, which begins at `begin` of the full values.
GradientDeviation deviation_of(const Partition::Piece& piece, size_t begin, const Bound& bound,
                               const FlatValues& gradient, const FlatValues& of_ddp) {
  GradientDeviation d{.parameter = piece.parameter->name, .element = piece.first};
  double difference = 0, squares = 0, count = 0, largest = -1;
  for (size_t i = begin; i < begin + size_t(piece.count); ++i) {
    if (bound.overflows(i, gradient[i], of_ddp[i])) continue;
    const double one = std::abs(double(gradient[i]) - double(of_ddp[i])),
                 rounded = double(bound.magnitudes.rounded[i]);
    const bool first_nonfinite = !std::isfinite(one) && std::isfinite(difference);
    difference += one * one;
    squares += rounded * rounded;
    ++count;
    if (!first_nonfinite && (one <= largest || !std::isfinite(largest))) continue;
    largest = one;
    d.element = piece.first + int64_t(i - begin);
    d.value = double(gradient[i]), d.value_of_ddp = double(of_ddp[i]);
  }
  const double allowed = bound.part * std::sqrt(squares) + bound.absolute * std::sqrt(count);
  if (difference != 0) d.part_of_bound = std::sqrt(difference) / allowed;
  if (std::isnan(d.part_of_bound)) d.part_of_bound = std::numeric_limits<double>::infinity();
  return d;
}

}  // namespace

GradientDeviation largest_deviation(const TrainingSpec& spec, const FlatLayout& layout,
                                    const FlatValues& gradient, const FlatValues& of_ddp,
                                    const GradientMagnitudes& magnitudes) {
  const Bound bound(spec, layout, magnitudes);
  GradientDeviation worst;  // the first of equals
  for (int rank = 0; rank < spec.ranks; ++rank)
    for (const FlatLayout::UnitRange& u : layout.units()) {
      const int64_t first = rank * u.partition.shard();
      for (const Partition::Piece& piece : u.partition.pieces(first, u.partition.shard())) {
        GradientDeviation d =
            deviation_of(piece, size_t(u.begin + first + piece.at), bound, gradient, of_ddp);
        d.rank = rank;
        if (d.part_of_bound > worst.part_of_bound) worst = d;
      }
    }
  return worst;
}

}  // namespace zl
