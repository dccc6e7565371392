// The page of a run: one file with its own styles, scripts and data, which loads nothing.
#pragma once

#include <string>

namespace zl::cli {

// report.html for a report.json of schema 1, which must be valid JSON: the page reads it in the
// browser. No text in it can end the script that holds it.
std::string page_html(const std::string& report_json);

}  // namespace zl::cli
