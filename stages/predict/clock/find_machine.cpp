#include "stages/predict/clock/machine.h"
#include "tensor/error.h"
#include "tensor/io/small_file.h"

namespace zl {

const std::vector<Machine>& shipped_machines() {
  static const std::vector<Machine> machines = [] {
    std::vector<Machine> all;
    for (const std::string& text : shipped_machine_texts())
      all.push_back(read_machine(text, "a shipped machine"));
    return all;
  }();
  return machines;
}

Machine find_machine(const std::string& name_or_path) {
  std::string known;
  for (const Machine& m : shipped_machines()) {
    if (m.name == name_or_path) return m;
    known += (known.empty() ? "" : ", ") + m.name;
  }
  const bool is_path = name_or_path.find_first_of("/.") != std::string::npos;
  require_input(is_path, "there is no machine '", name_or_path, "'; known are ", known,
                ". A file is given as a path, such as ./machine.json");
  return read_machine(read_small_file(name_or_path, {"machine", 16 << 20}), name_or_path);
}

}  // namespace zl
