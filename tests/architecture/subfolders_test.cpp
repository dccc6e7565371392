// Who may include the headers of a subfolder. The core of a folder holds its ideas; every other
// subfolder is a backend or a tool, which only the files named here may know, and never the core.
// Layers of whole folders are in layers_test.cpp.

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <regex>
#include <string>
#include <vector>

#include "tests/architecture/source_text.h"

namespace architecture {
namespace {

struct Subfolder {
  const char* folder;
  const char* users;  // regular expression on the including path, besides the folder itself
};

// Tests may include everything. The doctor, lesson 00 and the program show what this machine can
// do, so that the tutorials may include every mechanism but those of the stages.
const std::vector<Subfolder> subfolders = {
    {"tensor/cpu", "tutorials/.*"},
    {"tensor/reference", "tensor/reference/.*"},
    {"tensor/cuda", "tensor/(cuda/attention|meta)/.*"},  // a dry run asks for workspaces
    {"tensor/cuda/attention", "tensor/cuda/attention\\.cu"},
    {"tensor/io",
     "nn/(data|formats)/.*|stages/(checkpoint|deepspeed|offload|train|predict/clock)/.*|tutorials/"
     ".*"},
    {"tensor/platform",
     "tensor/(cpu|cuda)/.*|dist/(nccl|mpi)/.*|stages/(variants|train|diagnosis)/.*|tutorials/.*"},

    {"nn/data", "stages/train/.*|tutorials/.*"},
    {"nn/formats", "stages/(deepspeed|train)/.*|tutorials/.*"},

    {"dist/lane", "stages/train/.*|tutorials/.*"},
    {"dist/threads", "dist/run_ranks\\.cpp"},
    {"dist/nccl", "tutorials/.*"},
    {"dist/mpi", "dist/processes/.*|tutorials/.*"},
    {"dist/ordered", "dist/(nccl|mpi|processes)/.*|stages/predict/.*|tutorials/.*"},
    {"dist/processes", "dist/(nccl|mpi|trace)/.*|stages/(checkpoint|train)/.*|tutorials/.*"},
    {"dist/trace", "dist/(nccl|mpi|processes)/.*|stages/train/.*|tutorials/.*"},

    {"stages/schedule", "stages/[^/]*|stages/(variants|predict|train|diagnosis)/.*|tutorials/.*"},
    {"stages/numerics", "stages/[^/]*|stages/(schedule|variants|predict|train)/.*|tutorials/.*"},
    {"stages/variants", "stages/(predict|train|deepspeed)/.*|tutorials/.*"},
    {"stages/predict", "stages/train/.*|stages/predict/clock/.*|tutorials/.*"},
    {"stages/predict/clock", "tutorials/.*"},
    {"stages/train", "tutorials/.*"},
    {"stages/diagnosis", "stages/train/.*|tutorials/.*"},
    {"stages/checkpoint", "stages/(predict|train)/.*|tutorials/.*"},
    {"stages/offload", "stages/(predict|train)/.*|tutorials/.*"},
    {"stages/deepspeed", "tutorials/.*"},

    {"tutorials/terminal", "tutorials/(zerolab|lesson)/.*"},
    {"tutorials/lesson", "tutorials/([0-9][0-9]_[^/]*|exercises/stages/.*)"},
    {"tutorials/recording",
     "tutorials/([0-9][0-9]_[^/]*|lesson/.*|exercises/stages/.*|zerolab/(run|report|commands)/.*)"},
    {"tutorials/exercises/grader", "tutorials/(exercises|zerolab)/.*"},
    {"tutorials/exercises/judge", "tutorials/exercises/.*"},
    {"tutorials/exercises/stages", "tutorials/exercises/stages/.*"},
    {"tutorials/zerolab", "tutorials/zerolab/.*"},
    {"tutorials/zerolab/cli", "tutorials/(zerolab|lesson|exercises)/.*"},
    {"tutorials/zerolab/run",
     "tutorials/zerolab/(main\\.cpp|commands/.*|bench/.*|check/.*|report/.*)"},
    {"tutorials/zerolab/monitors", "tutorials/zerolab/run/.*"},
    {"tutorials/zerolab/report", "tutorials/zerolab/(check|commands|plan)/.*"},
    {"tutorials/zerolab/report/page", "tutorials/zerolab/report/.*|tutorials/zerolab/commands/.*"},
    {"tutorials/zerolab/bench", "tutorials/zerolab/commands/.*"},
    {"tutorials/zerolab/check", "tutorials/zerolab/check/.*"},
    {"tutorials/zerolab/plan", "tutorials/zerolab/commands/.*"},
    {"tutorials/zerolab/launcher", "tutorials/zerolab/commands/.*"},
    {"tutorials/zerolab/commands", "tutorials/zerolab/main\\.cpp"},
};

// One file that includes one header against the table, and why.
struct Exception {
  const char* file;
  const char* header;
  const char* reason;
};

const std::vector<Exception> exceptions = {
    {"tensor/cuda/gpus.cu", "tensor/cpu/cpu_backend.h", "names the CPU beside the GPUs"},
    {"dist/threads/thread_communicator.h", "tensor/platform/spin_pause.h",
     "one instruction of the processor"},
    {"stages/predict/dry_run.h", "stages/train/trainer.h", "a dry run is a run of the trainer"},
    {"stages/predict/clock/clock_plan.h", "stages/train/gpt_spec.h",
     "it times a step of what the trainer runs"},
    {"stages/diagnosis/plain_training.h", "stages/train/trainer.h", "it follows a training spec"},
    {"stages/diagnosis/diagnosis.cpp", "stages/train/gradient_bound.h",
     "it reads the gradient of a run of the trainer"},
    {"stages/predict/plan.h", "stages/train/trainer.h", "it shows what the trainer reports"},
    {"tutorials/zerolab/bench/commands.h", "tutorials/zerolab/commands/command.h",
     "a command is declared once, beside the others"},
    {"tutorials/zerolab/cli/flags.h", "tutorials/zerolab/commands/command.h",
     "a command is declared once, beside the others"},
};

bool is_excepted(const std::string& file, const std::string& header) {
  return std::any_of(exceptions.begin(), exceptions.end(),
                     [&](const Exception& e) { return file == e.file && header == e.header; });
}

// The root of each folder of the library, and the subfolders that belong to the core too.
const std::regex core(
    "tensor(/reference)?|autograd|nn|optim|dist(/threads)?|stages(/schedule|/numerics)?");

// What is wrong if `path` includes `header`, or "".
std::string wrong_with(const std::string& path, const std::string& header) {
  const std::string folder = folder_of(header);
  if (folder.find('/') == std::string::npos || folder == folder_of(path)) return "";
  if (path.starts_with("tests/") || folder.starts_with("tests/")) return "";
  if (is_excepted(path, header)) return "";
  if (std::regex_match(folder_of(path), core) && !std::regex_match(folder, core))
    return "the core knows no tool, and " + folder + " is one";
  for (const Subfolder& row : subfolders) {
    if (folder != row.folder) continue;
    if (std::regex_match(path, std::regex(row.users))) return "";
    return "only " + std::string(row.users) + " may include headers of " + folder;
  }
  return folder + " is not in the table of tests/architecture/subfolders_test.cpp";
}

// Every include of a header of ours: its line and path.
std::vector<std::pair<int, std::string>> our_includes(const File& file) {
  static const std::regex include("\\s*#\\s*include\\s*\"([^\"]+)\".*");
  const auto lines = split_lines(file.text), code = split_lines(code_only(file.text));
  std::vector<std::pair<int, std::string>> found;
  for (size_t i = 0; i < lines.size(); ++i) {
    std::smatch match;
    if (code[i].find('#') == std::string::npos || !std::regex_match(lines[i], match, include))
      continue;
    found.emplace_back(static_cast<int>(i) + 1, match[1]);
  }
  return found;
}

std::vector<std::string> check_subfolders(const File& file) {
  std::vector<std::string> findings;
  for (const auto& [line, header] : our_includes(file)) {
    const std::string wrong = wrong_with(file.path, header);
    if (!wrong.empty()) findings.push_back(finding(file, line, wrong));
  }
  return findings;
}

}  // namespace

TEST_CASE("a subfolder's headers are included only by the files that the table names",
          "[architecture]") {
  CHECK(findings_of(check_subfolders) == "");
}

TEST_CASE("an exception of the table that no file needs any more is shown", "[architecture]") {
  const auto files = source_files();
  for (const Exception& e : exceptions) {
    bool needed = false;
    for (const File& file : files)
      if (file.path == e.file)
        for (const auto& [line, header] : our_includes(file)) needed |= header == e.header;
    if (!needed) WARN("not needed any more: " << e.file << " includes " << e.header);
  }
}

TEST_CASE(
    "the subfolder check finds a root that knows a mechanism, and mechanisms that know each "
    "other",
    "[architecture]") {
  const auto wrong = [](const char* path, const std::string& header) {
    return check_subfolders({path, "#include \"" + header + "\"\n"}).size() == 1;
  };
  CHECK(wrong("dist/nccl/api.h", "dist/threads/thread_communicator.h"));
  CHECK(wrong("dist/threads/thread_communicator.h", "dist/nccl/api.h"));
  CHECK(wrong("dist/communicator.h", "dist/threads/thread_communicator.h"));
  CHECK(wrong("dist/run_ranks.cpp", "dist/lane/lane.h"));
  CHECK(wrong("dist/threads/thread_communicator.h", "dist/processes/wire.h"));
  CHECK(wrong("stages/stage.cpp", "stages/deepspeed/config.h"));
  CHECK(wrong("stages/zero1.cpp", "stages/train/trainer.h"));
  CHECK(wrong("stages/predict/closed_form.cpp", "stages/deepspeed/config.h"));
  CHECK(wrong("tensor/tensor.cpp", "tensor/io/safetensors.h"));
  CHECK(wrong("tensor/memory.h", "tensor/cuda/pinned_blocks.h"));
  CHECK(wrong("nn/gpt.cpp", "nn/formats/weights.h"));
  CHECK(wrong("tutorials/zerolab/cli/progress.cpp", "tutorials/zerolab/commands/launch.h"));
  CHECK(wrong("tutorials/own_model.cpp", "tutorials/lesson/trial.h"));
  CHECK(wrong("tutorials/exercises/04_ddp/measure.cpp", "tutorials/exercises/stages/a.h"));
  CHECK(wrong("tutorials/zerolab/main.cpp", "tutorials/exercises/judge/judge.h"));
  CHECK(wrong("stages/train/trainer.cpp", "stages/deepspeed/config.h"));
  CHECK(wrong("nn/gpt.cpp", "nn/secret/gpt.h"));  // a folder that the table does not have
}

TEST_CASE("the subfolder check lets roots, the own folder, users and tests pass",
          "[architecture]") {
  const auto right = [](const char* path, const std::string& header) {
    return check_subfolders({path, "#include \"" + header + "\"\n"}).empty();
  };
  CHECK(right("dist/nccl/api.h", "dist/call.h"));
  CHECK(right("dist/nccl/handle.cpp", "dist/nccl/api.h"));
  CHECK(right("stages/stage.h", "stages/schedule/buckets.h"));
  CHECK(right("tutorials/zerolab/run/run_setup.h", "stages/deepspeed/config.h"));
  CHECK(right("tests/dist/send_receive_test.cpp", "dist/threads/thread_communicator.h"));
  CHECK(right("tutorials/exercises/01_rms_norm/checks.cpp", "tutorials/exercises/judge/judge.h"));
  CHECK(right("tensor/cuda/gpus.cu", "tensor/cpu/cpu_backend.h"));  // an exception
  CHECK(check_subfolders({"nn/gpt.cpp", "// #include \"nn/formats/weights.h\"\n"}).empty());
}

}  // namespace architecture
