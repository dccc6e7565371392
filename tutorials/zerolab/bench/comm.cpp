// zerolab bench comm: how fast collectives are and whether they are right, in the columns of
// nccl-tests.

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "dist/processes/wire.h"
#include "dist/trace/call_times.h"
#include "dist/trace/collective_trial.h"
#include "tutorials/zerolab/bench/bench.h"
#include "tutorials/zerolab/bench/bench_progress.h"
#include "tutorials/zerolab/bench/measure.h"
#include "tutorials/zerolab/cli/interrupt.h"
#include "tutorials/zerolab/cli/nearest.h"
#include "tutorials/zerolab/cli/quantity.h"
#include "tutorials/zerolab/run/backend_choice.h"
#include "tutorials/zerolab/run/machine.h"

namespace zl::cli {
namespace {

constexpr int kDefaultRanks = 4;

struct CommOptions : RunOptions {
  std::vector<Collective> collectives = {Collective::all_reduce};
  int64_t least = 8 << 10, most = 64 << 20, factor = 4;  // [B], [B], from one size to the next
  int64_t iterations = 20, warm_up = 5;
  Dtype dtype = Dtype::f32;
  bool check = true, unordered = false;
};

struct CommRow {
  TrialSpec trial;
  Spread seconds;
  int64_t wrong = 0;  // of all ranks
  int64_t bytes() const { return trial.count * size_of(trial.dtype); }
  Bandwidth gigabytes(int ranks) const {  // per second
    const Bandwidth bits = bandwidth(name(trial.kind), bytes(), 1e9 * seconds.median, ranks);
    return {bits.algorithm / 8, bits.bus / 8};
  }
};

constexpr std::pair<const char*, Collective> kCollectives[] = {
    {"all_reduce", Collective::all_reduce},         {"all_gather", Collective::all_gather},
    {"reduce_scatter", Collective::reduce_scatter}, {"broadcast", Collective::broadcast},
    {"all_to_all", Collective::all_to_all},         {"send_receive", Collective::send}};

const char* shown(Collective kind) {
  return std::ranges::find(kCollectives, kind, &std::pair<const char*, Collective>::second)->first;
}
// As nccl-tests calls it.
const char* shown(Dtype type) {
  return type == Dtype::bf16 ? "bfloat16" : type == Dtype::f16 ? "half" : "float";
}
bool adds(Collective kind) {
  return kind == Collective::all_reduce || kind == Collective::reduce_scatter;
}
bool slices(Collective kind) {
  return kind != Collective::all_reduce && kind != Collective::broadcast &&
         kind != Collective::send;
}

std::vector<Collective> read_collectives(const std::string& text) {
  std::vector<Collective> chosen;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    std::string all;
    std::vector<std::string> names;
    for (const auto& [known, kind] : kCollectives) {
      if (word == known) chosen.push_back(kind);
      all += (all.empty() ? "" : ", ") + std::string(known);
      names.push_back(known);
    }
    require_input(std::ranges::find(names, word) != names.end(), "'", word, "' is none of ", all,
                  did_you_mean(word, names));
    begin = end + 1;
  }
  return chosen;
}

// As nccl-tests reads sizes, where 8K and 64M are powers of 1,024; and as all of zerolab.
int64_t read_bytes(const std::string& text) {
  const bool bare =
      !text.empty() && std::string_view("KMG").find(text.back()) != std::string_view::npos;
  return read_size(bare ? text + "iB" : text);
}

std::vector<TrialSpec> trials(const CommOptions& options, int ranks) {
  std::vector<TrialSpec> all;
  for (const Collective kind : options.collectives) {
    for (int64_t bytes = options.least; bytes <= options.most; bytes *= options.factor) {
      int64_t count = bytes / size_of(options.dtype);
      if (slices(kind)) count = count / ranks * ranks;
      if (count > 0) all.push_back({kind, count, options.dtype});
      if (options.factor == 1 || bytes > options.most / options.factor) break;
    }
    require_input(!all.empty() && all.back().kind == kind,
                  "no size from --min-bytes to --max-bytes has an element of ",
                  shown(options.dtype), " for each of ", ranks, ranks == 1 ? " rank" : " ranks",
                  "; try larger ones");
  }
  return all;
}

// One rank's part of one row. Rank 0 gets what all measured.
std::optional<CommRow> measure(const TrialSpec& trial, const CommOptions& options,
                               Communicator& comm, Memory& memory) {
  CollectiveTrial own(trial, comm, memory);
  int64_t wrong = 0;
  if (options.check) {
    own.fill();
    own.call();
    wrong = own.wrong();
  }
  own.clear();
  WireWriter wire;
  wire.put(wrong);
  for (int64_t i = -options.warm_up; i < options.iterations; ++i) {
    if (interrupt_requested()) throw Interrupted();
    const int64_t nanoseconds = own.time();
    if (i >= 0) wire.put(nanoseconds);
  }
  const std::vector<std::string> all = comm.exchange(wire.take(), "measured");
  if (comm.rank() != 0) return std::nullopt;
  CommRow row{.trial = trial};
  std::vector<double> slowest(size_t(options.iterations), 0.0);
  for (const std::string& part : all) {
    WireReader reader(part);
    row.wrong += reader.get<int64_t>();
    for (double& seconds : slowest)
      seconds = std::max(seconds, 1e-9 * double(reader.get<int64_t>()));
  }
  row.seconds = spread_of(std::move(slowest));
  return row;
}

std::vector<CommRow> measure(const CommOptions& options, const TrainingSpec& spec) {
  const std::vector<TrialSpec> all = trials(options, spec.ranks);
  BenchProgress progress(int64_t(all.size()),
                         options.quiet);  // touched by rank 0 alone, as the rows
  std::vector<CommRow> rows;
  const auto body = [&](Communicator& comm) {
    const RankBackends backends = spec.backends ? spec.backends(comm.rank()) : RankBackends{};
    Memory memory({spec.device}, backends.device ? *backends.device : cpu_backend(), comm.events());
    for (const TrialSpec& trial : all) {
      if (comm.rank() == 0)
        progress.next(
            str(shown(trial.kind), " of ", human_bytes(trial.count * size_of(trial.dtype))));
      if (const auto row = measure(trial, options, comm, memory)) rows.push_back(*row);
    }
  };
  spec.run_ranks ? spec.run_ranks(spec.ranks, body, spec.rank_options)
                 : run_ranks(spec.ranks, body, spec.rank_options);
  return rows;
}

struct CommReport {
  const CommOptions& options;
  const TrainingSpec& spec;
  const DeviceChoice& device;
  const BackendChoice& backend;
  std::vector<CommRow> rows;
  bool right() const {
    return std::ranges::all_of(rows, [](const CommRow& r) { return r.wrong == 0; });
  }
};

std::string text(const CommReport& report) {
  const int ranks = report.spec.ranks;
  std::string all = str(
      "# ", ranks, ranks == 1 ? " rank; " : " ranks; ",
      describe(report.backend, report.spec.config), "; ", describe(report.device, ranks),
      "\n# in place, but for all_to_all and send_receive; the time is the slowest rank's, the "
      "median of ",
      report.options.iterations, " calls after ", report.options.warm_up, "; GB = 1e9 bytes\n#\n",
      "#       size         count      type   redop     time   algbw   busbw #wrong\n"
      "#        (B)    (elements)                       (us)  (GB/s)  (GB/s)\n");
  const CommRow* before = nullptr;
  double sum = 0;
  for (const CommRow& r : report.rows) {
    if (!before || before->trial.kind != r.trial.kind) all += str(shown(r.trial.kind), "\n");
    before = &r;
    const Bandwidth rate = r.gigabytes(ranks);
    sum += rate.bus;
    char line[160];
    std::snprintf(line, sizeof line, "%12lld%14lld%10s%8s%9.1f%8.2f%8.2f%7s\n",
                  (long long)r.bytes(), (long long)r.trial.count, shown(r.trial.dtype),
                  adds(r.trial.kind) ? "sum" : "none", 1e6 * r.seconds.median, rate.algorithm,
                  rate.bus, report.options.check ? std::to_string(r.wrong).c_str() : "N/A");
    all += line;
  }
  return all +
         str("# average bus bandwidth: ", digits(sum / double(report.rows.size()), 3), " GB/s\n") +
         (report.right() ? "" : "CHECK FAILED: values came out wrong\n");
}

std::string json(const CommReport& report) {
  using Json = nlohmann::ordered_json;
  Json json{{"schema", 1},
            {"command", "bench comm"},
            {"ok", report.right()},
            {"ranks", report.spec.ranks},
            {"device", name(report.spec.device)},
            {"device_name", report.device.name()},
            {"backend", name(report.spec.transport)},
            {"ordered", report.spec.ordered()},
            {"iterations", report.options.iterations},
            {"warm_up", report.options.warm_up},
            {"results", Json::array()}};
  for (const CommRow& r : report.rows) {
    const Bandwidth rate = r.gigabytes(report.spec.ranks);
    json["results"].push_back(
        {{"collective", shown(r.trial.kind)},
         {"bytes", r.bytes()},
         {"elements", r.trial.count},
         {"type", shown(r.trial.dtype)},
         {"in_place", r.trial.kind != Collective::all_to_all && r.trial.kind != Collective::send},
         {"reduction", adds(r.trial.kind) ? Json("sum") : Json(nullptr)},
         {"seconds",
          {{"median", r.seconds.median}, {"min", r.seconds.least}, {"max", r.seconds.most}}},
         {"algorithm_bytes_per_second", 1e9 * rate.algorithm},
         {"bus_bytes_per_second", 1e9 * rate.bus},
         {"wrong", report.options.check ? Json(r.wrong) : Json(nullptr)}});
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

// What processes must have alike.
std::string settings(const CommOptions& o) {
  std::string text = str("bench comm ", int(o.dtype), " ", o.least, " ", o.most, " ", o.factor, " ",
                         o.iterations, " ", o.warm_up, " ", o.check, o.unordered);
  for (const Collective kind : o.collectives) text += str(" ", shown(kind));
  return text;
}

int bench_comm(CommOptions options) {
  const std::optional<LaunchedRank> process = launched_rank(options);
  if (!is_first(process)) hush(options);
  TrainingSpec spec;
  spec.ranks = process ? process->size : options.ranks.value_or(kDefaultRanks);
  spec.config.ordered = !options.unordered;
  spec.rank_options.timeout = std::chrono::milliseconds(int64_t(options.timeout * 1000));
  require_input(options.least <= options.most, "--min-bytes ", options.least,
                " is more than --max-bytes ", options.most);
  const bool sends =
      std::ranges::find(options.collectives, Collective::send) != options.collectives.end();
  require_input(!sends || spec.ranks > 1,
                "send_receive needs at least 2 ranks, one to send and one to receive");
  const DeviceChoice device =
      process ? choose_device_of_process(options, options.dtype, process->local_rank)
              : choose_device(options, options.dtype, spec.ranks);
  const BackendChoice backend = choose_backend(options, device, spec.ranks, process);
  require_input(backend.on_nccl() || !options.unordered,
                "--unordered leaves sums to NCCL, but these ranks are threads; leave it out");
  // From and to, of all ranks.
  const int64_t here = device.on_gpus() ? 0 : available_memory();
  const int sharing = process ? process->local_size : spec.ranks;
  require_input(here == 0 || options.most <= here / 2 / sharing, "--max-bytes ", options.most,
                " takes up to twice as much on each of ", sharing, " ranks, but this machine has ",
                human_bytes(here), " left; try less");
  place(spec, device);
  place(spec, backend, device, settings(options));
  const CommReport report{options, spec, device, backend, measure(options, spec)};
  if (!is_first(process)) return 0;
  std::fputs((options.json ? json(report) : text(report)).c_str(), stdout);
  return report.right() ? 0 : 1;
}

constexpr const char* kFooter =
    R"(The columns are those of nccl-tests. A size is that of the unsharded side; algbw is the size over the time, and busbw that times
what an ideal ring moves: 2(N-1)/N for all_reduce, (N-1)/N for reduce_scatter, all_gather and all_to_all, else 1. All of them
work in place, but for all_to_all and send_receive, in which each rank sends to the next. #wrong counts the values of all ranks
that one call gives and that are not exactly right. 8K, 64M and 1G are powers of 1,024, as in nccl-tests.

Examples:
  zerolab bench comm
  zerolab bench comm --ranks 2 --collective all_gather,reduce_scatter --dtype bf16
  zerolab bench comm -b 8 -e 1G -f 2 --backend nccl --ranks 8

Exit codes: 0 fine, 1 a value was wrong, 2 usage, 3 out of memory, 4 communication, 130 Ctrl-C)";

}  // namespace

void add_bench_comm(CLI::App& bench, Invocation& invocation) {
  static CommOptions options;
  Flags flags(bench, invocation, "comm", "how long collectives take, and whether they are right",
              [] { return bench_comm(options); });
  flags.group("What");
  flags.value("--collective", "LIST",
              "of all_reduce, all_gather, reduce_scatter, broadcast, all_to_all, "
              "send_receive\nwith commas between (default all_reduce)",
              [](const auto& text) { options.collectives = read_collectives(text); });
  flags.value("-b,--min-bytes", "SIZE", "the smallest (default 8K)",
              [](const auto& text) { options.least = read_bytes(text); });
  flags.value("-e,--max-bytes", "SIZE", "none is larger (default 64M)",
              [](const auto& text) { options.most = read_bytes(text); });
  flags.value("-f,--factor", "F", "from one size to the next; 1: the smallest alone (default 4)",
              [](const auto& text) { options.factor = read_count(text, 1, 1 << 20); });
  flags.value("-d,--dtype", "TYPE", "fp32, bf16 or fp16 (default fp32)",
              [](const auto& text) { options.dtype = read_precision(text); });
  flags.value("-n,--iterations", "N", "calls that are timed (default 20)",
              [](const auto& text) { options.iterations = read_count(text, 1, 1'000'000); });
  flags.value("-w,--warm-up", "N", "calls before them (default 5)",
              [](const auto& text) { options.warm_up = read_count(text, 0, 1'000'000); });
  flags.value("-c,--check", "0|1", "whether to look at the values of one call (default 1)",
              [](const auto& text) { options.check = read_count(text, 0, 1) == 1; });
  flags.group("Ranks");
  add_ranks_flag(flags, options, kDefaultRanks);
  add_device_flag(flags, options);
  add_backend_flag(
      flags, options,
      "how ranks communicate: threads, nccl, or auto: nccl if each rank has a GPU (default auto)");
  flags.toggle("--unordered",
               "let NCCL add in an order of its own, as with \"zerolab\": {\"ordered\": false}",
               options.unordered);
  add_timeout_flag(flags, options);
  add_output_flags(flags, options);
  flags.footer(kFooter);
}

}  // namespace zl::cli
