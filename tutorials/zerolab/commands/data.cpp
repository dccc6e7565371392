// zerolab data: describes training data.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "nn/data/corpus.h"
#include "nn/data/token_data.h"
#include "nn/gpt.h"
#include "stages/train/trainer.h"
#include "tutorials/zerolab/cli/document.h"
#include "tutorials/zerolab/cli/flags.h"
#include "tutorials/zerolab/cli/interrupt.h"
#include "tutorials/zerolab/cli/quantity.h"

namespace zl::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kDataFooter =
    R"(A name that ends in .bin holds tokens: llm.c's format if it starts with 20240520, else uint16
as nanoGPT writes them. Any other file is text, and its bytes are the tokens (vocabulary 256).
The frequency entropy [nats] is the loss of a model that only knows how frequent each token is.

  zerolab data info 'fineweb_train_*.bin' --block-size 1024 --json)";

struct DataOptions {
  std::string file;
  int64_t block_size = GptConfig().block_size;
  bool json = false;
};

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

}  // namespace

void add_data(CLI::App& app, Invocation& invocation) {
  static DataOptions options;
  CLI::App& data = *app.add_subcommand("data", "describe training data");
  data.require_subcommand(1);

  Flags flags(data, invocation, "info", "files, tokens, vocabulary and windows",
              [] { return info(options); });
  flags.name("FILE", "", "a file or a quoted pattern (default: the text that comes with zerolab)",
             options.file);
  flags.add("--block-size", "T", options.block_size, count_within(),
            "tokens of a sequence (default 128)");
  flags.toggle("--json", "print one JSON document instead of text", options.json);
  flags.footer(kDataFooter);
}

}  // namespace zl::cli
