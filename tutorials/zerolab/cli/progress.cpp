#include "tutorials/zerolab/cli/progress.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "tutorials/zerolab/cli/number_text.h"

namespace zl::cli {
namespace {

constexpr int kLines = 20;  // of a run without a terminal
constexpr std::chrono::milliseconds kRedraw{100};

std::string fixed(const char* pattern, double value) {
  return std::isfinite(value) ? format(pattern, value) : "-";
}

void print(const std::string& text) {
  std::fputs(text.c_str(), stderr);
  std::fflush(stderr);
}

}  // namespace

Progress::Progress(int64_t steps, bool quiet, const std::string& label)
    : terminal_(standard_error()),
      quiet_(quiet),
      steps_(steps),
      every_(std::max<int64_t>(1, (steps + kLines - 1) / kLines)),
      label_(label.empty() ? "" : label + " ") {}

Progress::~Progress() {
  if (line_open_) print("\n");
}

void Progress::begin_after(int64_t steps) {
  before_ = steps;
  begin_ = Clock::now();
}

std::string Progress::eta(double done, double left) const {
  const double seconds = std::chrono::duration<double>(Clock::now() - begin_).count();
  return done > 0 && left > 0 ? ", ETA " + short_time(seconds / done * left) : "";
}

void Progress::draw(const std::string& line) {
  if (!terminal_.rewrites) return print(line + "\n");
  print("\r" + line.substr(0, size_t(std::max(20, terminal_.width() - 1))) + "\x1b[K");
  line_open_ = true;
  drawn_ = Clock::now();
}

void Progress::item(const std::string& name) {
  const int64_t ended = items_++;
  if (quiet_ || (!terminal_.rewrites && ended % every_ != 0)) return;
  draw(str(items_, "/", steps_, " ", name, eta(double(ended), double(steps_ - ended))));
}

void Progress::clear() {
  if (line_open_) print("\r\x1b[K");
  line_open_ = false;
}

void Progress::line(const std::string& text) {
  clear();
  print(text + "\n");
  drawn_ = {};  // the next step draws again at once
}

void Progress::step(const StepRecord& record) {
  tokens_ += double(record.tokens), seconds_ += record.seconds;
  if (const auto& found = record.nonfinite)
    line(str(label_, "step ", record.step, ": the gradient of ", found->parameter,
             " is not finite on rank ", found->rank,
             found->in_sum ? ", in the sum over ranks or micro-batches" : "",
             record.skipped ? "; no rank made this step" : "",
             record.loss_scale ? str("; loss scale ", *record.loss_scale) : ""));
  const bool shown =
      terminal_.rewrites ? Clock::now() - drawn_ >= kRedraw : record.step % every_ == 0;
  if (!shown && record.step != before_ + 1 && record.step != steps_ && !record.eval_loss) return;
  const auto width = int(std::to_string(steps_).size());
  draw(label_ + (terminal_.rewrites ? "" : "step ") +
       format("%*lld/%lld", width, (long long)record.step, (long long)steps_) + "  loss " +
       fixed("%.4f", record.loss) +
       (record.eval_loss ? "  held-out " + fixed("%.4f", *record.eval_loss) : "") + "  norm " +
       fixed("%.3f", record.grad_norm) + "  lr " + digits(record.lr, 3) + "  " +
       short_number(tokens_ / seconds_) + " tokens/s" +
       eta(double(record.step - before_), double(steps_ - record.step)) +
       (record.skipped ? "  skipped" : ""));
}

}  // namespace zl::cli
