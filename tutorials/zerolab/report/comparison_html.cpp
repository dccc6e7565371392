#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>

#include "tutorials/zerolab/cli/number_text.h"
#include "tutorials/zerolab/cli/printable.h"
#include "tutorials/zerolab/cli/version.h"
#include "tutorials/zerolab/report/comparison_report.h"
#include "tutorials/zerolab/report/stage_table.h"
#include "tutorials/zerolab/run/machine.h"

namespace zl::cli {
namespace {

constexpr const char* kColors[kMemoryUses] = {"#4477aa", "#66ccee", "#228833", "#ccbb44",
                                              "#ee6677", "#aa3377", "#999999"};
constexpr const char* kStageColors[] = {"#222222", "#4477aa", "#228833", "#ee6677"};
constexpr double kLegend = 650;  // x; the pictures are 900 wide

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : printable(text))
    out += c == '<' ? "&lt;" : c == '&' ? "&amp;" : std::string(1, c);
  return out;
}

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

std::string legend_entry(int row, const std::string& color, const std::string& text) {
  const double y = 40 + 20 * row;
  return rectangle({kLegend, y - 10, 12, 12}, color, text) + label(kLegend + 18, y, text);
}

std::string svg(double height, const char* title, const std::string& content) {
  return str("<svg viewBox='0 0 900 ", height, "' role='img' aria-label='", title, "'>\n", content,
             "</svg>\n");
}

MemoryByUse rest_of(const StageOutcome& s) {
  MemoryByUse bytes{};
  for (int i = 0; i < kMemoryUses; ++i)
    bytes[size_t(i)] = bytes_of(s.memory, Pool::device, MemoryUse(i), &MemoryRow::rest);
  return bytes;
}

// One bar of stacked uses, with the total above it. `scale`: pixels per byte.
std::string stacked_bar(double x, const MemoryByUse& bytes, double scale, const char* when) {
  constexpr double bottom = 250, width = 52;
  std::string content;
  double y = bottom;
  int64_t total = 0;
  for (int i = 0; i < kMemoryUses; ++i) {
    if (bytes[size_t(i)] == 0) continue;
    const double height = scale * double(bytes[size_t(i)]);
    y -= height;
    total += bytes[size_t(i)];
    content += rectangle({x, y, width, height}, kColors[i],
                         str(name(MemoryUse(i)), " ", human_bytes(bytes[size_t(i)]), ", ", when));
  }
  return content + label(x + width / 2, y - 5, human_bytes(total), "middle") +
         label(x + width / 2, bottom + 15, when, "middle");
}

// For each stage a bar of the steady state and one of the peak.
std::string memory_bars(const ComparisonReport& report) {
  int64_t most = 1;
  for (const StageOutcome& s : report.comparison.stages)
    if (!s.out_of_memory) most = std::max(most, s.peak_total[0]);
  const double scale = 205 / double(most);
  std::string content;
  MemoryByUse used{};
  double x = 20;
  for (const StageOutcome& s : report.comparison.stages) {
    content += label(x + 60, 290, name(s.stage), "middle");
    if (s.out_of_memory) {
      content += label(x + 60, 245, "does not fit", "middle");
    } else {
      const MemoryByUse rest = rest_of(s), &peak = report.at_peak.at(s.stage);
      content += stacked_bar(x, rest, scale, "steady") + stacked_bar(x + 68, peak, scale, "peak");
      for (size_t i = 0; i < used.size(); ++i) used[i] |= rest[i] | peak[i];
    }
    x += 155;
  }
  int row = 0;
  for (int i = 0; i < kMemoryUses; ++i)
    if (used[size_t(i)] != 0) content += legend_entry(row++, kColors[i], name(MemoryUse(i)));
  return svg(300, "Memory of rank 0 by stage", content);
}

// The losses of all stages. Equal ones cover each other, so later lines are thinner.
std::string loss_plot(const Comparison& c) {
  constexpr double left = 70, top = 20, width = 560, height = 220;
  double low = INFINITY, high = -INFINITY;
  size_t steps = 1;
  for (const StageOutcome& s : c.stages)
    for (const StepRecord& r : s.steps) {
      if (std::isfinite(r.loss)) low = std::min(low, r.loss), high = std::max(high, r.loss);
      steps = std::max(steps, s.steps.size());
    }
  if (!(low < high)) low -= 1, high += 1;
  std::string content = label(left - 8, top + 5, digits(high, 4), "end") +
                        label(left - 8, top + height, digits(low, 4), "end") +
                        label(left, top + height + 20, "step 1") +
                        label(left + width, top + height + 20, str("step ", steps), "end");
  int row = 0;
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
    content +=
        str("<polyline points='", points, "' fill='none' stroke='", color, "' stroke-width='",
            7 - 2 * row, "'><title>", name(s.stage), "</title></polyline>\n");
    const bool equal = s.bitwise_equal_to_ddp && s.stage != StageKind::ddp;
    content +=
        legend_entry(row++, color, str(name(s.stage), equal ? " (bitwise equal to ddp)" : ""));
  }
  return svg(290, "Loss by step", content);
}

std::string table_row(const std::vector<std::string>& cells) {
  std::string text = "<tr>";
  for (const std::string& cell : cells) text += "<td>" + cell + "</td>";
  return text + "</tr>\n";
}

std::string traffic_table(const Comparison& c) {
  std::string text = "<table>\n" + table_row({"stage", "collective", "of", "calls", "elements",
                                              "sent", "predicted"});
  for (const StageOutcome& s : c.stages)
    for (const TrafficRow& r : s.traffic)
      text += table_row({name(s.stage), name(r.collective), name(r.purpose), with_commas(r.calls),
                         with_commas(r.elements), with_commas(r.sent) + " B",
                         with_commas(r.predicted_sent) + " B"});
  return text + "</table>\n";
}

// The command line of this process, its words separated by spaces.
std::string command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!text.empty()) text.pop_back();
  std::ranges::replace(text, '\0', ' ');
  return text;
}

constexpr const char* kHead = R"(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>zerolab compare</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em; }
body { background: #fff; color: #222; }
svg { width: 100%; height: auto; font: 12px system-ui, sans-serif; fill: currentColor; }
pre, code { overflow-x: auto; font-size: 12px; }
td { padding: 0 1em 0 0; } td:nth-child(n+4) { text-align: right; }
@media (prefers-color-scheme: dark) {
  body { background: #1b1b1b; color: #ddd; } polyline[stroke='#222222'] { stroke: #eee; }
}
</style></head><body>
)";

}  // namespace

std::string comparison_html(const ComparisonReport& report) {
  const Comparison& c = report.comparison;
  const RunSetup& setup = report.setup;
  return str(kHead, "<h1>The same model under ", plural(int64_t(c.stages.size()), "stage"),
             "</h1>\n<p><code>", escaped(command_line()), "</code><br>\nzerolab ", kVersion, ", ",
             escaped(compiler()), "; ", escaped(describe(setup.device, setup.spec.ranks)), "; ",
             plural(usable_cores(), "core"), "; seed ", setup.config.seed, ".</p>\n<pre>",
             escaped(describe(setup, "ddp and each listed stage")),
             "</pre>\n<h2>Memory of rank 0</h2>\n", memory_bars(report), "<h2>Loss</h2>\n",
             loss_plot(c), "<h2>Sent by rank 0 in one step</h2>\n", traffic_table(c),
             "<h2>All numbers</h2>\n<pre>", escaped(comparison_text(report)),
             "</pre>\n</body></html>\n");
}

}  // namespace zl::cli
