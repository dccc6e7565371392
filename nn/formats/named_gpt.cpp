#include "nn/formats/named_gpt.h"

#include <utility>

namespace zl {

namespace {
constexpr std::pair<const char*, GptConfig> kNamed[] = {
    {"tiny", {2, 2, 32, 32, 256}},
    {"small", {4, 4, 128, 128, 256}},
    {"gpt2", {12, 12, 768, 1024, 50257}},
    {"gpt2-medium", {24, 16, 1024, 1024, 50257}},
    {"gpt2-large", {36, 20, 1280, 1024, 50257}},
    {"gpt2-xl", {48, 25, 1600, 1024, 50257}},
};
}  // namespace

std::vector<std::string> gpt_names() {
  std::vector<std::string> names;
  for (const auto& [name, config] : kNamed) names.emplace_back(name);
  return names;
}

GptConfig named_gpt(const std::string& name) {
  std::string known;
  for (const auto& [each, config] : kNamed) {
    if (name == each) return config;
    known += str(known.empty() ? "" : ", ", each);
  }
  throw InputError(str("there is no model '", name, "'; known are ", known));
}

}  // namespace zl
