// zerolab exercise pack: an archive of this source tree, for students without the answers.

#include <fnmatch.h>
#include <sys/utsname.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>

#include "tensor/io/small_file.h"
#include "tutorials/exercises/grader/child_process.h"
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
    R"(Packs the source tree from which this zerolab was built, without Git's history, builds and
hidden files, and Catch2, which the judge needs. Solutions, tests and pages that print solutions are
left out, as the end of the archive's README.md says; files to complete replace the stages, so that
the tree builds.

  zerolab exercise pack course.tar.gz
  zerolab exercise pack teachers.tar.gz --with-solutions)";

// Everything of the tree that students get, before kChanges; and what teachers get, too.
constexpr const char* kParts[] = {
    ".clang-format", ".gitignore", "CMakeLists.txt", "CMakePresets.json",
    "LICENSE",       "zl",         "autograd",       "cmake",
    "dist",          "nn",         "optim",          "stages",
    "tensor",        "tutorials"};
constexpr const char* kTeachersParts[] = {"README.md",    "CONTRIBUTING.md",        "CHANGELOG.md",
                                          "CITATION.cff", "THIRD_PARTY_NOTICES.md", "tests"};
// Students get no files with other names, such as backups and archives.
const std::set<std::string> kPackedExtensions = {".h",     ".cpp",  ".cu",  ".cmake", ".in",
                                                 ".md",    ".py",   ".txt", ".csv",   ".json",
                                                 ".slurm", ".html", ".js",  ".css",   ".svg"};

// The only differences between the teacher's tree and the student's: files that replace others, and
// what is left out; * is any part of a name.
using Pairs = std::vector<std::pair<std::string, std::string>>;
const Pairs kReplaced = {{"README.md", "tutorials/exercises/student.md"},
                         {"AGENTS.md", "tutorials/exercises/tutor.md"},
                         {"stages/zero1.cpp", "tutorials/exercises/05_zero1/start.cpp"},
                         {"stages/zero2.cpp", "tutorials/exercises/06_zero2/start.cpp"},
                         {"stages/zero3.cpp", "tutorials/exercises/07_zero3/start.cpp"}};
const Pairs kLeftOut = {{"stages/variants/[hz]*", "solve exercise 07"},
                        {"tutorials/04_*", "the lesson's ring solves exercise 03"},
                        {"tutorials/0[678]_*", "the lessons print zero1.cpp to zero3.cpp"},
                        {"tutorials/own_stage.cpp", "solves exercise 07"},
                        {"tutorials/docs.*", "make pages of the whole tree"},
                        {"tutorials/README.md", "its tour leads through the solutions"},
                        {"tutorials/gdb/README.md", "its example prints a line of zero1.cpp"},
                        {"tutorials/exercises/README.md", "the teacher's guide"},
                        {"tutorials/exercises/instructor.md", "the teacher's guide"},
                        {"tutorials/exercises/student.md", "is README.md now"},
                        {"tests/", "the tests of zerolab hold solutions"},
                        {"CONTRIBUTING.md", "for developers of zerolab"}};
const std::pair<std::string, std::string> kHints = {"tutorials/exercises/*/hints.md",
                                                    "the teacher keeps them"};

struct PackCommand {
  std::string out;
  bool force = false, no_hints = false, with_solutions = false;
  Pairs replaced = {}, left_out = {};
};

// The files of one archive, which are put into a folder first.
class Staging {
 public:
  Staging(const PackCommand& command, const exercises::Toolchain& toolchain)
      : command_(command), toolchain_(toolchain), source_(toolchain.source) {
    for (const char* part : kParts) put_part(source_ / part);
    if (command.with_solutions)
      for (const char* part : kTeachersParts) put_part(source_ / part);
    for (const auto& made : fs::directory_iterator(toolchain.exercises))  // of solutions
      if (!command.with_solutions && fs::exists(made.path() / "start.cpp") &&
          fs::exists(source_ / "tutorials/exercises" / made.path().filename()))
        put(made.path() / "start.cpp",
            "tutorials/exercises" / made.path().filename() / "start.cpp");
    for (const auto& [path, by] : command.replaced)
      put((fs::exists(tree_ / by) ? tree_ : source_) / by, path);
    if (!command.with_solutions) list_what_is_left_out();
    put_catch2();
  }
  const std::string& folder() const { return folder_.path(); }
  int64_t files() const {
    return std::ranges::count_if(fs::recursive_directory_iterator(tree_),
                                 [](const auto& entry) { return entry.is_regular_file(); });
  }

 private:
  // A file, or a folder with all that is in it.
  void put(const fs::path& from, const fs::path& to) const {
    fs::create_directories((tree_ / to).parent_path());
    fs::copy(from, tree_ / to, fs::copy_options::recursive | fs::copy_options::overwrite_existing);
  }

