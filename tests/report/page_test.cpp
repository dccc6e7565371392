// Pages in a real browser, with all their controls. Skipped where there is no browser.
// The page as text: what it holds, and what its files keep to.

#include "tutorials/zerolab/report/page/page.h"

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include "tests/paths.h"
#include "tests/report/browser.h"
#include "tests/report/samples.h"
#include "tests/zerolab/command.h"
#include "tests/zerolab/process.h"

namespace report_page {
namespace {

using nlohmann::json;

void require_browser() {
  if (browser().empty())
    SKIP("there is no chromium, chromium-browser or google-chrome on PATH (apt: chromium)");
}

PageAtWidth page(const std::string& name, const std::string& report, int width = 1280) {
  return {name, zl::cli::page_html(report), width};
}

// The page with a fault that the harness must find.
PageAtWidth broken(const std::string& name, const std::string& from, const std::string& to) {
  static const std::string report =
      report_of(cli::words("train --model tiny --stage zero2 --ranks 3 --steps 20"));
  PageAtWidth one = page(name, report);
  const size_t at = one.html.find(from);
  INFO(from);
  REQUIRE(at != one.html.npos);
  one.html.replace(at, from.size(), to);
  return one;
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

TEST_CASE("the page of a comparison shows the document's numbers and has no fault in a browser",
          "[report]") {
  require_browser();
  const std::string report = sample_report();
  const Checked checked = check_in_browser({page("compare", report), page("compare", report, 390)});
  CHECK(joined(checked.findings) == "");
  REQUIRE(checked.counted != "");
  const json counts = json::parse(checked.counted);
  CHECK(counts["pages"] == 2);
  for (const char* what : {"numbers", "cells", "methods", "controls", "texts", "keys"}) {
    INFO(what);
    CHECK(counts[what] > 20);
  }
}

TEST_CASE("pages of odd runs, of failures and of training have no fault", "[report]") {
  require_browser();
  const std::string report = sample_report();
  const auto with = [](const std::string& line) { return report_of(cli::words(line)); };
  const std::string tiny = "compare --model tiny --ranks ",
                    overlap =
                        "2 --steps 3 --link-bandwidth 1GB/s --set "
                        "zero_optimization.overlap_comm=true --set "
                        "zero_optimization.stage3_prefetch_bucket_size=20000",
                    offload =
                        "2 --steps 2 --set gradient_accumulation_steps=3 --set "
                        "zero_optimization.offload_optimizer.device=cpu";
  const Checked checked = check_in_browser(
      {page("bad names", with_bad_names(report)), page("bad names", with_bad_names(report), 390),
       page("NaN", with_nan_losses(report)), page("one rank", with(tiny + "1 --steps 1")),
       page("64 ranks", with(tiny + "64 --steps 2"), 390), page("overlap", with(tiny + overlap)),
       page("offload", with(tiny + offload)), page("failed", that_failed(report)),
       page("failed at once", without_recordings(that_failed(report))),
       page("did not fit", that_did_not_fit(report)),
       page("train", with("train --model tiny --stage zero2 --ranks 2 --steps 5")),
       page("alone", with("compare --stages ddp --model tiny --ranks 2 --steps 1")),
       page("no step", without_recordings(report))});
  CHECK(joined(checked.findings) == "");
  REQUIRE(checked.counted != "");
  CHECK(json::parse(checked.counted)["pages"] == 13);
}

TEST_CASE("the browser finds a page that is broken on purpose", "[report]") {
  require_browser();
  struct Fault {
    std::string from, to, finding;
  };
  const std::vector<Fault> faults = {
      {"\"data-value\": this.value,", "\"data-value\": this.value + 1,",
       "document.peak_total_bytes"},
      {"value /= 1024;", "value /= 1000;", "but the page shows"},
      {"\nfor (const [id, build] of", "\nabsent();\nfor (const [id, build] of",
       "absent is not defined"},
      {"set(bar, \"data-state\", letters[b])", "set(bar, \"data-state\", letters[0])", "event 0"},
      {"range[0] <= i && i", "range[0] < i && i", "is not highlighted"},
      {"case \"Home\": return", "case \"Homer\": return", "Home goes to event"},
      {"#565c65", "#9a9a9a", "has a contrast of"},
      {"body {", "body { min-width: 1500px;", "pixels too wide"},
      {"</main>", "</main><img src='https://example.org/x.png'>", "refers to https://example.org"},
  };
  std::vector<PageAtWidth> pages;
  for (size_t i = 0; i < faults.size(); ++i)
    pages.push_back(broken("fault " + std::to_string(i), faults[i].from, faults[i].to));
  const Checked checked = check_in_browser(pages);
  for (size_t i = 0; i < faults.size(); ++i) {
    const std::string name = "fault " + std::to_string(i) + " ";
    INFO(name << faults[i].to << "\n" << joined(checked.findings));
    CHECK(std::ranges::any_of(checked.findings, [&](const std::string& finding) {
      return finding.starts_with(name) && cli::contains(finding, faults[i].finding);
    }));
  }
}

}  // namespace

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
  CHECK(files == 9);
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
