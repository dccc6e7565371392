#include <algorithm>
#include <cmath>

#include "tutorials/zerolab/cli/progress.h"
#include "tutorials/zerolab/report/comparison_report.h"
#include "tutorials/zerolab/run/run_setup.h"

namespace zl::cli {
namespace {

constexpr const char* kColors[kMemoryUses] = {"#4477aa", "#66ccee", "#228833", "#ccbb44",
                                              "#ee6677", "#aa3377", "#999999"};
constexpr const char* kStageColors[] = {"#222222", "#4477aa", "#228833", "#ee6677"};

struct Box {
  double x, y, width, height;
};

std::string rectangle(const Box& b, const std::string& fill, const std::string& title) {
  return str("<rect x='", b.x, "' y='", b.y, "' width='", b.width, "' height='", b.height,
             "' fill='", fill, "'><title>", title, "</title></rect>\n");
}

std::string label(double x, double y, const std::string& text, const char* anchor = "start") {
  return str("<text x='", x, "' y='", y, "' text-anchor='", anchor, "'>", text, "</text>\n");
}

// At rest by use; what the fullest moment needs beyond that is drawn pale on top.
std::string memory_bars(const Comparison& c) {
  constexpr double left = 70, bottom = 260, height = 220, width = 90, gap = 50;
  int64_t most = 1;
  for (const StageOutcome& s : c.stages)
    if (!s.out_of_memory) most = std::max(most, s.peak_total[0]);
  std::string svg =
      "<svg viewBox='0 0 760 300' role='img' aria-label='Memory of rank 0 by stage'>\n";
  double x = left;
  for (const StageOutcome& s : c.stages) {
    svg += label(x + width / 2, bottom + 20, name(s.stage), "middle");
    if (s.out_of_memory) {
      svg += label(x + width / 2, bottom - 5, "does not fit", "middle");
      x += width + gap;
      continue;
    }
    double y = bottom;
    int64_t rest = 0;
    for (const MemoryRow& r : s.memory) {
      if (r.rank != 0 || r.rest == 0) continue;
      const double h = height * double(r.rest) / double(most);
      y -= h;
      rest += r.rest;
      svg += rectangle({x, y, width, h}, kColors[size_t(r.use)],
                       str(name(r.use), " ", human_bytes(r.rest), " at rest"));
    }
    const double h = height * double(s.peak_total[0] - rest) / double(most);
    svg += rectangle({x, y - h, width, h}, "#dddddd",
                     str("more at the peak: ", human_bytes(s.peak_total[0] - rest)));
    svg += label(x + width / 2, y - h - 6, human_bytes(s.peak_total[0]), "middle");
    x += width + gap;
  }
  double y = 40;
  for (int i = 0; i < kMemoryUses; ++i) {
    bool used = false;
    for (const StageOutcome& s : c.stages)
      for (const MemoryRow& r : s.memory) used = used || (int(r.use) == i && r.rest != 0);
    if (!used) continue;
    svg += rectangle({620, y - 10, 12, 12}, kColors[i], name(MemoryUse(i))) +
           label(638, y, name(MemoryUse(i)));
    y += 20;
  }
  svg += rectangle({620, y - 10, 12, 12}, "#dddddd", "more at the peak") +
         label(638, y, "more at the peak");
  return svg + "</svg>\n";
}

// Losses of all stages; equal ones lie on each other, so later lines are thinner.
std::string loss_plot(const Comparison& c) {
  constexpr double left = 70, top = 20, width = 520, height = 220;
  double low = INFINITY, high = -INFINITY;
  size_t steps = 1;
  for (const StageOutcome& s : c.stages)
    for (const StepRecord& r : s.steps) {
      if (std::isfinite(r.loss)) low = std::min(low, r.loss), high = std::max(high, r.loss);
      steps = std::max(steps, s.steps.size());
    }
  if (!(low < high)) low -= 1, high += 1;
  std::string svg = "<svg viewBox='0 0 760 290' role='img' aria-label='Loss by step'>\n";
  svg += label(left - 8, top + 5, digits(high, 4), "end") +
         label(left - 8, top + height, digits(low, 4), "end");
  svg += label(left, top + height + 20, "step 1") +
         label(left + width, top + height + 20, str("step ", steps), "end");
  double legend = 40, stroke = 7;
  for (const StageOutcome& s : c.stages) {
    if (s.out_of_memory) continue;
    std::string points;
    for (size_t i = 0; i < s.steps.size(); ++i) {
      if (!std::isfinite(s.steps[i].loss)) continue;
      const double x = left + width * (steps > 1 ? double(i) / double(steps - 1) : 0.5);
      points += str(digits(x, 6), ",",
                    digits(top + height * (high - s.steps[i].loss) / (high - low), 6), " ");
    }
    const char* color = kStageColors[size_t(s.stage)];
    svg += str("<polyline points='", points, "' fill='none' stroke='", color, "' stroke-width='",
               stroke, "'><title>", name(s.stage), "</title></polyline>\n");
    svg += rectangle({620, legend - 10, 12, 12}, color, name(s.stage)) +
           label(638, legend,
                 str(name(s.stage), s.bitwise_equal_to_ddp && s.stage != StageKind::ddp
                                        ? " (= ddp, bit for bit)"
                                        : ""));
    legend += 20;
    stroke -= 2;
  }
  return svg + "</svg>\n";
}

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) out += c == '<' ? "&lt;" : c == '&' ? "&amp;" : std::string(1, c);
  return out;
}

constexpr const char* kHead = R"(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>zerolab compare</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em; background: #fff; color: #222; }
svg { width: 100%; height: auto; font: 12px system-ui, sans-serif; fill: currentColor; }
pre { overflow-x: auto; font-size: 12px; }
@media (prefers-color-scheme: dark) { body { background: #1b1b1b; color: #ddd; } polyline[stroke='#222222'] { stroke: #eee; } }
</style></head><body>
)";

}  // namespace

std::string comparison_html(const Comparison& c, const TrainingSpec& spec) {
  return str(kHead, "<h1>The same model under ", c.stages.size(), " stages</h1>\n<p>",
             with_commas(c.parameters), " parameters, ", spec.ranks, " ranks, ", spec.config.steps,
             " steps, ", precision_name(spec.config.precision), ", seed ", spec.config.seed,
             ".</p>\n<h2>Memory of rank 0</h2>\n", memory_bars(c), "<h2>Loss</h2>\n", loss_plot(c),
             "<h2>All numbers</h2>\n<pre>", escaped(comparison_text(c, spec)),
             "</pre>\n</body></html>\n");
}

}  // namespace zl::cli
