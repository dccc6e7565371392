// A step as lanes in program order: what a rank computes, and which collectives are in flight.
#include <algorithm>
#include <map>

#include "tensor/error.h"
#include "tutorials/zerolab/cli/number_text.h"
#include "tutorials/zerolab/draw/pictures.h"
#include "tutorials/zerolab/draw/step_trace.h"
#include "tutorials/zerolab/draw/svg.h"
#include "tutorials/zerolab/draw/tiny_run.h"

namespace zl::draw {
namespace {

using cli::with_commas;

struct Bar {
  double begin = 0, end = 0;  // in columns: a run of kernels of one unit is one column wide
  std::string unit, phase;    // of what is computed
  std::string what, detail;   // of a collective
  int64_t sent = 0;           // [B]
};

struct Lanes {
  std::vector<Bar> computed, calls;
  std::vector<std::pair<double, std::string>> phases;  // where each begins
  std::vector<double> waits;                           // columns in which the rank only waits
  double end = 0;
};

// Whether a unit's parameters or gradients are communicated, and not a few numbers that all ranks
// share.
bool is_of_unit(const Moment& m) {
  return m.detail.ends_with("gradient") || m.detail.ends_with("parameter");
}

// A collective that is waited for at once takes a column in which nothing is computed.
class Layout {
 public:
  explicit Layout(const std::vector<Moment>& moments) {
    for (const Moment& m : moments) add(m);
    if (!open_.empty()) lanes_.end += 0.7;
    for (auto& [detail, bar] : open_) close(bar, lanes_.end);  // waited for in the next step
  }
  const Lanes& lanes() const { return lanes_; }

 private:
  void add(const Moment& m) {
    switch (m.kind) {
      case EventKind::kernel: return computes(m);
      case EventKind::unit: separate_ = true; return;
      case EventKind::phase:
        if (m.what != "data") lanes_.phases.emplace_back(lanes_.end, m.what);
        return;
      case EventKind::collective_begin:
        if (!is_of_unit(m)) return;
        separate_ = true;
        open_[m.detail] = {.begin = lanes_.end, .what = m.what, .detail = m.detail};
        return;
      case EventKind::collective_end: return ends(m);
      default: return;
    }
  }
  void computes(const Moment& m) {
    if (m.what == "fill" || m.what == "copy" || m.what == "accumulate" || m.unit.empty()) return;
    auto& computed = lanes_.computed;
    const bool same = !separate_ && !computed.empty() && computed.back().unit == m.unit;
    separate_ = false;
    if (same) return;
    computed.push_back(
        {.begin = lanes_.end, .end = lanes_.end + 1, .unit = m.unit, .phase = m.phase});
    lanes_.end += 1;
  }
  void ends(const Moment& m) {
    if (!is_of_unit(m)) return;
    Bar bar{.begin = 0, .what = m.what, .detail = m.detail};  // begun in the step before
    if (const auto begun = open_.extract(m.detail)) bar = begun.mapped();
    bar.sent = m.bytes;
    if (bar.begin == lanes_.end) {
      lanes_.waits.push_back(lanes_.end);
      lanes_.end += 1;
    }
    separate_ = true;
    close(bar, lanes_.end);
  }
  void close(Bar bar, double end) {
    bar.end = end;
    lanes_.calls.push_back(bar);
  }

