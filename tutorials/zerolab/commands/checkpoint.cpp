// zerolab checkpoint: says what a folder of checkpoints holds, and reads all of it to find damage.

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "stages/checkpoint/checkpoint_folder.h"
#include "stages/checkpoint/load.h"
#include "tutorials/zerolab/cli/document.h"
#include "tutorials/zerolab/cli/flags.h"
#include "tutorials/zerolab/cli/printable.h"
#include "tutorials/zerolab/cli/progress.h"

namespace zl::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kCheckpointFooter =
    R"(DIR is a checkpoint, such as runs/a/step-00000100, or a folder of checkpoints. 'verify' names
the file, the tensor and the range of bytes of what is damaged.

  zerolab checkpoint verify runs/a

Exit codes: 0 fine, 1 verify found damage, 2 there is no checkpoint, or the named one is not
            complete)";

struct CheckpointCommand {
  std::string folder;
  bool json = false, quiet = false;
};

// The checkpoint of that name, or those in the folder.
std::vector<CheckpointPath> checkpoints_of(const std::string& folder) {
  std::error_code error;
  if (is_checkpoint(folder) && std::filesystem::is_directory(folder, error)) return {{0, folder}};
  std::vector<CheckpointPath> all = list_checkpoints(folder);
  require_input(!all.empty(), folder,
                ": no checkpoint is there; 'zerolab train --save-every K --out ", folder,
                "' saves some");
  return all;
}

Json describe_checkpoint(const CheckpointPath& checkpoint) {
  Json json{{"folder", checkpoint.path}, {"step", checkpoint.step}, {"complete", false}};
  try {
    const Manifest m = read_manifest(checkpoint.path);
    json.update({{"step", m.position.step},
                 {"complete", true},
                 {"bytes", m.bytes()},
                 {"updates", m.updates},
                 {"next_window", m.position.next_window},
                 {"data", m.position.data},
                 {"model", m.model},
                 {"optimizer", describe(m.optimizer)},
                 {"seed", m.seed},
                 {"loss_scale", m.loss_scaler ? Json(m.loss_scaler->scale) : Json(nullptr)},
                 {"saved_by", m.saved_by}});
    for (const auto& [name, file] : m.files)
      json["files"].push_back({{"name", name},
                               {"bytes", file.bytes},
                               {"crc32c", file.crc32c},
                               {"tensors", file.tensors.size()}});
  } catch (const InputError& e) {
    json["problem"] = e.what();
  }
  return json;
}

Json document_of(const char* command, const std::string& folder) {
  return {{"schema", 1},
          {"command", command},
          {"folder", folder},
          {"ok", true},
          {"checkpoints", Json::array()}};
}

int info(const CheckpointCommand& command) {
  if (is_checkpoint(command.folder)) read_manifest(command.folder);  // throws what is wrong with it
  Json json = document_of("checkpoint info", command.folder);
  for (const CheckpointPath& c : checkpoints_of(command.folder)) {
    if (!command.json && !json["checkpoints"].empty()) std::printf("\n");
    json["checkpoints"].push_back(describe_checkpoint(c));
    if (!command.json) print_document(json["checkpoints"].back(), false);
  }
  if (command.json) print_json(json);
  return kFine;
}

int verify(const CheckpointCommand& command) {
  Json json = document_of("checkpoint verify", command.folder);
  const auto all = checkpoints_of(command.folder);
  Progress progress(std::ssize(all), command.quiet);
  for (const auto& [step, path] : all) {
    progress.item(path);
    auto problems = verify_checkpoint(path, [](int64_t, int64_t) { end_if_interrupted(); });
    progress.clear();
    json["checkpoints"].push_back({{"folder", path}, {"problems", problems}});
    if (problems.empty())
      problems.push_back(path + ": ok");
    else
      json["ok"] = false;
    for (const std::string& line : problems)
      if (!command.json) std::printf("%s\n", printable(line).c_str());
    std::fflush(stdout);
  }
  if (command.json) print_json(json);
  return json["ok"] ? kFine : kFailed;
}

}  // namespace

void add_checkpoint(CLI::App& app, Invocation& invocation) {
  static CheckpointCommand command;
  CLI::App& checkpoint =
      *app.add_subcommand("checkpoint", "describe checkpoints, or look for damage in them");
  checkpoint.require_subcommand(1);
  const auto add = [&](const std::string& word, const char* help,
                       int (*run)(const CheckpointCommand&)) {
    Flags flags(checkpoint, invocation, word, help, [run] { return run(command); });
    flags.name("DIR", "", "a checkpoint, or a folder of checkpoints", command.folder);
    flags.required("DIR");
    flags.toggle("--json", "print one JSON document instead of text", command.json);
    if (word == "verify") flags.toggle("-q,--quiet", "no progress", command.quiet);
    flags.footer(kCheckpointFooter);
  };
  add("info", "step, size, model, optimizer and checksums of checkpoints", info);
  add("verify", "read everything and compare it with the checksums", verify);
}

}  // namespace zl::cli
