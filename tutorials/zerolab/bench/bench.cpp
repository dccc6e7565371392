// zerolab bench: what is measured, and long runs that do not belong into the tests.

#include "tutorials/zerolab/bench/bench.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "tutorials/zerolab/bench/configuration_space.h"
#include "tutorials/zerolab/cli/flags.h"
#include "tutorials/zerolab/cli/interrupt.h"
#include "tutorials/zerolab/cli/progress.h"
#include "tutorials/zerolab/cli/quantity.h"
#include "tutorials/zerolab/cli/terminal.h"

namespace zl::cli {
namespace {

struct RandomOptions {
  std::optional<int64_t> count;  // default 100
  std::optional<uint64_t> seed;  // default 1337
  bool pairwise = false, json = false, quiet = false;
  std::vector<std::string> extra;  // arguments for every comparison
};

// A configuration that did not do what it should.
struct Failure {
  int64_t index;
  int code;  // 128 + the signal if one ended it
  std::string command, said;
};

struct Ended {
  int code;
  std::string said;  // on stderr
};

// This program once more, with other arguments, in a process of its own: one that crashes is a
// result like any other.
Ended run_self(const std::vector<std::string>& arguments) {
  std::vector<char*> argv = {const_cast<char*>("zerolab")};
  for (const std::string& a : arguments) argv.push_back(const_cast<char*>(a.c_str()));
  argv.push_back(nullptr);
  const int said = memfd_create("stderr", MFD_CLOEXEC);
  require_input(said >= 0, "no room for the output of a comparison: ", std::strerror(errno));
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, 1, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_adddup2(&files, said, 2);
  pid_t child = 0;
  const int error = posix_spawn(&child, "/proc/self/exe", &files, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  require_input(error == 0, "a comparison could not be started: ", std::strerror(error));
  int status = 0;
  pid_t ended_child = 0;
  while ((ended_child = waitpid(child, &status, 0)) < 0 && errno == EINTR) {
  }
  require_input(ended_child == child, "a comparison was lost: ", std::strerror(errno));
  Ended ended{WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), ""};
  char text[4096];
  ssize_t n = 0;
  for (off_t at = 0; (n = pread(said, text, sizeof text, at)) > 0; at += n)
    ended.said.append(text, size_t(n));
  close(said);
  return ended;
}

// A line for a shell.
std::string shell_line(const std::vector<std::string>& arguments) {
  std::string line = "zerolab";
  for (const std::string& a : arguments) {
    const bool plain = !a.empty() && std::ranges::all_of(a, [](unsigned char c) {
      return std::isalnum(c) || std::strchr("-_=.,/:+%", c);
    });
    std::string quoted;
    for (const char c : a) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
    line += plain ? " " + a : " '" + quoted + "'";
  }
  return line;
}

class RandomRun {
 public:
  explicit RandomRun(const RandomOptions& options)
      : options_(options), terminal_(standard_error(Color::automatic)) {
    for (const std::string& word : options.extra)
      if (word == "--help" || word == "-h" || word == "--version")
        throw UsageError("'" + word + "' after -- would compare nothing");
    if (options.pairwise) pairs_ = pairwise_configurations();
    if (options.pairwise && (options.count || options.seed))
      throw UsageError("--pairwise is one fixed set; leave out --count and --seed");
    count_ = options.pairwise ? int64_t(pairs_.size()) : options.count.value_or(100);
    seed_ = options.seed.value_or(1337);
  }

  int run() {
    for (; done_ < count_ && !interrupt_requested(); ++done_) {
      std::vector<std::string> arguments = compare_arguments(
          options_.pairwise ? pairs_[size_t(done_)] : random_configuration(seed_, uint64_t(done_)));
      arguments.insert(arguments.end(), options_.extra.begin(), options_.extra.end());
      Ended ended = run_self(arguments);
      if (ended.code == 130 || interrupt_requested()) break;
      require_input(
          ended.code != 2 || options_.extra.empty(),
          "compare refuses what follows --, beside a configuration's own flags: ", ended.said);
      does_not_fit_ += ended.code == 3;
      if (ended.code != 0 && ended.code != 3)
        fail({done_ + 1, ended.code, shell_line(arguments), ended.said});
      progress();
    }
    if (terminal_.rewrites && !options_.quiet) std::fputs("\r\x1b[K", stderr);
    report();
    return done_ < count_ ? 130 : failures_.empty() ? 0 : 1;
  }

 private:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }

