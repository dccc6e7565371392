// zerolab exercise pack: an archive for students that holds no solution, and whose tree builds.

#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <map>
#include <regex>
#include <set>

#include "tests/paths.h"
#include "tests/zerolab/command.h"

namespace cli {
namespace {

namespace fs = std::filesystem;

const std::string kSource = ZEROLAB_SOURCE_DIR;

// Content by path below `tree`.
std::map<std::string, std::string> files_below(const std::string& tree) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(tree))
    if (entry.is_regular_file())
      files[entry.path().lexically_relative(tree).string()] = read_file(entry.path());
  return files;
}

std::set<std::string> trimmed_lines(const std::string& text) {
  std::set<std::string> all;
  for (const std::string& line : lines(text)) {
    const size_t begin = line.find_first_not_of(" ");
    if (begin != std::string::npos) all.insert(line.substr(begin));
  }
  return all;
}

std::vector<fs::path> matching(const std::string& folder, const std::regex& name) {
  std::vector<fs::path> found;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (std::regex_match(entry.path().string(), name)) found.push_back(entry.path());
  return found;
}

// Lines of solutions that tell something: long ones that no file to start from has.
std::set<std::string> telltales() {
  std::set<std::string> given = trimmed_lines(read_file(kSource + "/stages/ddp.cpp")), all;
  const fs::path built = fs::path(ZEROLAB_BINARY).parent_path() / "exercises";
  for (const auto& file : matching(built.string(), std::regex(".*/[0-9][0-9]_[^/]*/start.cpp")))
    given.merge(trimmed_lines(read_file(file)));
  std::vector<fs::path> solutions =
      matching(kSource + "/tests/exercises/right", std::regex(".*\\.cpp"));
  for (const char* name : {"stages/zero1.cpp", "stages/zero2.cpp", "stages/zero3.cpp",
                           "tutorials/04_all_reduce_by_hand.h"})
    solutions.push_back(kSource + "/" + name);
  for (const fs::path& solution : solutions)
    for (const std::string& line : trimmed_lines(read_file(solution)))
      if (line.size() >= 30 && !line.starts_with("//") && !line.starts_with("#") &&
          !line.starts_with("for (") && !given.contains(line))
        all.insert(line);
  return all;
}

// "stages/zero2.cpp: …" for each line that tells. Hints may quote lines; the library, which is
// older than the exercises, has its own.
std::vector<std::string> told(const std::map<std::string, std::string>& files,
                              const std::set<std::string>& telling) {
  static const std::regex exempt("(tensor|autograd|nn|optim|dist)/.*|.*/hints\\.md");
  std::vector<std::string> found;
  for (const auto& [path, text] : files) {
    if (std::regex_match(path, exempt)) continue;
    for (const std::string& line : telling)
      if (contains(text, line)) found.push_back(path + ": " + line);
  }
  return found;
}

std::string joined(const std::vector<std::string>& list) {
  std::string text;
  for (const std::string& one : list) text += one + "\n";
  return text;
}

// Links of Markdown pages that lead to no file.
std::vector<std::string> dangling(const std::map<std::string, std::string>& files) {
  // A name has no space; [&](Tensor x) is C++.
  static const std::regex link("\\]\\(([^)#: ]+)\\)");
  std::vector<std::string> found;
  for (const auto& [path, text] : files) {
    if (!path.ends_with(".md")) continue;
    for (std::sregex_iterator it(text.begin(), text.end(), link), end; it != end; ++it) {
      const fs::path target = (fs::path(path).parent_path() / (*it)[1].str()).lexically_normal();
      if (!files.contains(target.string())) found.push_back(path + ": " + target.string());
    }
  }
  return found;
}

// Paths that a page names in backticks, of folders and files at the root of the tree, and that are
// no file or folder of `files`. Words behind a path are arguments; * and NN make a pattern.
std::vector<std::string> named_but_missing(const std::string& page,
                                           const std::map<std::string, std::string>& files) {
  static const std::regex path(
      "`(((tensor|autograd|nn|optim|dist|stages|tutorials|tests|cmake)/|README|CONTRIBUTING)"
      "[A-Za-z0-9_./]*)[^`]*`");
  std::vector<std::string> missing;
  for (std::sregex_iterator it(page.begin(), page.end(), path), end; it != end; ++it) {
    const std::string name = (*it)[1];
    if (contains(it->str(), "*") || contains(name, "NN_")) continue;
    const auto found = files.lower_bound(name);
    const bool folder = name.ends_with("/");
    if (found == files.end() || !(folder ? found->first.starts_with(name) : found->first == name))
      missing.push_back(name);
  }
  return missing;
}

