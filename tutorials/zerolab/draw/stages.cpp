// What each rank keeps: the four stages beside each other, and one unit cut into shards.
#include <algorithm>

#include "stages/predict/closed_form.h"
#include "tensor/error.h"
#include "tutorials/zerolab/cli/number_text.h"
#include "tutorials/zerolab/draw/legend.h"
#include "tutorials/zerolab/draw/pictures.h"
#include "tutorials/zerolab/draw/svg.h"
#include "tutorials/zerolab/draw/tiny_run.h"

namespace zl::draw {
namespace {

using cli::with_commas;

constexpr int kRanks = 4;
constexpr MemoryUse kStates[] = {MemoryUse::optimizer_state, MemoryUse::gradient,
                                 MemoryUse::parameter};  // from the top of a bar

// The bars of all ranks under one stage. A shard is drawn at its place in the full range, whose
// outline is dashed.
void draw_stage(Svg& svg, double left, StageKind stage, const TrainingResult& run,
                const MemoryLedger& full) {
  constexpr double kTop = 104, kHeight = 240, kWidth = 34, kPitch = 40;
  svg.text({left + 77, 78}, name(stage), "big bold middle");
  for (int rank = 0; rank < kRanks; ++rank) {
    const double x = left + rank * kPitch;
    svg.text({x + kWidth / 2, 98}, str(rank), "soft middle");
    double y = kTop;
    for (const MemoryUse use : kStates) {
      const int64_t bytes = run.ranks[size_t(rank)].rest.live(use), all = full.live(use);
      const double height = kHeight * double(all) / double(full.live_total());
      svg.box({x + 0.5, y + 0.5, kWidth - 1, height - 1}, bytes < all ? "outline dash" : "outline");
      const double part = height * double(bytes) / double(all);
      const double at = bytes < all ? y + rank * part : y;
      svg.box({x, at, kWidth, part}, name(use),
              str(name(stage), " rank ", rank, ": ", name(use), " ", with_commas(bytes), " B"));
      y += height;
    }
  }
}

// "(4 + 4 + 8/N) Ψ": bytes per parameter of each state.
std::string formula(StageKind stage) {
  static constexpr const char* kFormulas[] = {"(4 + 4 + 8) Ψ", "(4 + 4 + 8/N) Ψ",
                                              "(4 + 4/N + 8/N) Ψ", "(4/N + 4/N + 8/N) Ψ"};
  return kFormulas[stage_number(stage)];  // the picture has these four
}

// [B] by one rank in the step.
int64_t sent(const RankReport& report) {
  int64_t times_n = 0;
  for (const auto& [call, traffic] : report.log.rows()) times_n += traffic.sent_bytes_times_n;
  return times_n / kRanks;
}

// ---- shards ------------------------------------------------------------------------------------

struct Range {
  int64_t begin, end;  // [n] of the full unit
  std::string label;
  bool padding = false;
};

// The parameters of the unit in order, without its name, then its padding.
std::vector<Range> parameters_of(const Partition& partition) {
  constexpr size_t kPrefix = sizeof "h.0";
  std::vector<Range> ranges;
  for (const Partition::Piece& piece : partition.pieces(0, partition.full()))
    ranges.push_back({piece.at, piece.at + piece.count, piece.parameter->name.substr(kPrefix)});
  if (ranges.back().end < partition.full())
    ranges.push_back({ranges.back().end, partition.full(), "padding", true});
  return ranges;
}

std::vector<Range> shards_of(const Partition& partition) {
  std::vector<Range> ranges;
  for (int rank = 0; rank < kRanks; ++rank)
    ranges.push_back(
        {rank * partition.shard(), (rank + 1) * partition.shard(), str("rank ", rank)});
  return ranges;
}

// Maps elements [from, to) of a unit to [left, left + width) of the picture.
struct Scale {
  double left, width;
  int64_t from, to;
  double at(int64_t element) const {
    return left + width * double(std::clamp(element, from, to) - from) / double(to - from);
  }
};

// One row of ranges; a label is left out where it does not fit. `lines`: of text in a box.
void draw_ranges(Svg& svg, const Scale& scale, double top, double height,
                 const std::vector<Range>& ranges, const std::string& style) {
  for (size_t i = 0; i < ranges.size(); ++i) {
    const Range& range = ranges[i];
    const double begin = scale.at(range.begin), end = scale.at(range.end);
    if (end <= begin) continue;
    const std::string fill = range.padding ? "padding" : style + (i % 2 == 0 ? " strong" : " weak");
    svg.box({begin, top, end - begin, height}, fill,
            str(range.label, ": ", with_commas(range.end - range.begin), " elements from ",
                with_commas(range.begin)));
    svg.line({begin, top}, {begin, top + height}, "soft");
    svg.line({end, top}, {end, top + height}, "soft");
    const double middle = (begin + end) / 2, wide = 7.6 * double(range.label.size());
    if (wide > end - begin - 4) continue;
    svg.text({middle, top + height / 2 - 3}, range.label, range.padding ? "middle halo" : "middle");
    svg.text({middle, top + height / 2 + 13}, with_commas(range.end - range.begin),
             range.padding ? "middle halo" : "middle");
  }
}

// A part of the unit, enlarged, with a tick every 16 elements.
void draw_zoom(Svg& svg, const Scale& all, const Scale& zoom, const Partition& partition,
               const std::string& heading) {
  constexpr double kTop = 250;
  svg.path(str("M", number(all.at(zoom.from)), " 172L", number(zoom.left), " ", number(kTop), "H",
               number(zoom.left + zoom.width), "L", number(all.at(zoom.to)), " 172z"),
           "panel");
  svg.text({zoom.left, kTop + 20}, heading, "bold");
  draw_ranges(svg, zoom, kTop + 32, 44, parameters_of(partition), "parameter");
  draw_ranges(svg, zoom, kTop + 80, 44, shards_of(partition), "owner");
  for (int64_t tick = zoom.from; tick <= zoom.to; tick += Partition::kAlignment)
    svg.line({zoom.at(tick), kTop + 124}, {zoom.at(tick), kTop + 130}, "soft");
  svg.text({zoom.left, kTop + 146}, with_commas(zoom.from), "soft");
  svg.text({zoom.left + zoom.width, kTop + 146}, with_commas(zoom.to), "soft end");
}

}  // namespace

std::string draw_stages() {
  Svg svg(
      "What each of 4 ranks keeps between two steps",
      "Four groups of four bars, one group per stage and one bar per rank. Under ddp every rank "
      "keeps all parameters, gradients and optimizer state. zero1 shards the optimizer state, "
      "zero2 the gradients too, zero3 the parameters too: each rank then keeps a quarter.",
      440);
  const GptConfig model = named_gpt("tiny");
  std::vector<TrainingResult> runs;
  for (const StageKind stage : kStages)
    runs.push_back(run_training(tiny_spec(stage, kRanks, model)));
  const MemoryLedger& full = runs[0].ranks[0].rest;
  for (size_t i = 0; i < runs.size(); ++i) {
    const double left = 16 + 190 * double(i), middle = left + 77;
    const RankReport& rank = runs[i].ranks[0];
    draw_stage(svg, left, kStages[i], runs[i], full);
    svg.text({middle, 368}, formula(kStages[i]), "middle");
    svg.text({middle, 391}, human_bytes(rank.rest.live_total()), "big bold middle");
    svg.text({middle, 410}, str("sends ", human_bytes(sent(rank))), "soft middle");
  }
  draw_legend(svg, {16, 46},
              {MemoryUse::parameter, MemoryUse::gradient, MemoryUse::optimizer_state});
  const int64_t padded = full.live(MemoryUse::parameter) / 4;
  svg.text({16, 435},
           str("Ψ = ", with_commas(padded),
               " parameters in fp32 with Adam, N = 4. Bytes kept and sent: of one rank, per step"),
           "soft");
  return svg.document();
}

std::string draw_shards() {
  Gpt model(lesson_model());
  const Unit& unit = model.units()[1];
  const Partition partition(unit, kRanks);
  Svg svg(
      str("Unit ", unit.name, " is one flat range, cut into ", kRanks, " shards of equal size"),
      "The twelve parameters of a block, one after the other in one range of elements. Below it "
      "the same range as four equal shards, one per rank. Two parts are enlarged: a border of "
      "shards that cuts a bias in two, and the padding at the end.",
      402);
  const Scale all{16, 728, 0, partition.full()};
  svg.text({16, 52}, str("parameters: ", with_commas(unit.numel()),
                         " elements; padding: ", partition.full() - unit.numel()));
  draw_ranges(svg, all, 62, 44, parameters_of(partition), "parameter");
  svg.text({16, 126}, str("shards: ", with_commas(partition.full()), " / ", kRanks, " = ",
                          with_commas(partition.shard()), " elements each"));
  draw_ranges(svg, all, 134, 38, shards_of(partition), "owner");
  const int64_t border = partition.shard(), end = partition.full();
  draw_zoom(svg, all, {16, 350, border - 64, border + 64}, partition,
            "Shards do not respect parameters");
  draw_zoom(svg, all, {394, 350, end - 128, end}, partition,
            "The padding belongs to the last rank");
  return svg.document();
}

}  // namespace zl::draw
