// What the processes of `zerolab launch` write, as whole lines that tell the rank.
#pragma once

#include <string>
#include <string_view>

namespace zl::cli {

// One process's lines. They end at a line feed, or at a carriage return: each state of a progress
// bar is a line of its own.
class PrefixedLines {
 public:
  explicit PrefixedLines(std::string prefix) : prefix_(std::move(prefix)) {}

  // Appends the lines that `bytes` complete to `out`. A line beyond 1 MiB is cut into several.
  void take(std::string_view bytes, std::string& out);
  // Nothing more comes: the last line ends here.
  void end(std::string& out);

 private:
  void emit(std::string& out);

  std::string prefix_, line_;
  bool returned_ = false;  // a carriage return came last: with a line feed it is one end of a line
  bool cut_ = false;       // what stands in line_ goes on one that was emitted
};

// Text on its way to a file descriptor that somebody may read slowly: never blocks.
class SlowWriter {
 public:
  explicit SlowWriter(int to) : to_(to) {}
  std::string& text() { return text_; }  // to append to
  bool waits() const { return !text_.empty(); }
  bool full() const { return text_.size() > (size_t(1) << 20); }
  int to() const { return to_; }
  // Once poll() says that something can be written. Text that nobody will read is dropped.
  void write_some();

 private:
  const int to_;
  std::string text_;
};

}  // namespace zl::cli
