// One training step of rank 0 as its event stream has it, with the memory after each event. The
// recording of tutorials/recording/ has no single allocations and no kernels, which these pictures
// show.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "stages/train/trainer.h"

namespace zl::draw {

using LiveBytes = std::array<int64_t, kMemoryUses>;  // [B] of the device, by use

struct Moment {
  EventKind kind;
  std::string phase, unit, what, detail;  // of the event
  int64_t bytes = 0;                      // [B] of the event
  int64_t operations = 0;                 // of a kernel
  LiveBytes live{};       // afterwards; workspace counts as 0, because it depends on the CPU
  std::string full;       // a character per unit: '#' if its full parameters may be used, else '.'
  int64_t total() const;  // [B] of `live`
};

// The last step of a run, without the events of workspace. Throws what the run throws.
std::vector<Moment> trace_step(const TrainingSpec& spec);

}  // namespace zl::draw
