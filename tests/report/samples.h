// Texts of report.json to make pages of: those of real runs, and what can go wrong with them.
#pragma once

#include <string>
#include <vector>

namespace report_page {

// What `zerolab ARGUMENTS --out DIR` writes. Checks that its page is made from it, and that it
// holds compare.json.
std::string report_of(std::vector<std::string> arguments);
// That of compare --model tiny --ranks 3 --steps 20. One run for all tests.
std::string sample_report();

// Each returns a changed copy.
std::string with_bad_names(const std::string& report);    // quotes, tags, escape codes
std::string with_nan_losses(const std::string& report);   // of steps 2 and 3
std::string that_failed(const std::string& report);       // in zero2: no document
std::string that_did_not_fit(const std::string& report);  // ddp ran out of memory
std::string without_recordings(const std::string& report);

}  // namespace report_page
