// The data rule: which tokens a micro-batch contains. It is public and never changes silently.
//
// A file of n tokens has floor((n - 1) / T) windows; no window crosses a file. Window w of a file
// is its tokens [w*T, w*T + T]: the first T are inputs, the last T are targets. Windows are
// numbered across files, W in total. Micro-batch j takes windows j*B … j*B + B-1, each modulo W;
// after a checkpoint that had read n windows, j*B counts from n.
// Held-out windows are the last ceil(W / 10); then W counts the others. All numbers start at 0.
//
// The position of a run in the data is the number of windows read: Windows has no other state.
#pragma once

#include <optional>

#include "nn/data/batch_source.h"
#include "nn/data/token_data.h"

namespace zl {

// Numbers the micro-batches of a run: by step, then by accumulation, then by rank.
struct MicroBatches {
  int64_t accumulation = 1;  // A
  int64_t ranks = 1;         // N
  // The number j of micro-batch a of a step on rank r.
  int64_t index(int64_t step, int64_t a, int64_t r) const {
    return (step * accumulation + a) * ranks + r;
  }
};

struct WindowOptions {
  bool hold_out = false;  // keep the last tenth for evaluation
  // Shuffles the training windows, in the same order in every epoch: window w is element w of a
  // permutation of the W windows. Fisher and Yates: for i = W-1 … 1 swap elements i and
  // floor(u_i * (i+1)), where u_i is PhiloxStream{seed, fnv1a("windows")}.uniform(i).
  std::optional<uint64_t> shuffle_seed;
  Poll poll = {};  // while windows are shuffled
};

class Windows final : public BatchSource {
 public:
  // T = block_size. Throws InputError with the numbers if there is no window to train on.
  Windows(TokenData data, int64_t block_size, WindowOptions options = {});

  int64_t block_size() const { return T_; }
  int64_t training() const { return training_; }  // W
  int64_t held_out() const override { return held_out_; }
  Shape input_row() const override { return {T_}; }
  Shape target_row() const override { return {T_}; }
  const TokenData& data() const { return data_; }
  std::string identity() const override;

  // Windows first … first + B-1, each modulo W: ids (B, T) and targets (B, T). The size of the
  // spans determines B.
  void fill_rows(int64_t first, std::span<int32_t> ids, std::span<int32_t> targets) const override;
  // Held-out windows first … first + B-1, in the order of the files.
  void fill_held_out(int64_t first, std::span<int32_t> ids,
                     std::span<int32_t> targets) const override;

 private:
  int64_t rows(std::span<int32_t> ids, std::span<int32_t> targets) const;
  void read(int64_t window, std::span<int32_t> ids, std::span<int32_t> targets) const;

  TokenData data_;
  int64_t T_;
  std::vector<int64_t> first_window_;  // of each file, and one past the last
  int64_t training_ = 0, held_out_ = 0;
  std::vector<int64_t> order_;  // of the training windows; empty: not shuffled
  std::optional<uint64_t> shuffle_seed_;
};

}  // namespace zl
