#include "tutorials/zerolab/draw/memory.h"

#include <algorithm>

#include "tensor/error.h"
#include "tutorials/zerolab/cli/number_text.h"
#include "tutorials/zerolab/draw/legend.h"
#include "tutorials/zerolab/draw/pictures.h"
#include "tutorials/zerolab/draw/tiny_run.h"

namespace zl::draw {
namespace {

using cli::with_commas;

// From the bottom. The states of the model are below what comes and goes.
constexpr MemoryUse kStack[] = {MemoryUse::optimizer_state, MemoryUse::parameter,
                                MemoryUse::gradient, MemoryUse::activation,
                                MemoryUse::communication};

int64_t up_to(const Moment& moment, size_t use) {  // [B] of kStack[0] … kStack[use]
  int64_t bytes = 0;
  for (size_t i = 0; i <= use; ++i) bytes += moment.live[size_t(kStack[i])];
  return bytes;
}

// The area below the sum of the first uses. Areas above are drawn first, so that each use shows
// the part that the next ones leave.
void draw_use(Svg& svg, const MemoryChart& chart, size_t use) {
  const auto& moments = chart.moments;
  int64_t most = 0, before = up_to(moments[0], use);
  std::string path =
      str("M", number(chart.x(0)), " ", number(chart.y(0)), "V", number(chart.y(before)));
  for (size_t i = 0; i < moments.size(); ++i) {
    most = std::max(most, moments[i].live[size_t(kStack[use])]);
    const int64_t now = up_to(moments[i], use);
    if (now == before) continue;
    path += str("H", number(chart.x(i)), "V", number(chart.y(now)));
    before = now;
  }
  if (most == 0) return;
  path += str("H", number(chart.x(moments.size())), "V", number(chart.y(0)), "z");
  svg.path(path, name(kStack[use]),
           str(chart.label, name(kStack[use]), " at most ", with_commas(most), " B"));
}

void draw_lines(Svg& svg, const MemoryChart& chart) {
  for (int64_t bytes = 0; bytes <= chart.most; bytes += chart.tick) {
    const double y = chart.y(bytes);
    svg.line({chart.area.x, y}, {chart.area.x + chart.area.width, y}, "faint");
    svg.text({chart.area.x - 6, y + 4}, bytes == 0 ? "0" : str(bytes / 1024, " KiB"), "soft end");
  }
}

// The passes of blocks and the phases, below the axis.
void draw_axis(Svg& svg, const MemoryChart& chart) {
  const double bottom = chart.area.y + chart.area.height;
  size_t phase_begin = 0, block_begin = 0;
  const auto end_phase = [&](size_t end) {
    const std::string& phase = chart.moments[phase_begin].phase;
    const double begin = chart.x(phase_begin), wide = chart.x(end) - begin;
    if (end == phase_begin || wide < 7.5 * double(phase.size())) return;
    svg.line({begin, chart.area.y}, {begin, bottom + 40}, "soft dash");
    svg.text({begin + 4, bottom + 36}, phase, "bold");
  };
  for (size_t i = 0; i < chart.moments.size(); ++i) {
    const Moment& m = chart.moments[i];
    if (m.kind == EventKind::phase) {
      end_phase(i);
      phase_begin = i;
    }
    if (m.kind != EventKind::unit || m.unit == "root") continue;
    if (m.what.starts_with("before")) block_begin = i;
    if (!m.what.starts_with("after")) continue;
    const double begin = chart.x(block_begin) + 1, end = chart.x(i) - 1;
    svg.box({begin, bottom + 4, end - begin, 16}, "panel");
    svg.text({(begin + end) / 2, bottom + 17}, m.unit, "middle");
  }
  end_phase(chart.moments.size());
}

// Forward and backward of a step, with the bytes of one use alone.
std::vector<Moment> with_only(MemoryUse use, const TrainingSpec& spec) {
  std::vector<Moment> moments;
  for (Moment m : of_memory(trace_step(spec))) {
    if (!m.phase.ends_with("ward")) continue;
    const int64_t bytes = m.live[size_t(use)];
    m.live = {};
    m.live[size_t(use)] = bytes;
    moments.push_back(std::move(m));
  }
  return moments;
}
std::vector<Moment> parameters_only(const TrainingSpec& spec) {
  return with_only(MemoryUse::parameter, spec);
}

// When the rank has the full parameters of a unit, and when its shard only.
void draw_full(Svg& svg, const MemoryChart& chart, size_t unit, const std::string& name, double y) {
  svg.text({chart.area.x - 8, y + 17}, name, "end");
  svg.line({chart.area.x, y + 24}, {chart.area.x + chart.area.width, y + 24}, "faint");
  for (size_t begin = 0, end; begin < chart.moments.size(); begin = end) {
    const bool full = chart.moments[begin].full[unit] == '#';
    for (end = begin + 1; end < chart.moments.size(); ++end)
      if ((chart.moments[end].full[unit] == '#') != full) break;
    const double x = chart.x(begin), height = full ? 22 : 5;
    svg.box({x, y + 24 - height, chart.x(end) - x, height}, "parameter",
            str(name, full ? ": full" : ": shard"));
  }
}

}  // namespace

double MemoryChart::x(size_t moment) const {
  return area.x + area.width * double(moment) / double(moments.size());
}
double MemoryChart::y(int64_t bytes) const {
  return area.y + area.height * (1 - double(bytes) / double(most));
}

const Moment& peak_of(const std::vector<Moment>& moments) {
  return *std::ranges::max_element(moments, {}, &Moment::total);
}

std::vector<Moment> of_memory(const std::vector<Moment>& moments) {
  std::vector<Moment> kept;
  for (const Moment& m : moments)
    if (m.kind == EventKind::phase || m.kind == EventKind::unit || m.kind == EventKind::allocate ||
        m.kind == EventKind::release)
      kept.push_back(m);
  return kept;
}

void draw_memory(Svg& svg, const MemoryChart& chart) {
  draw_lines(svg, chart);
  for (size_t use = std::size(kStack); use-- > 0;) draw_use(svg, chart, use);
  draw_axis(svg, chart);
  const Moment& peak = peak_of(chart.moments);
  const double x = chart.x(size_t(&peak - chart.moments.data()) + 1) - 1, y = chart.y(peak.total());
  svg.circle({x, y}, 3.5, "accent", str(chart.label, "peak ", with_commas(peak.total()), " B"));
  const double share = (x - chart.area.x) / chart.area.width;
  svg.text({x, y - 8}, with_commas(peak.total()) + " B",
           share > 0.62  ? "bold end halo"
           : share < 0.1 ? "bold halo"
                         : "bold middle halo");
}

std::string draw_step_memory() {
  const TrainingSpec spec = tiny_spec(StageKind::ddp, 1);
  MemoryChart chart{.area = {84, 84, 660, 274},
                    .most = 1'180'000,
                    .tick = 256 * 1024,
                    .moments = of_memory(trace_step(spec)),
                    .label = ""};
  const Moment& peak = peak_of(chart.moments);
  Svg svg("Memory of one rank over one training step",
          "Live bytes at each allocation and free of one step of a GPT with two blocks, stacked by "
          "use. Optimizer state, parameters and gradients are constant. Activations grow in "
          "forward, are highest at the beginning of backward, and are gone at its end.",
          414);
  draw_legend(svg, {16, 46},
              {MemoryUse::optimizer_state, MemoryUse::parameter, MemoryUse::gradient,
               MemoryUse::activation});
  draw_memory(svg, chart);
  const int64_t activations = peak.live[size_t(MemoryUse::activation)];
  svg.text({744, 74},
           str("peak = ", with_commas(peak.total() - activations), " B of model states + ",
               with_commas(activations), " B of activations"),
           "end");
  return svg.document();
}

std::string draw_bucket_peaks() {
  struct Panel {
    const char* heading;
    StageKind stage;
    int64_t bucket;
  };
  constexpr Panel kPanels[] = {{"ddp", StageKind::ddp, 1},
                               {"zero1", StageKind::zero1, 1},
                               {"zero2, a bucket per unit", StageKind::zero2, 1},
                               {"zero2, one bucket for all units", StageKind::zero2, 500'000'000}};
  Svg svg(
      "Memory of one rank of 4 over one step, with activation checkpointing",
      "Four charts of one scale. Under zero1 all gradients are kept. Under zero2 with small "
      "buckets gradients appear one unit at a time, and the peak is lower. Under zero2 with one "
      "large bucket all full gradients wait beside the shard, and the peak is higher than under "
      "zero1.",
      590);
  draw_legend(svg, {16, 46},
              {MemoryUse::optimizer_state, MemoryUse::parameter, MemoryUse::gradient,
               MemoryUse::activation});
  int64_t zero1 = 0;
  for (size_t i = 0; i < std::size(kPanels); ++i) {
    const Panel& panel = kPanels[i];
    TrainingSpec spec = tiny_spec(panel.stage, 4, lesson_model(), 1, Recompute::full);
    spec.engine.reduce_bucket_size = panel.bucket;
    const double left = i % 2 == 0 ? 74 : 444, top = i < 2 ? 116 : 366;
    const MemoryChart chart{.area = {left, top, 300, 150},
                            .most = 600 * 1024,
                            .tick = 200 * 1024,
                            .moments = of_memory(trace_step(spec)),
                            .label = str(panel.heading, ": ")};
    int64_t gradient = 0;
    for (const Moment& m : chart.moments)
      gradient = std::max(gradient, m.live[size_t(MemoryUse::gradient)]);
    svg.text({left, top - 32}, panel.heading, "bold");
    svg.text({left, top - 15}, str("gradients at most ", with_commas(gradient), " B"), "soft");
    draw_memory(svg, chart);
    if (panel.stage == StageKind::zero1) zero1 = peak_of(chart.moments).total();
    if (panel.stage != StageKind::zero2) continue;
    svg.line({left, chart.y(zero1)}, {left + 300, chart.y(zero1)}, "accent dash");
  }
  svg.line({16, 582}, {46, 582}, "accent dash");
  svg.text({52, 586}, "zero1's peak. Workspace of kernels is left out: it depends on the CPU.",
           "soft");
  return svg.document();
}

std::string draw_full_parameters() {
  constexpr int kRanks = 4;
  GptConfig model = lesson_model();
  model.layers = 4;
  const std::vector<Moment> moments = parameters_only(tiny_spec(StageKind::zero3, kRanks, model));
  const int64_t ddp = peak_of(parameters_only(tiny_spec(StageKind::ddp, kRanks, model))).total();
  const MemoryChart chart{.area = {84, 252, 660, 150},
                          .most = 240 * 1024,
                          .tick = 64 * 1024,
                          .moments = moments,
                          .label = "zero3: "};
  Svg svg(
      "zero3: a full unit exists only while it runs",
      "Above, a row per unit over the forward and backward pass: a thick bar where the rank has "
      "the full parameters, a thin one where it has its shard only. Root is full from begin to "
      "end, each block only while it runs. Below, the bytes of parameters at the same time, far "
      "below those of ddp.",
      452);
  double y = 62;
  for (size_t unit = 0; unit < moments[0].full.size(); ++unit) {
    draw_full(svg, chart, unit, unit == 0 ? "root" : str("h.", unit - 1), y);
    y += 32;
  }
  svg.box({84, 32, 22, 16}, "parameter");
  svg.text({112, 45}, "full parameters");
  svg.box({224, 42, 22, 5}, "parameter");
  svg.text({252, 45}, "shard of 1/4");
  draw_memory(svg, chart);
  svg.line({chart.area.x, chart.y(ddp)}, {744, chart.y(ddp)}, "accent dash");
  svg.text({744, chart.y(ddp) - 6}, str("ddp: ", with_commas(ddp), " B"), "bold end halo");
  return svg.document();
}

std::string draw_activations() {
  struct Panel {
    const char *heading, *what;
    Recompute recompute;
    bool partitioned;
  };
  constexpr Panel kPanels[] = {
      {"none", "every output waits for backward", Recompute::none, false},
      {"selective", "norms and GELU are computed again", Recompute::selective, false},
      {"full", "of a block only its input waits", Recompute::full, false},
      {"full, partitioned", "of its input only 1/4 waits on a rank", Recompute::full, true}};
  Svg svg("Activations of one rank over forward and backward",
          "Four charts of one scale, for a model of four blocks. Where all outputs are kept, "
          "activations rise over the whole forward pass. With selective recomputation they rise to "
          "two thirds. With full recomputation forward is almost flat, and backward has a peak for "
          "each block, when it is computed again. Partitioned inputs lower the flat part.",
          590);
  draw_legend(svg, {16, 46}, {MemoryUse::activation});
  for (size_t i = 0; i < std::size(kPanels); ++i) {
    const Panel& panel = kPanels[i];
    GptConfig model = lesson_model();
    model.layers = 4;
    TrainingSpec spec = tiny_spec(StageKind::zero2, 4, model, 4, panel.recompute);
    spec.engine.replicated_micro_batches = true;
    spec.engine.partition_activations = panel.partitioned;
    const double left = i % 2 == 0 ? 74 : 444, top = i < 2 ? 116 : 366;
    svg.text({left, top - 32}, panel.heading, "bold");
    svg.text({left, top - 15}, panel.what, "soft");
    draw_memory(svg, {.area = {left, top, 300, 150},
                      .most = 1200 * 1024,
                      .tick = 400 * 1024,
                      .moments = with_only(MemoryUse::activation, spec),
                      .label = str(panel.heading, ": ")});
  }
  return svg.document();
}

}  // namespace zl::draw
