// zerolab exercise pack: an archive of this source tree for students, without the answers.

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>

#include "tutorials/exercises/grader/child_process.h"
#include "tutorials/exercises/grader/temporary_folder.h"
#include "tutorials/zerolab/cli/flags.h"
#include "tutorials/zerolab/cli/interrupt.h"
#include "tutorials/zerolab/cli/number_text.h"
#include "tutorials/zerolab/cli/output_file.h"
#include "tutorials/zerolab/cli/printable.h"
#include "tutorials/zerolab/commands/exercise.h"

namespace zl::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kExercisePackFooter =
    R"(Packs the source tree from which this zerolab was built into one archive, whose top folder is
zerolab. Solutions, variants of the stages and pages that print them are left out; stages/zero1.cpp,
zero2.cpp and zero3.cpp are replaced by the files that students complete, so that the tree builds.
Git's history, tests, builds and hidden files are left out too. The archive's README.md ends with a
list of what is left out, because other pages name these files. The same tree always gives the same
bytes. GNU tar and gzip do the packing.

  zerolab exercise pack course.tar.gz
  zerolab exercise pack course.tar.gz --no-hints

Exit codes: 0 fine, 2 usage, or the file exists, 74 the file could not be written)";

// Everything of the tree that students get, before kChanges.
constexpr const char* kParts[] = {
    ".clang-format", ".gitignore", "CMakeLists.txt", "CMakePresets.json",
    "LICENSE",       "zl",         "autograd",       "cmake",
    "dist",          "nn",         "optim",          "stages",
    "tensor",        "tutorials"};
// Files with other names, such as backups and archives, stay here.
const std::set<std::string> kPackedExtensions = {".h",    ".cpp", ".cu",  ".cmake", ".in",
                                                 ".md",   ".py",  ".txt", ".csv",   ".json",
                                                 ".html", ".js",  ".css", ".svg"};

// The only differences between the teacher's tree and the student's.
struct Change {
  const char* path;  // a file, a folder, or the beginning of files' names
  const char* by;    // the file that replaces it, or nullptr: it is left out
  const char* reason;
};
constexpr Change kChanges[] = {
    {"README.md", "tutorials/exercises/student.md", "the first page of a student"},
    {"stages/zero1.cpp", "tutorials/exercises/05_zero1/start.cpp", "solves exercise 05"},
    {"stages/zero2.cpp", "tutorials/exercises/06_zero2/start.cpp", "solves exercise 06"},
    {"stages/zero3.cpp", "tutorials/exercises/07_zero3/start.cpp", "solves exercise 07"},
    {"stages/variants/hsdp.cpp", nullptr, "solves exercise 07"},
    {"stages/variants/zero3_", nullptr, "solve exercise 07"},
    {"tutorials/04_", nullptr, "the lesson's ring solves exercise 03"},
    {"tutorials/06_", nullptr, "the lesson prints zero1.cpp"},
    {"tutorials/07_", nullptr, "the lesson prints zero2.cpp"},
    {"tutorials/08_", nullptr, "the lesson prints zero3.cpp"},
    {"tutorials/own_stage.cpp", nullptr, "solves exercise 07"},
    {"tutorials/reference/own_stage.md", nullptr, "explains a file that is left out"},
    {"tutorials/README.md", nullptr, "its tour leads through the solutions"},
    {"tutorials/gdb/README.md", nullptr, "its example prints a line of zero1.cpp"},
    {"tutorials/exercises/README.md", nullptr, "the teacher's guide"},
    {"tutorials/exercises/student.md", nullptr, "is README.md now"},
};

// What is not in kParts, but is named by pages, comments and zl.
constexpr Change kNotPacked[] = {
    {"tests/", nullptr, "the tests of zerolab hold solutions"},
    {"CONTRIBUTING.md", nullptr, "for developers of zerolab"},
};
constexpr Change kNoHints = {"tutorials/exercises/*/hints.md", nullptr, "the teacher keeps them"};

const Change* change_of(const std::string& path) {
  for (const Change& change : kChanges)
    if (path.starts_with(change.path)) return &change;
  return nullptr;
}

struct PackCommand {
  std::string out;
  bool force = false, no_hints = false;
};

// In the order in which they are listed.
std::vector<Change> changes(const PackCommand& command) {
  std::vector<Change> all(std::begin(kChanges), std::end(kChanges));
  all.insert(all.end(), std::begin(kNotPacked), std::end(kNotPacked));
  if (command.no_hints) all.push_back(kNoHints);
  return all;
}

void put(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::create_directories(to.parent_path(), error);
  if (!error) fs::copy_file(from, to, error);
  if (error)
    throw OutputError(
        str("'", from.string(), "' cannot be copied to '", to.string(), "': ", error.message()));
}

