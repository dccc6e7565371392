#include "tutorials/zerolab/report/page/page.h"

#include <nlohmann/json.hpp>

#include "tutorials/zerolab/report/page/embedded.h"

namespace zl::cli {

std::string page_html(const std::string& report_json) {
  nlohmann::ordered_json sources;
  for (const EmbeddedFile& file : stage_files()) sources[std::string(file.name)] = file.text;
  std::string page(page_template());
  for (const auto& [mark, json] :
       {std::pair{"{{sources}}", sources.dump()}, {"{{report}}", report_json}}) {
    // "<" occurs in strings of JSON only; "</script>" would end the script that holds it.
    std::string text;
    for (const char c : json) text += c == '<' ? "\\u003c" : std::string(1, c);
    page.replace(page.find(mark), std::string_view(mark).size(), text);
  }
  return page;
}

}  // namespace zl::cli
