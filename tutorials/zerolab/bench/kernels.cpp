// zerolab bench kernels: each kernel alone, as a share of the device's limits.

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tutorials/zerolab/bench/commands.h"
#include "tutorials/zerolab/bench/measure.h"
#include "tutorials/zerolab/cli/comma_list.h"
#include "tutorials/zerolab/cli/interrupt.h"
#include "tutorials/zerolab/cli/progress.h"
#include "tutorials/zerolab/cli/quantity.h"
#include "tutorials/zerolab/cli/text_table.h"
#include "tutorials/zerolab/run/run_setup.h"

namespace zl::cli {
namespace {

using Json = nlohmann::ordered_json;
using Work = std::function<void()>;
constexpr Dtype f32 = Dtype::f32;

// The defaults are GPT-2 124M's, except for the number of rows.
struct KernelSizes {
  int64_t rows = 1024;    // B·T
  int64_t window = 1024;  // T; divides rows
  int64_t width = 768, head = 64, vocab = 50257;
};

// Allocates the operands of one case.
struct Operands {
  Workbench& bench;
  Dtype dtype;
  Tensor noise(Shape shape) { return bench.noise(std::move(shape), dtype); }
  Tensor zeros(Shape shape) { return zeros(std::move(shape), dtype); }
  Tensor zeros(Shape shape, Dtype type) {
    return Tensor::zeros(bench.memory(), MemoryUse::activation, std::move(shape), type);
  }
  // Token ids. Rows of the table repeat, as they do in text: multiples of a prime.
  Tensor ids(int64_t rows, int64_t vocab) {
    std::vector<int32_t> ids(static_cast<size_t>(rows));
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = int32_t(int64_t(i % 509) * 7919 % vocab);
    Tensor t = Tensor::empty(bench.memory(), MemoryUse::activation, {rows}, Dtype::i32);
    kernel::upload<int32_t>(ids, t);
    return t;
  }
};

struct KernelCase {
  std::string kernel, shape;
  std::function<Work(Operands)> prepare;  // the work keeps its operands alive
};

class Cases {
 public:
  explicit Cases(const KernelSizes& sizes) : s(sizes) {
    add_matmuls();
    add_layer_norm();
    add_attention();
    add_elementwise();
    add_embedding_and_loss();
    add_update();
  }
  const std::vector<KernelCase>& all() const { return cases_; }

 private:
  void add(const std::string& kernel, const std::string& shape,
           std::function<Work(Operands)> prepare) {
    cases_.push_back({kernel, shape, std::move(prepare)});
  }

  // (m, k)(k, n); an operand is stored transposed if `ta` or `tb` says so.
  void add_matmul(const char* name, Shape mkn, Transpose ta, Transpose tb) {
    const auto text = [](const Shape& shape, Transpose t) {
      return to_string(shape) + (t == Transpose::yes ? "ᵀ" : "");
    };
    const auto stored = [](int64_t rows, int64_t columns, Transpose t) {
      return t == Transpose::no ? Shape{rows, columns} : Shape{columns, rows};
    };
    const Shape a = stored(mkn[0], mkn[1], ta), b = stored(mkn[1], mkn[2], tb);
    add(name, text(a, ta) + text(b, tb), [=](Operands make) {
      const Tensor left = make.noise(a), right = make.noise(b), out = make.zeros({mkn[0], mkn[2]});
      return [=] { kernel::matmul(left, ta, right, tb, out); };
    });
  }

  // The three layouts of the layer that widens, and the largest matmul: the head's.
  void add_matmuls() {
    const auto no = Transpose::no, yes = Transpose::yes;
    add_matmul("matmul, forward", {s.rows, s.width, 4 * s.width}, no, no);
    add_matmul("matmul, backward to input", {s.rows, 4 * s.width, s.width}, no, yes);
    add_matmul("matmul, backward to weight", {s.width, s.rows, 4 * s.width}, yes, no);
    add_matmul("matmul, head", {s.rows, s.width, s.vocab}, no, yes);
  }

