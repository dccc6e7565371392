// Which tokens a micro-batch holds. Other programs can compute this rule, so it never changes
// silently.
//
// A file of n tokens has floor((n - 1) / T) windows; no window crosses a file. Window w of a file
// reads its tokens [w*T, w*T + T]: T inputs, and the same shifted by one as targets. Windows count
// on from file to file, W in all. Micro-batch j takes windows j*B … j*B + B-1, each modulo W.
// Held-out windows are the last ceil(W / 10); then W counts the others. All counting starts at 0.
#pragma once

#include <optional>

#include "nn/data/token_data.h"

namespace zl {

// Counts the micro-batches of a run: over steps, then accumulation, then ranks.
struct MicroBatches {
  int64_t accumulation = 1;  // A
  int64_t ranks = 1;         // N
  // j of what rank r computes in accumulation a of a step.
  int64_t index(int64_t step, int64_t a, int64_t r) const {
    return (step * accumulation + a) * ranks + r;
  }
};

struct WindowOptions {
  bool hold_out = false;  // keep the last tenth for evaluation
  // Trains on the windows in another order, the same in every epoch: window w is element w of a
  // permutation of the W training windows. Fisher and Yates: for i = W-1 … 1 swap elements i and
  // floor(u_i * (i+1)), where u_i is PhiloxStream{seed, fnv1a("windows")}.uniform(i).
  std::optional<uint64_t> shuffle_seed;
};

class Windows {
 public:
  // T = block_size. Throws InputError with the numbers if there is no window, or none left to train
  // on.
  Windows(TokenData data, int64_t block_size, WindowOptions options = {});

  int64_t block_size() const { return T_; }
  int64_t training() const { return training_; }  // W
  int64_t held_out() const { return held_out_; }
  const TokenData& data() const { return data_; }

  // Micro-batch j as B rows of T: ids (B, T) and targets (B, T). B is how many windows fit the
  // spans.
  void fill(int64_t micro_batch, std::span<int32_t> ids, std::span<int32_t> targets) const;
  // Held-out windows first … first + B-1, in the order of the files.
  void fill_held_out(int64_t first, std::span<int32_t> ids, std::span<int32_t> targets) const;

 private:
  int64_t rows(std::span<int32_t> ids, std::span<int32_t> targets) const;
  void read(int64_t window, std::span<int32_t> ids, std::span<int32_t> targets) const;

  TokenData data_;
  int64_t T_;
  std::vector<int64_t> first_window_;  // of each file, and one past the last
  int64_t training_ = 0, held_out_ = 0;
  std::vector<int64_t> order_;  // of the training windows; empty: as they come
};

}  // namespace zl
