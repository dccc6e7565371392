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

double since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// The smallest of 1, 2, 5, 10, 20, … that makes at most kLines lines.
int64_t lines_every(int64_t steps) {
  for (int64_t power = 1;; power *= 10)
    for (const int64_t every : {power, 2 * power, 5 * power})
      if ((steps + every - 1) / every <= kLines) return every;
}

std::string bar(double done, int width) {
  const int full = int(done * width);
  std::string text;
  for (int i = 0; i < width; ++i) text += i < full ? '=' : i == full ? '>' : ' ';
  return "[" + text + "]";
}

std::string fixed(const char* pattern, double value) {
  return std::isfinite(value) ? format(pattern, value) : "-";
}

// The first gradient that is not finite, in a line that stays.
std::string nonfinite_line(const StepRecord& record) {
  const auto& found = *record.nonfinite;
  std::string text =
      str("step ", record.step, ": the gradient of ", found.parameter, " is not finite on rank ",
          found.rank, found.in_sum ? ", in the sum over ranks or micro-batches" : "",
          record.skipped ? "; no rank made this step" : "");
  return text + (record.loss_scale ? str("; loss scale ", *record.loss_scale) : "");
}

}  // namespace

Progress::Progress(const Terminal& terminal, int64_t steps, std::string label)
    : terminal_(terminal),
      steps_(steps),
      every_(lines_every(steps)),
      label_(label.empty() ? "" : label + " "),
      begin_(Clock::now()) {}

Progress::Progress(int64_t items, bool quiet) : Progress(standard_error(Color::automatic), items) {
  quiet_ = quiet;
}

Progress::~Progress() {
  if (line_open_) std::fputs("\n", stderr);
}

std::string Progress::numbers(const StepRecord& record) const {
  double tokens = 0, seconds = 0;
  for (const StepRecord& r : recent_) tokens += double(r.tokens), seconds += r.seconds;
  std::string text = "loss " + fixed("%.4f", record.loss);
  if (record.eval_loss) text += "  held-out " + fixed("%.4f", *record.eval_loss);
  text += "  norm " + fixed("%.3f", record.grad_norm) + "  lr " + digits(record.lr, 3) + "  " +
          short_number(tokens / seconds) + " tokens/s";
  if (record.step < steps_)
    text += "  ETA " + short_time(since(begin_) / double(record.step - before_) *
                                  double(steps_ - record.step));
  return text + (record.skipped ? "  skipped" : "");
}

void Progress::rewrite(const StepRecord& record) {
  const bool early = since(drawn_) < kRedraw;
  if (early && record.step != before_ + 1 && record.step != steps_ && !record.eval_loss) return;
  drawn_ = Clock::now();
  const int digits_of_steps = int(std::to_string(steps_).size());
  const std::string head = label_ + format("%*lld/%lld ", digits_of_steps, (long long)record.step,
                                           (long long)steps_),
                    tail = numbers(record);
  const int columns = std::max(20, terminal_.width() - 1);
  // Room for the bar without its two brackets and two spaces.
  const int room = std::min(kBar, columns - int(head.size() + tail.size()) - 4);
  const std::string line =
      room >= kShortestBar
          ? head + terminal_.dim(bar(double(record.step) / double(steps_), room)) + "  " + tail
          : (head + tail).substr(0, size_t(columns));
  std::fputs(("\r" + line + "\x1b[K").c_str(), stderr);
  std::fflush(stderr);
  line_open_ = true;
}

void Progress::begin_after(int64_t steps) {
  before_ = steps;
  begin_ = Clock::now();
}

void Progress::item(const std::string& name) {
  const int64_t ended = items_++;
  if (quiet_ || (!terminal_.rewrites && ended % every_ != 0)) return;
  std::string line = str(items_, "/", steps_, " ", name);
  const double seconds = std::chrono::duration<double>(Clock::now() - begin_).count();
  if (ended > 0) line += ", ETA " + short_time(seconds / double(ended) * double(steps_ - ended));
  const auto columns = size_t(std::max(20, terminal_.width() - 1));
  line = terminal_.rewrites ? "\r" + line.substr(0, columns) + "\x1b[K" : line + "\n";
  std::fputs(line.c_str(), stderr);
  std::fflush(stderr);
  line_open_ = terminal_.rewrites;
}

void Progress::share(double done, const std::string& of) {
  if (quiet_ || !terminal_.rewrites || since(drawn_) < kRedraw || done <= 0) return;
  drawn_ = Clock::now();
  const std::string line = format("%.0f %% of ", 100 * done) + of + ", ETA " +
                           short_time(since(begin_) * (1 - done) / done);
  std::fputs(
      ("\r" + line.substr(0, size_t(std::max(20, terminal_.width() - 1))) + "\x1b[K").c_str(),
      stderr);
  std::fflush(stderr);
  line_open_ = true;
}

void Progress::clear() {
  if (line_open_) std::fputs("\r\x1b[K", stderr);
  line_open_ = false;
}

void Progress::line(const std::string& text) {
  std::fputs(((line_open_ ? "\r\x1b[K" : "") + text + "\n").c_str(), stderr);
  std::fflush(stderr);
  line_open_ = false;
  drawn_ = {};  // the next step draws again at once
}

void Progress::step(const StepRecord& record) {
  recent_.push_back(record);
  if (recent_.size() > kRecent) recent_.pop_front();
  if (record.nonfinite) {
    std::fputs(((line_open_ ? "\n" : "") + label_ + nonfinite_line(record) + "\n").c_str(), stderr);
    line_open_ = false;
  }
  if (terminal_.rewrites) return rewrite(record);
  if (record.step != before_ + 1 && record.step != steps_ && record.step % every_ != 0 &&
      !record.eval_loss)
    return;
  line(label_ +
       format("step %*lld/%lld  ", int(std::to_string(steps_).size()), (long long)record.step,
              (long long)steps_) +
       numbers(record));
}

}  // namespace zl::cli
