// What DeepSpeed's functions estimate_zero2_model_states_mem_needs_all_live() and
// estimate_zero3_model_states_mem_needs_all_live() say about a model, beside the closed formulas.
// Source: DeepSpeed 0.19.8, runtime/zero/stage_1_and_2.py and stage3.py.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "nn/model.h"
#include "stages/options.h"

namespace zl {

struct TrainingSpec;

struct EstimateInput {
  int64_t parameters = 0;  // [n] each tensor once, without padding
  // [n] of the module that has the most parameters itself, submodules not counted. Only stage 3
  // asks for it.
  int64_t largest_layer = 0;
  int ranks_per_node = 1, nodes = 1;
};
// A parameter's module is its name up to the last dot.
EstimateInput estimate_input(Model& model, int ranks, int ranks_per_node);

// One line of DeepSpeed's table. `zero_init`: the model is built under deepspeed.zero.Init(), in
// shards.
struct Estimate {
  bool offload_param = false, offload_optimizer = false, zero_init = false;
  int64_t node = 0, rank = 0;  // [B] "per CPU", the memory of one node, and "per GPU"
};
// In DeepSpeed's order. `stage` is zero2, where only offload_optimizer varies, or zero3.
std::vector<Estimate> deepspeed_estimates(StageKind stage, const EstimateInput& input);

// The lines above the table, the line of column titles, and one row, as DeepSpeed prints them.
std::string deepspeed_heading(StageKind stage, const EstimateInput& input);
std::string deepspeed_titles();
std::string deepspeed_row(StageKind stage, const Estimate& estimate);

// [B] Model states with our padding, by the closed formulas, in the precision that DeepSpeed's
// estimate assumes: parameters and gradients in 16 bits, AdamW's states and master weights in 32.
struct ExactStates {
  int64_t rest = 0, peak = 0;  // on a rank's device; the peaks of all uses, added up
  int64_t node = 0;            // on the host, of all ranks of a node
};
ExactStates exact_states(const TrainingSpec& spec, StageKind stage, const Estimate& row,
                         int ranks_per_node);

}  // namespace zl
