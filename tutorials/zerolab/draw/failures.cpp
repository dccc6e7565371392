// Where each of four ranks is when one of them fails, in real runs.
#include <algorithm>
#include <array>
#include <atomic>
#include <thread>

#include "dist/run_ranks.h"
#include "tensor/cpu/cpu_backend.h"
#include "tensor/error.h"
#include "tutorials/zerolab/draw/pictures.h"
#include "tutorials/zerolab/draw/svg.h"

namespace zl::draw {
namespace {

constexpr int kRanks = 4, kBad = 2;
constexpr std::array kCalls = {"h.1", "h.0", "root", "norm"};

enum class Fault { mismatch, hang, dead, straggler };

struct SeenCall {
  std::string name;
  bool ended = false;  // without an error
};

struct FaultyRun {
  std::array<std::vector<SeenCall>, kRanks> calls;
  std::array<std::atomic<int>, kRanks> begun{};
  std::atomic<bool> failed = false;

  void see(int rank, const Event& e) {
    auto& own = calls[size_t(rank)];
    if (e.kind == EventKind::collective_begin) {
      own.push_back({.name = e.detail});
      ++begun[size_t(rank)];
    }
    if (e.kind == EventKind::collective_end) own.back().ended = true;
  }
  void wait_for_failure() const {
    while (!failed) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  // Rank kBad waits until the others have come to their next call.
  void come_last() const {
    for (const auto& other : begun)
      while (&other != &begun[kBad] && other <= begun[kBad] && !failed)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
};

void calls_of_rank(Communicator& comm, Fault fault, FaultyRun& run) {
  const bool bad = comm.rank() == kBad;
  for (const char* call : kCalls) {
    const bool now = bad && call == kCalls.back();
    if (bad && fault == Fault::straggler) run.come_last();
    if (now && fault == Fault::dead) return run.come_last();
    if (now && fault == Fault::hang) return run.wait_for_failure();
    const bool other = now && fault == Fault::mismatch;
    comm.barrier({other ? "log" : call, Purpose::check}).wait();
  }
}

void make(Fault fault, FaultyRun& run) {
  const auto timeout = fault == Fault::hang ? std::chrono::seconds(1) : std::chrono::seconds(60);
  try {
    run_ranks(kRanks,
              [&](Communicator& comm) {
                comm.events().listen([&, r = comm.rank()](const Event& e) { run.see(r, e); });
                try {
                  calls_of_rank(comm, fault, run);
                } catch (...) {
                  run.failed = true;
                  throw;
                }
              },
              {.timeout = timeout});
  } catch (const CommunicationError&) {
    // The picture shows it.
  }
}

struct Panel {
  Fault fault;
  const char *heading, *bad_rank, *first, *second;  // the last two: what a report shows
};
constexpr Panel kPanels[] = {
    {Fault::mismatch, "mismatch", "", "All ranks are in a call, with one number.",
     "Rank 2 is in another one."},
    {Fault::hang, "hang", "outside any call", "Rank 2 lacks one call. It is alive, and",
     "the others wait until the deadline."},
    {Fault::dead, "dead rank", "has ended", "Rank 2 lacks one call, and has ended.",
     "The others end at once."},
    {Fault::straggler, "straggler", "", "No call lacks a rank, and no error comes.",
     "Rank 2 comes last, and never waits."}};

// A row per rank, a column per call.
void draw_run(Svg& svg, Point at, const FaultyRun& run, const Panel& panel) {
  constexpr double kCell = 62, kRow = 28, kName = 52;
  svg.text({at.x, at.y}, panel.heading, "bold");
  for (int r = 0; r < kRanks; ++r) {
    const double y = at.y + 12 + kRow * r;
    const auto& calls = run.calls[size_t(r)];
    svg.text({at.x, y + 16}, str("rank ", r), r == kBad ? "bold" : "");
    for (size_t i = 0; i < calls.size(); ++i) {
      const Box box{at.x + kName + kCell * double(i), y, kCell - 4, kRow - 5};
      const bool waited = panel.fault == Fault::straggler && r != kBad;
      const double wide = waited ? box.width / 2 : box.width;
      svg.box({box.x, y, wide, box.height},
              calls[i].ended && !waited ? "owner strong" : "gradient weak",
              str(panel.heading, ", rank ", r, ": ", calls[i].name,
                  !calls[i].ended ? " waits"
                  : waited        ? " done after a wait"
                                  : " done"));
      if (waited) svg.box({box.x + wide, y, wide, box.height}, "owner strong");
      if (!calls[i].ended) svg.box(box, "outline");
      svg.text({box.x + box.width / 2, y + 16}, calls[i].name, "mono middle");
    }
    if (r == kBad)
      svg.text({at.x + kName + kCell * double(calls.size()), y + 16}, panel.bad_rank, "soft");
  }
  svg.text({at.x, at.y + 144}, panel.first, "soft");
  svg.text({at.x, at.y + 161}, panel.second, "soft");
}

}  // namespace

std::string draw_failures() {
  Svg svg("Four faults of rank 2, as the calls of four ranks show them",
          "Four panels with a row per rank and a box per call. In a mismatch all ranks are in call "
          "four, and rank 2 in one of another name. In a hang and after a death rank 2 has three "
          "calls and the others wait in the fourth. With a straggler all calls are done, and all "
          "ranks but rank 2 have waited in each.",
          452);
  for (size_t i = 0; i < std::size(kPanels); ++i) {
    FaultyRun run;
    make(kPanels[i].fault, run);
    draw_run(svg, {i % 2 == 0 ? 16.0 : 396.0, i < 2 ? 84.0 : 284.0}, run, kPanels[i]);
  }
  svg.box({16, 36, 22, 16}, "owner strong");
  svg.text({44, 49}, "done");
  svg.box({104, 36, 22, 16}, "gradient weak");
  svg.text({132, 49}, "waits for another rank");
  return svg.document();
}

}  // namespace zl::draw