bool is_source(const fs::path& path) {
  return kPackedExtensions.contains(path.extension().string()) &&
         !path.filename().string().starts_with(".");
}

// The paths of the files that are copied unchanged, relative to `source`.
std::vector<std::string> unchanged_files(const fs::path& source, bool hints) {
  std::vector<std::string> all;
  const auto add = [&](const fs::path& path) {
    const std::string relative = path.lexically_relative(source).string();
    if (change_of(relative) == nullptr && (hints || path.filename() != "hints.md"))
      all.push_back(relative);
  };
  for (const char* part : kParts) {
    std::error_code error;
    if (!fs::is_directory(source / part, error)) {
      require_input(fs::exists(source / part, error), "there is no ", (source / part).string());
      add(source / part);
      continue;
    }
    for (const auto& entry : fs::recursive_directory_iterator(source / part))
      if (entry.is_regular_file() && !entry.is_symlink() && is_source(entry.path()))
        add(entry.path());
  }
  return all;
}

// "tutorials/04_*": a beginning of names is a pattern.
std::string shown_path(const Change& change) {
  return std::string(change.path) + (std::string_view(change.path).ends_with('_') ? "*" : "");
}

// The end of the student's README.md.
std::string left_out_page(const PackCommand& command) {
  std::string page =
      "\n## What this archive leaves out\n\n"
      "Pages, comments and `./zl help` also speak to people who have the whole tree. They name "
      "files that are not here:\n\n| left out | because |\n|---|---|\n";
  for (const Change& change : changes(command))
    if (change.by == nullptr) page += str("| `", shown_path(change), "` | ", change.reason, " |\n");
  return page;
}

size_t stage(const PackCommand& command, const fs::path& source, const fs::path& tree) {
  const std::vector<std::string> files = unchanged_files(source, !command.no_hints);
  for (const std::string& file : files) put(source / file, tree / file);
  size_t count = files.size();
  for (const Change& change : kChanges)
    if (change.by != nullptr) put(source / change.by, tree / change.path), ++count;
  std::ofstream readme(tree / "README.md", std::ios::app);
  readme << left_out_page(command) << std::flush;
  if (!readme) throw OutputError(str("'", (tree / "README.md").string(), "' cannot be written"));
  return count;
}

void compress(const std::string& folder, const std::string& archive) {
  const exercises::ChildLimits limits{
      .time = std::chrono::minutes(5), .file = 1 << 30, .interrupted = interrupt_requested};
  // A fixed date, 2020-01-01: a ustar archive keeps nothing else of this machine or user.
  const exercises::ChildEnd end = exercises::run_child(
      {"tar", "--create", "--force-local", "--file", archive, "--format=ustar", "--sort=name",
       "--use-compress-program=gzip -n -9", "--owner=0", "--group=0", "--numeric-owner",
       "--mtime=@1577836800", "--mode=u=rwX,go=rX", "--directory", folder, "zerolab"},
      limits);
  if (end.failed())
    throw OutputError(str("'", archive, "' cannot be written: tar says: ", end.output));
}

int pack(const PackCommand& command) {
  if (command.out.empty()) throw UsageError("which file? write: zerolab exercise pack OUT.tar.gz");
  const fs::path source = exercises::find_toolchain().source;
  require_input(!source.empty(),
                "this zerolab is installed; an archive is made from the source "
                "tree: ./zl exercise pack ",
                command.out);
  require_input(fs::exists(source / "tests"), source.string(),
                " is a student's tree already; pack the teacher's");
  OutputFile out(command.out, "", command.force);
  const exercises::TemporaryFolder staging;
  const size_t files = stage(command, source, fs::path(staging.path()) / "zerolab");
  out.write([&](const std::string& temporary) { compress(staging.path(), temporary); });
  out.commit();
  std::printf("%s: %zu files, %s\n", printable(command.out).c_str(), files,
              human_bytes(int64_t(fs::file_size(command.out))).c_str());
  for (const Change& change : changes(command))
    std::printf("  %-9s %-31s %s\n", change.by != nullptr ? "replaced" : "left out",
                shown_path(change).c_str(), change.reason);
  return kFine;
}

}  // namespace

void add_exercise_pack(CLI::App& exercise, Invocation& invocation) {
  auto command = std::make_shared<PackCommand>();
  Flags flags(exercise, invocation, "pack", "a student's archive of this source tree",
              [command] { return pack(*command); });
  flags.name("OUT.tar.gz", "", "the file to write", command->out);
  flags.toggle("--no-hints", "leave the hints out: the last ones nearly give the answer",
               command->no_hints);
  flags.toggle("--force", "replace OUT.tar.gz if it exists", command->force);
  flags.footer(kExercisePackFooter);
}

}  // namespace zl::cli
