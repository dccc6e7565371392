// Whether a report.json holds what the page reads: a file may be damaged, or edited by hand.
#pragma once

#include <string>

namespace zl::cli {

// Both take valid JSON, and throw InputError that names `path` and what is wrong. The first takes
// an object.
void require_report(const std::string& report_json, const std::string& path);
// The rows of a curve: objects with "step" and numbers.
void require_rows(const std::string& rows_json, const std::string& path);

}  // namespace zl::cli
