#include "stages/predict/clock/kernel_time.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <tuple>

namespace zl {
namespace {

bool is_attention(std::string_view kernel) { return kernel.starts_with("attention"); }

// At x, between two points: the logarithm of y is linear in that of x.
double between(std::pair<double, double> a, std::pair<double, double> b, double x) {
  const double part = std::log(x / a.first) / std::log(b.first / a.first);
  return a.second * std::pow(b.second / a.second, part);
}

// What a kernel's time grows with.
double size_of(double operations, double bytes) { return std::max({operations, bytes, 1.0}); }

// Between two points the logarithm of the time per size is linear in that of the place. Outside it
// is that of the nearest point, but no kernel takes less than the smallest one.
double interpolated(const KernelTimes& times, const KernelWork& work) {
  const auto place = [&](const auto& w) { return place_of(times.kernel, w.operations, w.bytes); };
  const auto per_size = [](const auto& p) { return p.seconds / size_of(p.operations, p.bytes); };
  const auto& points = times.points;
  const double here = place(work), size = size_of(work.operations, work.bytes);
  const auto above = std::ranges::find_if(points, [&](const auto& p) { return place(p) >= here; });
  if (above == points.begin())
    return is_attention(work.kernel) ? per_size(*above) * size : above->seconds;
  if (above == points.end()) return per_size(points.back()) * size;
  const auto below = above - 1;
  return size * between({place(*below), per_size(*below)}, {place(*above), per_size(*above)}, here);
}

// The measurements of the kernel, in a type of as many bytes, with the number of ranks nearest to
// `work.ranks`, and among them those of the nearest shape that is not larger, or not smaller. Null:
// none.
const KernelTimes* measured(const RankMachine& rank, const KernelWork& work, bool larger) {
  const int shape = shape_of(work);
  const KernelTimes* best = nullptr;
  const auto distance = [&](const KernelTimes& k) {
    return std::tuple(std::abs(k.ranks - work.ranks), std::abs(k.shape - shape),
                      k.type != work.type);
  };
  for (const KernelTimes& k : rank.kernels)
    if (k.kernel == work.kernel && size_of(k.type) == size_of(work.type) && !k.points.empty() &&
        (larger ? k.shape >= shape : k.shape <= shape) && (!best || distance(k) < distance(*best)))
      best = &k;
  return best;
}

// Between the shapes that are measured, the logarithm of the time is linear in that of the shape.
std::optional<double> measured_seconds(const RankMachine& rank, const KernelWork& work) {
  const KernelTimes *below = measured(rank, work, false), *above = measured(rank, work, true);
  if (!below) below = above;
  if (!above) above = below;
  if (!below) return {};
  const double first = interpolated(*below, work);
  if (below->shape == above->shape || below->shape == 0) return first;
  return between({double(below->shape), first}, {double(above->shape), interpolated(*above, work)},
                 shape_of(work));
}

}  // namespace

int shape_of(const KernelWork& work) {
  return is_attention(work.kernel) ? work.head : work.kernel == "matmul" ? work.rows : 0;
}

double place_of(std::string_view kernel, double operations, double bytes) {
  const double size = size_of(operations, bytes);
  return is_attention(kernel) && bytes > 0 ? operations / bytes : size;
}

bool streams(std::string_view kernel) {
  constexpr std::string_view all[] = {
      "adamw", "sgd", "fill", "accumulate", "copy", "sums_of_squares", "squares_of_blocks"};
  return std::ranges::find(all, kernel) != std::end(all);
}

double share_of(const std::vector<Efficiency>& rows, double size) {
  if (rows.empty()) return 1;
  const auto above = std::ranges::find_if(rows, [&](const auto& row) { return row.size >= size; });
  if (above == rows.begin()) return rows.front().share;
  if (above == rows.end()) return rows.back().share;
  const Efficiency& below = *(above - 1);
  return between({below.size, below.share}, {above->size, above->share}, size);
}

bool time_grows(const std::vector<Efficiency>& rows) {
  constexpr double kRounding = 1e-9;
  return std::ranges::adjacent_find(rows, [](const Efficiency& a, const Efficiency& b) {
           return b.share / a.share > b.size / a.size * (1 + kRounding);
         }) == rows.end();
}

double kernel_seconds(const RankMachine& rank, const KernelWork& work) {
  if (const std::optional<double> seconds = measured_seconds(rank, work)) return *seconds;
  const bool streaming = streams(work.kernel) && !rank.streaming.empty();
  const auto& shares = streaming ? rank.streaming : rank.memory;
  const double memory =
      work.bytes > 0 ? work.bytes / (rank.memory_bandwidth * share_of(shares, work.bytes)) : 0;
  // Other kernels compute in fp32 outside of the matrix units, and are limited by memory.
  double share = 0;
  if (work.kernel == "matmul") share = share_of(rank.matmul, work.operations);
  if (is_attention(work.kernel)) share = rank.attention;
  if (share == 0) return memory;
  const double peak = work.type == Dtype::f32 ? rank.f32_flops : rank.half_flops;
  return std::max(memory, work.operations / (peak * share));
}

}  // namespace zl
