// zerolab data: describes training data, and writes text of known entropy.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "nn/data/corpus.h"
#include "nn/data/markov.h"
#include "nn/data/token_data.h"
#include "nn/gpt.h"
#include "stages/train/trainer.h"
#include "tensor/io/file_calls.h"
#include "tensor/memory.h"
#include "tutorials/zerolab/cli/flags.h"
#include "tutorials/zerolab/cli/interrupt.h"
#include "tutorials/zerolab/cli/json_output.h"
#include "tutorials/zerolab/cli/number_text.h"
#include "tutorials/zerolab/cli/output_file.h"
#include "tutorials/zerolab/cli/printable.h"
#include "tutorials/zerolab/cli/quantity.h"

namespace zl::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kDataFooter =
    R"(A name that ends in .bin holds tokens: llm.c's format if it starts with 20240520, else uint16
as nanoGPT writes them. Any other file is text, and its bytes are the tokens (vocabulary 256). A
quoted pattern means all files that match.
A window is the data of one row of a batch: T inputs and, shifted by one, T targets. A file of n
tokens has (n - 1) / T windows, rounded down; no window crosses a file. Without FILE: the text that
comes with zerolab.

  zerolab data info input.txt
  zerolab data info 'fineweb_train_*.bin' --block-size 1024 --json)";

constexpr const char* kSynthFooter =
    R"(A Markov source over 8 symbols: each symbol depends on the one before it only. So the lowest
loss that a model can reach is known, the entropy of the source, and training can approach it.
OUT is text; a name that ends in .bin gets the same symbols as uint16 tokens. The same seed writes
the same file, and a shorter file is the beginning of a longer one.

  zerolab data synth synth.txt --tokens 1e6 --seed 1
  zerolab train --model tiny --data synth.txt --steps 500)";

struct InfoOptions {
  std::string file;
  int64_t block_size = GptConfig().block_size;
  bool json = false;
};

struct DataInfo {
  TokenData data;
  int64_t block_size = 0;
  std::vector<int64_t> counts;  // of each token
  int64_t distinct = 0;
  int64_t largest = 0;           // token
  double frequency_entropy = 0;  // [nats] of the tokens' frequencies
  int64_t windows = 0, held_out = 0;
};

int64_t windows_of(int64_t tokens, int64_t block_size) {
  return tokens > 0 ? (tokens - 1) / block_size : 0;
}

void count_tokens(DataInfo& info) {
  std::vector<int32_t> chunk(1 << 16);
  for (int file = 0; file < info.data.files(); ++file) {
    const int64_t n = info.data.file_tokens(file);
    for (int64_t first = 0; first < n; first += int64_t(chunk.size())) {
      if (interrupt_requested()) throw Interrupted();
      const std::span<int32_t> part(chunk.data(),
                                    size_t(std::min<int64_t>(n - first, int64_t(chunk.size()))));
      info.data.read(file, first, part);
      for (const int32_t token : part) {
        if (size_t(token) >= info.counts.size()) info.counts.resize(size_t(token) + 1);
        ++info.counts[size_t(token)];
      }
    }
  }
}

DataInfo read_info(const InfoOptions& options) {
  DataInfo info{.data = options.file.empty()
                            ? TokenData::of_text("the text that comes with zerolab",
                                                 std::string(default_corpus()))
                            : TokenData::open(options.file),
                .block_size = options.block_size};
  count_tokens(info);
  const double all = double(info.data.tokens());
  for (size_t token = 0; token < info.counts.size(); ++token) {
    if (info.counts[token] == 0) continue;
    const double p = double(info.counts[token]) / all;
    info.frequency_entropy -= p * std::log(p);
    info.largest = int64_t(token);
    ++info.distinct;
  }
  for (int file = 0; file < info.data.files(); ++file)
    info.windows += windows_of(info.data.file_tokens(file), info.block_size);
  info.held_out = (info.windows + 9) / 10;
  return info;
}

bool is_text(const TokenData& data) {
  for (int file = 0; file < data.files(); ++file)
    if (data.file_format(file) != std::string_view("text")) return false;
  return true;
}

void print_data_text(const DataInfo& info) {
  const auto line = [](const char* what, const std::string& text) {
    std::printf("%-12s%s\n", what, printable(text).c_str());
  };
  line("data", info.data.files() == 1 ? info.data.name()
                                      : str(info.data.name(), ", ", info.data.files(), " files"));
  for (int file = 0; file < info.data.files(); ++file) {
    line("file", str(info.data.file_name(file), ": ", info.data.file_format(file), ", ",
                     info.data.file_tokens(file), " tokens, ",
                     windows_of(info.data.file_tokens(file), info.block_size), " windows"));
  }
  line("tokens", str(info.data.tokens()));
  line("vocabulary",
       str(info.distinct, " different tokens, the largest is ", info.largest, ": --vocab-size ",
           is_text(info.data) ? 256 : info.largest + 1, is_text(info.data) ? "" : " or more"));
  line("loss", format("%.3f nats per token for a model that knows only how frequent each token is",
                      info.frequency_entropy));
  if (info.windows == 0) {
    line("windows", str("none of T = ", info.block_size, ": no file has more than ",
                        info.block_size, " tokens; use a smaller --block-size"));
  } else {
    line("windows", str(info.windows, " of T = ", info.block_size, "; with --eval-every ",
                        info.windows - info.held_out, " train and the last ", info.held_out,
                        info.held_out == 1 ? " is" : " are", " held out"));
  }
}

