#include "stages/predict/clock/kernel_time.h"

#include <algorithm>
#include <cmath>

namespace zl {
namespace {

// What a kernel's time grows with.
double size_of(const KernelTimes::Point& p) { return std::max(p.operations, p.bytes); }

// The measurements of the kernel with the number of ranks nearest to `work.ranks`; null: none.
const KernelTimes* measured(const RankMachine& rank, const KernelWork& work) {
  const KernelTimes* best = nullptr;
  const auto distance = [&](const KernelTimes& k) { return std::abs(k.ranks - work.ranks); };
  for (const KernelTimes& k : rank.kernels)
    if (k.kernel == work.kernel && k.type == work.type && !k.points.empty() &&
        (!best || distance(k) < distance(*best)))
      best = &k;
  return best;
}

// Between two points the logarithm of the time is linear in that of the size. Outside, the time per
// operation or byte is that of the nearest point, but never less time than a smaller kernel takes.
double interpolated(const std::vector<KernelTimes::Point>& points, double size) {
  const auto above =
      std::ranges::find_if(points, [&](const auto& p) { return size_of(p) >= size; });
  if (above == points.begin()) return above->seconds;
  if (above == points.end()) return points.back().seconds * size / size_of(points.back());
  const auto below = above - 1;
  const double share =
      std::log(size / size_of(*below)) / std::log(size_of(*above) / size_of(*below));
  return below->seconds * std::pow(above->seconds / below->seconds, share);
}

bool multiplies_matrices(std::string_view kernel) { return kernel == "matmul"; }
bool is_attention(std::string_view kernel) { return kernel.starts_with("attention"); }

}  // namespace

double share_of(const std::vector<Efficiency>& rows, double size) {
  double share = rows.empty() ? 1 : rows.front().share;
  for (const Efficiency& row : rows)
    if (size >= row.from) share = row.share;
  return share;
}

double kernel_seconds(const RankMachine& rank, const KernelWork& work) {
  if (const KernelTimes* times = measured(rank, work))
    return interpolated(times->points, std::max({work.operations, work.bytes, 1.0}));
  const double memory =
      work.bytes > 0 ? work.bytes / (rank.memory_bandwidth * share_of(rank.memory, work.bytes)) : 0;
  // Other kernels compute in fp32 outside of the matrix units, and are limited by memory.
  double share = 0;
  if (multiplies_matrices(work.kernel)) share = share_of(rank.matmul, work.operations);
  if (is_attention(work.kernel)) share = rank.attention;
  if (share == 0) return memory;
  const double peak = work.type == Dtype::f32 ? rank.f32_flops : rank.half_flops;
  return std::max(memory, work.operations / (peak * share));
}

}  // namespace zl
