#include "tensor/io/small_file.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "tensor/error.h"

namespace zl {
namespace {

constexpr int kMostSilence = 2000;  // [ms] between two parts of a pipe's data

}  // namespace

std::string read_small_file(const std::string& path, const SmallFile& file) {
  require_input(path.find('\0') == std::string::npos, "the name of the ", file.what,
                " has a zero byte");
  // Without O_NONBLOCK, a pipe without a writer would never open.
  struct Descriptor {
    int file;
    ~Descriptor() { close(file); }
  } in{open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)};
  struct stat status {};
  const auto require_success = [&](bool success) {
    require_input(success, "the ", file.what, " ", path, " cannot be read: ", std::strerror(errno));
  };
  require_success(in.file >= 0 && fstat(in.file, &status) == 0);
  require_input(!S_ISDIR(status.st_mode), path, " is a folder, not a ", file.what, " file");
  std::string text;
  for (char part[8192]; text.size() <= file.most;) {
    pollfd ready{in.file, POLLIN, 0};
    require_input(S_ISREG(status.st_mode) || poll(&ready, 1, kMostSilence) != 0, path,
                  " is not a regular file, and gave nothing for ", kMostSilence / 1000, " seconds");
    const ssize_t n = ::read(in.file, part, sizeof part);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    require_success(n >= 0);
    if (n == 0) return text;
    text.append(part, size_t(n));
  }
  throw InputError(
      str(path, " is larger than ", file.most >> 10, " KiB: it cannot be a ", file.what));
}

}  // namespace zl