  void fail(Failure failure) {
    if (!options_.quiet && terminal_.rewrites) std::fputs("\r\x1b[K", stderr);
    std::fprintf(stderr, "configuration %lld ended with %d: %s\n", (long long)failure.index,
                 failure.code, failure.command.c_str());
    failures_.push_back(std::move(failure));
  }

  void progress() {
    const int64_t n = done_ + 1, every = std::max<int64_t>(1, count_ / 10);
    if (options_.quiet || (!terminal_.rewrites && n % every != 0)) return;
    const std::string line = str(n, "/", count_, " compared, ", failures_.size(), " failed, ETA ",
                                 short_time(seconds() / double(n) * double(count_ - n)));
    std::fputs((terminal_.rewrites ? "\r" + line + "\x1b[K" : line + "\n").c_str(), stderr);
  }

  void report() const {
    if (options_.json) {
      nlohmann::ordered_json json{{"schema", 1},
                                  {"command", "bench random"},
                                  {"ok", failures_.empty() && done_ == count_},
                                  {"pairwise", options_.pairwise},
                                  {"seed", options_.pairwise ? nlohmann::ordered_json(nullptr)
                                                             : nlohmann::ordered_json(seed_)},
                                  {"count", done_},
                                  {"does_not_fit", does_not_fit_},
                                  {"seconds", seconds()},
                                  {"failed", nlohmann::ordered_json::array()}};
      for (const Failure& f : failures_)
        json["failed"].push_back(
            {{"index", f.index}, {"exit_code", f.code}, {"repeat", f.command}, {"stderr", f.said}});
      std::printf("%s\n",
                  json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
      return;
    }
    for (const Failure& f : failures_)
      std::printf("configuration %lld ended with %d\n  %s\n%s\n", (long long)f.index, f.code,
                  f.command.c_str(), f.said.c_str());
    const std::string drawn =
        options_.pairwise ? "that hold every pair of values" : str("of seed ", seed_);
    const std::string unfit =
        does_not_fit_ > 0 ? str(", ", does_not_fit_, " did not fit their memory") : "";
    std::printf("%lld configurations %s: %zu failed%s (%s)\n", (long long)done_, drawn.c_str(),
                failures_.size(), unfit.c_str(), short_time(seconds()).c_str());
  }

  const RandomOptions& options_;
  Terminal terminal_;
  std::vector<Configuration> pairs_;
  std::vector<Failure> failures_;
  int64_t count_ = 0, done_ = 0, does_not_fit_ = 0;
  uint64_t seed_ = 0;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

constexpr const char* kRandomFooter =
    R"(Each configuration is one 'zerolab compare' of a small model: ranks, sizes, precision, loss scale, types of gradients,
accumulation, buckets, offload, recomputation, optimizer, decay, clipping, schedule. Every equality that is promised and
every prediction of memory and traffic is checked, in all four stages. One that fails is printed as the command line
that repeats it.

Examples:
  zerolab bench random --count 1000 --seed 7
  zerolab bench random --pairwise
  zerolab bench random --count 20 -- --device-memory 1MiB

Exit codes: 0 all passed, 1 some failed, 2 usage, 130 Ctrl-C)";

}  // namespace

void add_bench(CLI::App& app, Invocation& invocation) {
  CLI::App& bench = *app.add_subcommand(
      "bench",
      "speed of the machine, collectives, kernels and steps; comparisons of random configurations");
  bench.require_subcommand(1);
  add_bench_machine(bench, invocation);
  add_bench_comm(bench, invocation);
  add_bench_kernels(bench, invocation);
  add_bench_step(bench, invocation);
  static RandomOptions options;
  Flags flags(bench, invocation, "random", "compare the stages on configurations drawn at random",
              [] { return RandomRun(options).run(); });
  flags.value("--count", "N", "how many configurations (default 100)",
              [](const auto& text) { options.count = read_count(text, 1); });
  flags.value("--seed", "S", "that they are drawn by (default 1337)",
              [](const auto& text) { options.seed = uint64_t(read_count(text)); });
  flags.toggle("--pairwise", "instead, a small set in which every two values of two options meet",
               options.pairwise);
  flags.rest("FLAGS", "of compare, after --, beside those that a configuration sets itself",
             options.extra);
  flags.toggle("--json", "one JSON document on stdout instead of the text", options.json);
  flags.toggle("-q,--quiet", "no progress", options.quiet);
  flags.footer(kRandomFooter);
}

}  // namespace zl::cli
