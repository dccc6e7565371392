// zerolab bench comm: times collectives and checks their results, with nccl-tests' columns.

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "dist/trace/call_times.h"
#include "tutorials/zerolab/bench/collectives.h"
#include "tutorials/zerolab/bench/commands.h"
#include "tutorials/zerolab/bench/machine_rates.h"
#include "tutorials/zerolab/cli/interrupt.h"
#include "tutorials/zerolab/cli/progress.h"
#include "tutorials/zerolab/cli/quantity.h"
#include "tutorials/zerolab/run/machine.h"

namespace zl::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kCommRanks = 4;

constexpr Collective kCollectives[] = {Collective::all_reduce, Collective::all_gather,
                                       Collective::reduce_scatter, Collective::broadcast,
                                       Collective::all_to_all};

struct CommOptions : RunOptions {
  std::vector<Collective> collectives = {Collective::all_reduce};
  int64_t min = 8 << 10, max = 64 << 20;  // [B]
  int64_t factor = 4;                     // from one size to the next
  TrialCalls number;
  Dtype dtype = Dtype::f32;
};

// ---- the times of the slowest rank --------------------------------------------------------------

std::vector<int64_t> of_all_ranks(int64_t mine, Communicator& comm) {
  std::vector<int64_t> all;
  for (const std::string& text : comm.all_gather_object(std::to_string(mine), "measured"))
    all.push_back(std::stoll(text));
  return all;
}

double slowest_seconds(CollectiveTrial& trial, Communicator& comm) {  // [s] the same on all ranks
  if (interrupt_requested()) throw Interrupted();
  return 1e-9 * double(std::ranges::max(of_all_ranks(trial.time(), comm)));
}

int64_t wrong_values(CollectiveTrial& trial, Communicator& comm) {
  trial.fill();
  trial.call();
  const std::vector<int64_t> wrong = of_all_ranks(trial.wrong(), comm);
  return std::accumulate(wrong.begin(), wrong.end(), int64_t(0));
}

// The system may start two ranks on one core and move one of them later: then calls take long, and
// a fifth of a second in them gives it the time.
void wait_until_spread(Communicator& comm, Memory& memory) {
  CollectiveTrial trial({Collective::all_reduce, 1 << 16, Dtype::f32}, comm, memory);
  double spent = 0;
  for (int i = 0; i < 2000 && spent < 0.2; ++i) spent += slowest_seconds(trial, comm);
}

}  // namespace

void time_trials(std::vector<TimedTrial>& trials, const TrainingSpec& spec,
                 const TrialCalls& number, const std::function<void(const TimedTrial&)>& begin) {
  const auto body = [&](Communicator& comm) {
    const RankBackends backends = spec.backends ? spec.backends(comm.rank()) : RankBackends();
    Memory memory({spec.device}, backends.device ? *backends.device : cpu_backend(), comm.events());
    wait_until_spread(comm, memory);
    for (int64_t round = 0; round < number.rounds; ++round)
      for (TimedTrial& trial : trials) {
        if (comm.rank() == 0) begin(trial);
        CollectiveTrial collective(trial.spec, comm, memory);
        const int64_t wrong = round == 0 ? wrong_values(collective, comm) : 0;
        if (comm.rank() == 0) trial.wrong += wrong;  // the ranks that are threads share the trials
        for (int64_t i = -number.warm_up; i < number.calls; ++i) {
          const double seconds = slowest_seconds(collective, comm);
          if (comm.rank() == 0 && i >= 0) trial.seconds.push_back(seconds);
        }
      }
  };
  spec.run_ranks ? spec.run_ranks(spec.ranks, body, spec.rank_options)
                 : run_ranks(spec.ranks, body, spec.rank_options);
}

// ---- the command --------------------------------------------------------------------------------

