#include "tutorials/exercises/grader/build.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tutorials/exercises/grader/child_process.h"
#include "tutorials/exercises/grader/rules/header_rules.h"
#include "tutorials/exercises/grader/rules/object_rules.h"
#include "tutorials/exercises/grader/rules/source_rules.h"

namespace zl::exercises {
namespace {

namespace fs = std::filesystem;

// Conversions that remove const are errors: a C cast could otherwise change what is read-only.
// Arrays of a size that is known at run time, and large ones, would be memory that is not counted.
const std::vector<std::string> kWarnings = {"-O1",         "-Wall",
                                            "-Wextra",     "-Wcast-qual",
                                            "-Wvla",       "-Werror=cast-qual",
                                            "-Werror=vla", "-Werror=frame-larger-than=16384"};
constexpr int kShownLines = 25;
constexpr std::chrono::seconds kPatience{60};
constexpr int64_t kLargestObject = 32 << 20, kLargestProgram = 512 << 20;  // [B]
constexpr char kSource[] = "student.cpp", kObject[] = "student.o", kProgram[] = "program",
               kDependencies[] = "student.d",
               kHowToFix[] = "How to fix it: './zl build', or install zerolab";

ChildLimits of_compiler(const std::string& folder, int64_t largest_file) {
  return {.time = kPatience,
          .output = 16 << 20,
          .kept_output = 256 << 10,
          .memory = 4l << 30,
          .file = largest_file,
          .folder = folder};
}

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + by.size()))
    text.replace(at, what.size(), by);
  return text;
}

