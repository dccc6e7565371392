// What a rank keeps on its device, in host memory and on disk, and what moves between them.
#include <filesystem>

#include "tensor/error.h"
#include "tutorials/zerolab/cli/number_text.h"
#include "tutorials/zerolab/draw/legend.h"
#include "tutorials/zerolab/draw/pictures.h"
#include "tutorials/zerolab/draw/svg.h"
#include "tutorials/zerolab/draw/tiny_run.h"

namespace zl::draw {
namespace {

using cli::with_commas;

struct Place {
  const char* name;
  OffloadDevice optimizer, parameter;
};
constexpr Place kPlaces[] = {{"no offload", OffloadDevice::none, OffloadDevice::none},
                             {"optimizer: cpu", OffloadDevice::cpu, OffloadDevice::none},
                             {"both: cpu", OffloadDevice::cpu, OffloadDevice::cpu},
                             {"nvme, param: cpu", OffloadDevice::nvme, OffloadDevice::cpu}};

constexpr double kPitch = 186, kWidth = 176;  // of a column
constexpr double kTop[] = {100, 202, 304};    // of device, host and disk
constexpr double kHeight = 56;

// One pool: its states beside each other, as wide as their bytes.
void draw_pool(Svg& svg, double left, const Place& place, const RankReport& rank, Pool pool) {
  const double top = kTop[size_t(pool)];
  const MemoryLedger& ledger = rank.of(pool);
  svg.box({left, top, kWidth, kHeight}, "outline");
  svg.text({left + 8, top + 18}, name(pool), "bold");
  svg.text({left + kWidth - 8, top + 18}, with_commas(ledger.live_total()) + " B", "end");
  double x = left + 8;
  const auto part = [&](MemoryUse use, int64_t bytes) {
    if (bytes == 0) return;
    const double width = (kWidth - 16) * double(bytes) / 120'000;
    svg.box({x, top + 28, width, 20}, name(use),
            str(place.name, ": ", name(pool), " ", name(use), " ", with_commas(bytes), " B"));
    x += width;
  };
  part(MemoryUse::parameter, ledger.live(MemoryUse::parameter));
  part(MemoryUse::gradient, ledger.live(MemoryUse::gradient));
  part(MemoryUse::optimizer_state,
       ledger.live(MemoryUse::optimizer_state) + ledger.live(MemoryUse::master_weights));
}

// Bytes of the step between the pool and the one below it.
void draw_moves(Svg& svg, double left, double top, const MoveLog& moves, Move down, Move up) {
  const auto arrow = [&](double x, Move move, double from, double to) {
    const int64_t bytes = moves.of(move).bytes;
    if (bytes == 0) return;
    svg.arrow({x, from}, {x, to});
    svg.text({x + 7, top + 28}, with_commas(bytes) + " B");
  };
  arrow(left + 12, down, top + 4, top + 42);
  arrow(left + 100, up, top + 42, top + 4);
}

}  // namespace

std::string draw_offload() {
  Svg svg("What a rank of 4 keeps between steps of zero3 in bf16, and what a step moves",
          "Four columns. Without offload the device keeps all states of a rank. With the optimizer "
          "offloaded the host keeps gradients and optimizer state, with both offloaded the device "
          "keeps nothing. In the last column the optimizer state is on disk. Arrows say how many "
          "bytes a step moves down and up.",
          378);
  draw_legend(svg, {16, 46},
              {MemoryUse::parameter, MemoryUse::gradient, MemoryUse::optimizer_state});
  svg.text({346, 46}, "with master weights", "soft");
  double left = 13;
  for (const Place& place : kPlaces) {
    TrainingSpec spec = tiny_spec(StageKind::zero3, 4);
    spec.engine.precision = Dtype::bf16;
    spec.engine.offload_optimizer = place.optimizer;
    spec.engine.offload_param = place.parameter;
    spec.engine.nvme_path = std::filesystem::temp_directory_path();
    const RankReport rank = run_training(spec).ranks[0];
    svg.text({left, 86}, place.name, "bold");
    draw_pool(svg, left, place, rank, Pool::device);
    draw_pool(svg, left, place, rank, Pool::host);
    draw_moves(svg, left, kTop[0] + kHeight, rank.moves, Move::device_to_host,
               Move::host_to_device);
    if (place.optimizer == OffloadDevice::nvme) {
      draw_pool(svg, left, place, rank, Pool::disk);
      draw_moves(svg, left, kTop[1] + kHeight, rank.moves, Move::disk_write, Move::disk_read);
    }
    left += kPitch;
  }
  return svg.document();
}

}  // namespace zl::draw
