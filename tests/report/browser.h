// A real browser without a window: what it finds wrong with a page.
#pragma once

#include <string>
#include <vector>

namespace report_page {

// The path of Chromium or Chrome, "" if there is none.
std::string browser();

struct PageAtWidth {
  std::string name;  // in findings
  std::string html;
  int width = 1280;  // [pixels] of the frame that shows it
};

// What harness.js found, one line each, and what it counted.
struct Checked {
  std::vector<std::string> findings;
  std::string counted;  // a JSON object; "" if the harness did not reach its end
};
// Loads each page, uses all its controls and checks it.
Checked check_in_browser(const std::vector<PageAtWidth>& pages);

}  // namespace report_page
