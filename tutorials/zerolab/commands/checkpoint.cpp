// zerolab checkpoint: says what a folder of checkpoints holds, and reads all of it to find damage.

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "stages/checkpoint/checkpoint_folder.h"
#include "stages/checkpoint/load.h"
#include "tensor/memory.h"
#include "tutorials/zerolab/cli/flags.h"
#include "tutorials/zerolab/cli/interrupt.h"
#include "tutorials/zerolab/cli/json_output.h"
#include "tutorials/zerolab/cli/printable.h"
#include "tutorials/zerolab/cli/progress.h"
#include "tutorials/zerolab/cli/text_table.h"

namespace zl::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kCheckpointFooter =
    R"(DIR is a checkpoint, such as runs/a/step-00000100, or a folder of checkpoints.
Sizes are compared with checkpoint.json; 'zerolab checkpoint verify' reads all the bytes.

  zerolab checkpoint info runs/a
  zerolab checkpoint info runs/a/step-00000100 --json

Exit codes: 0 fine, 2 there is no checkpoint, or the named one is not complete)";

constexpr const char* kVerifyFooter =
    R"(DIR is a checkpoint, such as runs/a/step-00000100, or a folder of checkpoints, which are all
read. Each tensor is compared with its checksum in checkpoint.json. A message about damage names
the file, the tensor and its range of bytes.

  zerolab checkpoint verify runs/a

Exit codes: 0 no damage was found, 1 damage was found, 2 there is no checkpoint)";

struct CheckpointCommand {
  std::string folder;
  bool json = false, quiet = false;
};

// A checkpoint, and what read_manifest() says about it.
struct Found {
  std::string path;
  int64_t step = 0;
  std::optional<Manifest> manifest;  // of one that is complete
  std::string problem;               // of another
};

Found look_at(const std::string& path, int64_t step) {
  Found found{.path = path, .step = step, .manifest = {}, .problem = ""};
  try {
    found.manifest = read_manifest(path);
    found.step = found.manifest->position.step;
  } catch (const InputError& e) {
    found.problem = e.what();
  }
  return found;
}

std::vector<std::string> checkpoints_of(const std::string& folder) {
  std::error_code error;
  if (is_checkpoint(folder) && std::filesystem::is_directory(folder, error)) return {folder};
  std::vector<std::string> all;
  for (const CheckpointPath& c : list_checkpoints(folder)) all.push_back(c.path);
  require_input(!all.empty(), folder,
                ": no checkpoint is there; 'zerolab train --save-every K "
                "--out ",
                folder, "' saves some");
  return all;
}

std::string value(const std::map<std::string, std::string>& values, const std::string& key) {
  const auto found = values.find(key);
  return found == values.end() ? "?" : found->second;
}

Json to_json(const Found& found) {
  Json json{{"folder", found.path}, {"step", found.step}, {"complete", found.problem.empty()}};
  if (!found.manifest) {
    json["problem"] = found.problem;
    return json;
  }
  const Manifest& m = *found.manifest;
  json["bytes"] = m.bytes();
  json["updates"] = m.updates;
  json["next_window"] = m.position.next_window;
  json["data"] = m.position.data;
  json["model"] = m.model;
  json["optimizer"] = describe(m.optimizer);
  json["seed"] = m.seed;
  json["loss_scale"] = m.loss_scaler ? Json(m.loss_scaler->scale) : Json(nullptr);
  json["saved_by"] = m.saved_by;
  for (const auto& [name, file] : m.files)
    json["files"].push_back({{"name", name},
                             {"bytes", file.bytes},
                             {"crc32c", file.crc32c},
                             {"tensors", file.tensors.size()}});
  return json;
}

void print_table(const std::string& folder, const std::vector<Found>& all) {
  TextTable table;
  table.row({"step", "bytes", "stage", "ranks", "state"});
  for (const Found& c : all) {
    if (!c.manifest) {
      table.row({str(c.step), "-", "-", "-", "broken"});
      continue;
    }
    const auto& by = c.manifest->saved_by;
    table.row({str(c.step), with_commas(c.manifest->bytes()), printable(value(by, "stage")),
               printable(value(by, "ranks")), "complete"});
  }
  std::printf("%s\n%s", printable(folder).c_str(), table.text().c_str());
  for (const Found& c : all)
    if (!c.manifest)
      std::printf("step %lld: %s\n", (long long)c.step, printable(c.problem).c_str());
}

