// Pages in a real browser, with all their controls. Skipped where there is no browser.

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include "tests/report/browser.h"
#include "tests/report/samples.h"
#include "tests/zerolab/command.h"
#include "tutorials/zerolab/report/page/page.h"

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
  CHECK(counts["files"] == 12);  // CSV: two of memory, two of traffic, time, training; two widths
}

TEST_CASE("pages of odd runs, of failures, plans and training have no fault", "[report]") {
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
       page("plan", with("plan --model tiny --ranks 8")),
       page("train", with("train --model tiny --stage zero2 --ranks 2 --steps 5")),
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
      {"\nabout();\n", "\nabsent();\n", "absent is not defined"},
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
}  // namespace report_page
