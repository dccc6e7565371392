// zerolab bench random: compares the stages on randomly generated configurations.
//
// A bug in a rare pair of options shows only where that pair is run. Hence random configurations,
// and a small set that holds every pair of values (Cohen et al. 1997, "The AETG system", section
// 3).

#include "tensor/random.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "tutorials/zerolab/bench/commands.h"
#include "tutorials/zerolab/bench/measure.h"
#include "tutorials/zerolab/cli/interrupt.h"
#include "tutorials/zerolab/cli/progress.h"
#include "tutorials/zerolab/cli/quantity.h"

namespace zl::cli {
namespace {

using Json = nlohmann::ordered_json;
using Arguments = std::vector<std::string>;

// The values of each option: words for the command line of 'zerolab compare'. KEY=VALUE stands for
// --set KEY=VALUE, and "" leaves the default.
const std::vector<std::vector<std::string>> kOptions = {
    {"--ranks 1", "--ranks 2", "--ranks 3", "--ranks 4", "--ranks 5"},
    {"--n-layer 1 --n-head 1 --n-embd 7 --block-size 5",
     "--n-layer 2 --n-head 2 --n-embd 12 --block-size 9",
     "--n-layer 3 --n-head 3 --n-embd 15 --block-size 4",
     "--n-layer 1 --n-head 4 --n-embd 20 --block-size 13"},
    {"--vocab-size 256", "--vocab-size 259"},
    {"", "bf16.enabled=true", "fp16.enabled=true"},
    {"", "fp16.loss_scale=128", "fp16.initial_scale_power=40 fp16.hysteresis=1",
     "fp16.loss_scale_window=1 fp16.initial_scale_power=4"},
    {"", "data_types.grad_accum_dtype=fp32"},
    {"", "communication_data_type=fp32", "communication_data_type=fp16",
     "communication_data_type=bf16"},
    {"", "--separate-master"},
    {"gradient_accumulation_steps=1", "gradient_accumulation_steps=2",
     "gradient_accumulation_steps=3"},
    {"train_micro_batch_size_per_gpu=1", "train_micro_batch_size_per_gpu=3"},
    {"", "zero_optimization.reduce_bucket_size=700", "zero_optimization.reduce_bucket_size=5e8"},
    {"", "zero_optimization.allgather_bucket_size=700",
     "zero_optimization.allgather_bucket_size=5e8"},
    {"", "zero_optimization.offload_optimizer.device=cpu"},
    {"", "zerolab.recompute=none", "zerolab.recompute=full",
     "activation_checkpointing.number_checkpoints=1",
     "activation_checkpointing.cpu_checkpointing=true",
     "activation_checkpointing.partition_activations=true zerolab.replicated_micro_batches=true"},
    {"", "optimizer.type=Adam optimizer.params.adam_w_mode=false", "optimizer.type=SGD",
     "optimizer.type=SGD optimizer.params.momentum=0.9"},
    {"", "optimizer.params.weight_decay=0.1",
     "optimizer.params.weight_decay=0.1 zerolab.no_weight_decay=*bias"},
    {"", "gradient_clipping=0.001", "gradient_clipping=1.0"},
    {"", "scheduler.type=WarmupLR scheduler.params.warmup_num_steps=2",
     "scheduler.type=WarmupDecayLR scheduler.params.warmup_num_steps=2 "
     "scheduler.params.total_num_steps=4",
     "scheduler.type=WarmupCosineLR scheduler.params.warmup_num_steps=2 "
     "scheduler.params.total_num_steps=4"},
    {"", "--shuffle"},
};

// The index of one value of each option.
using Configuration = std::vector<size_t>;

Configuration random_configuration(uint64_t seed, uint64_t index) {
  const PhiloxStream random{seed, index};
  Configuration configuration;
  for (const auto& values : kOptions)
    configuration.push_back(size_t(random.uniform(configuration.size()) * double(values.size())));
  return configuration;
}

// A set in which every two values of two options occur together at least once. A greedy search:
// each configuration starts from a new pair, and every further option takes the value that adds
// most new pairs.
std::vector<Configuration> pairwise_configurations() {
  constexpr size_t open = size_t(-1);        // no value yet
  std::set<std::array<size_t, 4>> together;  // option, its value, another option, its value
  const auto complete = [&](Configuration c) {
    for (size_t option = 0; option < c.size(); ++option) {
      if (c[option] != open) continue;
      size_t best = 0, most = 0;
      for (size_t value = 0; value < kOptions[option].size(); ++value) {
        size_t pairs = 0;
        for (size_t i = 0; i < c.size(); ++i)
          pairs += c[i] != open && !together.contains({i, c[i], option, value});
        if (pairs > most) best = value, most = pairs;
      }
      c[option] = best;
    }
    return c;
  };
  std::vector<Configuration> all;
  for (size_t i = 0; i < kOptions.size(); ++i)
    for (size_t j = i + 1; j < kOptions.size(); ++j)
      for (size_t a = 0; a < kOptions[i].size(); ++a)
        for (size_t b = 0; b < kOptions[j].size(); ++b) {
          if (together.contains({i, a, j, b})) continue;
          Configuration c(kOptions.size(), open);
          c[i] = a, c[j] = b;
          all.push_back(c = complete(c));
          for (size_t k = 0; k < c.size(); ++k)
            for (size_t l = 0; l < c.size(); ++l) together.insert({k, c[k], l, c[l]});
        }
  return all;
}

// The argument as a word of a shell command.
std::string shell_word(const std::string& argument) {
  const bool plain = !argument.empty() && std::ranges::all_of(argument, [](unsigned char c) {
    return std::isalnum(c) || std::strchr("-_=.,/:+%", c);
  });
  if (plain) return argument;
  std::string text = "'";
  for (const char c : argument) text += c == '\'' ? "'\\''" : std::string(1, c);
  return text + "'";
}

// Runs this program again as another process, because a crash is a result like any other. Returns
// the exit code (128 + the signal that ended it), the command that repeats it, and its stderr.
Json run_compare(const Configuration& configuration, const Arguments& extra) {
  std::string arguments = " compare --steps 3";
  for (size_t option = 0; option < configuration.size(); ++option) {
    std::istringstream words(kOptions[option][configuration[option]]);
    for (std::string word; words >> word;)
      arguments += (word.find('=') < word.size() ? " --set " : " ") + shell_word(word);
  }
  for (const std::string& word : extra) arguments += " " + shell_word(word);
  const std::string line = str("exec /proc/", getpid(), "/exe", arguments, " 2>&1 >/dev/null");
  FILE* pipe = popen(line.c_str(), "r");
  require_input(pipe != nullptr, "a comparison could not be started: ", std::strerror(errno));
  std::string err;
  char text[4096];
  for (ssize_t n = 1; n > 0 || (n < 0 && errno == EINTR);) {
    n = read(fileno(pipe), text, sizeof text);
    if (n > 0) err.append(text, size_t(n));
  }
  const int status = pclose(pipe);
  return {{"exit_code", WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status)},
          {"repeat", "zerolab" + arguments},
          {"stderr", err}};
}

struct RandomOptions {
  std::optional<int64_t> count;
  std::optional<uint64_t> seed;
  bool pairwise = false, json = false, quiet = false;
  Arguments extra;  // arguments for every comparison
};

std::string headline(const Json& failure) {
  return str("configuration ", failure["index"], " ended with ", failure["exit_code"], ": ",
             failure["repeat"].get<std::string>());
}

Json compare_all(const RandomOptions& options) {
  std::vector<Configuration> pairs;
  if (options.pairwise) pairs = pairwise_configurations();
  const int64_t count = options.pairwise ? int64_t(pairs.size()) : options.count.value_or(100);
  const uint64_t seed = options.seed.value_or(1337);
  const auto begin = std::chrono::steady_clock::now();
  Progress progress(count, options.quiet);
  Json failed = Json::array();
  int64_t done = 0, does_not_fit = 0;
  for (; done < count && !interrupt_requested(); ++done) {
    progress.item(str("comparison, ", failed.size(), " failed"));
    const Json result = run_compare(
        options.pairwise ? pairs[size_t(done)] : random_configuration(seed, uint64_t(done)),
        options.extra);
    const int code = result["exit_code"];
    if (code == 130 || interrupt_requested()) break;
    require_input(code != 2 || options.extra.empty(),
                  "compare refuses the arguments after --: ", result["stderr"].get<std::string>());
    does_not_fit += code == 3;
    if (code == 0 || code == 3) continue;
    failed.push_back({{"index", done + 1}});
    failed.back().update(result);
    progress.line(headline(failed.back()));
  }
  progress.clear();
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return {{"schema", 1},
          {"command", "bench random"},
          {"ok", failed.empty() && done == count},
          {"pairwise", options.pairwise},
          {"seed", options.pairwise ? Json(nullptr) : Json(seed)},
          {"requested", count},
          {"count", done},
          {"does_not_fit", does_not_fit},
          {"seconds", seconds},
          {"failed", failed}};
}

std::string text(const Json& report) {
  std::string all;
  for (const Json& f : report["failed"])
    all += headline(f) + "\n" + f["stderr"].get<std::string>() + "\n";
  const int64_t unfit = report["does_not_fit"];
  return all + str(report["count"], " configurations ",
                   report["pairwise"].get<bool>() ? "that hold every pair of values"
                                                  : str("of seed ", report["seed"]),
                   ": ", report["failed"].size(), " failed",
                   unfit > 0 ? str(", ", unfit, " did not fit their memory") : "", " (",
                   short_time(report["seconds"]), ")\n");
}

int bench_random(const RandomOptions& options) {
  for (const std::string& word : options.extra)
    if (word == "--help" || word == "-h" || word == "--version")
      throw UsageError("'" + word + "' after -- would compare nothing");
  if (options.pairwise && (options.count || options.seed))
    throw UsageError("--pairwise is one fixed set; leave out --count and --seed");
  const Json report = compare_all(options);
  print_results(report, options.json, text);
  return report["count"] < report["requested"] ? 130 : report["failed"].empty() ? 0 : 1;
}

constexpr const char* kFooter =
    R"(Each configuration is one 'zerolab compare' of a small model. It sets ranks, sizes,
precision, loss scale, gradient types, accumulation, buckets, offload, activation checkpointing,
optimizer, decay, clipping and schedule. Every promised equality and every prediction of memory and
traffic is checked in all four stages. A configuration that fails is printed as the command line
that repeats it.

Examples:
  zerolab bench random --count 1000 --seed 7
  zerolab bench random --pairwise
  zerolab bench random --count 20 -- --device-memory 1MiB

Exit codes: 0 all passed, 1 some failed, 2 usage, 130 Ctrl-C)";

