// zerolab bench disk: how fast offloaded state moves to and from a file, beside other programs.

#include "tensor/io/disk.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "optim/flat_optimizer.h"
#include "tutorials/zerolab/bench/commands.h"
#include "tutorials/zerolab/bench/measure.h"
#include "tutorials/zerolab/cli/interrupt.h"
#include "tutorials/zerolab/cli/options.h"
#include "tutorials/zerolab/cli/progress.h"
#include "tutorials/zerolab/cli/quantity.h"
#include "tutorials/zerolab/cli/text_table.h"

namespace zl::cli {
namespace {

using Json = nlohmann::ordered_json;

struct DiskOptions : RunOptions {
  std::string folder = ".";
  int64_t size = 128 * kMiB, sub_group = 1 << 20;
  int rounds = 5;
};

double seconds_of(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

bool has_program(const std::string& name) {
  return std::system(("command -v " + name + " >/dev/null 2>&1").c_str()) == 0;
}

// A file for other programs, removed at the end.
class OtherFile {
 public:
  explicit OtherFile(const DiskOptions& options)
      : path_((std::filesystem::path(options.folder) / str("zerolab-bench-disk.", ::getpid()))
                  .string()),
        size_(options.size) {}
  ~OtherFile() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  // [s] Both return what the whole file takes.
  double dd(bool writes) const {
    const std::string count = str(" bs=1M count=", size_ / kMiB, " 2>/dev/null");
    return seconds_of([&] {
      run(writes ? str("dd if=/dev/zero of=", quoted(), " oflag=direct conv=notrunc", count)
                 : str("dd if=", quoted(), " of=/dev/null iflag=direct", count));
    });
  }
  double fio(bool writes) const {
    std::string out;
    const std::string command =
        str("fio --name=zerolab --filename=", quoted(), " --direct=1 --bs=1M --iodepth=8 ",
            "--ioengine=libaio --rw=", writes ? "write" : "read", " --size=", size_,
            " --output-format=json 2>/dev/null");
    FILE* pipe = ::popen(command.c_str(), "r");
    require_input(pipe != nullptr, "fio cannot be started");
    char part[4096];
    for (size_t n = 0; (n = std::fread(part, 1, sizeof part, pipe)) > 0;) out.append(part, n);
    require_input(::pclose(pipe) == 0, "this command failed: ", command);
    const Json job = Json::parse(out).at("jobs").at(0).at(writes ? "write" : "read");
    return double(size_) / job.at("bw_bytes").get<double>();
  }

 private:
  // For the shell.
  std::string quoted() const {
    std::string text = "'";
    for (const char c : path_) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return text + "'";
  }
  static void run(const std::string& command) {
    require_input(std::system(command.c_str()) == 0, "this command failed: ", command);
  }
  std::string path_;
  int64_t size_;
};

// The reads and writes of a swap file alone, chunk after chunk.
class OurFile {
 public:
  explicit OurFile(const DiskOptions& options) : file_(options.folder), size_(options.size) {
    file_.reserve(size_);
  }
  double move(bool writes) {
    return seconds_of([&] {
      std::unique_ptr<Transfer> last;
      for (int64_t at = 0; at < size_; at += kChunk) {
        const auto bytes = std::span(buffers_[size_t(at / kChunk % 2)])
                               .first(size_t(std::min(kChunk, size_ - at)));
        auto next = writes ? file_.start_write(at, bytes) : file_.start_read(at, bytes);
        if (last) last->wait();
        last = std::move(next);
      }
      if (last) last->wait();
    });
  }
  std::string method() const { return file_.method(); }

 private:
  static constexpr int64_t kChunk = 8 * kMiB;
  SwapFile file_;
  int64_t size_;
  std::vector<std::byte> buffers_[2] = {std::vector<std::byte>(kChunk, std::byte(1)),
                                        std::vector<std::byte>(kChunk, std::byte(1))};
};

// An AdamW update of fp32 parameters, whose two moments fill the file.
class Updates {
 public:
  explicit Updates(const DiskOptions& options)
      : backend_(make_disk_backend(options.folder)),
        n_(options.size / 8),
        parameters_(Tensor::zeros(host_, MemoryUse::parameter, {n_})),
        gradients_(Tensor::zeros(host_, MemoryUse::gradient, {n_})) {
    const auto add = [&](const char* name, const Swap& swap) {
      optimizers_[name] = make_optimizer(host_, n_, Dtype::f32, {}, {}, swap);
    };
    add("in memory", {});
    add("on disk, serial", {&disk_, options.sub_group, false, false});
    add("on disk, pipelined", {&disk_, options.sub_group, true, true});
  }
  double update(const std::string& where) {
    return seconds_of([&] { optimizers_.at(where)->update(parameters_, gradients_, 1e-3, 1); });
  }

 private:
  EventStream events_;
  std::unique_ptr<Backend> backend_;
  Memory host_{{}, cpu_backend(), events_, {.pool = Pool::host}};
  Memory disk_{{}, *backend_, events_, {.pool = Pool::disk}};
  int64_t n_;
  Tensor parameters_, gradients_;
  std::map<std::string, std::unique_ptr<FlatOptimizer>> optimizers_;
};

struct DiskWork {
  std::string name;
  std::function<double()> seconds;
  int64_t bytes;         // [B] that it moves
  std::string beside{};  // the ratio is to this one
};

Json measure(const DiskOptions& options) {
  OurFile ours(options);
  OtherFile other(options);
  Updates updates(options);
  std::vector<DiskWork> all;
  for (const bool writes : {true, false}) {
    const std::string what = writes ? "write" : "read";
    all.push_back({what, [&, writes] { return ours.move(writes); }, options.size});
    if (has_program("dd"))
      all.push_back({what + ", dd", [&, writes] { return other.dd(writes); }, options.size, what});
    if (has_program("fio"))
      all.push_back(
          {what + ", fio", [&, writes] { return other.fio(writes); }, options.size, what});
  }
  for (const char* where : {"in memory", "on disk, serial", "on disk, pipelined"})
    all.push_back({str("update ", where), [&, where] { return updates.update(where); },
                   *where == 'i' ? 0 : 2 * options.size,
                   *where == 'i' ? "" : "update on disk, pipelined"});
  Progress progress(int64_t(all.size()) * (options.rounds + 1), options.quiet);
  std::map<std::string, std::vector<double>> seconds;
  for (int round = 0; round <= options.rounds; ++round)  // in turn; the first is a warm-up
    for (const DiskWork& work : all) {
      if (interrupt_requested()) throw Interrupted();
      progress.item(work.name);
      const double s = work.seconds();
      if (round > 0) seconds[work.name].push_back(s);
    }
  progress.clear();
  Json rows;
  for (const DiskWork& work : all) {
    const std::vector<double>& s = seconds[work.name];
    std::vector<double> rates, ratios;
    for (size_t i = 0; i < s.size(); ++i) {
      rates.push_back(double(work.bytes) / s[i]);
      if (!work.beside.empty()) ratios.push_back(s[i] / seconds[work.beside][i]);
    }
    rows.push_back({{"what", work.name},
                    {"seconds", spread_of(s)},
                    {"bytes_per_second", work.bytes > 0 ? Json(spread_of(rates)) : Json(nullptr)},
                    {"ours_faster_by", ratios.empty() ? Json(nullptr) : Json(spread_of(ratios))},
                    {"ours", work.beside.empty() ? Json(nullptr) : Json(work.beside)}});
  }
  return {{"schema", 1},
          {"command", "bench disk"},
          {"ok", true},
          {"folder", options.folder},
          {"method", ours.method()},
          {"size_bytes", options.size},
          {"rounds", options.rounds},
          {"sub_group_size", options.sub_group},
          {"rows", rows}};
}

std::string disk_text(const Json& report) {
  TextTable table;
  table.row({"", "time", "min–max", "GB/s", "of it to ours"});
  for (const Json& row : report["rows"]) {
    const Json &s = row["seconds"], &rate = row["bytes_per_second"], &ratio = row["ours_faster_by"];
    table.row({row["what"], short_seconds(s["median"]),
               short_seconds(s["min"]) + "–" + short_seconds(s["max"]),
               rate.is_null() ? "-" : digits(rate["median"].get<double>() / 1e9, 3),
               ratio.is_null() ? "-" : "× " + digits(ratio["median"].get<double>(), 3)});
  }
  return str(report["folder"].get<std::string>(), ": ", report["method"].get<std::string>(), "; ",
             human_bytes(report["size_bytes"]), " in a file; median of ", report["rounds"],
             " rounds, in which the rows take turns\n\n", table.text(),
             "\nThe last column is the time of a row over the time of ours: above 1, ours is "
             "faster.\nAn update reads and writes the file once. In memory it moves nothing.\n");
}

int bench_disk(const DiskOptions& options) {
  const int64_t needed = 4 * options.size, here = free_disk_space(options.folder);
  require_input(needed <= here, options.folder, " has ", human_bytes(here),
                " left, but four files of ", human_bytes(options.size), " are made; try less");
  print_results(measure(options), options.json, disk_text);
  return 0;
}

constexpr const char* kDiskFooter =
    R"(Rows:
  write, read   a file of --size, as 'offload_optimizer' to nvme moves it: a thread each, by 1 MiB
  dd, fio       the same by these programs, if they are installed: bs=1M, direct, fio with 8 in
                flight
  update        of as many fp32 parameters as have their AdamW moments in --size: in memory, and
                on disk with pipeline_read and pipeline_write false and true

A file of a virtual machine says little about an NVMe disk: the host caches it.

Examples:
  zerolab bench disk --dir /local_nvme
  zerolab bench disk --dir /local_nvme --size 1GiB --rounds 9 --json > disk.json

Exit codes: 0 fine, 2 usage or no room, 74 the disk failed, 130 Ctrl-C)";

}  // namespace

void add_bench_disk(CLI::App& bench, Invocation& invocation) {
  static DiskOptions options;
  Flags flags(bench, invocation, "disk",
              "how fast optimizer state moves to and from a file, beside dd and fio",
              [] { return bench_disk(options); });
  flags.group("What");
  flags.name("--dir", "DIR", "a folder on the disk that is measured (default .)", options.folder);
  flags.value("--size", "SIZE", "size of a file (default 128MiB)", [](const auto& text) {
    options.size = read_size(text) / kMiB * kMiB;
    require_input(options.size >= kMiB, "'", text, "' is less than 1 MiB");
  });
  flags.value("--sub-group-size", "N", "elements that an update has in memory (default 1048576)",
              [](const auto& text) { options.sub_group = read_count(text, 1, 1'000'000'000'000); });
  flags.value("--rounds", "N", "times that each row is measured (default 5)",
              [](const auto& text) { options.rounds = int(read_count(text, 1, 1000)); });
  add_output_flags(flags, options);
  flags.footer(kDiskFooter);
}

}  // namespace zl::cli
