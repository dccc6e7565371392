// zerolab report: the page of a run that has ended, was killed, or still runs.

#include <cstdio>
#include <filesystem>

#include "tensor/io/small_file.h"
#include "tutorials/zerolab/cli/printable.h"
#include "tutorials/zerolab/report/run_page.h"

namespace zl::cli {
namespace {

namespace fs = std::filesystem;

struct ReportCommand {
  std::string folder;
  bool json = false;
};

int report(const ReportCommand& command) {
  const std::string& folder = command.folder;
  if (folder.empty()) throw UsageError("which folder? write: zerolab report DIR");
  const std::string path = (fs::path(folder) / "report.json").string();
  std::error_code error;
  require_input(fs::exists(path, error), "'", folder,
                fs::is_directory(folder, error) ? "' has no report.json" : "' is no folder",
                "; compare, train and plan write report.json with --out DIR, train after its "
                "second step");
  const std::string document =
      continued_report(read_small_file(path, {"report", 1 << 30}), path, metrics_lines(folder));
  if (command.json) {
    std::fputs(document.c_str(), stdout);
    return kFine;
  }
  const TextFile page = report_files(folder, document)[1];
  write_files({page}, Existing::replace);
  std::printf("Files: %s\n", printable(page.path).c_str());
  return kFine;
}

constexpr const char* kReportFooter =
    R"(compare, train and plan write report.json and report.html with --out DIR. The page shows what
was compared, plays one recorded step of each stage, and draws memory, traffic, time and training.
It is one file and needs no network, so it can be copied.
'report DIR' makes DIR/report.html again from DIR/report.json. In a folder of train it also takes
the newer lines of metrics.jsonl, so that a run that was killed, or still runs, has its page too.

Examples:
  zerolab compare --model tiny --ranks 3 --out runs/a
  zerolab report runs/a
  zerolab report runs/a --json

Exit codes: 0 fine, 2 no folder or no usable report.json, 70 unforeseen,
            74 the page could not be written)";

}  // namespace

void add_report(CLI::App& app, Invocation& invocation) {
  static ReportCommand command;
  Flags flags(app, invocation, "report", "the page of a finished, failed or killed run of --out",
              [] { return report(command); });
  flags.name("DIR", "", "folder of --out of compare, train or plan", command.folder);
  flags.toggle("--json", "print the data of the page instead of writing it", command.json);
  flags.footer(kReportFooter);
}

}  // namespace zl::cli