  // A file or a folder, without what is left out or replaced.
  void put_part(const fs::path& part) {
    require_input(fs::exists(part), "there is no ", part.string());
    if (!fs::is_directory(part)) return put_unchanged(part);
    for (const auto& entry : fs::recursive_directory_iterator(part)) {
      const fs::path& path = entry.path();
      if (entry.is_regular_file() && !entry.is_symlink() &&
          !path.filename().string().starts_with(".") &&
          (command_.with_solutions || kPackedExtensions.contains(path.extension())))
        put_unchanged(path);
    }
  }
  void put_unchanged(const fs::path& path) {
    const std::string relative = path.lexically_relative(source_);
    const auto names_it = [&](const auto& change) {
      return fnmatch(change.first.c_str(), relative.c_str(), 0) == 0;
    };
    if (std::ranges::none_of(command_.replaced, names_it) &&
        std::ranges::none_of(command_.left_out, names_it))
      put(path, relative);
  }

  // At the end of the student's README.md.
  void list_what_is_left_out() {
    std::ofstream readme(tree_ / "README.md", std::ios::app);
    readme << "\n## What this archive leaves out\n\n"
              "Pages, comments and `./zl help` also speak to people who have the whole tree. They "
              "name files that are not here:\n\n| left out | because |\n|---|---|\n";
    for (const auto& [path, reason] : command_.left_out)
      readme << "| `" << path << "` | " << reason << " |\n";
    readme << std::flush;
    if (!readme) throw OutputError(str("'", (tree_ / "README.md").string(), "' cannot be written"));
  }

  // zl finds it in deps; a library for another processor is not used.
  void put_catch2() {
    if (toolchain_.catch2.empty()) return;
    const fs::path library = toolchain_.catch2[0], to = "deps/catch2";
    utsname machine{};
    uname(&machine);
    put(library, to / "lib" / machine.machine / library.filename());
    for (size_t i = 1; i < toolchain_.catch2.size(); ++i)
      put(fs::path(toolchain_.catch2[i]) / "catch2", to / "include/catch2");
    put(source_ / "tutorials/exercises/catch2", to / "lib/cmake/Catch2");
  }

  const PackCommand& command_;
  const exercises::Toolchain& toolchain_;
  const fs::path source_;
  const exercises::TemporaryFolder folder_;
  const fs::path tree_ = fs::path(folder_.path()) / "zerolab";
};

// "zerolab" of the folder as an archive.
std::string compressed(const std::string& folder) {
  const std::string archive = folder + "/archive";
  const exercises::ChildLimits limits{
      .time = std::chrono::minutes(5), .file = 1 << 30, .interrupted = interrupt_requested};
  // A fixed date, 2020-01-01: a ustar archive keeps nothing else of this machine or user.
  const exercises::ChildEnd end = exercises::run_child(
      {"tar", "--create", "--force-local", "--file", archive, "--format=ustar", "--sort=name",
       "--use-compress-program=gzip -n -9", "--owner=0", "--group=0", "--numeric-owner",
       "--mtime=@1577836800", "--mode=u=rwX,go=rX", "--directory", folder, "zerolab"},
      limits);
  if (end.failed()) throw OutputError("the archive cannot be made: tar says: " + end.output);
  return read_small_file(archive, {"archive", 1 << 30});
}

int pack(PackCommand command) {
  const exercises::Toolchain toolchain = exercises::find_toolchain();
  require_input(!toolchain.source.empty(),
                "this zerolab is installed; an archive is made from the source tree: ./zl exercise "
                "pack ",
                command.out);
  require_input(fs::exists(toolchain.source + "/tests"), toolchain.source,
                " is a student's tree already; pack the teacher's");
  if (!command.with_solutions) command.replaced = kReplaced, command.left_out = kLeftOut;
  if (command.no_hints) command.left_out.push_back(kHints);
  const OutputFile out(command.out, "", command.force);
  const Staging staging(command, toolchain);
  out.write_text(compressed(staging.folder()));
  std::printf("%s: %s, %s\n", printable(command.out).c_str(),
              plural(staging.files(), "file").c_str(),
              human_bytes(int64_t(fs::file_size(command.out))).c_str());
  if (toolchain.catch2.empty())
    std::puts("Catch2, which the judge needs, is not here; students must install 3.4 or newer");
  return kFine;
}

}  // namespace

void add_exercise_pack(CLI::App& exercise, Invocation& invocation) {
  auto command = std::make_shared<PackCommand>();
  Flags flags(exercise, invocation, "pack", "an archive of this source tree for students",
              [command] { return pack(*command); });
  flags.name("OUT.tar.gz", "", "the file to write", command->out);
  flags.toggle("--no-hints", "leave the hints out: the last ones nearly give the answer",
               command->no_hints);
  flags.toggle("--with-solutions", "for teachers: the whole tree, with solutions and tests",
               command->with_solutions);
  flags.toggle("--force", "replace OUT.tar.gz if it exists", command->force);
  flags.required("OUT.tar.gz");
  flags.excludes("--no-hints", "--with-solutions");
  flags.footer(kExercisePackFooter);
}

}  // namespace zl::cli
