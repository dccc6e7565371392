#include "tutorials/zerolab/report/page/page.h"

#include <string_view>

namespace zl::cli {

// The page without {{report}}, as the build found the files of this folder and the four stage
// files: embed_page.cmake writes the source.
std::string_view page_template();

std::string page_html(const std::string& report_json) {
  std::string page(page_template()), text;
  // "<" occurs in strings of JSON only; "</script>" would end the script that holds it.
  for (const char c : report_json) text += c == '<' ? "\\u003c" : std::string(1, c);
  const std::string_view mark = "{{report}}";
  return page.replace(page.rfind(mark), mark.size(), text);
}

}  // namespace zl::cli
