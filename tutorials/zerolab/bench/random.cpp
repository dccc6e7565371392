// zerolab bench random: runs randomly generated configurations.
//
// A bug in a rare pair of options shows only where that pair is run. Hence random configurations,
// and a small set that holds every pair of values.

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tutorials/zerolab/bench/commands.h"
#include "tutorials/zerolab/bench/measure.h"
#include "tutorials/zerolab/cli/interrupt.h"
#include "tutorials/zerolab/cli/progress.h"
#include "tutorials/zerolab/cli/quantity.h"
#include "tutorials/zerolab/random/pairwise.h"

namespace zl::cli {
namespace {

using Json = nlohmann::ordered_json;
using Arguments = std::vector<std::string>;

// One run of a command line. `code`: 128 + the signal if one ended it.
struct Trial {
  int code = 0;
  std::string command, err;
};

// Runs this program again as another process, because a crash is a result like any other.
Trial run_trial(const std::string& command) {
  const std::string line =
      str("exec 2>&1 >/dev/null; zerolab() { /proc/", getpid(), "/exe \"$@\"; }; ", command);
  FILE* pipe = popen(line.c_str(), "r");
  require_input(pipe != nullptr, "a run could not be started: ", std::strerror(errno));
  std::string err;
  char text[4096];
  for (ssize_t n = 1; n > 0 || (n < 0 && errno == EINTR);) {
    n = read(fileno(pipe), text, sizeof text);
    if (n > 0) err.append(text, size_t(n));
  }
  const int status = pclose(pipe);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), command, err};
}

// The sentence with which a run was refused.
std::string reason(const Trial& trial) {
  std::istringstream lines(trial.err);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("zerolab: ") || line.find(": error: ") < line.size()) return line;
  return trial.err;
}

struct RandomOptions {
  std::optional<int64_t> count;
  std::optional<uint64_t> seed;
  bool pairwise = false, json = false, quiet = false;
  Arguments extra;  // arguments for every run
};

std::string headline(const Json& failure) {
  return str("configuration ", failure["index"], " ended with ", failure["exit_code"], ": ",
             failure["repeat"].get<std::string>());
}

// The configurations that ran and how they ended, and those that were refused.
struct Results {
  int64_t ran = 0, resumed = 0, does_not_fit = 0, refused = 0;
  Json failed = Json::array();
  std::map<std::string, Json> reasons;  // by the sentence

  void take(const Trial& trial, Progress& progress) {
    if (trial.code == kUsage) {
      ++refused;
      Json& entry = reasons[reason(trial)];
      if (entry.is_null()) entry = {{"count", 0}, {"repeat", trial.command}};
      entry["count"] = entry["count"].get<int64_t>() + 1;
      return;
    }
    ++ran;
    resumed += !trial.command.starts_with("zerolab compare");
    does_not_fit += trial.code == kOutOfMemory;
    if (trial.code == kFine || trial.code == kOutOfMemory) return;
    failed.push_back({{"index", ran},
                      {"exit_code", trial.code},
                      {"repeat", trial.command},
                      {"stderr", trial.err}});
    progress.line(headline(failed.back()));
  }
  Json refusals() const {
    Json list = Json::array();
    for (const auto& [sentence, entry] : reasons) {
      list.push_back({{"reason", sentence}});
      list.back().update(entry);
    }
    return list;
  }
};

// Flags that no configuration takes would be refused without end.
void require_extra_arguments(const RandomOptions& options) {
  for (const std::string& word : options.extra)
    if (word == "--help" || word == "-h" || word == "--version")
      throw UsageError("'" + word + "' after -- would compare nothing");
  if (options.extra.empty()) return;
  const Configuration first(random_options().size(), 0);
  const Trial trial = run_trial(command_of(first, options.extra));
  require_input(trial.code != kUsage, "compare refuses the arguments after --: ", trial.err);
}

