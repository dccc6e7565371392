#include "tests/zerolab/checkpoint_run.h"

#include <signal.h>

#include <nlohmann/json.hpp>

namespace cli {

Flags operator+(Flags a, const Flags& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

Flags tiny_run(int steps, const Flags& more) {
  return Flags{"train", "--model", "tiny", "--sample", "0", "--steps", std::to_string(steps)} +
         more;
}
Finished train(int steps, const Flags& more) {
  return zerolab(tiny_run(steps, more) + Flags{"-q"});
}

Finished stopped_at(const std::string& text, int signal, const Flags& arguments) {
  Launch launch{.arguments = arguments, .timeout = 30};
  launch.watch = [text, signal, sent = false](pid_t process, const std::string& err) mutable {
    if (sent || !contains(err, text)) return;
    sent = true;
    kill(process, signal);
  };
  return run(launch);
}

std::vector<std::string> metrics_of(const std::string& folder) {
  std::vector<std::string> steps;
  for (const std::string& line : lines(read_file(folder + "/metrics.jsonl"))) {
    auto step = nlohmann::ordered_json::parse(line);
    step.erase("seconds");
    steps.push_back(step.dump());
  }
  return steps;
}
std::string weights_of(const std::string& folder) {
  return read_file(folder + "/model.safetensors");
}

std::vector<std::string> checkpoints_in(const std::string& folder) {
  std::vector<std::string> steps;
  for (const std::string& name : files_in(folder))
    if (name.starts_with("step-")) steps.push_back(name);
  return steps;
}

}  // namespace cli
