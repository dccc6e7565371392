#include "stages/predict/clock/expected_error.h"

#include <algorithm>

namespace zl {
namespace {

bool same_shares(const RankMachine& a, const RankMachine& b) {
  const auto same = [](const std::vector<Efficiency>& x, const std::vector<Efficiency>& y) {
    return std::ranges::equal(x, y, [](const Efficiency& p, const Efficiency& q) {
      return p.size == q.size && p.share == q.share;
    });
  };
  return same(a.matmul, b.matmul) && same(a.memory, b.memory) && same(a.streaming, b.streaming) &&
         a.attention == b.attention;
}

}  // namespace

MachineData machine_data(const Machine& machine) {
  if (!machine.rank.kernels.empty()) return MachineData::measured;
  for (const char* kind : {"a100-80gb", "h100-sxm"}) {
    const RankMachine fitted = find_machine(kind).rank;
    // Of one kind of GPU, which may have more memory or less.
    if (machine.rank.half_flops == fitted.half_flops && same_shares(machine.rank, fitted))
      return MachineData::fitted;
  }
  return MachineData::data_sheet;
}

ExpectedError expected_step_error(MachineData data, int ranks) {
  constexpr int kFew = 16, kMany = 128, kMostPublished = 2048;
  const size_t column = ranks <= kFew ? 0 : ranks <= kMany ? 1 : 2;
  // Measured kernels: as steps that are calibrated on one step.
  constexpr double kErrors[3][3] = {{0.07, 0.07, 0.09}, {0.15, 0.07, 0.16}, {0.13, 0.13, 0.16}};
  return {.error = kErrors[size_t(data)][column], .order_only = ranks > kMostPublished};
}

double expected_call_error(bool measured, int64_t bytes) {
  if (measured) return 0.06;
  constexpr int64_t MiB = int64_t(1) << 20;
  return bytes >= 256 * MiB ? 0.04 : bytes >= 16 * MiB ? 0.12 : bytes >= MiB ? 0.31 : 0.39;
}

}  // namespace zl
