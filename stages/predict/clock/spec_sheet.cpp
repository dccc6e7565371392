#include "stages/predict/clock/spec_sheet.h"

#include <algorithm>

namespace zl {

RankMachine with_shares_of(RankMachine to, const RankMachine& from) {
  to.matmul = from.matmul;
  to.memory = from.memory;
  to.streaming = from.streaming;
  to.attention = from.attention;
  to.launch = from.launch;
  to.kernels.clear();
  const double matmul = from.matmul.empty() ? 1 : from.matmul.back().share;
  if (to.vector_rate <= 0 || from.vector_rate <= 0 || from.attention >= matmul) return to;
  // Of the time for one operation at the peak.
  const double softmax = 1 / from.attention - 1 / matmul;
  const double grows = (to.half_flops / to.vector_rate) / (from.half_flops / from.vector_rate);
  to.attention = 1 / (1 / matmul + softmax * grows);
  return to;
}

}  // namespace zl
