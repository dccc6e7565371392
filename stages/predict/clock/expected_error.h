// How wrong a prediction of the clock may be. The numbers are those that `zerolab bench clock`
// prints; a test compares them.
#pragma once

#include "stages/predict/clock/machine.h"

namespace zl {

// Where a machine's rates come from.
enum class MachineData {
  measured,    // kernels measured on it
  fitted,      // its shares are fitted to published steps of its kind of GPU
  data_sheet,  // peaks, with shares that are carried over from another kind
};
MachineData machine_data(const Machine& machine);

// Mean of |predicted / measured - 1|.
struct ExpectedError {
  double error = 0;
  // Trust only which of two runs is faster. No published step without tensor or pipeline
  // parallelism has so many ranks.
  bool order_only = false;
};
ExpectedError expected_step_error(MachineData data, int ranks);

// `measured`: the machine's file has this collective on so many ranks and nodes.
double expected_call_error(bool measured, int64_t bytes);

}  // namespace zl