namespace {

// As nccl-tests reads sizes: 8K and 64M are powers of 1,024. Also accepts the sizes of zerolab.
int64_t read_bytes(const std::string& text) {
  return read_size(text.find_first_of("KMG") + 1 == text.size() ? text + "iB" : text);
}

// nccl-tests' name.
const char* type_name(Dtype type) {
  return type == Dtype::bf16 ? "bfloat16" : type == Dtype::f16 ? "half" : "float";
}

// nccl-tests' redop.
std::string reduction_of(const Json& collective) {
  return collective == "all_reduce" || collective == "reduce_scatter" ? "sum" : "none";
}

std::vector<TimedTrial> all_trials(const CommOptions& options, int ranks) {
  std::vector<TimedTrial> all;
  for (const Collective kind : options.collectives) {
    const bool slices = kind != Collective::all_reduce && kind != Collective::broadcast;
    const int64_t least = slices ? ranks : 1;  // [n] of which there are whole numbers
    const size_t before = all.size();
    for (int64_t bytes = options.min;; bytes *= options.factor) {
      const int64_t count = bytes / size_of(options.dtype) / least * least;
      if (count > 0) all.push_back({{kind, count, options.dtype}});
      if (options.factor == 1 || bytes > options.max / options.factor) break;
    }
    require_input(all.size() > before, "no size from --min-bytes to --max-bytes has an element of ",
                  type_name(options.dtype), " for each of ", plural(ranks, "rank"),
                  "; try larger sizes");
  }
  return all;
}

Json trial_json(const TimedTrial& trial, int ranks) {
  const Collective kind = trial.spec.kind;
  const std::string reduction = reduction_of(name(kind));
  const Spread seconds = spread_of(trial.seconds);
  const Bandwidth bits =  // [Gbit/s]
      bandwidth(name(kind), trial.bytes(), 1e9 * seconds.median, ranks);
  return {{"collective", name(kind)},
          {"bytes", trial.bytes()},
          {"elements", trial.spec.count},
          {"type", type_name(trial.spec.dtype)},
          {"in_place", kind != Collective::all_to_all},
          {"reduction", reduction == "sum" ? Json(reduction) : Json()},
          {"seconds", seconds},
          {"algorithm_bytes_per_second", 1e9 * bits.algorithm / 8},
          {"bus_bytes_per_second", 1e9 * bits.bus / 8},
          {"wrong", trial.wrong}};
}

// `ranks`: on this machine. Each has a buffer to send from and one to receive into.
void check(const CommOptions& options, int64_t ranks, bool on_gpus) {
  require_input(options.min <= options.max, "--min-bytes ", options.min,
                " is more than --max-bytes ", options.max);
  const int64_t available = on_gpus ? 0 : available_memory();
  require_input(available == 0 || options.max <= available / 2 / ranks, "--max-bytes ", options.max,
                " takes up to twice as much on each of ", ranks, " ranks, but only ",
                human_bytes(available), " of memory are available; try less");
}

int bench_comm(CommOptions options) {
  const std::optional<LaunchedRank> process = launched_rank(options);
  TrainingSpec spec;
  spec.ranks = process ? process->size : options.ranks.value_or(kCommRanks);
  spec.rank_options.timeout = options.spec.rank_options.timeout;
  const DeviceChoice device = choose_device(options, options.dtype, spec.ranks, process);
  const BackendChoice backend = choose_backend(options, device, spec.ranks, process);
  check(options, process ? process->local_size : spec.ranks, device.on_gpus());
  std::vector<TimedTrial> trials = all_trials(options, spec.ranks);
  std::string settings = str("bench comm ", int(options.dtype), " ", options.number.calls, " ",
                             options.number.warm_up);
  for (const TimedTrial& t : trials) settings += str(" ", name(t.spec.kind), " ", t.bytes());
  place(spec, device);
  place(spec, backend, device, settings);
  Progress progress(std::ssize(trials), options.quiet);
  time_trials(trials, spec, options.number, [&](const TimedTrial& t) {
    progress.item(str(name(t.spec.kind), " of ", human_bytes(t.bytes())));
  });
  progress.clear();
  if (!is_first(process)) return kFine;
  Json results = Json::array();
  double bus = 0;  // [B/s]
  for (const TimedTrial& t : trials) {
    results.push_back(trial_json(t, spec.ranks));
    bus += results.back()["bus_bytes_per_second"].get<double>();
  }
  Json report = document<Json>("bench comm", device);
  report["ok"] = std::ranges::all_of(trials, [](const auto& trial) { return trial.wrong == 0; });
  report.update({{"ranks", spec.ranks},
                 {"backend", name(spec.transport)},
                 {"ordered", spec.ordered()},
                 {"description",
                  str(describe(backend, spec.ordered_sums), "; ", describe(device, spec.ranks))},
                 {"iterations", options.number.calls},
                 {"warm_up", options.number.warm_up},
                 {"average_bus_bytes_per_second", bus / double(trials.size())},
                 {"results", results}});
  const auto giga = [](const Json& value) { return format("%.2f", double(value) / 1e9); };
  print_results(report, options.json, "results",
                {{"collective", "/collective", as_is},
                 {"size", "/bytes", as_is},
                 {"count", "/elements", as_is},
                 {"type", "/type", as_is},
                 {"redop", "/collective", reduction_of},
                 {"time", "/seconds/median", as_seconds},
                 {"algbw", "/algorithm_bytes_per_second", giga},
                 {"busbw", "/bus_bytes_per_second", giga},
                 {"#wrong", "/wrong", as_is}});
  return report["ok"] ? kFine : kFailed;
}

constexpr const char* kCommFooter =
    R"(The columns are those of nccl-tests: size is the bytes of the unsharded side; time is that of
the slowest rank, the median of all calls; algbw, in GB/s, is the size divided by the time; busbw
is algbw times an ideal ring's traffic per link: 2(N-1)/N for all_reduce, (N-1)/N for
reduce_scatter, all_gather and all_to_all, 1 for broadcast, which on NCCL and MPI is a send from
the root to each rank. #wrong counts the values of one call that are not exactly right. All but
all_to_all are in place.

