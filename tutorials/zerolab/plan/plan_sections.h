// What plan prints behind its table on request, and adds to its JSON document.
#pragma once

#include <string>
#include <vector>

namespace zl::cli {

struct PlanSection {
  std::string key;   // in the JSON document
  std::string text;  // for people
  std::string json;  // the value of `key`
};
void add_sections(const std::vector<PlanSection>& sections, std::string& text, std::string& json);

}  // namespace zl::cli
