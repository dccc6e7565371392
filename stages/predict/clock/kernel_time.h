// How long one kernel takes on one rank.
//
// A kernel that the machine's description has measured takes what the measurements say. Any other
// takes the longer of its operations at a share of the peak, and its bytes at a share of the
// memory's bandwidth: the roofline of Williams et al. 2009, with the steps of Isaev et al. 2023
// ("Calculon").
#pragma once

#include <string_view>

#include "stages/predict/clock/machine.h"

namespace zl {

struct KernelWork {
  std::string_view kernel;  // as its event is called
  double operations = 0, bytes = 0;
  Dtype type = Dtype::f32;  // of parameters and activations
  int ranks = 1;            // of the node that compute at the same time
  int head = 0, rows = 0;  // [n] channels of the model's heads, tokens of a micro-batch; 0: unknown
};

// [s] On the device, without its launch.
double kernel_seconds(const RankMachine& rank, const KernelWork& work);

// What its operations and bytes do not say: the channels of a head for attention, and the rows of
// the activations for matmul. 0: nothing.
int shape_of(const KernelWork& work);

// What the time of a kernel per operation or byte depends on, and by which its points are sorted:
// its size, max(operations, bytes). For attention it is the length of the sequence, to which the
// operations per byte are proportional.
double place_of(std::string_view kernel, double operations, double bytes);

// The share for work of this size: that of the last row that is not larger.
double share_of(const std::vector<Efficiency>& rows, double size);

}  // namespace zl