// The files of the archive that `exercise pack` makes, which it leaves in `folder`/zerolab.
std::map<std::string, std::string> packed_in(const std::string& folder,
                                             const std::string& flags = "") {
  const Finished packed = shell("cd '" + folder + "' && \"$ZEROLAB\" exercise pack course.tar.gz " +
                                flags + " && tar xzf course.tar.gz");
  INFO(packed.err);
  REQUIRE(packed.code == 0);
  CHECK(files_in(folder) == std::vector<std::string>{"course.tar.gz", "zerolab"});
  return files_below(folder + "/zerolab");
}

// The archive without flags, which several tests read.
struct Plain {
  ScratchFolder folder;
  std::map<std::string, std::string> files = packed_in(folder.path());
};

const Plain& plain() {
  static const Plain archive;
  return archive;
}

}  // namespace

TEST_CASE("a student's archive holds no solution, no test and no link to what was left out",
          "[zerolab]") {
  const auto& [folder, files] = plain();
  const std::set<std::string> telling = telltales();
  CHECK(telling.size() > 30);
  const auto found = told(files, telling), links = dangling(files);
  INFO("told:\n" << joined(found) << "links:\n" << joined(links));
  CHECK(found.empty());
  CHECK(links.empty());

  const std::string exercises = "tutorials/exercises/";
  for (const auto& [stage, exercise] :
       {std::pair{"zero1", "05_zero1"}, {"zero2", "06_zero2"}, {"zero3", "07_zero3"}})
    CHECK(files.at(std::string("stages/") + stage + ".cpp") ==
          files.at(exercises + exercise + "/start.cpp"));
  CHECK(files.at("AGENTS.md") == read_file(kSource + "/tutorials/exercises/tutor.md"));
  CHECK(contains(files.at("tutorials/exercises/02_final_gradient/start.cpp"), "not written yet"));
  CHECK_FALSE(files.contains("stages/variants/hsdp.cpp"));
  CHECK_FALSE(files.contains("stages/variants/zero3_hpz.cpp"));
  CHECK(files.at("stages/ddp.cpp") == read_file(kSource + "/stages/ddp.cpp"));
  CHECK((fs::status(folder / "zerolab/zl").permissions() & fs::perms::owner_exec) !=
        fs::perms::none);
  std::set<std::string> roots;
  for (const auto& [path, text] : files) roots.insert(path.substr(0, path.find('/')));
  CHECK(roots == std::set<std::string>{".clang-format", ".gitignore", "AGENTS.md", "CMakeLists.txt",
                                       "CMakePresets.json", "LICENSE", "README.md", "autograd",
                                       "cmake", "deps", "dist", "nn", "optim", "stages", "tensor",
                                       "tutorials", "zl"});
  // The build makes sources of what is in these folders: texts, tables, machines, the page.
  for (const std::string part : {"nn/data/", "stages/predict/", "tutorials/zerolab/report/"})
    for (const auto& [path, text] : files_below(kSource + "/" + part)) {
      CAPTURE(part, path);
      CHECK(files.contains(part + path));
    }
  // The checks above notice what they are for.
  CHECK_FALSE(told(files_below(kSource + "/stages"), telling).empty());
  CHECK(dangling({{"a/b.md", "[x](../c.md)"}}) == std::vector<std::string>{"a/b.md: c.md"});
}

TEST_CASE(
    "tasks and the student's page name only files of the archive, which lists what is missing",
    "[zerolab]") {
  const auto& files = plain().files;
  const std::string student = read_file(kSource + "/tutorials/exercises/student.md");
  const std::string readme = files.at("README.md");
  REQUIRE(readme.starts_with(student));
  std::string pages = student;
  for (const auto& [path, text] : files)
    if (path.ends_with("/task.md")) pages += text;
  const auto missing = named_but_missing(pages, files);
  INFO(joined(missing));
  CHECK(missing.empty());
  // Every page of this tree that the archive has not is in its list.
  for (const char* left : {"`tutorials/04_*`", "`tutorials/0[678]_*`", "`tutorials/README.md`",
                           "`tutorials/gdb/README.md`", "`tests/`", "`CONTRIBUTING.md`"})
    CHECK(contains(readme.substr(student.size()), left));
  CHECK_FALSE(contains(readme, "hints.md"));
  CHECK(named_but_missing("`nn/` `nn/no`", files) == std::vector<std::string>{"nn/no"});
}

