// The bytes of a configuration file, whatever the name stands for.

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "stages/deepspeed/config_reader.h"
#include "tensor/error.h"

namespace zl {
namespace {

constexpr size_t kMostBytes = 256 << 10;  // real ones have a few KiB
constexpr int kPatience = 2000;           // [ms] for each part of what a pipe or a device gives

class Descriptor {
 public:
  // Without waiting: a pipe into which nobody writes would never open.
  explicit Descriptor(const std::string& name)
      : file(open(name.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)) {}
  ~Descriptor() {
    if (file >= 0) close(file);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  const int file;
};

// Whether there is something to read, or the end.
bool is_ready(int file) {
  pollfd asked{file, POLLIN, 0};
  int ready = 0;
  while ((ready = poll(&asked, 1, kPatience)) < 0 && errno == EINTR) {
  }
  return ready > 0;
}

}  // namespace

std::string read_config_file(const std::string& name) {
  const auto require_read = [&](bool done) {
    require_input(done, "the configuration ", name, " cannot be read: ", std::strerror(errno));
  };
  require_input(name.find('\0') == std::string::npos, "the configuration's name holds a zero byte");
  const Descriptor in(name);
  require_read(in.file >= 0);
  struct stat status {};
  require_read(fstat(in.file, &status) == 0);
  require_input(!S_ISDIR(status.st_mode), name, " is a folder, not a configuration file");
  std::string text;
  for (char part[8192]; text.size() <= kMostBytes;) {
    require_input(S_ISREG(status.st_mode) || is_ready(in.file), name,
                  " is no regular file, and gave nothing for ", kPatience / 1000, " seconds");
    const ssize_t n = read(in.file, part, sizeof part);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    require_read(n >= 0);
    if (n == 0) break;
    text.append(part, size_t(n));
  }
  require_input(text.size() <= kMostBytes, name,
                " is larger than 256 KiB, which no configuration is: is it another file?");
  return text;
}

}  // namespace zl
