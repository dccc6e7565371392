// Memory over a step, stacked by use.
#pragma once

#include <string>
#include <vector>

#include "tutorials/zerolab/draw/step_trace.h"
#include "tutorials/zerolab/draw/svg.h"

namespace zl::draw {

struct MemoryChart {
  Box area;
  int64_t most = 0;             // [B] at the upper edge
  int64_t tick = 128 * 1024;    // [B] between lines
  std::vector<Moment> moments;  // one x each, in program order
  std::string label;            // before the hover text of the peak

  double x(size_t moment) const;
  double y(int64_t bytes) const;
};

// Lines, the stacked uses, phases and blocks below them, and the peak with its total.
void draw_memory(Svg& svg, const MemoryChart& chart);
// The first moment at which the most bytes are live.
const Moment& peak_of(const std::vector<Moment>& moments);
// Of these: phases, unit events, and what changes memory.
std::vector<Moment> of_memory(const std::vector<Moment>& moments);

}  // namespace zl::draw
