// zerolab model: describes a file of weights, or converts it to another format.

#include <CLI/CLI.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "nn/formats/llmc.h"
#include "stages/train/trainer.h"
#include "tutorials/zerolab/cli/document.h"
#include "tutorials/zerolab/cli/flags.h"
#include "tutorials/zerolab/cli/interrupt.h"
#include "tutorials/zerolab/cli/output_file.h"
#include "tutorials/zerolab/cli/quantity.h"

namespace zl::cli {
namespace {

using Json = nlohmann::ordered_json;

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

struct ModelOptions {
  std::string in, out;
  std::optional<int64_t> heads;
  bool json = false, force = false;
};

// "gpt2" if the sizes are those of a named model, or "".
std::string name_of(const GptConfig& config, bool knows_heads) {
  for (const std::string& name : gpt_names()) {
    GptConfig named = named_gpt(name);
    if (!knows_heads) named.heads = config.heads;
    if (named == config) return name;
  }
  return "";
}

int info(const ModelOptions& options) {
  if (options.in.empty()) throw UsageError("which file? write: zerolab model info FILE");
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
  if (const std::string name = name_of(c, info.knows_heads); !name.empty())
    document["model"] = name;
  print_document(document, options.json);
  return kFine;
}

int convert(const ModelOptions& options, const std::string& command) {
  if (options.out.empty())
    throw UsageError(str("two files are needed: zerolab model ", command, " IN OUT"));
  const auto weights = open_weights(options.in, options.heads);
  OutputFile file(options.out, options.in, options.force);
  const auto values = [&](const std::string& name) {
    if (interrupt_requested()) throw Interrupted();
    return weights->load(name);
  };
  const bool to_llmc = options.out.ends_with(".bin");
  file.write([&](const std::string& temporary) {
    (to_llmc ? save_llmc_weights : save_safetensors_weights)(temporary, weights->config(), values);
  });
  file.commit();
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

}  // namespace

void add_model(CLI::App& app, Invocation& invocation) {
  static ModelOptions options;
  CLI::App& model = *app.add_subcommand("model", "describe files of weights, or convert them");
  model.require_subcommand(1);
  const auto add = [&](const std::string& name, const char* help) {
    const bool converts = name != "info";
    Flags flags(model, invocation, name, help,
                [=] { return converts ? convert(options, name) : info(options); });
    flags.name(converts ? "IN" : "FILE", "",
               "safetensors, an index, a folder, or a model.bin of llm.c", options.in);
    if (converts) {
      flags.name("OUT", "", "the file to write; it must not exist", options.out);
      flags.toggle("--force", "replace OUT if it exists", options.force);
    }
    flags.add("--n-head", "N", options.heads, count_within(),
              "heads of each layer, if the file does not have their number");
    flags.toggle("--json", "print one JSON document instead of text", options.json);
    flags.footer(kModelFooter);
  };
  add("info", "sizes, parameters, types, heads and metadata of a file");
  add("import", "convert the weights of another program for zerolab");
  add("export", "convert weights of zerolab for another program");
}

}  // namespace zl::cli