TEST_CASE("pack --no-hints leaves the hints out and nothing else", "[zerolab]") {
  const ScratchFolder folder;
  auto all = plain().files, less = packed_in(folder.path(), "--no-hints");
  CHECK(contains(less["README.md"], "`tutorials/exercises/*/hints.md` | the teacher keeps them"));
  less["README.md"] = all["README.md"];
  CHECK(all.contains("tutorials/exercises/05_zero1/hints.md"));
  CHECK(std::erase_if(all, [](const auto& f) { return f.first.ends_with("/hints.md"); }) == 12);
  CHECK(all == less);
}

TEST_CASE("pack --with-solutions has the whole tree for other teachers", "[zerolab]") {
  const ScratchFolder folder;
  const auto files = packed_in(folder.path(), "--with-solutions");
  for (const char* same :
       {"README.md", "stages/zero1.cpp", "tutorials/08_zero3.cpp", "tests/CMakeLists.txt",
        "tutorials/exercises/README.md", "tests/exercises/right/01_rms_norm.cpp",
        "tests/exercises/wrong/05_zero1.patch", "tests/mutants/run"}) {
    CAPTURE(same);
    REQUIRE(files.contains(same));
    CHECK(files.at(same) == read_file(kSource + "/" + same));
  }
  check_refused(call("exercise pack x.tar.gz --no-hints --with-solutions"),
                "--no-hints excludes --with-solutions");
}

TEST_CASE("an archive brings the Catch2 that the judge needs, and CMake finds it there",
          "[zerolab]") {
  const ScratchFolder folder;
  const auto& files = plain().files;
  const std::string deps = plain().folder / "zerolab/deps/catch2";
  CHECK(files.contains("deps/catch2/include/catch2/catch_test_macros.hpp"));
  CHECK(contains(files.at("deps/catch2/lib/cmake/Catch2/LICENSE.txt"), "Boost Software License"));
  write_file(
      folder / "CMakeLists.txt",
      "cmake_minimum_required(VERSION 3.22)\nproject(finds LANGUAGES NONE)\n"
      "find_package(Catch2 3.4 REQUIRED PATHS " +
          deps +
          " NO_DEFAULT_PATH)\n"
          "get_target_property(library Catch2::Catch2 IMPORTED_LOCATION)\n"
          "file(SIZE \"${library}\" bytes)\nmessage(STATUS \"${library} has ${bytes} bytes\")\n");
  const Finished configured = shell("cmake -S " + folder.path() + " -B " + (folder / "build"));
  CAPTURE(configured.out, configured.err);
  CHECK(configured.code == 0);
  CHECK(contains(configured.out, deps + "/lib/"));
}

TEST_CASE("the same tree gives the same archive", "[zerolab]") {
  const ScratchFolder folder;
  const std::string a = plain().folder / "course.tar.gz", b = folder / "b.tar.gz";
  CHECK(read_file(a).size() > 100'000);
  write_file(b, "mine");
  CHECK(zerolab({"exercise", "pack", b}).code == 2);
  CHECK(read_file(b) == "mine");
  REQUIRE(zerolab({"exercise", "pack", b, "--force"}).code == 0);
  CHECK(read_file(a) == read_file(b));
  CHECK(files_in(folder.path()) == std::vector<std::string>{"b.tar.gz"});
}

// Takes minutes: unit_tests "[.student_tree]". It builds the archive's tree with zl, as a student
// would, and solves 05 there.
TEST_CASE("a student's tree builds with zl, and grades a solution of 05", "[.student_tree]") {
  const ScratchFolder folder;
  packed_in(folder.path());
  const auto zl = [&](const std::string& words) {
    return shell("cd '" + (folder / "zerolab") + "' && ZEROLAB_APT=no ./zl " + words, 1800);
  };
  const Finished list = zl("exercise list");
  CAPTURE(list.out, list.err);
  REQUIRE(list.code == 0);
  const Finished started = zl("exercise start 05 mine");
  CHECK(contains(started.out, "next: ./zl exercise check 05 mine\n"));
  CHECK(contains(zl("exercise check 05 mine").out, "0 of 100 points"));
  fs::copy_file(kSource + "/stages/zero1.cpp", folder / "zerolab/mine/05_zero1.cpp",
                fs::copy_options::overwrite_existing);
  CHECK(zl("exercise check 05 mine").code == 0);
  CHECK(zl("compare --stages ddp --model tiny --steps 2").code == 0);
  const Finished unwritten = zl("compare --model tiny --steps 2");
  CHECK(unwritten.code == 1);
  CHECK(contains(unwritten.err, "not written yet"));
  CHECK(contains(zl("exercise pack again.tar.gz").err, "is a student's tree already"));
  CHECK(contains(zl("test").err, "this tree has no tests"));
}

}  // namespace cli
