#include "dist/trace/host_id.h"

#include <unistd.h>

#include <array>
#include <fstream>

namespace zl {

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "?";
}

std::string boot_id() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id;
}

std::string machine_id() { return host_name() + " " + boot_id(); }

}  // namespace zl
