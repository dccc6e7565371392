// Lesson 15: the predicted step of each stage by number of ranks.
#include <algorithm>
#include <cmath>

#include "stages/predict/clock/clock_plan.h"
#include "tutorials/zerolab/draw/pictures.h"
#include "tutorials/zerolab/draw/svg.h"

namespace zl::draw {
namespace {

constexpr int kPoints = 9;  // 16 to 4,096 ranks, each twice the one before
constexpr double kLeft = 72, kRight = 640, kTop = 70, kBottom = 330;

double milliseconds_of(StageKind stage, int ranks, const Machine& machine) {
  GptTrainingSpec spec = gpt_spec(named_gpt("gpt2"));
  spec.micro_batch = 1;
  spec.engine.stage = stage;
  spec.engine.precision = Dtype::bf16;
  spec.engine.ranks_per_node = machine.ranks_per_node;
  spec.ranks = ranks;
  spec.device = DeviceKind::cuda;
  set_overlap(spec.engine, true);
  return 1e3 * clock_step(spec, machine).times.seconds;
}

// Both axes are logarithmic: 16 to 4,096 ranks, 10 to 1,000 ms.
Point place(int point, double milliseconds) {
  return {kLeft + (kRight - kLeft) * point / (kPoints - 1),
          kBottom - (kBottom - kTop) * (std::log10(milliseconds) - 1) / 2};
}

}  // namespace

std::string draw_step_times() {
  const Machine machine = find_machine("a100-80gb-4x100g");
  Svg svg("A step of GPT-2 by number of ranks",
          "Predicted milliseconds on nodes of 8 A100 with 4 ports of 100 Gb/s, with overlap.", 380);
  for (const int ms : {10, 30, 100, 300, 1000}) {
    const double y = place(0, ms).y;
    svg.line({kLeft, y}, {kRight, y}, "faint");
    svg.text({kLeft - 8, y + 4}, str(ms, " ms"), "soft end");
  }
  for (int i = 0; i < kPoints; ++i)
    svg.text({place(i, 10).x, kBottom + 20}, std::to_string(16 << i), "soft middle");
  svg.text({(kLeft + kRight) / 2, kBottom + 40}, "ranks", "soft middle");
  for (const auto& [stage, style] : {std::pair{StageKind::ddp, "soft"},
                                     {StageKind::zero1, "ink"},
                                     {StageKind::zero3, "accent"},
                                     {StageKind("hsdp"), "accent dash"}}) {
    double ms = milliseconds_of(stage, 16, machine);
    for (int i = 0; i < kPoints; ++i) {
      const Point at = place(i, ms);
      svg.circle(at, 3, "owner", str(name(stage), ", ", 16 << i, " ranks: ", number(ms), " ms"));
      const double beside = stage == StageKind::ddp ? -2 : stage == StageKind("hsdp") ? 12 : 4;
      if (i + 1 == kPoints) svg.text({at.x + 10, at.y + beside}, name(stage), "bold");
      if (i + 1 == kPoints) break;
      ms = milliseconds_of(stage, 16 << (i + 1), machine);
      svg.line(at, place(i + 1, ms), style);
    }
  }
  return svg.document();
}

}  // namespace zl::draw