  zerolab bench comm --ranks 2 --collective all_gather,reduce_scatter --dtype bf16
  zerolab launch -n 8 -- bench comm -b 8 -e 1G -f 2

Exit codes: 0 fine, 1 a value was wrong, 2 usage, 3 out of memory, 4 communication, 130 Ctrl-C)";

}  // namespace

void add_bench_comm(CLI::App& bench, Invocation& invocation) {
  static CommOptions options;
  Flags flags(bench, invocation, "comm", "time of collectives, with a check of their results",
              [] { return bench_comm(options); });
  flags.group("What");
  flags.value("--collective", "LIST",
              "all_reduce, all_gather, reduce_scatter, broadcast, all_to_all, separated by\n"
              "commas (default all_reduce)",
              [](const auto& text) {
                std::vector<std::string> names;
                for (const Collective kind : kCollectives) names.emplace_back(name(kind));
                options.collectives.clear();
                for (const std::string& word : comma_list(text))
                  options.collectives.push_back(kCollectives[choose(word, names)]);
              });
  flags.add("-b,--min-bytes", "SIZE", options.min, read_bytes,
            "smallest size, such as 8K, of 1,024 bytes each (default 8K)");
  flags.add("-e,--max-bytes", "SIZE", options.max, read_bytes,
            "upper limit of the sizes (default 64M)");
  flags.add("-d,--dtype", "TYPE", options.dtype, read_precision,
            "fp32, bf16 or fp16 (default fp32)");
  flags.add("-f,--factor", "F", options.factor, count_within(1, 1 << 20),
            "from one size to the next; 1: only the smallest (default 4)");
  flags.add("-n,--iterations", "N", options.number.calls, count_within(1, 1000000),
            "timed calls (default 20)");
  flags.add("-w,--warm-up", "N", options.number.warm_up, count_within(0, 1000000),
            "calls before the timed ones (default 5)");
  add_shared_flags(flags, options);
  flags.footer(kCommFooter);
}

}  // namespace zl::cli
