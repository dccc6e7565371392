// How long one kernel takes on one rank.
//
// A kernel that the machine's description has measured takes what the measurements say. Any other
// takes the longer of its operations at a share of the peak, and its bytes at a share of the
// memory's bandwidth: the roofline of Williams et al. 2009, with shares by size as in Isaev et al.
// 2023 ("Calculon").
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

// Whether the kernel reads and writes each element of long tensors once, in order: updates, copies,
// sums of gradients. Others do more for each byte, or go through it again. They have shares of
// their own, because published programs, to which the others are fitted, have more of these.
bool streams(std::string_view kernel);

// The share for work of this size. Between two rows its logarithm is linear in that of the size;
// outside it is that of the nearest row.
double share_of(const std::vector<Efficiency>& rows, double size);
// Whether larger work takes at least as long: the share grows no faster than the size.
bool time_grows(const std::vector<Efficiency>& rows);

}  // namespace zl