  Lanes lanes_;
  std::map<std::string, Bar> open_;  // in flight
  bool separate_ = false;
};

struct Panel {
  std::string heading;
  TrainingSpec spec;
  double top;
};

// One lane of computation, and one lane of collectives for each unit.
void draw_panel(Svg& svg, const Panel& panel, const std::vector<std::string>& units) {
  constexpr double kLeft = 84, kWidth = 660, kRow = 26;
  const Lanes lanes = Layout(trace_step(panel.spec)).lanes();
  const double pitch = kWidth / lanes.end;
  const auto x = [&](double column) { return kLeft + pitch * column; };
  svg.text({16, panel.top}, panel.heading, "bold");
  double y = panel.top + 34;
  svg.text({kLeft - 8, y + 16}, "computes", "end");
  const double bottom = y + kRow * double(units.size() + 1) - 2;
  for (const auto& [column, phase] : lanes.phases) {
    svg.text({x(column) + 4, y - 6}, phase, "bold soft");
    svg.line({x(column), y - 18}, {x(column), bottom}, "soft dash");
  }
  for (const double column : lanes.waits) svg.box({x(column), y, pitch, bottom - y}, "panel");
  for (const Bar& bar : lanes.computed) {
    svg.box({x(bar.begin) + 1, y, pitch - 2, 22}, "activation", str(bar.phase, " of ", bar.unit));
    svg.text({x(bar.begin) + pitch / 2, y + 16}, bar.unit == "root" ? "r" : bar.unit, "middle");
  }
  for (const std::string& unit : units) {
    y += kRow;
    svg.text({kLeft - 8, y + 16}, unit, "soft end");
    svg.line({kLeft, y + 23}, {kLeft + kWidth, y + 23}, "faint");
    for (const Bar& bar : lanes.calls) {
      if (!bar.detail.starts_with(unit + " ")) continue;
      const bool gradient = bar.detail.ends_with("gradient");
      svg.box({x(bar.begin) + 1, y + 2, x(bar.end) - x(bar.begin) - 2, 20},
              gradient ? "gradient" : "parameter",
              str(bar.what, " of ", bar.detail, ": ", with_commas(bar.sent), " B sent"));
      svg.text({(x(bar.begin) + x(bar.end)) / 2, y + 17}, gradient ? "G" : "P",
               gradient ? "middle bold dark" : "middle bold on");
    }
  }
}

TrainingSpec three_blocks(StageKind stage, int64_t bucket) {
  GptConfig model = lesson_model();
  model.layers = 3;
  TrainingSpec spec = tiny_spec(stage, 4, model);
  spec.engine.reduce_bucket_size = bucket;
  return spec;
}

const std::vector<std::string> kUnits = {"root", "h.0", "h.1", "h.2"};

// A box of this style, with a letter in it if there is one, and what it means.
void legend(Svg& svg, double x, const char* style, const char* meaning, const char* letter = "") {
  svg.box({x, 34, 22, 16}, style);
  const bool dark = std::string_view(style) == "gradient";
  if (*letter) svg.text({x + 11, 47}, letter, dark ? "middle bold dark" : "middle bold on");
  svg.text({x + 28, 47}, meaning);
}

}  // namespace

std::string draw_buckets() {
  Svg svg("One step of ddp: when each gradient is reduced",
          "Two timelines of one step in program order. Above, each unit's gradient is reduced as "
          "soon as backward has left the unit: h.2, h.1, h.0, root. Below, a bucket holds two "
          "blocks: h.2 and h.1 are reduced together, then h.0 and root.",
          446);
  legend(svg, 16, "activation", "the rank computes (r: root)");
  legend(svg, 250, "gradient", "all-reduce of this unit's gradient", "G");
  legend(svg, 540, "panel", "the rank waits");
  draw_panel(svg, {"reduce_bucket_size 1: a call per unit", three_blocks(StageKind::ddp, 1), 84},
             kUnits);
  draw_panel(svg,
             {"reduce_bucket_size 12,737: two blocks fill a bucket",
              three_blocks(StageKind::ddp, 12'737), 272},
             kUnits);
  return svg.document();
}

std::string draw_in_flight() {
  Svg svg("One step of zero2 without and with overlap_comm",
          "Two timelines of one step in program order. Without overlap every collective stops the "
          "computation. With overlap the reduction of one block is in flight while backward fills "
          "the next, and all-gathers of updated parameters are in flight until the unit's next "
          "forward pass.",
          446);
  legend(svg, 16, "activation", "the rank computes");
  legend(svg, 190, "gradient", "reduce-scatter in flight", "G");
  legend(svg, 400, "parameter", "all-gather in flight", "P");
  legend(svg, 590, "panel", "the rank waits");
  TrainingSpec spec = three_blocks(StageKind::zero2, 1);
  spec.steps = 2;
  draw_panel(svg, {"off: every call is waited for at once", spec, 84}, kUnits);
  spec.engine.overlap.overlap_comm = true;
  spec.rank_options = rank_options(spec);
  draw_panel(svg, {"on: calls are in flight while the rank computes", spec, 272}, kUnits);
  return svg.document();
}

std::string draw_prefetch() {
  Svg svg("Forward and backward of zero3 without and with prefetch",
          "Two timelines of one step in program order. Without prefetch the rank waits for each "
          "all-gather. With it the all-gather of the next block is in flight while a block "
          "computes, and only the first one of the step is waited for.",
          446);
  legend(svg, 16, "activation", "the rank computes");
  legend(svg, 190, "parameter", "all-gather", "P");
  legend(svg, 330, "gradient", "reduce-scatter", "G");
  legend(svg, 500, "panel", "the rank waits");
  double top = 84;
  for (const int64_t bucket : {0, 1}) {
    TrainingSpec spec = three_blocks(StageKind::zero3, 1);
    spec.engine.overlap.prefetch_bucket_size = bucket;
    spec.rank_options = rank_options(spec);
    int64_t most = 0;
    for (const Moment& m : trace_step(spec))
      most = std::max(most, m.live[size_t(MemoryUse::parameter)]);
    draw_panel(svg,
               {str("stage3_prefetch_bucket_size ", bucket, ": parameters at most ",
                    with_commas(most), " B"),
                spec, top},
               kUnits);
    top += 188;
  }
  return svg.document();
}

}  // namespace zl::draw
