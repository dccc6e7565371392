// One or more steps of model M under any stage, also one of the lesson's own: for lessons that look
// inside a step.
//
// The loop is that of stages/train/trainer.h, with the parts that a lesson may replace as members.
// Lessons that only train use training_m().
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "tutorials/lesson/model_m.h"

namespace zl::lesson {

// Windows [first, first + count) of text_m().
struct Rows {
  int64_t first = 0, count = kRowsM;
};

struct Trial {
  std::function<std::unique_ptr<Stage>(std::vector<Unit>&, Communicator&, Memory&,
                                       const StageOptions&)>
      make = make_ddp;
  int ranks = 1;
  int64_t layers = 2, micro_batches = 1, steps = 1;
  double max_norm = 0;   // of the gradient; 0: no clipping
  bool watched = false;  // --step stops in this one
  StageOptions options = {};
  // What a rank computes in the a-th micro-batch of all steps. Unless given, DESIGN's rule: B
  // windows for each (a, rank) in order.
  std::function<Rows(int rank, int64_t a)> rows = {};
  // Where backward starts from: the weight of this rank's mean loss.
  std::function<double(int rank)> scale = {};
};

// What one rank saw. Gradient and weights are those of all units in order, without padding.
struct TrialRank {
  std::vector<double> losses, norms;  // of each step
  std::vector<float> gradient;  // of the first step, after its last reduction; empty where a rank
                                // keeps only a shard
  std::vector<float> weights;   // as this rank has them, after the last step
  MemoryLedger rest;            // after the last step
  CommunicationLog log;         // of all steps
  std::vector<Partition> layouts;  // of each unit; they point to the parameters of `model`
  std::shared_ptr<Gpt> model;
};

// By rank.
std::vector<TrialRank> run_trial(Lesson& lesson, const Trial& trial);

// |a - b| / |b|, both as vectors.
double relative_difference(const std::vector<float>& a, const std::vector<float>& b);

// How many ranks' weights differ: 1 if all have the same bits.
int64_t different_weights(const std::vector<TrialRank>& ranks);

}  // namespace zl::lesson
