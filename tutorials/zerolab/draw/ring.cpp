// Ranks that communicate: the four ranks of a run, and the steps of a ring all-reduce.
#include <bit>

#include "dist/run_ranks.h"
#include "nn/data/windows.h"
#include "tensor/cpu/cpu_backend.h"
#include "tensor/error.h"
#include "tensor/kernels.h"
#if __has_include("tutorials/04_all_reduce_by_hand.h")
#include "tutorials/04_all_reduce_by_hand.h"
#define ZL_HAS_RING
#endif
#include "tutorials/zerolab/cli/number_text.h"
#include "tutorials/zerolab/draw/pictures.h"
#include "tutorials/zerolab/draw/svg.h"
#include "tutorials/zerolab/draw/tiny_run.h"

namespace zl::draw {
namespace {

using cli::with_commas;

constexpr int kRanks = 4;

// ---- the ranks of a run ------------------------------------------------------------------------

struct Rank {
  int64_t first_row = 0, live = 0;  // [B]
  float sum = 0;
};

std::vector<Rank> run_doctor(int64_t rows) {
  std::vector<Rank> ranks(kRanks);
  const TrainingResult result = run_training(tiny_spec(StageKind::ddp, kRanks));
  run_ranks(kRanks, [&](Communicator& comm) {
    Rank& rank = ranks[size_t(comm.rank())];
    Memory memory({DeviceKind::cpu}, cpu_backend(), comm.events());
    const Tensor t = Tensor::empty(memory, MemoryUse::communication, {1});
    kernel::fill(comm.rank() + 1, t);
    comm.all_reduce(t, Reduction::sum, {"doctor", Purpose::check}).wait();
    rank = {MicroBatches{1, kRanks}.index(0, 0, comm.rank()) * rows,
            result.ranks[size_t(comm.rank())].rest.live_total(), t.data<float>()[0]};
  });
  return ranks;
}

void draw_rank(Svg& svg, double left, int r, const Rank& rank, int64_t rows) {
  constexpr double kWidth = 172;
  const double middle = left + kWidth / 2;
  svg.box({left, 40, kWidth, 232}, "panel");
  svg.text({middle, 62}, str("rank ", r, ": a thread"), "bold middle");
  const auto part = [&](double y, const std::string& what, const std::string& detail,
                        const char* style) {
    svg.box({left + 10, y, kWidth - 20, 42}, style);
    svg.box({left + 10, y, kWidth - 20, 42}, "outline");
    svg.text({middle, y + 18}, what, "middle");
    svg.text({middle, y + 35}, detail, "middle");
  };
  part(74, "batch", str("rows ", rank.first_row, " to ", rank.first_row + rows - 1),
       "activation weak");
  part(122, "model and tape", "lessons 02 and 03", "parameter weak");
  part(170, "memory (lesson 01)", str(with_commas(rank.live), " B"), "owner weak");
  part(218, "stage", "lessons 05 to 08", "gradient weak");
  svg.arrow({middle - 24, 272}, {middle - 24, 318});
  svg.text({middle - 30, 300}, str(r + 1), "end bold");
  svg.arrow({middle + 24, 318}, {middle + 24, 274});
  svg.text({middle + 32, 300}, cli::digits(rank.sum, 6), "bold");
}

}  // namespace

std::string draw_ranks() {
  constexpr int64_t kRows = 4;
  Svg svg("One process, four ranks: who has what",
          "Four ranks as threads of one process. Each has its own batch, model, tape, memory and "
          "stage. They share only the communicator: here each passes its number to an all-reduce, "
          "and each gets the sum, 10.",
          376);
  const std::vector<Rank> ranks = run_doctor(kRows);
  for (int r = 0; r < kRanks; ++r) draw_rank(svg, 16 + 185 * r, r, ranks[size_t(r)], kRows);
  svg.box({16, 320, 727, 46}, "communication weak");
  svg.box({16, 320, 727, 46}, "outline");
  svg.text({380, 339}, "communicator: checks, logs and moves (lesson 04)", "middle bold");
  svg.text({380, 357}, "all-reduce of 1, 2, 3 and 4: every rank gets the sum", "middle");
  return svg.document();
}

#ifdef ZL_HAS_RING
namespace {

constexpr int64_t kValues = 28'576;  // n: the parameters of the lessons' model

// What rank 0 … 3 have after one step of the ring: how many ranks' values each chunk sums.
struct Frame {
  std::string half;  // "reduce-scatter step"
  int terms[kRanks][kRanks] = {};
  int64_t sent = 0;  // [B] by rank 0 so far
};

// Rank r puts 2^r into every chunk, so that the bits of a sum name the ranks in it.
std::vector<Frame> run_ring() {
  std::vector<Frame> frames(2 * kRanks - 1);
  run_ranks(kRanks, [&](Communicator& comm) {
    Memory memory({DeviceKind::cpu}, cpu_backend(), comm.events());
    const auto values = [&] { return Tensor::empty(memory, MemoryUse::communication, {kValues}); };
    lesson::AllReduce ring{comm, values(), values()};
    kernel::fill(1 << comm.rank(), ring.values);
    size_t step = 0;
    const auto record = [&](const char* half) {
      Frame& frame = frames[step++];
      for (int chunk = 0; chunk < kRanks; ++chunk)
        frame.terms[comm.rank()][chunk] =
            std::popcount(unsigned(ring.chunk(chunk).data<float>()[0]));
      if (comm.rank() > 0) return;
      frame.half = half;
      for (const auto& [call, traffic] : comm.log().rows())
        frame.sent += traffic.sent_bytes_times_n / kRanks;
    };
    record("start");
    ring.after_step = record;
    ring.ring();
  });
  return frames;
}

void draw_frame(Svg& svg, Point at, const Frame& now, const Frame* before) {
  constexpr double kCell = 28, kPitch = 38;
  for (int rank = 0; rank < kRanks; ++rank) {
    const double x = at.x + rank * kPitch;
    svg.text({x + kCell / 2, at.y - 6}, str(rank), "soft middle");
    for (int chunk = 0; chunk < kRanks; ++chunk) {
      const double y = at.y + chunk * kCell;
      const int terms = now.terms[rank][chunk];
      svg.box({x, y, kCell, kCell}, str("parameter sum", terms),
              str("rank ", rank, " chunk ", chunk, ": ", terms));
      svg.box({x, y, kCell, kCell}, "outline");
      svg.text({x + kCell / 2, y + 19}, str(terms), terms == kRanks ? "middle bold on" : "middle");
      if (!before || before->terms[rank][chunk] == terms) continue;
      svg.arrow({x - (kPitch - kCell) - 5, y + kCell / 2}, {x + 3, y + kCell / 2});
    }
  }
}

}  // namespace

std::string draw_ring() {
  Svg svg("An all-reduce in a ring of 4 ranks",
          "The ring before its first step and after each of its six steps. Columns are ranks, rows "
          "are chunks; a number says how many ranks' values a chunk sums. After three steps each "
          "rank has one complete chunk: the reduce-scatter. Three more steps pass the complete "
          "chunks on: the all-gather.",
          396);
  const std::vector<Frame> frames = run_ring();
  constexpr double kLeft = 36, kPitch = 186;
  svg.text({16, 46},
           str("columns: ranks; rows: chunks of n/4 values; number: terms of the sum; ",
               "arrow: a chunk from the rank before"),
           "soft");
  for (size_t step = 0; step < frames.size(); ++step) {
    const bool gathers = step >= kRanks;
    const size_t column = gathers ? step - kRanks + 1 : step;
    const Point at{kLeft + kPitch * double(column), gathers ? 264.0 : 92.0};
    const Frame& now = frames[step];
    svg.text({at.x, at.y - 22},
             step == 0 ? "start" : str(gathers ? "all-gather " : "reduce-scatter ", step), "bold");
    draw_frame(svg, at, now, step > 0 ? &frames[step - 1] : nullptr);
  }
  const auto sent = [&](size_t step) { return with_commas(frames[step].sent) + " B"; };
  svg.text({kLeft, 268}, "Each rank sends", "soft");
  svg.text({kLeft, 290}, sent(kRanks - 1), "bold");
  svg.text({kLeft, 308}, "(N-1)/N n 4 B", "soft");
  svg.text({kLeft, 340}, sent(frames.size() - 1), "bold");
  svg.text({kLeft, 358}, "2 (N-1)/N n 4 B", "soft");
  svg.text({kLeft, 376}, str("for n = ", with_commas(kValues)), "soft");
  return svg.document();
}
#else  // the archive for students, to whom the ring is an exercise
std::string draw_ring() {
  throw InputError("the ring is drawn from lesson 04, which is not in this tree");
}
#endif

}  // namespace zl::draw