  void add_layer_norm() {
    const Shape x{s.rows, s.width}, c{s.width}, r{s.rows};
    const auto saved = [=](Operands make) {
      return LayerNormSaved{make.noise(x), make.noise(c), make.zeros(r, f32), make.zeros(r, f32)};
    };
    add("layer_norm", to_string(x), [=](Operands make) {
      const LayerNormSaved at = saved(make);
      const Tensor bias = make.noise(c), y = make.zeros(x);
      return [=] { kernel::layer_norm(at, bias, 1e-5, y); };
    });
    add("layer_norm_backward", to_string(x), [=](Operands make) {
      const LayerNormSaved at = saved(make);
      kernel::layer_norm(at, make.noise(c), 1e-5, make.zeros(x));  // writes the statistics
      const Tensor dy = make.noise(x);
      const LayerNormGradients out{make.zeros(x), Write::set, make.zeros(c), make.zeros(c)};
      return [=] { kernel::layer_norm_backward(at, dy, out); };
    });
  }

  void add_attention() {
    const int64_t B = s.rows / s.window, T = s.window, C = s.width, H = C / s.head;
    const std::string shape = str("B ", B, ", T ", T, ", H ", H, ", D ", s.head);
    const auto saved = [=](Operands make) {
      return AttentionSaved{make.noise({B, T, 3 * C}), make.zeros({B, T, C}),
                            make.zeros({B, H, T}, f32), H};
    };
    add("attention", shape,
        [=](Operands make) { return [at = saved(make)] { kernel::attention(at); }; });
    add("attention_backward", shape, [=](Operands make) {
      const AttentionSaved at = saved(make);
      kernel::attention(at);  // writes what backward reads
      const Tensor dy = make.noise({B, T, C}), dqkv = make.zeros({B, T, 3 * C});
      return [=] { kernel::attention_backward(at, dy, dqkv); };
    });
  }

  void add_elementwise() {
    const Shape x{s.rows, s.width}, wide{s.rows, 4 * s.width};
    add("gelu", to_string(wide), [=](Operands make) {
      const Tensor in = make.noise(wide), y = make.zeros(wide);
      return [=] { kernel::gelu(in, y); };
    });
    add("gelu_backward", to_string(wide), [=](Operands make) {
      const Tensor in = make.noise(wide), dy = make.noise(wide), dx = make.zeros(wide);
      return [=] { kernel::gelu_backward(in, dy, dx, Write::set); };
    });
    add("add", to_string(x), [=](Operands make) {
      const Tensor a = make.noise(x), b = make.noise(x), y = make.zeros(x);
      return [=] { kernel::add(a, b, y); };
    });
  }

  void add_embedding_and_loss() {
    const int64_t rows = s.rows, vocab = s.vocab;
    const Shape table{s.vocab, s.width}, x{s.rows, s.width}, logits{s.rows, s.vocab};
    add("embedding", to_string(x), [=](Operands make) {
      const Tensor ids = make.ids(rows, vocab), t = make.zeros(table), y = make.zeros(x);
      return [=] { kernel::embedding(ids, t, y); };
    });
    add("embedding_backward", to_string(x), [=](Operands make) {
      const Tensor ids = make.ids(rows, vocab), dy = make.noise(x), dt = make.zeros(table);
      return [=] { kernel::embedding_backward(ids, dy, dt); };
    });
    add("cross_entropy", to_string(logits), [=](Operands make) {
      const Tensor ids = make.ids(rows, vocab), l = make.noise(logits), loss = make.zeros({1}, f32);
      return [=] { kernel::cross_entropy(l, ids, loss); };
    });
    add("cross_entropy_backward", to_string(logits), [=](Operands make) {
      const Tensor ids = make.ids(rows, vocab), l = make.noise(logits), dl = make.zeros(logits);
      const Tensor dloss = make.zeros({1}, f32);
      kernel::fill(1, dloss);
      return [=] { kernel::cross_entropy_backward(l, ids, dloss, dl); };
    });
  }

  // The update of one block's parameters.
  void add_update() {
    const Shape n{12 * s.width * s.width + 13 * s.width};
    add("adamw", to_string(n), [=](Operands make) {
      const AdamWUpdate u{.parameter = make.noise(n),
                          .gradient = make.noise(n),
                          .exp_avg = make.zeros(n, f32),
                          .exp_avg_sq = make.zeros(n, f32),
                          .master = make.dtype == f32 ? Tensor() : make.bench.noise(n, f32)};
      return [=] { kernel::adamw(u); };
    });
    add("sum_of_squares", to_string(n), [=](Operands make) {
      const Tensor x = make.noise(n), out = make.zeros({1}, Dtype::f64);
      return [=] { kernel::sum_of_squares(x, out); };
    });
    add("copy that casts", to_string(n) + " fp32 to 16 bits", [=](Operands make) {
      const Tensor from = make.bench.noise(n, f32),
                   to = make.zeros(n, make.dtype == f32 ? Dtype::bf16 : make.dtype);
      return [=] { kernel::copy(from, to); };
    });
  }