void print_data_document(const DataInfo& info) {
  Json files = Json::array();
  for (int file = 0; file < info.data.files(); ++file)
    files.push_back({{"file", info.data.file_name(file)},
                     {"format", info.data.file_format(file)},
                     {"tokens", info.data.file_tokens(file)},
                     {"windows", windows_of(info.data.file_tokens(file), info.block_size)}});
  print_json(Json{{"schema", 1},
                  {"command", "data info"},
                  {"data", info.data.name()},
                  {"files", files},
                  {"tokens", info.data.tokens()},
                  {"distinct_tokens", info.distinct},
                  {"largest_token", info.largest},
                  {"frequency_entropy", info.frequency_entropy},
                  {"block_size", info.block_size},
                  {"windows", info.windows},
                  {"held_out_windows", info.held_out},
                  {"training_windows", info.windows - info.held_out}});
}

struct SynthOptions {
  std::string out;
  int64_t tokens = 1'000'000;
  uint64_t seed = 1337;
  bool json = false, force = false;
};

void write_symbols(const SynthOptions& options, const MarkovSource& source,
                   const std::string& path) {
  PendingFile file(path);
  const bool as_tokens = options.out.ends_with(".bin");
  std::string wide;
  source.generate(options.tokens, [&](std::string_view symbols) {
    if (interrupt_requested()) throw Interrupted();
    if (!as_tokens) return file.write(symbols.data(), symbols.size());
    wide.clear();
    for (const char c : symbols) wide += {c, '\0'};  // little-endian uint16
    file.write(wide.data(), wide.size());
  });
  file.commit();
}

// Throws InputError if the disk has too little room.
void require_room(const SynthOptions& options) {
  const std::filesystem::path folder = std::filesystem::path(options.out).parent_path();
  std::error_code error;
  const auto space = std::filesystem::space(folder.empty() ? "." : folder, error);
  const double bytes = double(options.tokens) * (options.out.ends_with(".bin") ? 2 : 1);
  require_input(error || bytes <= double(space.available), "--tokens ", options.tokens,
                " would take ", human_bytes(int64_t(std::min(bytes, 9e18))), ", but the disk of '",
                options.out, "' has ", human_bytes(int64_t(space.available)),
                " free; ask for fewer tokens");
}

int synth(const SynthOptions& options) {
  if (options.out.empty()) throw UsageError("which file? write: zerolab data synth OUT");
  OutputFile file(options.out, "", options.force);
  require_room(options);
  const MarkovSource source(options.seed);
  file.write([&](const std::string& temporary) { write_symbols(options, source, temporary); });
  file.commit();
  if (options.json) {
    print_json(Json{{"schema", 1},
                    {"command", "data synth"},
                    {"out", options.out},
                    {"tokens", options.tokens},
                    {"seed", options.seed},
                    {"symbols", MarkovSource::kSymbols},
                    {"entropy", source.entropy()}});
    return kFine;
  }
  std::printf("%s: %lld tokens of %d symbols, seed %llu\n", printable(options.out).c_str(),
              (long long)options.tokens, MarkovSource::kSymbols, (unsigned long long)options.seed);
  std::printf(
      "entropy %.6f nats per token: no model's loss can stay below it (equal probabilities give "
      "ln %d = %.3f)\n",
      source.entropy(), MarkovSource::kSymbols, std::log(MarkovSource::kSymbols));
  return kFine;
}

uint64_t read_seed(const std::string& text) {
  uint64_t seed = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
  require_input(error == std::errc() && end == text.data() + text.size(), "'", text,
                "' is not a whole number from 0 to 2^64 - 1");
  return seed;
}

}  // namespace

void add_data(CLI::App& app, Invocation& invocation) {
  CLI::App& data = *app.add_subcommand("data", "describe training data, or write synthetic data");
  data.require_subcommand(1);

  auto info = std::make_shared<InfoOptions>();
  Flags flags(data, invocation, "info", "files, tokens, vocabulary and windows", [info] {
    const DataInfo found = read_info(*info);
    info->json ? print_data_document(found) : print_data_text(found);
    return kFine;
  });
  flags.name("FILE", "", "a file or a quoted pattern (default: the text that comes with zerolab)",
             info->file);
  flags.value("--block-size", "T", "tokens of a sequence (default 128)",
              [info](const auto& text) { info->block_size = read_count(text, 1); });
  flags.toggle("--json", "print one JSON document instead of text", info->json);
  flags.footer(kDataFooter);

  auto options = std::make_shared<SynthOptions>();
  Flags more(data, invocation, "synth", "write text of known entropy",
             [options] { return synth(*options); });
  more.value("OUT", "", "the file to write; it must not exist",
             [options](const auto& text) { options->out = text; });
  more.value("--tokens", "N", "length, such as 200000 or 1e6 (default 1e6)",
             [options](const auto& text) { options->tokens = read_count(text, 2); });
  more.value("--seed", "S", "seed of the source and the text (default 1337)",
             [options](const auto& text) { options->seed = read_seed(text); });
  more.toggle("--force", "replace OUT if it exists", options->force);
  more.toggle("--json", "print one JSON document instead of text", options->json);
  more.footer(kSynthFooter);
}

}  // namespace zl::cli
