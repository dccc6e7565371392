// zerolab data: describes training data, and writes text of known entropy.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "nn/data/corpus.h"
#include "nn/data/markov.h"
#include "nn/data/token_data.h"
#include "nn/gpt.h"
#include "stages/train/trainer.h"
#include "tensor/io/file_calls.h"
#include "tutorials/zerolab/cli/document.h"
#include "tutorials/zerolab/cli/flags.h"
#include "tutorials/zerolab/cli/interrupt.h"
#include "tutorials/zerolab/cli/output_file.h"
#include "tutorials/zerolab/cli/quantity.h"

namespace zl::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMostTokens = 10'000'000'000;  // a typing error fills no disk

constexpr const char* kDataFooter =
    R"(A name that ends in .bin holds tokens: llm.c's format if it starts with 20240520, else uint16
as nanoGPT writes them. Any other file is text, and its bytes are the tokens (vocabulary 256).
A file of n tokens has (n - 1) / T windows of T inputs and T targets; --eval-every holds out the
last tenth. The frequency entropy [nats] is the loss of a model that knows only how frequent each
token is.

  zerolab data info 'fineweb_train_*.bin' --block-size 1024 --json)";

constexpr const char* kSynthFooter =
    R"(A Markov source over 8 symbols: each symbol depends on the one before it only. The lowest
loss that a model can reach is the entropy of the source [nats per token]. OUT is text; a name that
ends in .bin gets uint16 tokens. The same seed writes the same file, a shorter one its beginning.

  zerolab data synth synth.txt --tokens 1e6 --seed 1)";

struct DataOptions {
  std::string file;
  int64_t block_size = GptConfig().block_size, tokens = 1'000'000;
  uint64_t seed = 1337;
  bool json = false, force = false;
};

// Adds how often each token occurs in the file.
void count_tokens(const TokenData& data, int file, std::vector<int64_t>& counts) {
  std::vector<int32_t> chunk(1 << 16);
  for (int64_t first = 0, n = data.file_tokens(file); first < n; first += std::ssize(chunk)) {
    if (interrupt_requested()) throw Interrupted();
    chunk.resize(size_t(std::min(n - first, std::ssize(chunk))));
    data.read(file, first, chunk);
    for (const int32_t token : chunk) {
      if (token >= std::ssize(counts)) counts.resize(size_t(token) + 1);
      ++counts[size_t(token)];
    }
  }
}

int info(const DataOptions& options) {
  const TokenData data =
      options.file.empty()
          ? TokenData::of_text("the text that comes with zerolab", std::string(default_corpus()))
          : TokenData::open(options.file);
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

int synth(const DataOptions& options) {
  if (options.file.empty()) throw UsageError("which file? write: zerolab data synth OUT");
  const size_t width = options.file.ends_with(".bin") ? 2 : 1;  // [B] little-endian tokens
  const MarkovSource source(options.seed);
  OutputFile out(options.file, "", options.force);
  out.write([&](const std::string& temporary) {
    PendingFile file(temporary);
    source.generate(options.tokens, [&](std::string_view symbols) {
      if (interrupt_requested()) throw Interrupted();
      std::string bytes(width * symbols.size(), '\0');
      for (size_t i = 0; i < symbols.size(); ++i) bytes[width * i] = symbols[i];
      file.write(bytes.data(), bytes.size());
    });
    file.commit();
  });
  out.commit();
  print_document(Json{{"schema", 1},
                      {"command", "data synth"},
                      {"out", options.file},
                      {"tokens", options.tokens},
                      {"seed", options.seed},
                      {"symbols", MarkovSource::kSymbols},
                      {"entropy", source.entropy()}},
                 options.json);
  return kFine;
}

}  // namespace

void add_data(CLI::App& app, Invocation& invocation) {
  static DataOptions options;
  CLI::App& data = *app.add_subcommand("data", "describe training data, or write synthetic data");
  data.require_subcommand(1);

  Flags flags(data, invocation, "info", "files, tokens, vocabulary and windows",
              [] { return info(options); });
  flags.name("FILE", "", "a file or a quoted pattern (default: the text that comes with zerolab)",
             options.file);
  flags.add("--block-size", "T", options.block_size, count_within(),
            "tokens of a sequence (default 128)");
  flags.toggle("--json", "print one JSON document instead of text", options.json);
  flags.footer(kDataFooter);

  Flags more(data, invocation, "synth", "write text of known entropy",
             [] { return synth(options); });
  more.name("OUT", "", "the file to write; it must not exist", options.file);
  more.add("--tokens", "N", options.tokens, count_within(2, kMostTokens),
           "length, such as 200000 or 1e6 (default 1e6)");
  more.add("--seed", "S", options.seed, read_seed,
           "seed of the source and the text (default 1337)");
  more.toggle("--force", "replace OUT if it exists", options.force);
  more.toggle("--json", "print one JSON document instead of text", options.json);
  more.footer(kSynthFooter);
}

}  // namespace zl::cli