void add_bench_random(CLI::App& bench, Invocation& invocation) {
  static RandomOptions options;
  Flags flags(bench, invocation, "random",
              "compare the stages on randomly generated configurations",
              [] { return bench_random(options); });
  flags.value("--count", "N", "number of configurations (default 100)",
              [](const auto& text) { options.count = read_count(text, 1); });
  flags.value("--seed", "S", "seed of the random configurations (default 1337)",
              [](const auto& text) { options.seed = uint64_t(read_count(text)); });
  flags.toggle("--pairwise",
               "instead, a small fixed set that holds every two values of two options",
               options.pairwise);
  flags.rest("FLAGS", "after --: flags of compare, beside those that a configuration sets",
             options.extra);
  flags.toggle("--json", "one JSON document on stdout instead of the text", options.json);
  flags.toggle("-q,--quiet", "no progress", options.quiet);
  flags.footer(kFooter);
}

}  // namespace

void add_bench(CLI::App& app, Invocation& invocation) {
  CLI::App& bench = *app.add_subcommand(
      "bench",
      "speed of the machine, collectives, kernels and steps; the clock; random comparisons");
  bench.require_subcommand(1);
  add_bench_machine(bench, invocation);
  add_bench_comm(bench, invocation);
  add_bench_disk(bench, invocation);
  add_bench_kernels(bench, invocation);
  add_bench_step(bench, invocation);
  add_bench_clock(bench, invocation);
  add_bench_random(bench, invocation);
}

}  // namespace zl::cli
