// The side of an exercise that runs the student's code, in a process that is not the judge's.
//
// Each exercise defines measure() once, in NN_name/measure.cpp; 05 to 07 share that of stages/.
// program_main.cpp calls it and writes the record to a file. The judge reads that file when the
// process has ended, and only then computes what is expected.
#pragma once

#include <chrono>
#include <functional>

#include "dist/communicator.h"
#include "tensor/error.h"
#include "tensor/memory.h"
#include "tensor/random.h"
#include "tutorials/exercises/judge/record.h"

namespace zl::exercises {

// Measuring and judging process derive the same sizes, ranks and data from it.
struct CheckOptions {
  int exercise = 0;   // its number
  uint64_t seed = 0;  // of the student, or of this run
  std::string check;
  DeviceKind device = DeviceKind::cpu;
  // Shows the run on the terminal, from this event of rank 0 on; -1: does not.
  int64_t step_from = -1;

  bool is(const char* name) const { return check == name; }
  uint64_t check_seed() const { return seed ^ fnv1a(check); }
};

// Of the words NUMBER SEED cpu|cuda, which the judge and the program get.
CheckOptions check_options(const char* const* words);

// Of run_ranks(), whose process ends when both have passed once more after a failure. A check has
// 10 s: ranks that wait fail after 8 s, and the report of a rank that loops comes 1 s later.
inline constexpr std::chrono::seconds kRankTimeout{8}, kRankGrace{-7};

// Numbers that follow from the seed and a check's name.
class Draw {
 public:
  explicit Draw(const CheckOptions& options) : stream_{options.seed, fnv1a(options.check)} {}
  int64_t between(int64_t low, int64_t high) {  // both included
    return low + int64_t(stream_.uniform(next_++) * double(high - low + 1));
  }
  double normal() { return stream_.normal(2 * next_++); }

 private:
  PhiloxStream stream_;
  uint64_t next_ = 0;
};

// Runs `body` once per rank, each with a record, which Record::add() joins. What ended the
// communication becomes texts["communication"].
Record run_on_ranks(int ranks, const std::function<void(Communicator&, Record&)>& body);

// Runs one check on the student's code. With step_from the record may be empty. What it throws
// reaches the judge as texts["error"].
Record measure(const CheckOptions& options);

}  // namespace zl::exercises
