// Every promise of every stage and of a resumed run, on random configurations and on a set that
// holds many pairs of values, with ZEROLAB_NIGHTLY=1 most of them. A configuration is one 'zerolab
// compare', which checks each promised equality and each prediction of memory and traffic in its
// stages, or one 'zerolab train' that stops and is resumed.
//
//   ./zl test --random 1000 --seed 7 [--pairwise]
//
// runs more of them. Some values do not go together: what is refused with a known reason (exit code
// 2) is drawn again. One that does not fit its memory limit (3) is no failure.

#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <regex>

#include "tests/paths.h"
#include "tests/random/configurations.h"
#include "tests/zerolab/process.h"

namespace zl::test {
namespace {

// Sanitizers are ten times slower, and a few configurations reach all of the code.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int64_t kDrawn = 10, kPairs = 10;
#else
constexpr int64_t kDrawn = 16, kPairs = 25;
#endif
constexpr int64_t kMostPairs = 150;  // with ZEROLAB_NIGHTLY=1

// Why a configuration may be refused. Any other sentence is a finding.
const std::vector<std::string> kReasons = {
    R"(communication_data_type: error: zerolab\.reproducible adds in fp32)",
    R"(zero3_qwz quantizes its parameter shard on the device)",
    R"(replicated micro-batches have no reproducible sums)",
    R"((deepspeed-\d|fsdp2|torch-ddp).* sums as the real system does, which is not reproducible)",
    R"((deepspeed-\d|fsdp2|torch-ddp).*: zerolab does not predict this system's offload)",
    R"((hsdp|zero3_qwz|zero3_qgz) does not support reproducible sums)",
    R"(hsdp on [1235] ranks? has no default groups)",
    R"(: \d ranks? cannot be divided into (\d replicas|nodes of \d))",
    R"(zero3_qgz communicates gradients in 4 bits; leave communication_data_type out)",
    R"(a link is simulated only between ranks that are threads on the CPU, not between )",
};

bool known(const std::string& refusal) {
  for (const std::string& reason : kReasons)
    if (std::regex_search(refusal, std::regex(reason))) return true;
  return false;
}

struct Draw {
  int64_t count = kDrawn;
  uint64_t seed = 20261125;
  bool pairwise = false;
  bool progress = false;
  std::string extra = "";                               // words for every run
  std::string zerolab = "'" ZEROLAB_BINARY "' \"$@\"";  // how the shell runs it
};

// As asked by `./zl test --random`.
Draw asked(bool pairwise) {
  const bool nightly = std::getenv("ZEROLAB_NIGHTLY") != nullptr;
  Draw draw{.count = !pairwise ? kDrawn : nightly ? kMostPairs : kPairs, .pairwise = pairwise};
  if (const char* count = std::getenv("ZEROLAB_RANDOM_RUNS")) draw.count = std::atoll(count);
  if (const char* seed = std::getenv("ZEROLAB_RANDOM_SEED"))
    draw.seed = std::strtoull(seed, nullptr, 10);
  draw.progress = std::getenv("ZEROLAB_RANDOM_RUNS") != nullptr;
  return draw;
}

// How the configurations of a draw ended.
struct Drawn {
  int64_t ran = 0, resumed = 0, unfit = 0, refused = 0;
  size_t pairs = 0, pairs_run = 0;
  // Each with what it said and the command that repeats it; refusals: those without a known reason.
  std::vector<std::string> failures, refusals;
};

// One line on stderr; without a terminal about twenty.
class Progress {
 public:
  explicit Progress(const Draw& draw) : draw_(draw), begin_(Clock::now()) {
    if (draw_.progress)
      std::fprintf(stderr, "%lld %s configurations of seed %llu\n", (long long)draw.count,
                   draw.pairwise ? "pairwise" : "random", (unsigned long long)draw.seed);
  }
  void show(const Drawn& drawn) const {
    const bool terminal = isatty(STDERR_FILENO) == 1, last = drawn.ran == draw_.count;
    if (!draw_.progress || (!terminal && !last && drawn.ran % (draw_.count / 20 + 1) != 0)) return;
    const double seconds = std::chrono::duration<double>(Clock::now() - begin_).count();
    const double rest = seconds / double(drawn.ran) * double(draw_.count - drawn.ran);
    std::fprintf(stderr, "%s%lld/%lld, %zu failed, ETA %.0f s%s", terminal ? "\r\033[K" : "",
                 (long long)drawn.ran, (long long)draw_.count, drawn.failures.size(), rest,
                 terminal && !last ? "" : "\n");
  }

