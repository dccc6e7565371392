// Numbers of each rank; the norm of the gradient that was reduced last, over all units and ranks;
// and the search for what made it not finite.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "stages/stage.h"
#include "tensor/kernels.h"

namespace zl {

// Numbers of each rank, gathered on the device and read by the host later.
class RankNumbers {
 public:
  // Starts the all-gather of this rank's numbers, of which every rank has the same count. Every
  // rank must make it; of one number, std::span(&number, 1). `mine` may be changed when the
  // constructor has returned. A dry run's numbers are all 0.
  RankNumbers(Communicator& comm, Memory& memory, const Tensor& mine, CallName name);  // (n) f64
  RankNumbers(Communicator& comm, Memory& memory, std::span<const double> mine, CallName name);
  RankNumbers() = default;  // none

  // Starts the copy to the host and frees the numbers on the device; waits for the all-gather.
  void start_download();
  const std::vector<double>& wait();  // by rank
  // Added in rank order: the same bits on every rank.
  double wait_for_sum();

 private:
  Tensor all_;     // (ranks * n) f64, until the copy has started
  Work gathered_;  // behind all_, so that it is destroyed first
  kernel::Download numbers_;
};

// Every rank must call it; all get the same bits. Squares are added in fp64: in blocks of 1,024
// elements from the start of each shard, then unit by unit, then in rank order. In reproducible
// mode the blocks are added one after another, in the order of the unsharded units. The host waits.
double gradient_norm(Stage& stage);

// Which rank and parameter had a gradient that is not finite. Found before any reduction where
// possible, since a sum over ranks does not tell which rank it came from.
struct NonfiniteGradient {
  int rank;               // the lowest
  std::string parameter;  // the first of that rank's
  // False: that rank's gradient as backward left it, before any reduction. True: the gradients of
  // all ranks were finite, and a sum over ranks or micro-batches is not; `rank` holds that shard.
  bool in_sum;
};

// Squares of each parameter's gradient are computed in every micro-batch. The host looks at them
// only if the norm of the step is not finite.
class NonfiniteSearch {
 public:
  explicit NonfiniteSearch(Stage& stage) : stage_(stage) {}

  // In this order, each once per micro-batch but for check(), which is called for each unit.
  void begin_micro_batch();
  void check(const UnitState& u);  // its gradients are complete and not reduced yet
  void end_micro_batch();
  // The lowest rank, and its first parameter in the first such micro-batch of this step. All ranks
  // must call it and get the same. Empty: each gradient is finite,
  // but the squares of all of them together are too large for fp64.
  std::optional<NonfiniteGradient> find();
  void clear() { squares_on_host_.clear(); }  // at the end of a step

 private:
  double code();

  Stage& stage_;
  Tensor squares_;  // (parameters) f64: squared norms, in this micro-batch
  std::vector<kernel::Download> squares_on_host_;  // of each micro-batch of the step
};

}  // namespace zl
