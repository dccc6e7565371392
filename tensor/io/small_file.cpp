#include "tensor/io/small_file.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "tensor/error.h"

namespace zl {

constexpr int kMostSilence = 2000;  // [ms] between two parts of a pipe's data

std::string read_small_file(const std::string& path, const SmallFile& file) {
  require_input(path.find('\0') == std::string::npos, "the name of the ", file.what,
                " has a zero byte");
  // Without O_NONBLOCK, a pipe without a writer would never open.
  struct Descriptor {
    int file;
    ~Descriptor() { close(file); }
  } in{open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)};
  const auto require_success = [&](bool success) {
    require_input(success, "the ", file.what, " ", path, " cannot be read: ", std::strerror(errno));
  };
  require_success(in.file >= 0);
  std::string text;
  for (char part[8192]; text.size() <= file.most;) {
    pollfd ready{in.file, POLLIN, 0};
    require_input(poll(&ready, 1, kMostSilence) != 0, path, " gave nothing for ",
                  kMostSilence / 1000, " seconds");
    const ssize_t n = ::read(in.file, part, sizeof part);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    require_success(n >= 0);
    if (n == 0) return text;
    text.append(part, size_t(n));
  }
  throw InputError(
      str(path, " is larger than ", file.most >> 10, " KiB: it cannot be a ", file.what));
}

using nlohmann::json;

// The library's parser keeps its state on the heap. Nothing is kept of what it reads.
void check_json(std::string_view text, const std::string& name, bool comments) try {
  using Event = json::parse_event_t;
  std::vector<std::set<std::string>> open;  // the names of each open object; an array has none
  const auto take = [&](int depth, Event event, const json& value) {
    if (event == Event::key) {
      require_input(open[size_t(depth) - 1].insert(value.get<std::string>()).second, name,
                    ": the name ", value.dump(), " occurs twice");
    } else {  // an object or an array begins
      require_input(depth < kJsonDepth, name, " is nested deeper than ", kJsonDepth, " levels");
      open.resize(size_t(depth));
      open.emplace_back();
    }
    return false;
  };
  [[maybe_unused]] const json nothing = json::parse(text, take, true, comments);
} catch (const json::parse_error& error) {
  const auto before = text.substr(0, error.byte);
  throw InputError(str(name, " is not valid JSON: error at byte ", error.byte, ", line ",
                       1 + std::ranges::count(before, '\n'),
                       error.byte > text.size() ? "; the text ends too early" : ""));
} catch (const json::out_of_range& error) {
  const std::string_view what = error.what();  // "[json.exception.…] number overflow parsing '1e9'"
  throw InputError(str(
      name, " is not valid JSON: a number is out of range: ", what.substr(what.rfind(' ') + 1)));
}

bool is_json(std::string_view text) try {
  check_json(text, "");
  return true;
} catch (const InputError&) {
  return false;
}

}  // namespace zl