void append(std::vector<std::string>& to, const std::vector<std::string>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

std::string read_text(const std::string& file) {
  std::error_code none;
  if (!fs::is_regular_file(file, none))  // opening a pipe would wait
    throw UnreadableFile("'" + file + "' is no file");
  std::ifstream in(file, std::ios::binary);
  if (!in.good()) throw UnreadableFile("cannot read '" + file + "'");
  if (fs::file_size(file) > 1 << 20) throw UnreadableFile("'" + file + "' is larger than 1 MiB");
  const std::string text{std::istreambuf_iterator<char>(in), {}}, mark = "\xef\xbb\xbf";
  return text.starts_with(mark) ? text.substr(mark.size()) : text;  // some editors write it
}

// The compiler's first messages, with the student's file name instead of student.cpp.
std::string first_lines(const std::string& text, const std::string& file) {
  std::istringstream in(replaced(text, std::string(kSource) + ":", file + ":"));
  std::string all, line;
  int lines = 0;
  while (lines <= kShownLines && std::getline(in, line)) {
    if (line.starts_with("In file included from <command-line>")) continue;  // of -include
    if (++lines <= kShownLines) all += line + "\n";
  }
  if (lines > kShownLines) all += "… (the first messages matter most: repair them first)\n";
  return all;
}

bool failed(const ChildEnd& end) {
  return end.code != 0 || end.signal != 0 || end.timed_out || end.too_much_output;
}

// Why the compiler gave no result.
std::string failure(const ChildEnd& end, const std::string& file) {
  if (end.timed_out)
    return str("the compiler took longer than ", kPatience.count(), " s and was stopped");
  if (end.too_much_output)
    return "the compiler printed too many messages\n" + first_lines(end.output, file);
  for (const char* sign : {"File size limit", "File too large", "memory exhausted", "out of memory",
                           "bad_alloc", "std::length_error"})
    if (end.output.find(sign) != std::string::npos)
      return str("the compiler ran out of memory, or its result is larger than ",
                 kLargestObject >> 20, " MiB: a constant or a template is too large");
  return "it does not compile\n" + first_lines(end.output, file);
}

std::string link_failure(const ChildEnd& end, const std::string& file) {
  return "it compiles, but does not link: a function of the contract is missing, or has other "
         "parameters or another namespace\n" +
         first_lines(end.output, file);
}

// Without ccache if that is what fails, as where its folder cannot be written.
ChildEnd compile(std::vector<std::string> launcher, const std::vector<std::string>& command,
                 const ChildLimits& limits, const std::function<bool()>& interrupted) {
  if (!launcher.empty()) {
    append(launcher, command);
    const ChildEnd end = run_child(launcher, limits, interrupted);
    if (!failed(end) || end.output.find("ccache: error") == std::string::npos) return end;
  }
  return run_child(command, limits, interrupted);
}

// The compilation of the file in `folder`.
class Compilation {
 public:
  Compilation(const Exercise& exercise, const Toolchain& toolchain, const std::string& folder,
              const std::function<bool()>& interrupted)
      : exercise_(exercise), toolchain_(toolchain), folder_(folder), interrupted_(interrupted) {}

  // The compiler's messages in `warnings`; returns why the file is refused, or "".
  std::string run(const std::string& file, std::string& warnings) const {
    const ChildEnd end = compile(toolchain_.launcher, command({"-c", "-o", kObject}),
                                 of_compiler(folder_, kLargestObject), interrupted_);
    // A message can quote any file that was read. So first look which they were.
    ChildEnd preprocessing;
    if (failed(end))
      preprocessing = run_child(command({"-E", "-o", "/dev/null"}),
                                of_compiler(folder_, kLargestObject), interrupted_);
    const std::string foreign =
        foreign_header(written_dependencies(), folder_, exercise_.headers, include_folder());
    if (!foreign.empty()) return "it includes " + foreign + ", which is no header of the exercise";
    if (failed(preprocessing)) return failure(preprocessing, file);
    if (failed(end)) return failure(end, file);
    warnings = first_lines(end.output, file);
    return "";
  }

 private:
  std::vector<std::string> command(const std::vector<std::string>& words) const {
    std::vector<std::string> all = {toolchain_.compiler};
    append(all, toolchain_.flags);
    append(all, kWarnings);
    // Headers first: then the file cannot define something of theirs in another way.
    for (const std::string& header : exercise_.headers) append(all, {"-include", header});
    append(all, {"-fdiagnostics-color=never", "-MMD", "-MF", kDependencies, kSource});
    append(all, words);
    return all;
  }
  std::string written_dependencies() const {
    std::ifstream in(fs::path(folder_) / kDependencies);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  std::string include_folder() const {
    for (const std::string& flag : toolchain_.flags)
      if (flag.starts_with("-I")) return flag.substr(2);
    return "";
  }

  const Exercise& exercise_;
  const Toolchain& toolchain_;
  const std::string& folder_;
  const std::function<bool()>& interrupted_;
};

}  // namespace

Toolchain read_toolchain(const std::string& path) {
  std::ifstream in(path);
  require_input(in.good(), "cannot read ", path);
  try {
    const auto json = nlohmann::json::parse(in);
    const std::string here = fs::absolute(path).parent_path().lexically_normal().string();
    const auto text = [&](const char* key) {
      return replaced(json.at(key).get<std::string>(), "{here}", here);
    };
    const auto list = [&](const char* key) {
      std::vector<std::string> all;
      for (const auto& item : json.at(key)) {
        const std::string one = replaced(item.get<std::string>(), "{here}", here);
        if (!one.empty()) all.push_back(one);  // what CMake left out
      }
      return all;
    };
    return {.compiler = text("compiler"),
            .launcher = list("launcher"),
            .flags = list("flags"),
            .link = list("link"),
            .exercises = fs::path(text("exercises")).lexically_normal().string(),
            .source = text("source")};
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

BuiltProgram build(const Exercise& exercise, const std::string& file, const Toolchain& toolchain,
                   const std::string& folder, const std::function<bool()>& interrupted) {
  const std::string text = read_text(file);
  BuiltProgram built{.refused = source_violations(exercise, text)};
  if (!built.refused.empty()) return built;

  // A copy in a folder without headers: quotes would find those beside the file first. The same
  // name each time lets ccache find what it has compiled before.
  std::ofstream(fs::path(folder) / kSource, std::ios::binary) << text;
  built.refused = Compilation(exercise, toolchain, folder, interrupted).run(file, built.warnings);
  if (!built.refused.empty()) return built;
  built.refused = object_violations(exercise, folder + "/" + kObject, text);
  if (!built.refused.empty()) return built;

  std::vector<std::string> command = {toolchain.compiler, "-o", kProgram, kObject};
  for (const std::string& item : toolchain.link) {
    command.push_back(replaced(item, "{exercise}", exercise.name));
    require_input(!command.back().ends_with(".a") || fs::exists(command.back()),
                  "the exercises are not built: there is no ", command.back(), ". ", kHowToFix);
  }
  const ChildEnd end = run_child(command, of_compiler(folder, kLargestProgram), interrupted);
  if (failed(end)) built.refused = link_failure(end, file);
  if (built.refused.empty()) built.path = folder + "/" + kProgram;
  return built;
}

}  // namespace zl::exercises