 private:
  using Clock = std::chrono::steady_clock;
  const Draw& draw_;
  Clock::time_point begin_;
};

// Another process, because a crash is a result like any other. Returns its exit code.
int run(const Draw& draw, const Configuration& configuration, Drawn& drawn) {
  const std::string line =
      "zerolab() { " + draw.zerolab + "; }; " + command_of(configuration, draw.extra);
  const cli::Finished finished = cli::shell(line, 300);
  const std::string said = finished.err + "repeat it: " + line + "\n";
  if (finished.code == 2) {
    ++drawn.refused;
    if (!known(finished.err)) drawn.refusals.push_back(said);
    return 2;
  }
  ++drawn.ran;
  drawn.resumed += line.find("zerolab train") < line.size();
  drawn.unfit += finished.code == 3;
  if (finished.code != 0 && finished.code != 3) {
    drawn.failures.push_back("exit code " + std::to_string(finished.code) + ": " + said);
    if (draw.progress) std::fprintf(stderr, "\n%s", drawn.failures.back().c_str());
  }
  return finished.code;
}

Drawn run_all(const Draw& draw) {
  Drawn drawn;
  const Progress progress(draw);
  PairwiseSet set(draw.seed);
  for (uint64_t attempt = 0; drawn.ran < draw.count; ++attempt) {
    REQUIRE(attempt < 10'000);
    const std::optional<Configuration> next =
        draw.pairwise ? set.next() : random_configuration(draw.seed, uint64_t(drawn.ran), attempt);
    if (!next) break;
    const bool runs = run(draw, *next, drawn) != 2;
    if (draw.pairwise) set.tell(*next, runs);
    if (runs) attempt = uint64_t(-1), progress.show(drawn);
  }
  drawn.pairs = set.pairs();
  drawn.pairs_run = set.covered();
  return drawn;
}

// Nothing failed, and each refusal has a known reason.
Drawn passed(const Draw& draw) {
  const Drawn drawn = run_all(draw);
  INFO("seed " << draw.seed);
  for (const auto* list : {&drawn.failures, &drawn.refusals})
    for (const std::string& what : *list) FAIL_CHECK(what);
  return drawn;
}

// A loss scale of 2^40 that cannot fall: the first overflow ends a run with 1.
const std::string kFailing =
    "--set fp16.enabled=true --set bf16.enabled=false --set fp16.loss_scale=0 "
    "--set fp16.initial_scale_power=40 --set fp16.hysteresis=1 "
    "--set fp16.min_loss_scale=1099511627776";

}  // namespace

TEST_CASE("randomly generated configurations keep every promise", "[random][drawn]") {
  const Draw draw = asked(false);
  const Drawn drawn = passed(draw);
  CHECK(drawn.ran == draw.count);
  if (draw.count < kDrawn) return;
  CHECK(drawn.resumed > 0);
  CHECK(drawn.resumed < drawn.ran);
}

// DeepSpeed's issue 996 was a bug of one pair.
TEST_CASE("configurations that hold many pairs of values keep every promise", "[random][pairs]") {
  const Draw draw = asked(true);
  const Drawn drawn = passed(draw);
  if (draw.count < kPairs) return;
  // A configuration of m options holds m (m - 1) / 2 pairs, here about 600.
  CHECK(drawn.pairs_run > 600);
  if (draw.count >= kMostPairs) CHECK(double(drawn.pairs_run) > 0.6 * double(drawn.pairs));
}

TEST_CASE("random configurations run on NCCL, too", "[random]") {
  CHECK(passed({.count = 4,
                .seed = 1337,
                .extra = "--backend nccl --device cpu",
                .zerolab = "'" ZEROLAB_BINARY_ON_FAKE "' launch -n "
                           "$(expr \"$*\" : '.*--ranks \\([0-9]*\\)') -- \"$@\""})
            .ran == 4);
}

TEST_CASE("a configuration that fails is found, with the command that repeats it", "[random]") {
  const Drawn drawn = run_all({.count = 2, .seed = 1337, .extra = kFailing});
  REQUIRE(drawn.failures.size() == 2);
  const std::string& failure = drawn.failures[1];
  CHECK(failure.starts_with("exit code 1: "));
  CHECK(cli::contains(failure, "the loss scale is at its minimum"));
  const std::string sign = "repeat it: ";
  CHECK(cli::shell(failure.substr(failure.find(sign) + sign.size())).code == 1);
}

TEST_CASE("a configuration that does not fit its memory is no failure", "[random]") {
  const Drawn drawn = run_all({.count = 2, .seed = 1337, .extra = "--device-memory 1000"});
  CHECK(drawn.unfit == 2);
  CHECK(drawn.failures.empty());
}

TEST_CASE("a refusal for another reason is a finding", "[random]") {
  CHECK(known("zerolab: hsdp on 3 ranks has no default groups"));
  CHECK_FALSE(known("zerolab: hsdp needs a full moon"));
  Drawn drawn;
  CHECK(run({.extra = "--no-such-flag"}, first_configuration(), drawn) == 2);
  REQUIRE(drawn.refusals.size() == 1);
  CHECK(cli::contains(drawn.refusals[0], "has no flag '--no-such-flag'"));
}

TEST_CASE("the seed determines the configurations", "[random]") {
  const auto drawn = [](uint64_t seed) {
    std::string all;
    PairwiseSet set(seed);
    for (uint64_t i = 0; i < 3; ++i) {
      all += command_of(random_configuration(seed, i, 0), "") + "\n";
      all += command_of(*set.next(), "") + "\n";
    }
    return all;
  };
  CHECK(cli::contains(drawn(4), "--ranks "));
  CHECK(drawn(4) == drawn(4));
  CHECK(drawn(4) != drawn(5));
}

}  // namespace zl::test
