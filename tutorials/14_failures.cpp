// Which rank failed, in which call, and why? Five faults are made on purpose; the answers are in
// what the program reports. The flight recorder is dist/flight_recorder.h.
#include <random>

#include "tutorials/14_faulty_runs.h"

using namespace zl;
using namespace zl::lesson;
using namespace std::chrono_literals;

constexpr int64_t kLimit = 2 << 20;  // [B] of each rank's memory

// What one rank does wrong after the backward pass of a step under zero3.
struct Fault {
  int number;
  std::function<void(Trainer&, const FaultyRun&)> act;
  std::chrono::milliseconds deadline = 60s;
};

// Drawn with --seed, so that each seed is another exercise.
int bad_rank(const Lesson& lesson, int fault) {
  return int(std::mt19937(uint32_t(5 * lesson.seed()) + uint32_t(fault))() %
             uint32_t(lesson.ranks()));
}
// Trains, and prints what a user sees.
std::unique_ptr<const FaultyRun> make(Lesson& lesson, const Fault& fault) {
  auto run = std::make_unique<FaultyRun>(lesson.ranks());
  TrainingSpec spec = training_m(lesson, StageKind::zero3);
  spec.steps = 4;
  spec.device_memory = kLimit;
  spec.rank_options.timeout = fault.deadline;
  const bool of_memory = fault.number == 4;  // no call differs
  TrainingCallbacks callbacks;
  if (of_memory) callbacks.at_start = [&](Trainer& rank) { watch(lesson, rank); };
  callbacks.after_backward = [&](Trainer& rank) {
    if (rank.comm().rank() == bad_rank(lesson, fault.number)) fault.act(rank, *run);
  };
  lesson.say(str("\nfault ", fault.number));
  train_faulty(lesson, spec, callbacks, *run);
  if (!run->report.empty()) show(lesson, run->report, !of_memory, lesson.on("--full"));
  return run;
}

void rank_is(Lesson& lesson, int fault, int64_t found, const std::string& why) {
  lesson.number(str("fault_", fault, "_rank"), found, bad_rank(lesson, fault), why);
}
// Of a step: 1 + 2 L gathers, 1 + L reduce-scatters, the norm and the loss. The norm's is the last
// but one.
void call_is(Lesson& lesson, int fault, const std::string& before, const std::string& text,
             int64_t step) {
  lesson.number(str("fault_", fault, "_call"), number_after(before + "[^(]*\\(call ", text),
                step * (3 * model_m().layers + 4) - 1,
                str(step, " x (3 L + 4) - 1: the gradient norm of step ", step));
}

void mismatch(Lesson& lesson) {
  const auto log_loss = [](Trainer& rank, const FaultyRun&) {
    if (rank.steps() != 2) return;
    const Tensor loss = Tensor::empty(rank.memory(), MemoryUse::workspace, {1});
    rank.comm().all_reduce(loss, Reduction::mean, {"loss for the log", Purpose::loss}).wait();
  };
  const auto run = make(lesson, {1, log_loss});
  rank_is(lesson, 1, number_after("rank (?=[0-9]+ calls all_reduce)", run->report),
          "the rank that alone reduces a loss for a log line: a mismatch");
  call_is(lesson, 1, "calls? all_gather", run->report, 2);
}

void hang(Lesson& lesson) {
  const auto wait = [](Trainer& rank, const FaultyRun& run) {
    if (rank.steps() == 3) run.wait_for_a_file_that_never_comes();
  };
  const auto run = make(lesson, {2, wait, 500ms});
  rank_is(lesson, 2, number_after("rank (?=[0-9]+ was last seen)", run->report),
          "the rank that waits for a file, outside any call: a hang");
  call_is(lesson, 2, "ranks? came to", run->report, 3);
}

void straggler(Lesson& lesson) {
  const auto sleep = [](Trainer&, const FaultyRun&) { std::this_thread::sleep_for(40ms); };
  const auto run = make(lesson, {3, sleep});
  lesson.check("the run ends without an error", run->error.empty());
  for (size_t r = 0; r < run->ranks.size(); ++r)
    lesson.say(str("~ rank ", r, " waited ", run->ranks[r].waited / 1'000'000,
                   " ms in calls of the gradient norm"));
  rank_is(lesson, 3, run->least_waiting(), "the rank that sleeps, and so waits least: a straggler");
}

void out_of_memory(Lesson& lesson) {
  const int64_t BT = kRowsM * model_m().block_size, V = model_m().vocab;
  const auto allocate = [&](Trainer& rank, const FaultyRun&) {
    if (rank.steps() == 1) Tensor::empty(rank.memory(), MemoryUse::activation, {64 * BT, V});
  };
  const auto run = make(lesson, {4, allocate});
  rank_is(lesson, 4, number_after("rank (?=[0-9]+ is out of)", run->error),
          "the rank with a sequence 64 times as long: out of memory");
  lesson.number("fault_4_bytes", number_after("asked for [^(]*\\(", run->error), 4 * 64 * BT * V,
                "4 B x 64 BT V: that sequence's logits");
}

void dead(Lesson& lesson) {
  const auto end = [](Trainer& rank, const FaultyRun& run) {
    if (rank.steps() == 4) run.let_others_come(rank.comm().rank()), throw Gone();
  };
  const auto run = make(lesson, {5, end});
  rank_is(lesson, 5, number_after("rank (?=[0-9]+ has ended)", run->report),
          "the rank that ended without a message: a dead rank");
  call_is(lesson, 5, "waits? for it in", run->report, 4);
}

int main(int argc, char** argv) {
  const About about{
      .name = "14_failures",
      .question = "Which rank failed, in which call, and why?",
      .flags = {{"--full", "", "print the whole reports: the last calls of all ranks"}}};
  return run(argc, argv, about, [](Lesson& lesson) {
    const bool several = lesson.ranks() > 1;
    if (!several) lesson.say("Faults 1, 2, 3 and 5 need ranks that wait for each other.");
    if (several) mismatch(lesson), hang(lesson), straggler(lesson);
    out_of_memory(lesson);
    if (several) dead(lesson);
  });
}
