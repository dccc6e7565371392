#include "tests/stages/clock/published.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <sstream>

#include "stages/predict/clock/collective_time.h"
#include "tests/paths.h"

namespace zl {
namespace {

// One row, by column. Cells have no commas.
struct Row {
  std::map<std::string, std::string> cells;

  std::string text(const std::string& column) const { return cells.at(column); }
  // An empty cell is 0.
  double number(const std::string& column) const {
    return text(column).empty() ? 0 : std::stod(text(column));
  }
  int64_t count(const std::string& column) const { return int64_t(number(column)); }
  Machine machine() const {
    Machine m = find_machine(text("machine"));
    if (number("network") > 0) {
      m.network.bandwidth = number("network") / m.network.ports;
      // Only ports of 400 Gb/s carry gathers worse than sums.
      if (m.network.bandwidth <= 25e9) m.network.gathers = m.network.sums;
      std::erase_if(m.collectives, [](const CollectiveRow& row) { return row.nodes > 1; });
    }
    return m;
  }
};

std::vector<Row> rows_of(const std::string& name) {
  std::ifstream file(std::string(ZEROLAB_SOURCE_DIR) + "/stages/predict/published/" + name);
  std::vector<std::string> columns;
  std::vector<Row> rows;
  for (std::string line, cell; std::getline(file, line);) {
    if (line.starts_with('#')) continue;
    std::istringstream text(line);
    std::vector<std::string> cells;
    while (std::getline(text, cell, ',')) cells.push_back(cell);
    if (columns.empty()) columns = cells;
    cells.resize(columns.size());  // cells at the end may be empty
    rows.emplace_back();
    for (size_t i = 0; i < columns.size(); ++i) rows.back().cells[columns[i]] = cells[i];
  }
  rows.erase(rows.begin());  // the names of the columns
  return rows;
}

// The run, with all of the blocks recomputed or none. A model of Llama's kind is replaced by a GPT
// of the same width, heads and vocabulary, with as many layers as hold the parameters of its
// blocks. Replicas of hsdp are the machine's nodes.
GptTrainingSpec training_spec(const PublishedStep& step, bool recompute, const Machine& machine) {
  GptConfig shape = step.shape;
  if (step.llama) {
    const double block = 12.0 * double(shape.width) * double(shape.width);
    const double blocks = double(step.parameters) - 2.0 * double(shape.vocab * shape.width);
    shape.layers = std::max<int64_t>(1, std::llround(blocks / block));
  }
  GptTrainingSpec spec = gpt_spec(shape, 0, recompute ? Recompute::full : Recompute::none);
  spec.ranks = step.ranks;
  spec.micro_batch = step.micro_batch;
  spec.device = DeviceKind::cuda;
  spec.engine.stage = step.stage;
  spec.engine.accumulation = step.accumulation;
  spec.engine.precision = step.variant == "fp32" ? Dtype::f32 : Dtype::bf16;
  if (step.stage == StageKind("hsdp")) spec.engine.ranks_per_node = machine.ranks_per_node;
  set_overlap(spec.engine, true);
  return spec;
}

// Composer's DecoupledAdamW, of llm-foundry, is eight operations on fp32 tensors, which read and
// write 20 elements of a parameter; our kernel moves 28 bytes. So many times its time is added.
constexpr double kUnfused = 20 * 4 / 28.0 - 1;

double predicted_seconds(const PublishedStep& step, const Machine& machine) {
  double seconds = 0;
  const int sharing = step.update_ranks;
  for (const bool recompute : {false, true}) {
    const double share = recompute ? step.recomputed : 1 - step.recomputed;
    if (share <= 0) continue;
    const StepTime time = clock_step(training_spec(step, recompute, machine), machine);
    seconds += share * time.times.seconds;
    if (step.program == "llm-foundry") seconds += share * time.kernels.at("adamw") * kUnfused;
    // InternEvo waits for all updated parameters before the next step (overlap_sync_param=False).
    if (step.program == "InternEvo" && step.stage == StageKind::zero1)
      seconds += share * time.calls.at("all_gather");
    if (sharing == 1) continue;
    seconds -= share * time.kernels.at("adamw") * (1 - 1.0 / sharing);
    seconds += share * collective_seconds(machine, Collective::all_gather, 2 * step.parameters,
                                          places_of(machine, sharing));
  }
  return seconds;
}

// Its kernels take `factor` times as long.
Machine slowed(Machine m, double factor) {
  m.rank.f32_flops /= factor;
  m.rank.half_flops /= factor;
  m.rank.memory_bandwidth /= factor;
  return m;
}

// `to` with its own peaks, and the shares of them that programs reach on `from`. Attention is
// partly matmuls and partly the softmax's ordinary instructions, whose rate is cores times clock
// (vector_rate): each part is carried over by its own rate, because matmuls' peak grows faster.
RankMachine with_shares_of(RankMachine to, const RankMachine& from) {
  to.matmul = from.matmul;
  to.memory = from.memory;
  to.streaming = from.streaming;
  to.attention = from.attention;
  to.launch = from.launch;
  to.kernels.clear();
  const double matmul = from.matmul.empty() ? 1 : from.matmul.back().share;
  if (to.vector_rate <= 0 || from.vector_rate <= 0 || from.attention >= matmul) return to;
  // Of the time for one operation at the peak.
  const double softmax = 1 / from.attention - 1 / matmul;
  const double grows = (to.half_flops / to.vector_rate) / (from.half_flops / from.vector_rate);
  to.attention = 1 / (1 / matmul + softmax * grows);
  return to;
}

// The machine without what is measured on its kind of GPU.
Machine from_spec_sheet(Machine m) {
  static const Machine a100 = find_machine("a100-80gb"), h100 = find_machine("h100-sxm");
  const bool is_a100 = m.rank.half_flops == a100.rank.half_flops;
  m.rank = with_shares_of(m.rank, is_a100 ? h100.rank : a100.rank);
  m.collectives.clear();
  return m;
}

// The factor on kernels by which the step takes as long as published. The time grows with it.
double calibration(const PublishedStep& step) {
  double factor = 1;
  for (int i = 0; i < 6; ++i) {
    const Machine machine = slowed(from_spec_sheet(step.machine), factor);
    const double ratio = step.seconds / predicted_seconds(step, machine);
    factor *= ratio;
    if (std::abs(ratio - 1) < 1e-3) break;
  }
  return factor;
}

// The row that calibrates a set has the fewest ranks, of these the window and stage that most rows
// of the set have, and is the first of these.
void calibrate(std::vector<PublishedStep*> set) {
  const auto kind = [](const PublishedStep* s) { return std::pair(s->shape.block_size, s->stage); };
  std::map<std::pair<int64_t, StageKind>, int> rows;
  for (const PublishedStep* s : set) ++rows[kind(s)];
  const auto usual = std::ranges::max_element(rows, {}, [](const auto& r) { return r.second; });
  PublishedStep& first = **std::ranges::min_element(set, {}, [&](const PublishedStep* s) {
    return std::pair(s->ranks, kind(s) != usual->first);
  });
  first.calibrates = true;
  const double factor = calibration(first);
  for (PublishedStep* s : set)
    s->calibrated = predicted_seconds(*s, slowed(from_spec_sheet(s->machine), factor));
}

template <class Value>
Value named(const std::string& text, const std::vector<Value>& values) {
  for (const Value value : values)
    if (text == name(value)) return value;
  throw std::invalid_argument(text);
}

PublishedStep read_step(const Row& row) {
  PublishedStep s{.program = row.text("program"),
                  .model = row.text("model"),
                  .variant = row.text("case"),
                  .machine = row.machine(),
                  .llama = row.text("shape") == "llama",
                  .parameters = row.count("parameters"),
                  .shape = {.layers = row.count("layers"),
                            .heads = row.count("heads"),
                            .width = row.count("width"),
                            .block_size = row.count("window"),
                            .vocab = row.count("vocab")},
                  .ranks = int(row.count("ranks")),
                  .stage = named(row.text("stage"), all_stages()),
                  .micro_batch = row.count("micro_batch"),
                  .accumulation = row.count("accumulation"),
                  .recomputed = row.number("recomputed"),
                  .update_ranks = std::max(1, int(row.count("update_ranks"))),
                  .unlike = row.text("unlike"),
                  .seconds = 1e-3 * row.number("milliseconds")};
  if (row.number("memory_bandwidth") > 0)
    s.machine.rank.memory_bandwidth = row.number("memory_bandwidth");
  s.spec_sheet = predicted_seconds(s, from_spec_sheet(s.machine));
  s.shipped = predicted_seconds(s, s.machine);
  s.fitted = s.program == "llm-foundry" && s.ranks <= 16;
  return s;
}

}  // namespace

std::vector<PublishedTable> published_tables() {
  std::vector<PublishedTable> all;
  for (const Row& row : rows_of("collectives.csv")) {
    all.push_back({.system = row.text("system"),
                   .machine = row.machine(),
                   .changed = !row.text("network").empty(),
                   .collective = named(row.text("collective"),
                                       std::vector{Collective::all_reduce, Collective::all_gather,
                                                   Collective::reduce_scatter}),
                   .ranks = int(row.count("ranks")),
                   .nodes = int(row.count("nodes")),
                   .calls = {}});
    for (const auto& [column, cell] : row.cells)
      if (std::isdigit(column[0]) && !cell.empty())
        all.back().calls.push_back({std::stoll(column), 1e-6 * std::stod(cell)});
  }
  return all;
}

std::vector<PublishedStep> published_steps() {
  std::vector<PublishedStep> all;
  for (const Row& row : rows_of("steps.csv")) all.push_back(read_step(row));
  std::map<std::pair<std::string, std::string>, std::vector<PublishedStep*>> sets;
  for (PublishedStep& s : all) sets[{s.program, s.machine.name}].push_back(&s);
  for (const auto& [key, set] : sets) calibrate(set);
  return all;
}

}  // namespace zl
