// zerolab data, model, checkpoint and report: what files of a run hold, as one document each;
// whether they are damaged; weights in another format; and the page of a run that has ended, was
// killed, or still runs.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "nn/data/corpus.h"
#include "nn/data/token_data.h"
#include "nn/formats/llmc.h"
#include "stages/checkpoint/checkpoint_folder.h"
#include "stages/checkpoint/load.h"
#include "tensor/io/small_file.h"
#include "tutorials/zerolab/cli/document.h"
#include "tutorials/zerolab/cli/flags.h"
#include "tutorials/zerolab/cli/output_file.h"
#include "tutorials/zerolab/cli/progress.h"
#include "tutorials/zerolab/cli/quantity.h"
#include "tutorials/zerolab/report/run_page.h"

namespace zl::cli {
namespace {

using Json = nlohmann::ordered_json;

struct FileOptions {
  std::string in, out;
  std::optional<int64_t> heads;
  int64_t block_size = GptConfig().block_size;
  bool json = false, quiet = false, force = false;
};
FileOptions file_options;  // of the command that runs

// What these commands share. `in`: "FILE", of which `holds` says what it may be.
void add_common(Flags& flags, const char* in, const char* holds, const char* footer,
                const char* json = "print one JSON document instead of text") {
  flags.name(in, "", holds, file_options.in);
  flags.toggle("--json", json, file_options.json);
  flags.footer(footer);
}

// ---- data --------------------------------------------------------------------------------------

constexpr const char* kDataFooter =
    R"(A name that ends in .bin holds tokens: llm.c's format if it starts with 20240520, else uint16
as nanoGPT writes them. Any other file is text, and its bytes are the tokens (vocabulary 256).
The frequency entropy [nats] is the loss of a model that only knows how frequent each token is.

  zerolab data info 'fineweb_train_*.bin' --block-size 1024 --json)";

// Adds how often each token occurs in the file.
void count_tokens(const TokenData& data, int file, std::vector<int64_t>& counts) {
  std::vector<int32_t> chunk(1 << 16);
  for (int64_t first = 0, n = data.file_tokens(file); first < n; first += std::ssize(chunk)) {
    end_if_interrupted();
    chunk.resize(size_t(std::min(n - first, std::ssize(chunk))));
    data.read(file, first, chunk);
    for (const int32_t token : chunk) {
      if (token >= std::ssize(counts)) counts.resize(size_t(token) + 1);
      ++counts[size_t(token)];
    }
  }
}

int data_info(const FileOptions& options) {
  const TokenData data = options.in.empty() ? TokenData::of_text("the text that comes with zerolab",
                                                                 std::string(default_corpus()))
                                            : TokenData::open(options.in);
  std::vector<int64_t> counts;
  Json files = Json::array();
  int64_t windows = 0;
  bool is_text = true;
  for (int file = 0; file < data.files(); ++file) {
    count_tokens(data, file, counts);
    const int64_t n = data.file_tokens(file), of_file = (n - 1) / options.block_size;
    const std::string format = data.file_format(file);
    files.push_back(
        {{"file", data.file_name(file)}, {"format", format}, {"tokens", n}, {"windows", of_file}});
    windows += of_file;
    is_text = is_text && format == "text";
  }
  double entropy = 0;
  for (const int64_t n : counts)
    if (const double p = double(n) / double(data.tokens()); n > 0) entropy -= p * std::log(p);
  const int64_t largest = std::ssize(counts) - 1, held_out = (windows + 9) / 10;
  const auto unused = std::ranges::count(counts, 0);
  Json document{{"schema", 1},
                {"command", "data info"},
                {"data", data.name()},
                {"files", files},
                {"tokens", data.tokens()},
                {"distinct_tokens", std::ssize(counts) - unused},
                {"largest_token", largest},
                {"vocab_size", is_text ? 256 : largest + 1},
                {"frequency_entropy", entropy},
                {"block_size", options.block_size},
                {"windows", windows},
                {"held_out_windows", held_out},
                {"training_windows", windows - held_out}};
  if (windows == 0)
    document["note"] =
        str("no file has more than ", options.block_size, " tokens; use a smaller --block-size");
  print_document(document, options.json);
  return kFine;
}

// ---- model -------------------------------------------------------------------------------------

constexpr const char* kModelFooter =
    R"(Files are safetensors with the names of Hugging Face's GPT-2, the index of several, a folder
with either, or a model.bin of llm.c. The name of OUT decides its format: .bin is llm.c's (fp32,
version 3), any other name is safetensors. Tensors do not show the number of heads: it comes from
the metadata (n_head), from config.json or from --n-head. Values do not change; fp16 and bf16 become
fp32. A linear weight is (in, out) in safetensors, (out, in) in llm.c.

  zerolab model info gpt2.safetensors --n-head 12 --json
  zerolab model import gpt2_124M.bin gpt2.safetensors                    # from llm.c
  zerolab model import pytorch/model.safetensors gpt2.safetensors --n-head 12
  zerolab model export runs/first/model.safetensors first.bin            # for llm.c)";

