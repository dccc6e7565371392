// Times that others measured and published (stages/predict/published), and what the clock says.
#pragma once

#include <string>
#include <vector>

#include "stages/predict/clock/clock_plan.h"
#include "stages/predict/clock/collective_time.h"

namespace zl {

struct PublishedTable {
  std::string system;
  Machine machine;       // the shipped one, with what the source says about its own
  bool changed = false;  // whether the source says anything
  Collective collective{};
  int ranks = 0, nodes = 1;
  std::vector<TimedCall> calls;
};
std::vector<PublishedTable> published_tables();

struct PublishedStep {
  std::string program, model, variant;  // variant: what else its source varies; "": nothing
  Machine machine;                      // likewise
  bool llama = false;                   // SwiGLU, grouped queries, an untied head
  int64_t parameters = 0;
  GptConfig shape;  // as printed
  int ranks = 0;
  StageKind stage{};
  int64_t micro_batch = 0, accumulation = 0;
  double recomputed = 0;  // share of the blocks
  int update_ranks = 1;   // ranks of a node that share the update, besides what `stage` shards
  std::string unlike;     // why its program is not what the clock models; "": it is
  double seconds = 0;

  // What the clock says, [s].
  // From the machine's data sheet with the shares of the other kind: of H100 for A100, and of A100
  // for all others. So nothing is measured on this kind.
  double spec_sheet = 0;
  double shipped = 0;
  // As spec_sheet, with one factor on all kernels, by which the row of its set that has
  // `calibrates` is exact. A set is what one program published of one machine.
  double calibrated = 0;
  bool fitted = false;  // the shares of the shipped machine are fitted to this row
  bool calibrates = false;
};
std::vector<PublishedStep> published_steps();

}  // namespace zl
