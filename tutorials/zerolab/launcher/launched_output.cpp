#include "tutorials/zerolab/launcher/launched_output.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>

namespace zl::cli {
namespace {
constexpr size_t kLongest = size_t(1) << 20;  // [B]
}

void PrefixedLines::take(std::string_view bytes, std::string& out) {
  while (!bytes.empty()) {
    if (returned_) {
      returned_ = false;
      if (bytes.front() == '\n')
        line_ += '\r';
      else if (!line_.empty())
        emit(out);
    }
    const size_t end = std::min(bytes.find_first_of("\r\n"), bytes.size());
    line_.append(bytes.substr(0, end));
    bytes.remove_prefix(end);
    if (bytes.empty()) {
      if (line_.size() < kLongest) return;
      emit(out);
      cut_ = true;
      return;
    }
    const char last = bytes.front();
    bytes.remove_prefix(1);
    if (last == '\r')
      returned_ = true;
    else if (!cut_ || !line_.empty())
      emit(out);
    cut_ = false;
  }
}

void PrefixedLines::end(std::string& out) {
  if (!line_.empty()) emit(out);
}

void PrefixedLines::emit(std::string& out) {
  out += prefix_;
  out += line_;
  out += '\n';
  line_.clear();
}

void SlowWriter::write_some() {
  // A pipe that can be written to takes this much without blocking.
  const ssize_t n = write(to_, text_.data(), std::min<size_t>(text_.size(), PIPE_BUF));
  if (n > 0) text_.erase(0, size_t(n));
  if (n < 0 && errno != EINTR && errno != EAGAIN) text_.clear();
}

}  // namespace zl::cli
