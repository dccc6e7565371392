// zerolab model: describes a file of weights, or converts it to another format.

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "nn/formats/llmc.h"
#include "stages/deepspeed/json_text.h"
#include "stages/train/trainer.h"
#include "tensor/memory.h"
#include "tutorials/zerolab/cli/flags.h"
#include "tutorials/zerolab/cli/interrupt.h"
#include "tutorials/zerolab/cli/json_output.h"
#include "tutorials/zerolab/cli/output_file.h"
#include "tutorials/zerolab/cli/printable.h"
#include "tutorials/zerolab/cli/quantity.h"

namespace zl::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kModelFooter =
    R"(FILE is what --init-from takes: a safetensors file with the names of Hugging Face's GPT-2,
the index of several, a folder with either, or a model.bin of llm.c. Tensors do not show the number
of heads: it comes from the metadata (n_head), from config.json or from --n-head.

  zerolab model info runs/first/model.safetensors
  zerolab model info gpt2.safetensors --n-head 12 --json)";

constexpr const char* kConvertFooter =
    R"(The name of OUT decides its format: .bin is llm.c's (fp32, version 3), any other name is
safetensors. The format of IN is recognised by its content. Values do not change, except that fp16
and bf16 become fp32. safetensors files are written with the names of Hugging Face's GPT-2 without
prefix, in fp32, with n_head in the metadata. A linear weight is stored (in, out) there and
(out, in) in llm.c.
)";

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

void print_model_text(const std::string& file, const GptWeights& weights) {
  const GptConfig& c = weights.config();
  const WeightsInfo& info = weights.info();
  const auto line = [](const char* what, const std::string& text) {
    std::printf("%-12s%s\n", what, printable(text).c_str());
  };
  const std::string name = name_of(c, info.knows_heads);
  line("file", str(file, ", ", human_bytes(info.bytes)));
  line("format", str(weights.format(), ", ", info.types));
  line("model", str("GPT-2, ", c.layers, c.layers == 1 ? " layer" : " layers", ", width ", c.width,
                    name.empty() ? "" : ": the sizes of " + name));
  line("heads", info.knows_heads ? str(c.heads, " of width ", c.width / c.heads)
                                 : "not in the file: --n-head N, or n_head in its metadata");
  line("positions", str(c.block_size, " (block size)"));
  line("vocabulary", str(c.vocab, " tokens"));
  const int64_t n = c.parameters();
  line("parameters", str(n, ", ", human_bytes(4 * n),
                         " in fp32; training with AdamW in fp32 keeps 4 + 4 + 8 bytes of each: ",
                         human_bytes(16 * n)));
  for (const std::string& note : info.notes) line("note", note);
  for (const auto& [key, value] : info.metadata)
    line("metadata", str(in_quotes(key), " is ", in_quotes(value)));
}

void print_model_document(const std::string& file, const GptWeights& weights) {
  const GptConfig& c = weights.config();
  const WeightsInfo& info = weights.info();
  Json document{{"schema", 1},
                {"command", "model info"},
                {"file", file},
                {"format", weights.format()},
                {"dtype", info.types},
                {"layers", c.layers},
                {"heads", nullptr},
                {"width", c.width},
                {"block_size", c.block_size},
                {"vocab_size", c.vocab},
                {"parameters", c.parameters()},
                {"bytes", info.bytes},
                {"metadata", info.metadata}};
  if (!info.notes.empty()) document["notes"] = info.notes;
  if (info.knows_heads) document["heads"] = c.heads;
  if (const std::string name = name_of(c, info.knows_heads); !name.empty())
    document["model"] = name;
  print_json(document);
}

int info(const ModelOptions& options) {
  if (options.in.empty()) throw UsageError("which file? write: zerolab model info FILE");
  const auto weights = open_weights(options.in, options.heads, false);
  (options.json ? print_model_document : print_model_text)(options.in, *weights);
  return kFine;
}

int convert(const ModelOptions& options, const char* command) {
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
  const int64_t bytes = int64_t(std::filesystem::file_size(options.out)),
                n = weights->config().parameters();
  const char* format = to_llmc ? "llm.c fp32" : "safetensors";
  if (options.json)
    print_json(Json{{"schema", 1},
                    {"command", str("model ", command)},
                    {"in", options.in},
                    {"in_format", weights->format()},
                    {"out", options.out},
                    {"out_format", format},
                    {"parameters", n},
                    {"bytes", bytes}});
  else
    std::printf("%s: %s, %lld parameters, %s (from %s, %s)\n", printable(options.out).c_str(),
                format, (long long)n, human_bytes(bytes).c_str(), printable(options.in).c_str(),
                weights->format());
  return kFine;
}

void add_common(Flags& flags, ModelOptions& options) {
  flags.value("--n-head", "N", "heads of each layer, if the file does not have their number",
              [&](const auto& text) { options.heads = read_count(text, 1); });
}

void add_convert(CLI::App& model, Invocation& invocation, const char* command,
                 const char* description, const char* examples) {
  auto options = std::make_shared<ModelOptions>();
  Flags flags(model, invocation, command, description,
              [options, command] { return convert(*options, command); });
  flags.value("IN", "", "the file to read", [options](const auto& text) { options->in = text; });
  flags.value("OUT", "", "the file to write; it must not exist",
              [options](const auto& text) { options->out = text; });
  add_common(flags, *options);
  flags.toggle("--force", "replace OUT if it exists", options->force);
  flags.toggle("--json", "print one JSON document instead of text", options->json);
  flags.footer(std::string(kConvertFooter) + examples);
}

}  // namespace

void add_model(CLI::App& app, Invocation& invocation) {
  CLI::App& model = *app.add_subcommand("model", "describe files of weights, or convert them");
  model.require_subcommand(1);
  auto options = std::make_shared<ModelOptions>();
  Flags flags(model, invocation, "info", "sizes, parameters, types, heads and metadata of a file",
              [options] { return info(*options); });
  flags.value("FILE", "", "safetensors, an index, a folder, or a model.bin of llm.c",
              [options](const auto& text) { options->in = text; });
  add_common(flags, *options);
  flags.toggle("--json", "print one JSON document instead of text", options->json);
  flags.footer(kModelFooter);
  add_convert(model, invocation, "import", "convert the weights of another program for zerolab", R"(
  zerolab model import gpt2_124M.bin gpt2.safetensors                    # from llm.c
  zerolab model import pytorch/model.safetensors gpt2.safetensors --n-head 12
  zerolab train --init-from gpt2.safetensors --data input.bin)");
  add_convert(model, invocation, "export", "convert weights of zerolab for another program", R"(
  zerolab model export runs/first/model.safetensors first.bin            # for llm.c)");
}

}  // namespace zl::cli