int model_info(const FileOptions& options) {
  const auto weights = open_weights(options.in, options.heads, false);
  const GptConfig& c = weights->config();
  const WeightsInfo& info = weights->info();
  std::vector<std::string> notes = info.notes;
  if (!info.knows_heads) notes.push_back("the number of heads is not in the file: give --n-head N");
  Json document{{"schema", 1},
                {"command", "model info"},
                {"file", options.in},
                {"format", weights->format()},
                {"dtype", info.types},
                {"layers", c.layers},
                {"heads", info.knows_heads ? Json(c.heads) : Json(nullptr)},
                {"width", c.width},
                {"block_size", c.block_size},
                {"vocab_size", c.vocab},
                {"parameters", c.parameters()},
                {"bytes", info.bytes},
                {"metadata", info.metadata}};
  if (!notes.empty()) document["notes"] = notes;
  for (const std::string& name : gpt_names()) {
    GptConfig named = named_gpt(name);
    if (!info.knows_heads) named.heads = c.heads;
    if (named == c) document["model"] = name;
  }
  print_document(document, options.json);
  return kFine;
}

int convert(const FileOptions& options, const std::string& command) {
  const auto weights = open_weights(options.in, options.heads);
  const OutputFile file(options.out, options.in, options.force);
  const auto values = [&](const std::string& name) {
    end_if_interrupted();
    return weights->load(name);
  };
  const bool to_llmc = options.out.ends_with(".bin");
  file.write([&](const std::string& path) {
    (to_llmc ? save_llmc_weights : save_safetensors_weights)(path, weights->config(), values);
  });
  print_document(Json{{"schema", 1},
                      {"command", str("model ", command)},
                      {"in", options.in},
                      {"in_format", weights->format()},
                      {"out", options.out},
                      {"out_format", to_llmc ? "llm.c fp32" : "safetensors"},
                      {"parameters", weights->config().parameters()},
                      {"bytes", std::filesystem::file_size(options.out)}},
                 options.json);
  return kFine;
}

// ---- checkpoint --------------------------------------------------------------------------------

constexpr const char* kCheckpointFooter =
    R"(DIR is a checkpoint, such as runs/a/step-00000100, or a folder of checkpoints. 'verify' names
the file, the tensor and the range of bytes of what is damaged.

  zerolab checkpoint verify runs/a

Exit codes: 0 fine, 1 verify found damage, 2 there is no checkpoint, or the named one is not
            complete)";

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

int checkpoint_info(const FileOptions& options) {
  if (is_checkpoint(options.in)) read_manifest(options.in);  // throws what is wrong with it
  Json json = document_of("checkpoint info", options.in);
  for (const CheckpointPath& c : checkpoints_of(options.in)) {
    if (!options.json && !json["checkpoints"].empty()) std::printf("\n");
    json["checkpoints"].push_back(describe_checkpoint(c));
    if (!options.json) print_document(json["checkpoints"].back(), false);
  }
  if (options.json) print_json(json);
  return kFine;
}

