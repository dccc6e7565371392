#include "stages/residual/paper_figures.h"

#include <cmath>
#include <utility>

#include "stages/predict/closed_form.h"

namespace zl {
namespace {

constexpr ElementBytes kMixedAdam{2, 2, {8, 4}};  // the paper's 2 + 2 + K, where K = 12

double states(StageKind stage, double parameters, int ranks) {
  return model_states(stage, parameters, ranks, kMixedAdam).total() / 1e9;
}

// A transformer of L layers of width C, with micro-batches of B sequences of T tokens.
struct Transformer {
  double L, C, B, T;
  double checkpoints() const { return L * B * T * C; }                   // [n] the inputs of layers
  double activations() const { return 12 * C * B * T * L; }              // [n] the paper's 12
  double working_set() const { return checkpoints() + 12 * C * B * T; }  // [n] and of one layer
};
constexpr Transformer kGpt2{48, 1600, 32, 1024};      // 1.5 B parameters
constexpr Transformer kHundred{125, 8192, 32, 1024};  // 100 B, Table 4

constexpr double gb16(double elements) { return 2 * elements / 1e9; }

const char* formula_of(StageKind stage) {
  switch (stage) {
    case StageKind::zero1: return "(2 + 2) Ψ + 12 Ψ/N";
    case StageKind::zero2: return "2 Ψ + (2 + 12) Ψ/N";
    case StageKind::zero3: return "(2 + 2 + 12) Ψ/N";
    default: return "(2 + 2 + 12) Ψ";
  }
}

PaperFigure& add(std::vector<PaperFigure>& all, const char* section, std::string quantity,
                 std::string formula) {
  PaperFigure& f = all.emplace_back();
  f.section = section;
  f.quantity = std::move(quantity);
  f.formula = std::move(formula);
  return f;
}

void compare(PaperFigure& f, const char* unit, double printed, double digit, double computed) {
  f.unit = unit;
  f.printed = printed;
  f.digit = digit;
  f.computed = computed;
}

void add_figure_1(std::vector<PaperFigure>& all) {
  const double printed[] = {120, 31.4, 16.6, 1.9}, digit[] = {1, .1, .1, .1};
  for (const StageKind stage : kStages)
    compare(
        add(all, "Figure 1", str("model states, 7.5 B, N = 64, ", name(stage)), formula_of(stage)),
        "GB", printed[size_t(stage)], digit[size_t(stage)], states(stage, 7.5e9, 64));
}

void add_table_1(std::vector<PaperFigure>& all) {
  struct Row {
    const char* model;
    double parameters;
    StageKind stage;
    double printed[2], digit[2];  // N = 64 and 1024
  };
  constexpr Row kRows[] = {{"7.5 B", 7.5e9, StageKind::zero1, {31.4, 30.1}, {.1, .1}},
                           {"7.5 B", 7.5e9, StageKind::zero2, {16.6, 15.1}, {.1, .1}},
                           {"7.5 B", 7.5e9, StageKind::zero3, {1.88, 0.12}, {.01, .01}},
                           {"128 B", 128e9, StageKind::zero1, {536, 513}, {1, 1}},
                           {"128 B", 128e9, StageKind::zero2, {284, 257}, {1, 1}},
                           {"128 B", 128e9, StageKind::zero3, {32, 2}, {1, 1}},
                           {"1 T", 1e12, StageKind::zero1, {4187, 4011}, {1, 1}},
                           {"1 T", 1e12, StageKind::zero2, {2218, 2013}, {1, 1}},
                           {"1 T", 1e12, StageKind::zero3, {250, 15.6}, {1, .1}}};
  constexpr int kRanks[] = {64, 1024};
  for (const Row& r : kRows)
    for (int i = 0; i < 2; ++i)
      compare(add(all, "Table 1",
                  str("model states, ", r.model, ", N = ", kRanks[i], ", ", name(r.stage)),
                  formula_of(r.stage)),
              "GB", r.printed[i], r.digit[i], states(r.stage, r.parameters, kRanks[i]));
}

// The largest model whose states fit 32 GB, on 64 data-parallel ranks of `slices` GPUs each.
void add_table_2(std::vector<PaperFigure>& all) {
  constexpr double kPrinted[2][4] = {{2, 7.6, 14.4, 128}, {32, 121.6, 230.4, 2000}},
                   kDigit[2][4] = {{1, .1, .1, 1}, {1, .1, .1, 1000}};
  for (const int i : {0, 1})
    for (const StageKind stage : kStages) {
      const int slices = i == 0 ? 1 : 16;
      PaperFigure& f = add(all, "Table 2",
                           str("largest model, 32 GB, N = 64, ",
                               i == 0 ? "" : "16-way model parallel, ", name(stage)),
                           str(i == 0 ? "" : "16 · ", "32 GB / bytes per parameter"));
      compare(f, "B", kPrinted[i][size_t(stage)], kDigit[i][size_t(stage)],
              32 * slices / states(stage, 1e9, 64));
      if (!f.follows()) f.deviates = "the paper multiplies the rounded number of one slice by 16";
    }
}

void add_activations(std::vector<PaperFigure>& all) {
  const Transformer &g = kGpt2, &h = kHundred;
  compare(add(all, "3.2", "activations, 1.5 B, batch of 32 × 1024", "12 C B T L · 2 bytes"), "GB",
          60, 1, gb16(g.activations()));
  PaperFigure& less = add(all, "3.2", "the same with checkpointing", "(L + 12) C B T · 2 bytes");
  compare(less, "GB", 8, 1, gb16(g.working_set()));
  less.deviates = str("the checkpoints alone are L B T C · 2 bytes = ",
                      std::round(gb16(g.checkpoints()) * 100) / 100,
                      " GB; the paper's 8 has a larger working set than one layer, and no formula");
  PaperFigure& full =
      add(all, "6.1", "checkpoints, 100 B, batch of 32 × 1024", "L B T C · 2 bytes");
  compare(full, "GB", 33, 1, gb16(h.checkpoints()));
  full.deviates = str("33 is the number of elements, ", std::round(h.checkpoints() / 1e7) / 100,
                      "e9, taken as bytes, or a batch of 16");
  PaperFigure& shared =
      add(all, "6.1", "the same with P_a, 16-way model parallel", "L B T C · 2 bytes / 16");
  compare(shared, "GB", 2, 1, gb16(h.checkpoints()) / 16);
  shared.deviates = "it is a sixteenth of the 33 GB above";
}

void add_buffers_and_traffic(std::vector<PaperFigure>& all) {
  compare(add(all, "3.1", "model states of GPT-2, 1.5 B", formula_of(StageKind::ddp)), "GB", 24, 1,
          states(StageKind::ddp, 1.5e9, 1));
  compare(add(all, "3.2", "fused fp32 buffer, 1.5 B", "4 Ψ"), "GB", 6, 1, 4 * 1.5);
  compare(add(all, "6.2", "fused fp32 buffer, 3 B", "4 Ψ"), "GB", 12, 1, 4 * 3.0);
  const auto sent = [](StageKind stage) {
    return 100 * sent_elements(stage, 1, 64).total() / sent_elements(StageKind::ddp, 1, 64).total();
  };
  compare(add(all, "7.2", "sent by zero2, of what ddp sends", "2 Ψ / (2 Ψ)"), "%", 100, 1,
          sent(StageKind::zero2));
  compare(add(all, "7.2", "sent by zero3, of what ddp sends", "3 Ψ / (2 Ψ)"), "%", 150, 1,
          sent(StageKind::zero3));
  PaperFigure& more =
      add(all, "8", "P_a sends more than model parallelism by", "B T C / (12 B T C)");
  compare(more, "%", 10, 1, 100.0 / 12);
  more.at_most = true;
}

}  // namespace

bool PaperFigure::follows() const {
  return at_most ? computed < printed : std::abs(computed - printed) < digit;
}

std::vector<PaperFigure> paper_figures() {
  std::vector<PaperFigure> all;
  add_figure_1(all);
  add_table_1(all);
  add_table_2(all);
  add_activations(all);
  add_buffers_and_traffic(all);
  return all;
}

}  // namespace zl