void print_checkpoint(const Found& found) {
  const Manifest& m = *found.manifest;
  const auto line = [](const char* what, const std::string& text) {
    std::printf("%-12s%s\n", what, printable(text).c_str());
  };
  line("checkpoint", str(found.path, ", ", human_bytes(m.bytes())));
  line("step",
       str(m.position.step, ", with ", plural(m.updates, "update"),
           m.position.step > m.updates ? str(" and ", m.position.step - m.updates, " skipped")
                                       : ""));
  std::string model = value(m.model, "name");
  for (const auto& [key, text] : m.model)
    if (key != "name") model += ", " + key + " " + text;
  line("model", model);
  line("optimizer", describe(m.optimizer));
  if (m.loss_scaler) line("loss scale", str(m.loss_scaler->scale));
  line("data", m.position.data);
  line("position", str("the next window is ", with_commas(m.position.next_window)));
  line("seed", str(m.seed));
  std::string by;
  for (const auto& [key, text] : m.saved_by) by += str(by.empty() ? "" : ", ", key, " ", text);
  line("saved by", by);
  TextTable table;
  table.row({"file", "bytes", "tensors", "CRC-32C"});
  for (const auto& [name, file] : m.files)
    table.row({name, with_commas(file.bytes), str(file.tensors.size()), file.crc32c});
  std::fputs(printable(table.text()).c_str(), stdout);
}

int info(const CheckpointCommand& command) {
  std::vector<Found> all;
  const bool one = is_checkpoint(command.folder);
  if (one) {
    read_manifest(command.folder);  // throws what is wrong with it
    all.push_back(look_at(command.folder, 0));
  } else {
    checkpoints_of(command.folder);
    for (const CheckpointPath& c : list_checkpoints(command.folder))
      all.push_back(look_at(c.path, c.step));
  }
  if (command.json) {
    Json json{{"schema", 1},
              {"command", "checkpoint info"},
              {"folder", command.folder},
              {"checkpoints", Json::array()}};
    for (const Found& found : all) json["checkpoints"].push_back(to_json(found));
    print_json(json);
  } else if (one) {
    print_checkpoint(all[0]);
  } else {
    print_table(command.folder, all);
  }
  return kFine;
}

std::vector<std::string> read_all(const std::string& path, bool quiet) {
  Progress progress(1, quiet);
  auto problems = verify_checkpoint(path, [&](int64_t done, int64_t bytes) {
    if (interrupt_requested()) throw Interrupted();
    progress.share(double(done) / double(bytes), path);
  });
  progress.clear();
  return problems;
}

int verify(const CheckpointCommand& command) {
  Json document{{"schema", 1},
                {"command", "checkpoint verify"},
                {"folder", command.folder},
                {"ok", true},
                {"checkpoints", Json::array()}};
  for (const std::string& path : checkpoints_of(command.folder)) {
    const std::vector<std::string> problems = read_all(path, command.quiet);
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
  CLI::App& checkpoint =
      *app.add_subcommand("checkpoint", "describe checkpoints, or look for damage in them");
  checkpoint.require_subcommand(1);
  auto command = std::make_shared<CheckpointCommand>();
  const auto add = [&](const char* name, const char* help, const char* footer,
                       int (*run)(const CheckpointCommand&)) {
    const std::string word = name;
    Flags flags(checkpoint, invocation, name, help, [command, run, word] {
      if (command->folder.empty())
        throw UsageError("which folder? write: zerolab checkpoint " + word + " DIR");
      return run(*command);
    });
    flags.name("DIR", "", "a checkpoint, or a folder of checkpoints", command->folder);
    flags.toggle("--json", "print one JSON document instead of text", command->json);
    if (word == "verify") flags.toggle("-q,--quiet", "no progress", command->quiet);
    flags.footer(footer);
  };
  add("info", "step, size, model, optimizer and checksums of checkpoints", kCheckpointFooter, info);
  add("verify", "read everything and compare it with the checksums", kVerifyFooter, verify);
}

}  // namespace zl::cli