Json run_all(const RandomOptions& options) {
  constexpr uint64_t kMostAttempts = 10'000;
  const uint64_t seed = options.seed.value_or(1337);
  std::optional<PairwiseSet> pairs;
  if (options.pairwise) pairs.emplace(seed);
  const int64_t all = pairs ? int64_t(pairs->pairs()) : 100;
  const int64_t count = options.count.value_or(all);
  const auto begin = std::chrono::steady_clock::now();
  Progress progress(count, options.quiet);
  Results results;
  bool complete = false;
  for (uint64_t attempt = 0; !complete && !interrupt_requested(); ++attempt) {
    std::optional<Configuration> next = pairs ? pairs->next() : std::optional<Configuration>();
    complete = results.ran == count || (pairs && !next);
    if (complete) break;
    if (!pairs) next = random_configuration(seed, uint64_t(results.ran), attempt);
    if (pairs && !options.count)
      progress.share(double(pairs->done()) / double(all), "pairs");
    else if (attempt == 0)
      progress.item(str("configuration, ", results.failed.size(), " failed"));
    require_input(attempt < kMostAttempts, "each of ", attempt, " configurations was refused");
    const Trial trial = run_trial(command_of(*next, options.extra));
    if (trial.code == 130 || interrupt_requested()) break;
    results.take(trial, progress);
    if (pairs) pairs->tell(*next, trial.code != kUsage);
    if (trial.code != kUsage) attempt = uint64_t(-1);
  }
  progress.clear();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  Json report{{"schema", 2},
              {"command", "bench random"},
              {"ok", results.failed.empty() && complete},
              {"complete", complete},
              {"pairwise", options.pairwise},
              {"seed", seed},
              {"count", results.ran},
              {"resumed", results.resumed},
              {"does_not_fit", results.does_not_fit},
              {"refused", results.refused}};
  if (pairs)
    report.update({{"pairs", pairs->pairs()},
                   {"pairs_run", pairs->covered()},
                   {"pairs_refused", pairs->impossible()}});
  report.update(
      {{"seconds", seconds.count()}, {"failed", results.failed}, {"refusals", results.refusals()}});
  return report;
}

std::string text(const Json& report) {
  std::string all;
  for (const Json& f : report["failed"])
    all += headline(f) + "\n" + f["stderr"].get<std::string>() + "\n";
  const int64_t unfit = report["does_not_fit"];
  all += str(report["count"], " configurations of seed ", report["seed"], ": ",
             report["failed"].size(), " failed");
  if (unfit > 0) all += str(", ", unfit, " did not fit their memory");
  all += str(" (", report["resumed"], " were resumed runs; ", report["refused"],
             " others were refused; ", short_time(report["seconds"]), ")\n");
  if (report["pairwise"].get<bool>())
    all += str("They hold ", report["pairs_run"], " of ", report["pairs"], " pairs of values; ",
               report["pairs_refused"], " do not go together\n");
  return all;
}

int bench_random(const RandomOptions& options) {
  require_extra_arguments(options);
  const Json report = run_all(options);
  print_results(report, options.json, text);
  return !report["complete"].get<bool>() ? 130 : report["failed"].empty() ? kFine : kFailed;
}

constexpr const char* kFooter =
    R"(Most configurations are one 'zerolab compare' of a small model: every promised equality and
every prediction of memory and traffic is checked in its stages. The others are a 'zerolab train'
that stops and is resumed: all metrics and weights must be those of a run without the stop.
A configuration sets the stages, variants or systems as shipped, ranks, sizes, precision, loss
scale, gradient types, reproducible sums, accumulation, buckets, overlap, prefetch, a simulated
link, offload to the host and to disk, memory limits, activation checkpointing, optimizer, decay,
clipping, schedule and compute threads.
Some values do not go together. A configuration that is refused with one sentence (exit code 2) is
drawn again; --json lists these sentences. One that fails is printed as the command line that
repeats it. Files of offload are in /tmp.
--pairwise goes on until every two values of two options ran together, or were refused also beside
the first values of all options. With --count it ends earlier; the first configurations hold the
most pairs.

Examples:
  zerolab bench random --count 1000 --seed 7
  zerolab bench random --pairwise
  zerolab bench random --pairwise --count 150 --seed 7
  zerolab bench random --count 20 -- --device-memory 1MiB

Exit codes: 0 all passed, 1 some failed, 2 usage, 130 Ctrl-C)";

void add_bench_random(CLI::App& bench, Invocation& invocation) {
  static RandomOptions options;
  Flags flags(bench, invocation, "random",
              "run randomly generated configurations: comparisons and resumed runs",
              [] { return bench_random(options); });
  flags.value("--count", "N",
              "number of configurations that run (default 100; with --pairwise all)",
              [](const auto& text) { options.count = read_count(text, 1); });
  flags.value("--seed", "S", "seed of the random configurations (default 1337)",
              [](const auto& text) { options.seed = uint64_t(read_count(text)); });
  flags.toggle("--pairwise", "instead, a small set that holds every two values of two options",
               options.pairwise);
  flags.rest("FLAGS", "after --: more flags of compare and train, for every configuration",
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
