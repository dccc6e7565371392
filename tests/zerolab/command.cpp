#include "tests/zerolab/command.h"

#include <signal.h>

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

namespace cli {

Words words(const std::string& line) {
  Words all;
  bool quoted = false, within = false;
  for (const char c : line) {
    if (c == '\'') quoted = !quoted;
    const bool blank = c == ' ' && !quoted;
    if (!blank && !within) all.emplace_back();
    within = !blank;
    if (!blank && c != '\'') all.back() += c;
  }
  return all;
}

Finished call(const std::string& line) { return zerolab(words(line)); }

std::string document(const std::string& line) {
  const Finished finished = call(line + " --json");
  CAPTURE(line, finished.err);
  REQUIRE(finished.code == 0);
  return finished.out;
}

Finished stopped_at(const std::string& text, int signal, const std::string& line) {
  Launch launch{.arguments = words(line), .timeout = 60};
  launch.watch = [text, signal, sent = false](pid_t process, const std::string& err) mutable {
    if (sent || !contains(err, text)) return;
    sent = true;
    kill(process, signal);
  };
  return run(launch);
}

void check_says(const std::string& text, std::initializer_list<std::string> parts) {
  for (const std::string& part : parts) {
    CAPTURE(text, part);
    CHECK(contains(text, part));
  }
}

void check_refused(const Finished& finished, const std::string& part, int code) {
  CAPTURE(finished.err, part);
  CHECK(finished.code == code);
  CHECK(finished.out.empty());
  CHECK(contains(finished.err, part));
}

std::vector<std::string> keys(const std::string& object) {
  std::vector<std::string> names;
  const auto parsed = nlohmann::ordered_json::parse(object);
  for (const auto& item : parsed.items()) names.push_back(item.key());
  return names;
}

std::vector<std::string> starting(const std::string& text, const std::string& begin) {
  std::vector<std::string> found;
  for (const std::string& line : lines(text))
    if (line.starts_with(begin)) found.push_back(line);
  return found;
}

size_t count(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++n;
  return n;
}

std::string tiny_run(int steps, const std::string& more) {
  return "train --model tiny --sample 0 --steps " + std::to_string(steps) + " " + more;
}
Finished train(int steps, const std::string& more) { return call(tiny_run(steps, more) + " -q"); }

std::string report_in(const std::string& folder) { return read_file(folder + "/report.json"); }

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

Words checkpoints_in(const std::string& folder) {
  Words steps;
  for (const std::string& name : files_in(folder))
    if (name.starts_with("step-")) steps.push_back(name);
  return steps;
}

}  // namespace cli
