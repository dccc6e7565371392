// zerolab checkpoint: says what a folder of checkpoints holds, and reads all of it to find damage.

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "stages/checkpoint/checkpoint_folder.h"
#include "stages/checkpoint/load.h"
#include "tutorials/zerolab/cli/document.h"
#include "tutorials/zerolab/cli/flags.h"
#include "tutorials/zerolab/cli/interrupt.h"
#include "tutorials/zerolab/cli/printable.h"
#include "tutorials/zerolab/cli/progress.h"

namespace zl::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kCheckpointFooter =
    R"(DIR is a checkpoint, such as runs/a/step-00000100, or a folder of checkpoints.
'info' compares sizes with checkpoint.json, 'verify' reads everything and compares the checksum of
each tensor. A message about damage names the file, the tensor and its range of bytes.

  zerolab checkpoint info runs/a/step-00000100 --json
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

int info(const CheckpointCommand& command) {
  if (is_checkpoint(command.folder)) read_manifest(command.folder);  // throws what is wrong with it
  Json json{{"schema", 1},
            {"command", "checkpoint info"},
            {"folder", command.folder},
            {"checkpoints", Json::array()}};
  for (const CheckpointPath& c : checkpoints_of(command.folder))
    json["checkpoints"].push_back(describe_checkpoint(c));
  if (command.json) return print_json(json), kFine;
  for (const Json& checkpoint : json["checkpoints"]) {
    print_document(checkpoint, false);
    if (&checkpoint != &json["checkpoints"].back()) std::printf("\n");
  }
  return kFine;
}

int verify(const CheckpointCommand& command) {
  Json document{{"schema", 1},
                {"command", "checkpoint verify"},
                {"folder", command.folder},
                {"ok", true},
                {"checkpoints", Json::array()}};
  for (const CheckpointPath& checkpoint : checkpoints_of(command.folder)) {
    const std::string& path = checkpoint.path;
    Progress progress(1, command.quiet);
    const auto problems = verify_checkpoint(path, [&](int64_t done, int64_t bytes) {
      if (interrupt_requested()) throw Interrupted();
      progress.share(double(done) / double(bytes), path);
    });
    progress.clear();
    if (!problems.empty()) document["ok"] = false;
    document["checkpoints"].push_back({{"folder", path}, {"problems", problems}});
    if (command.json) continue;
    if (problems.empty()) std::printf("%s: ok\n", printable(path).c_str());
    for (const std::string& problem : problems) std::printf("%s\n", printable(problem).c_str());
    std::fflush(stdout);
  }
  if (command.json) print_json(document);
  return document["ok"] ? kFine : kFailed;
}

}  // namespace

void add_checkpoint(CLI::App& app, Invocation& invocation) {
  static CheckpointCommand command;
  CLI::App& checkpoint =
      *app.add_subcommand("checkpoint", "describe checkpoints, or look for damage in them");
  checkpoint.require_subcommand(1);
  const auto add = [&](const std::string& word, const char* help,
                       int (*run)(const CheckpointCommand&)) {
    Flags flags(checkpoint, invocation, word, help, [run, word] {
      if (command.folder.empty())
        throw UsageError("which folder? write: zerolab checkpoint " + word + " DIR");
      return run(command);
    });
    flags.name("DIR", "", "a checkpoint, or a folder of checkpoints", command.folder);
    flags.toggle("--json", "print one JSON document instead of text", command.json);
    if (word == "verify") flags.toggle("-q,--quiet", "no progress", command.quiet);
    flags.footer(kCheckpointFooter);
  };
  add("info", "step, size, model, optimizer and checksums of checkpoints", info);
  add("verify", "read everything and compare it with the checksums", verify);
}

}  // namespace zl::cli
