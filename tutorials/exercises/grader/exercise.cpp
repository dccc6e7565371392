#include "tutorials/exercises/grader/exercise.h"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tensor/io/small_file.h"
#include "tensor/random.h"
#include "tutorials/exercises/grader/child_process.h"
#include "tutorials/zerolab/cli/parse_error.h"
#include "tutorials/zerolab/cli/version.h"

namespace zl::exercises {
namespace {

namespace fs = std::filesystem;

constexpr char kHowToFix[] = "How to fix it: './zl build', or install zerolab";

// Sets title, headers and version from the texts of the exercise.
void read_texts(Exercise& exercise, const fs::path& folder) {
  std::ifstream task(folder / "task.md"), start(folder / "start.cpp");
  std::string line;
  std::getline(task, line);  // "# Exercise 05 · ZeRO-1: …"
  const std::string mark = " · ";
  exercise.title = line.substr(std::min(line.size(), line.find(mark) + mark.size()));
  const std::string include = "#include \"";
  std::stringstream hashed;
  hashed << line << task.rdbuf();
  while (std::getline(start, line)) {
    hashed << line << "\n";
    if (line.starts_with(include))
      exercise.headers.push_back(line.substr(include.size(), line.size() - include.size() - 1));
  }
  for (const Check& check : exercise.checks)
    hashed << check.name << check.group << check.points << "\n";
  char hash[9];
  std::snprintf(hash, sizeof hash, "%08x", unsigned(fnv1a(hashed.str())));
  exercise.version = str(cli::kVersion, "-", hash);
}

}  // namespace

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Toolchain, compiler, launcher, flags, link, judge, catch2,
                                   exercises, source)

Toolchain read_toolchain(const std::string& path) {
  std::string text = read_small_file(path, {"toolchain", 1 << 20});
  const std::string here = fs::absolute(path).parent_path().lexically_normal().string();
  for (size_t at; (at = text.find("{here}")) != text.npos;) text.replace(at, 6, here);
  try {
    Toolchain one = nlohmann::json::parse(text);
    for (auto* list : {&one.launcher, &one.flags, &one.link, &one.catch2})
      std::erase(*list, "");  // what CMake left out
    one.exercises = fs::path(one.exercises).lexically_normal();
    return one;
  } catch (const nlohmann::json::exception& e) {
    throw InputError(str(path, ": ", e.what()));
  }
}

Toolchain find_toolchain() {
  const fs::path program = fs::read_symlink("/proc/self/exe").parent_path();
  for (const char* place : {"exercises", "../share/zerolab/exercises"}) {
    const fs::path path = program / place / "exercises.json";
    if (fs::exists(path)) return read_toolchain(path.string());
  }
  throw InputError(str("the exercises are not built: there is no exercises/exercises.json in ",
                       program.string(), ". ", kHowToFix));
}

std::vector<Exercise> all_exercises(const Toolchain& toolchain) {
  require_input(!toolchain.judge.empty(),
                "this zerolab was built without Catch2, so that it cannot grade exercises; install "
                "Catch2 3.4 or newer (apt: catch2) and build again");
  require_input(fs::exists(toolchain.judge), "the exercises are not built: there is no ",
                toolchain.judge, ". ", kHowToFix);
  std::map<std::string, Exercise> by_number;
  const ChildEnd listed = run_child({toolchain.judge, "--list-tests"}, {});
  std::istringstream lines(listed.output);
  for (std::string line; std::getline(lines, line);) {
    const auto json = nlohmann::json::parse(line, nullptr, false);
    if (!json.is_object()) break;
    by_number[json["exercise"]].checks.push_back({json["name"], json["group"], json["points"]});
  }
  require_input(!listed.failed() && lines.eof() && !by_number.empty(), toolchain.judge,
                " does not list its checks: ", listed.output.substr(0, 500), "\n", kHowToFix);
  std::vector<Exercise> all;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(toolchain.exercises, error)) {
    const std::string name = entry.path().filename();
    const auto found = by_number.find(name.substr(0, 2));
    if (found == by_number.end() || name.find('_') != 2) continue;
    Exercise& exercise = all.emplace_back(found->second);
    exercise.number = std::stoi(found->first);
    exercise.name = name;
    read_texts(exercise, entry.path());
  }
  std::ranges::sort(all, {}, &Exercise::number);
  return all;
}

Exercise find_exercise(const std::string& which, const Toolchain& toolchain) {
  std::vector<std::string> names;
  std::string list;
  for (const Exercise& exercise : all_exercises(toolchain)) {
    const std::string number = std::to_string(exercise.number);
    if (which == exercise.name || which == number || which == exercise.name.substr(0, 2))
      return exercise;
    names.push_back(exercise.name);
    list += (list.empty() ? "" : ", ") + exercise.name;
  }
  throw InputError(str("there is no exercise '", which, "'", cli::did_you_mean(which, names),
                       "\nthe exercises are ", list));
}

}  // namespace zl::exercises