int checkpoint_verify(const FileOptions& options) {
  Json json = document_of("checkpoint verify", options.in);
  const auto all = checkpoints_of(options.in);
  Progress progress(std::ssize(all), options.quiet);
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
      if (!options.json) std::printf("%s\n", printable(line).c_str());
    std::fflush(stdout);
  }
  if (options.json) print_json(json);
  return json["ok"] ? kFine : kFailed;
}

// ---- report ------------------------------------------------------------------------------------

constexpr const char* kReportFooter =
    R"(compare and train write report.json and report.html with --out DIR. 'report DIR' makes
DIR/report.html again from DIR/report.json, and in a folder of train from newer lines of
metrics.jsonl. The page is one file and needs no network, so it can be copied.

  zerolab compare --model tiny --ranks 3 --out runs/a && zerolab report runs/a

Exit codes: 0 fine, 2 no folder or no usable report.json, 70 unforeseen,
            74 the page could not be written)";

int report(const FileOptions& options) {
  const std::string& folder = options.in;
  const std::string path = (std::filesystem::path(folder) / "report.json").string();
  std::error_code error;
  require_input(
      std::filesystem::exists(path, error), "'", folder,
      std::filesystem::is_directory(folder, error) ? "' has no report.json" : "' is no folder",
      "; compare and train write report.json with --out DIR, train after its "
      "second step");
  const std::string document = continued_report(folder);
  if (options.json) return std::fputs(document.c_str(), stdout), kFine;
  const TextFile page = report_files(folder, document)[1];
  write_files({page});
  std::printf("Files: %s\n", printable(page.path).c_str());
  return kFine;
}

}  // namespace

void add_data(CLI::App& app, Invocation& invocation) {
  Flags flags(add_commands(app, "data", "describe training data"), invocation, "info",
              "files, tokens, vocabulary and windows", [] { return data_info(file_options); });
  add_common(flags, "FILE",
             "a file or a quoted pattern (default: the text that comes with zerolab)", kDataFooter);
  flags.add("--block-size", "T", file_options.block_size, count_within(),
            "tokens of a sequence (default 128)");
}

void add_model(CLI::App& app, Invocation& invocation) {
  CLI::App& model = add_commands(app, "model", "describe files of weights, or convert them");
  const auto add = [&](const std::string& name, const char* help) {
    const bool converts = name != "info";
    Flags flags(model, invocation, name, help,
                [=] { return converts ? convert(file_options, name) : model_info(file_options); });
    const char* in = converts ? "IN" : "FILE";
    add_common(flags, in, "safetensors, an index, a folder, or a model.bin of llm.c", kModelFooter);
    flags.required(in);
    if (converts) {
      flags.name("OUT", "", "the file to write; it must not exist", file_options.out);
      flags.required("OUT");
      flags.toggle("--force", "replace OUT if it exists", file_options.force);
    }
    flags.add("--n-head", "N", file_options.heads, count_within(),
              "heads of each layer, if the file does not have their number");
  };
  add("info", "sizes, parameters, types, heads and metadata of a file");
  add("import", "convert the weights of another program for zerolab");
  add("export", "convert weights of zerolab for another program");
}

void add_checkpoint(CLI::App& app, Invocation& invocation) {
  CLI::App& checkpoint =
      add_commands(app, "checkpoint", "describe checkpoints, or look for damage in them");
  const auto add = [&](const std::string& name, const char* help, int (*run)(const FileOptions&)) {
    Flags flags(checkpoint, invocation, name, help, [run] { return run(file_options); });
    add_common(flags, "DIR", "a checkpoint, or a folder of checkpoints", kCheckpointFooter);
    flags.required("DIR");
    if (name == "verify") flags.toggle("-q,--quiet", "no progress", file_options.quiet);
  };
  add("info", "step, size, model, optimizer and checksums of checkpoints", checkpoint_info);
  add("verify", "read everything and compare it with the checksums", checkpoint_verify);
}

void add_report(CLI::App& app, Invocation& invocation) {
  Flags flags(app, invocation, "report", "the page of a finished, failed or killed run of --out",
              [] { return report(file_options); });
  add_common(flags, "DIR", "folder of --out of compare or train", kReportFooter,
             "print the data of the page instead of writing it");
  flags.required("DIR");
}

}  // namespace zl::cli