  const KernelSizes s;
  std::vector<KernelCase> cases_;
};

constexpr int64_t kCpuRows = 256, kGpuRows = 8192, kLongestWindow = 1024;
constexpr KernelSizes kQuick{.rows = 64, .window = 32, .width = 64, .head = 32, .vocab = 509};

struct KernelOptions : RunOptions {
  std::vector<Dtype> precisions = {Dtype::f32};
  std::optional<int64_t> rows;
  int64_t samples = 7;
  std::string only;
  bool quick = false;
};

KernelSizes sizes_of(const KernelOptions& options, const DeviceChoice& device) {
  if (options.quick && !options.rows) return kQuick;
  KernelSizes sizes = options.quick ? kQuick : KernelSizes{};
  sizes.rows = options.rows.value_or(device.on_gpus() ? kGpuRows : kCpuRows);
  sizes.window = std::min(sizes.rows, options.quick ? sizes.window : kLongestWindow);
  require_input(sizes.rows % sizes.window == 0, "--rows ", sizes.rows,
                " is not a multiple of the sequence length, ", sizes.window, " tokens; try ",
                sizes.rows / sizes.window * sizes.window);
  return sizes;
}

std::vector<KernelCase> chosen_cases(const KernelSizes& sizes, const std::string& only) {
  std::vector<KernelCase> chosen;
  std::string names;
  const Cases cases(sizes);
  for (const KernelCase& c : cases.all()) {
    names += (names.empty() ? "" : "; ") + c.kernel;
    if (c.kernel.find(only) != std::string::npos) chosen.push_back(c);
  }
  require_input(!chosen.empty(), "--only '", only, "' is part of no name among: ", names);
  return chosen;
}

struct Limits {
  double copy, operations;  // [B/s], [FLOP/s]
};

Json measure(Workbench& bench, const KernelCase& c, Dtype dtype, int samples, Limits limits) {
  if (interrupt_requested()) throw Interrupted();
  const std::function<void()> work = c.prepare({bench, dtype});
  const Workbench::Count count = bench.count(work);
  const Spread seconds = bench.time(work, samples);
  const double bytes = double(count.bytes), operations = double(count.operations);
  const double copy = bytes / limits.copy, arithmetic = operations / limits.operations;  // [s]
  return {{"kernel", c.kernel},
          {"shape", c.shape},
          {"precision", precision_name(dtype)},
          {"operations", count.operations},
          {"bytes", count.bytes},
          {"seconds", seconds},
          {"bytes_per_second", bytes / seconds.median},
          {"operations_per_second", operations / seconds.median},
          {"bound", copy >= arithmetic ? "copy" : "operations"},
          {"share", std::max(copy, arithmetic) / seconds.median}};
}

Json measure(const KernelOptions& options) {
  const bool fp32 = std::ranges::count(options.precisions, Dtype::f32) > 0;  // --tf32 needs it
  const DeviceChoice device =
      choose_device(options, fp32 ? Dtype::f32 : options.precisions.front(), 1);
  const KernelSizes sizes = sizes_of(options, device);
  const std::vector<KernelCase> cases = chosen_cases(sizes, options.only);
  Progress progress(int64_t(1 + options.precisions.size() * (1 + cases.size())), options.quiet);
  Workbench bench(device);
  progress.item("copy bandwidth");
  Limits limits{.copy = bench.copy_rate(), .operations = 0};
  Json rates, kernels = Json::array();
  for (const Dtype dtype : options.precisions) {
    const char* precision = precision_name(dtype);
    progress.item(str("peak FLOP/s in ", precision));
    rates[precision] = limits.operations = bench.operation_rate(dtype);
    for (const KernelCase& c : cases) {
      progress.item(str(c.kernel, " ", c.shape, " in ", precision));
      kernels.push_back(measure(bench, c, dtype, int(options.samples), limits));
    }
  }
  progress.clear();
  return {{"schema", 1},
          {"command", "bench kernels"},
          {"ok", true},
          {"device", name(device.kind)},
          {"device_name", device.name()},
          {"tf32", device.tf32},
          {"rows", sizes.rows},
          {"window", sizes.window},
          {"samples", options.samples},
          {"copy_bytes_per_second", limits.copy},
          {"operations_per_second", rates},
          {"kernels", kernels}};
}

std::string text(const Json& report) {
  const auto giga = [](double per_second) {
    return per_second == 0     ? "-"
           : per_second < 1e12 ? digits(per_second / 1e9, 3)
                               : str(int64_t(per_second / 1e9 + 0.5));
  };
  std::string head =
      str("one rank on ", report["device_name"].get<std::string>(),
          report["tf32"].get<bool>() ? ", fp32 matmuls in TF32" : "", "; B·T ", report["rows"],
          ", median of ", report["samples"],
          " samples\nlimits: ", giga(report["copy_bytes_per_second"]), " GB/s (copy)");
  for (const auto& [precision, rate] : report["operations_per_second"].items())
    head += str(", ", giga(rate), " GFLOP/s (",
                report["device"] == "cpu" ? "multiply-adds" : "matmul", " in ", precision, ")");
  TextTable table;
  table.row({"kernel", "shape", "type", "median", "min", "max", "GB/s", "GFLOP/s", "share", "of"});
  for (const Json& r : report["kernels"]) {
    const Json& seconds = r["seconds"];
    table.row({r["kernel"], r["shape"], r["precision"], short_seconds(seconds["median"]),
               short_seconds(seconds["min"]), short_seconds(seconds["max"]),
               giga(r["bytes_per_second"]), giga(r["operations_per_second"]),
               str(int(100 * r["share"].get<double>() + 0.5), " %"), r["bound"]});
  }
  return head + "\n\n" + table.text() +
         "\nGB/s counts each input and output once; GFLOP/s counts the arithmetic of the formula.\n"
         "The share is of the tighter limit. More than 100 % of copy means that the data stayed "
         "in\n"
         "a cache; a larger --rows avoids that.\n";
}

int bench_kernels(const KernelOptions& options) {
  print_results(measure(options), options.json, text);
  return 0;
}

constexpr const char* kFooter =
    R"(Times each kernel of a GPT-2 (124M) training step alone, on random data. First it measures
two limits: copy bandwidth and peak FLOP/s (CPU: multiply-adds of one core, because a rank is one
thread; GPU: the best large matmul of that type). A kernel cannot be faster than the tighter limit
allows; for few operations per byte that is the copy bandwidth. "share" is how much of that limit
the kernel reaches (the roofline model, Williams et al. 2009). A sample repeats the kernel for at
least a millisecond, after a warm-up. On a CPU all types compute in fp32: bf16 and fp16 save bytes,
not time.

Examples:
  zerolab bench kernels
  zerolab bench kernels --precision fp32,bf16 --only matmul
  zerolab bench kernels --device cuda --tf32 --json > kernels.json

Exit codes: 0 fine, 2 usage, 3 out of memory (try fewer --rows), 130 Ctrl-C)";

}  // namespace

