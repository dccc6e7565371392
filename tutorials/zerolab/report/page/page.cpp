#include "tutorials/zerolab/report/page/page.h"

#include <nlohmann/json.hpp>

#include "tensor/error.h"
#include "tutorials/zerolab/report/page/embedded.h"

namespace zl::cli {
namespace {

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = 0; (at = text.find(from, at)) != text.npos; at += to.size())
    text.replace(at, from.size(), to);
}

// JSON that may be written between <script> and </script>: "<" occurs in its strings only.
std::string in_script(std::string json) {
  replace_all(json, "<", "\\u003c");
  replace_all(json, "\u2028", "\\u2028");
  replace_all(json, "\u2029", "\\u2029");
  return json;
}

std::string stage_sources() {
  nlohmann::ordered_json all = nlohmann::ordered_json::object();
  for (const EmbeddedFile& file : stage_files())
    all[std::string(file.name.substr(0, file.name.find('.')))] = file.text;
  return all.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// What replaces {{name}} in page.html.
std::string part(std::string_view name, const std::string& report_json) {
  if (name == "report") return in_script(report_json);
  if (name == "sources") return in_script(stage_sources());
  for (const EmbeddedFile& file : page_files())
    if (file.name == name) return std::string(file.text);
  throw std::logic_error(str("page.html names a part that does not exist: ", name));
}

}  // namespace

std::string page_html(const std::string& report_json) {
  const std::string frame = part("page.html", report_json);
  std::string page;
  for (size_t at = 0; at < frame.size();) {
    const size_t open = std::min(frame.find("{{", at), frame.size());
    page += frame.substr(at, open - at);
    if (open == frame.size()) break;
    const size_t close = frame.find("}}", open);
    require(close != frame.npos, "page.html has {{ without }}");
    page += part(frame.substr(open + 2, close - open - 2), report_json);
    at = close + 2;
  }
  return page;
}

}  // namespace zl::cli
