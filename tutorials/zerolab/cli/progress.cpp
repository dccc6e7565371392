#include "tutorials/zerolab/cli/progress.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace zl::cli {
namespace {

constexpr int kLines = 20;                  // of a run without a terminal
constexpr size_t kRecent = 20;              // steps that the speed is a mean of
constexpr int kBar = 20, kShortestBar = 6;  // columns
constexpr double kRedraw = 0.1;             // [s]

std::string format(const char* pattern, auto... values) {
  char text[160];
  std::snprintf(text, sizeof text, pattern, values...);
  return text;
}

// The smallest of 1, 2, 5, 10, 20, … that makes at most kLines lines.
int64_t lines_every(int64_t steps) {
  for (int64_t power = 1;; power *= 10)
    for (const int64_t every : {power, 2 * power, 5 * power})
      if ((steps + every - 1) / every <= kLines) return every;
}

}  // namespace

std::string short_number(double value) {
  if (!std::isfinite(value)) return "-";
  for (const auto& [unit, name] : {std::pair{1e9, "G"}, {1e6, "M"}, {1e3, "k"}})
    if (value >= unit) return format(value < 100 * unit ? "%.1f%s" : "%.0f%s", value / unit, name);
  return format("%.0f", value);
}

std::string short_time(double seconds) {
  if (!std::isfinite(seconds)) return "-";
  const auto s = int64_t(std::ceil(seconds));
  if (s < 60) return format("%ds", int(s));
  if (s < 3600) return format("%dm %02ds", int(s / 60), int(s % 60));
  return format("%dh %02dm", int(s / 3600), int(s / 60 % 60));
}

std::string digits(double value, int digits) {
  return std::isfinite(value) ? format("%.*g", digits, value) : "-";
}

Progress::Progress(const Terminal& terminal, int64_t steps, std::string label)
    : terminal_(terminal),
      steps_(steps),
      every_(lines_every(steps)),
      label_(std::move(label)),
      begin_(Clock::now()) {}

Progress::~Progress() {
  if (line_open_) std::fputs("\n", stderr);
}

double Progress::seconds_left(int64_t step) const {
  return std::chrono::duration<double>(Clock::now() - begin_).count() / double(step) *
         double(steps_ - step);
}

std::string Progress::numbers(const StepRecord& record) const {
  Recent sum{0, 0};
  for (const Recent& r : recent_) sum = {sum.tokens + r.tokens, sum.seconds + r.seconds};
  std::string text = std::isfinite(record.loss) ? format("loss %.4f", record.loss) : "loss -";
  if (record.eval_loss)
    text += std::isfinite(*record.eval_loss) ? format("  held-out %.4f", *record.eval_loss)
                                             : "  held-out -";
  text += "  norm " + (std::isfinite(record.grad_norm) ? format("%.3f", record.grad_norm) : "-") +
          "  lr " + digits(record.lr, 3);
  text += "  " + short_number(double(sum.tokens) / sum.seconds) + " tokens/s";
  if (record.step < steps_) text += "  ETA " + short_time(seconds_left(record.step));
  return text + (record.skipped ? "  skipped" : "");
}

// A line of its own for each step whose gradient is not finite: who was to blame.
void Progress::name_culprit(const StepRecord& record) {
  if (!record.culprit) return;
  const Culprit& c = *record.culprit;
  std::string text =
      str("step ", record.step, ": the gradient of ", c.parameter, " is not finite on rank ",
          c.rank, c.in_sum ? ", in the sum over ranks or micro-batches" : "",
          record.skipped ? "; no rank made this step" : "");
  if (record.loss_scale) text += str("; loss scale ", *record.loss_scale);
  std::fputs(
      ((line_open_ ? "\n" : "") + (label_.empty() ? "" : label_ + " ") + text + "\n").c_str(),
      stderr);
  line_open_ = false;
}

std::string Progress::bar(int64_t step, int width) const {
  const int done = int(step * width / steps_);
  std::string text;
  for (int i = 0; i < width; ++i) text += i < done ? '=' : i == done ? '>' : ' ';
  return "[" + text + "]";
}

void Progress::rewrite(const StepRecord& record) {
  const auto now = Clock::now();
  const bool waits = std::chrono::duration<double>(now - drawn_).count() < kRedraw;
  if (waits && record.step != 1 && record.step != steps_ && !record.eval_loss) return;
  drawn_ = now;
  const std::string count = format("%*lld/%lld ", int(std::to_string(steps_).size()),
                                   (long long)record.step, (long long)steps_);
  const std::string head = (label_.empty() ? "" : label_ + " ") + count, tail = numbers(record);
  const int columns = std::max(20, terminal_.width() - 1);
  const int room = std::min(
      kBar, columns - int(head.size() + tail.size()) - 4);  // for the bar; two brackets, two spaces
  const std::string line = room >= kShortestBar
                               ? head + terminal_.dim(bar(record.step, room)) + "  " + tail
                               : (head + tail).substr(0, size_t(columns));
  std::fputs(("\r" + line + "\x1b[K").c_str(), stderr);
  std::fflush(stderr);
  line_open_ = true;
}

void Progress::line(const std::string& text) {
  std::fputs(((line_open_ ? "\r\x1b[K" : "") + text + "\n").c_str(), stderr);
  std::fflush(stderr);
  line_open_ = false;
  drawn_ = {};  // the next step draws again at once
}

void Progress::step(const StepRecord& record) {
  recent_.push_back({record.tokens, record.seconds});
  if (recent_.size() > kRecent) recent_.pop_front();
  name_culprit(record);
  if (terminal_.rewrites) return rewrite(record);
  if (record.step != 1 && record.step != steps_ && record.step % every_ != 0 && !record.eval_loss)
    return;
  const int width = int(std::to_string(steps_).size());
  const std::string label = label_.empty() ? "" : label_ + " ";
  std::fputs(
      (label + format("step %*lld/%lld  ", width, (long long)record.step, (long long)steps_) +
       numbers(record) + "\n")
          .c_str(),
      stderr);
  std::fflush(stderr);
}

}  // namespace zl::cli
