// The page as text: what it holds, and what its files keep to.

#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/report/samples.h"
#include "tests/zerolab/process.h"
#include "tutorials/zerolab/report/page/page.h"

namespace report_page {
namespace {

int64_t count(const std::string& text, const std::string& part) {
  int64_t found = 0;
  for (size_t at = 0; (at = text.find(part, at)) != text.npos; at += part.size()) ++found;
  return found;
}

// What is between <script … id="ID"> and </script>.
std::string script(const std::string& page, const std::string& id) {
  const std::string open = "id=\"" + id + "\">";
  const size_t from = page.find(open);
  REQUIRE(from != page.npos);
  return page.substr(from + open.size(), page.find("</script>", from) - from - open.size());
}

// Lines that are too long, files and functions that are too large.
std::vector<std::string> over_budget(const std::string& name, const std::string& text) {
  std::vector<std::string> found, all = cli::lines(text);
  if (all.size() > 400) found.push_back(name + " has more than 400 lines");
  for (size_t i = 0; i < all.size(); ++i) {
    const std::string where = name + ":" + std::to_string(i + 1);
    const size_t columns = size_t(std::ranges::count_if(
        all[i], [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
    if (columns > 100) found.push_back(where + " is too long");
    const size_t indent = all[i].find_first_not_of(' ');
    const bool begins = indent != std::string::npos && all[i].ends_with(") {") &&
                        (all[i].substr(indent).starts_with("function ") ||
                         (indent == 2 && !all[i].substr(indent).starts_with("for ")));
    const std::string end = begins ? std::string(indent, ' ') + "}" : "";
    for (size_t j = i; begins && j < all.size() && all[j] != end; ++j)
      if (j - i == 60) found.push_back(where + " begins a function of more than 60 lines");
  }
  return found;
}

TEST_CASE("the page holds the report that it was given, whatever its texts are", "[report]") {
  using nlohmann::json;
  const std::string plain = sample_report(), text = with_bad_names(plain);
  const std::string page = zl::cli::page_html(text);
  CHECK(json::parse(script(page, "report")) == json::parse(text));
  CHECK(json::parse(script(page, "report")) != json::parse(plain));
  CHECK(text.find("</script>") != text.npos);  // the report really has what could end its script
  const std::string harmless = zl::cli::page_html(plain);
  for (const std::string part : {"<script", "</script", "<img"})
    CHECK(count(page, part) == count(harmless, part));
  for (const std::string part : {"\u2028", "\u2029"}) CHECK(count(page, part) == 0);
}

TEST_CASE("the page holds the stage files and names nothing outside itself", "[report]") {
  const std::string page = zl::cli::page_html(sample_report());
  const auto sources = nlohmann::json::parse(script(page, "sources"));
  for (const std::string stage : {"ddp", "zero1", "zero2", "zero3"})
    CHECK(sources.at(stage) == cli::read_file(ZEROLAB_SOURCE_DIR "/stages/" + stage + ".cpp"));
  CHECK(count(page, "http") ==
        count(page, "http-equiv") + count(page, "http://www.w3.org/2000/svg"));
  CHECK(count(page, "innerHTML") == 0);
  CHECK(count(page, "{{") == count(script(page, "sources"), "{{"));  // in C++ it is an initialiser
}

TEST_CASE("the files of the page keep the budgets of source files", "[report]") {
  const std::string folder = ZEROLAB_SOURCE_DIR "/tutorials/zerolab/report/page/";
  int64_t files = 0;
  for (const std::string& name : cli::files_in(folder)) {
    if (!name.ends_with(".js") && !name.ends_with(".css") && !name.ends_with(".html")) continue;
    ++files;
    CHECK(over_budget(name, cli::read_file(folder + name)) == std::vector<std::string>());
  }
  CHECK(files > 10);
}

TEST_CASE("the budgets of the page notice a long line, file and function", "[report]") {
  CHECK(over_budget("a.js", std::string(100, 'x')).empty());
  CHECK(over_budget("a.js", std::string(101, 'x')).size() == 1);
  std::string lines;
  for (int i = 0; i < 59; ++i) lines += "  x();\n";
  CHECK(over_budget("a.js", "function f(a) {\n" + lines + "}\n").empty());
  CHECK(over_budget("a.js", "function f(a) {\n" + lines + "  x();\n}\n").size() == 1);
  for (int i = 0; i < 342; ++i) lines += "x();\n";
  CHECK(over_budget("a.js", lines).size() == 1);
}

}  // namespace
}  // namespace report_page
