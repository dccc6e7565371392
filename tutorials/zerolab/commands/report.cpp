// zerolab report: the page of a run that has ended, was killed, or still runs.

#include <cstdio>
#include <filesystem>

#include "tutorials/zerolab/cli/printable.h"
#include "tutorials/zerolab/report/run_page.h"

namespace zl::cli {
namespace {

namespace fs = std::filesystem;

int report(const std::string& folder, bool json) {
  const std::string path = (fs::path(folder) / "report.json").string();
  std::error_code error;
  require_input(fs::exists(path, error), "'", folder,
                fs::is_directory(folder, error) ? "' has no report.json" : "' is no folder",
                "; compare and train write report.json with --out DIR, train after its "
                "second step");
  const std::string document = continued_report(folder);
  if (json) return std::fputs(document.c_str(), stdout), kFine;
  const TextFile page = report_files(folder, document)[1];
  write_files({page}, Existing::replace);
  std::printf("Files: %s\n", printable(page.path).c_str());
  return kFine;
}

constexpr const char* kReportFooter =
    R"(compare and train write report.json and report.html with --out DIR. 'report DIR' makes
DIR/report.html again from DIR/report.json, and in a folder of train from newer lines of
metrics.jsonl. The page is one file and needs no network, so it can be copied.

  zerolab compare --model tiny --ranks 3 --out runs/a && zerolab report runs/a

Exit codes: 0 fine, 2 no folder or no usable report.json, 70 unforeseen,
            74 the page could not be written)";

}  // namespace

void add_report(CLI::App& app, Invocation& invocation) {
  static std::string folder;
  static bool json = false;
  Flags flags(app, invocation, "report", "the page of a finished, failed or killed run of --out",
              [] { return report(folder, json); });
  flags.name("DIR", "", "folder of --out of compare or train", folder);
  flags.required("DIR");
  flags.toggle("--json", "print the data of the page instead of writing it", json);
  flags.footer(kReportFooter);
}

}  // namespace zl::cli