void add_bench_kernels(CLI::App& bench, Invocation& invocation) {
  static KernelOptions options;
  Flags flags(bench, invocation, "kernels",
              "each kernel's time and its share of the device's limits",
              [] { return bench_kernels(options); });
  flags.group("What");
  flags.value("--precision", "LIST", "fp32, bf16, fp16, separated by commas (default fp32)",
              [](const auto& text) {
                options.precisions.clear();
                for (const std::string& word : comma_list(text)) {
                  const Dtype dtype = read_precision(word);
                  if (std::ranges::count(options.precisions, dtype) == 0)
                    options.precisions.push_back(dtype);
                }
              });
  flags.value("--rows", "N",
              str("tokens of a micro-batch, B·T: up to ", kLongestWindow, " or a multiple of it\n",
                  "(default ", kCpuRows, ", on GPUs ", kGpuRows, ")"),
              [](const auto& text) { options.rows = read_count(text, 1, 1 << 20); });
  flags.value("--samples", "N", "samples of each kernel (default 7)",
              [](const auto& text) { options.samples = read_count(text, 1, 1000); });
  flags.value("--only", "TEXT", "kernels whose name contains TEXT, such as matmul",
              [](const auto& text) { options.only = text; });
  flags.toggle("--quick", "tiny sizes: a test that it runs, not how fast", options.quick);
  flags.group("Where");
  add_device_flags(flags, options);
  add_output_flags(flags, options);
  flags.footer(kFooter);
}

}  // namespace zl::cli
