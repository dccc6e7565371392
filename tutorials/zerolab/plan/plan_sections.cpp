#include "tutorials/zerolab/plan/plan_sections.h"

#include <nlohmann/json.hpp>

#include "tutorials/zerolab/cli/json_output.h"

namespace zl::cli {

void add_sections(const std::vector<PlanSection>& sections, std::string& text, std::string& json) {
  if (sections.empty()) return;
  auto document = nlohmann::ordered_json::parse(json);
  for (const PlanSection& s : sections) {
    text += "\n" + s.text;
    document[s.key] = nlohmann::ordered_json::parse(s.json);
  }
  json = json_text(document);
}

}  // namespace zl::cli
