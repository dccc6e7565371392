#include "optim/swapped_state.h"

#include <algorithm>
#include <memory>

#include "tensor/kernels.h"

namespace zl {
namespace {

constexpr int64_t kBlock = 1024;  // [n]

using Transfers = std::vector<std::unique_ptr<Transfer>>;

void wait(Transfers& transfers) {
  while (!transfers.empty()) {
    const auto transfer = std::move(transfers.back());
    transfers.pop_back();
    transfer->wait();
  }
}

// One update's pass over the state. Chunk k uses buffer k modulo their number.
class Pass {
 public:
  Pass(const std::vector<Tensor>& stored, Memory& memory, const Swap& swap)
      : stored_(stored),
        plan_(swap_plan(swap, stored[0].numel())),
        buffers_(new_swap_buffers(stored, memory, swap)),
        reads_(buffers_.size()),
        writes_(buffers_.size()) {}

  int64_t chunks() const { return (plan_.stored + plan_.chunk - 1) / plan_.chunk; }
  int64_t begin(int64_t k) const { return k * plan_.chunk; }

  // A buffer is filled again when its last chunk has been written.
  void start_read(int64_t k) {
    finish_write(k);
    const std::vector<Tensor> chunk = buffer(k);
    for (size_t i = 0; i < chunk.size(); ++i)
      reads_[slot(k)].push_back(kernel::start_copy(on_disk(k, i), chunk[i]));
  }
  void finish_read(int64_t k) { wait(reads_[slot(k)]); }
  void start_write(int64_t k) {
    const std::vector<Tensor> chunk = buffer(k);
    for (size_t i = 0; i < chunk.size(); ++i)
      writes_[slot(k)].push_back(kernel::start_copy(chunk[i], on_disk(k, i)));
  }
  void finish_write(int64_t k) { wait(writes_[slot(k)]); }
  void finish() {
    for (Transfers& writes : writes_) wait(writes);
  }

  std::vector<Tensor> buffer(int64_t k) const {
    std::vector<Tensor> chunk;
    for (const Tensor& t : buffers_[slot(k)]) chunk.push_back(t.slice(0, {size(k)}));
    return chunk;
  }

 private:
  size_t slot(int64_t k) const { return size_t(k) % buffers_.size(); }
  int64_t size(int64_t k) const { return std::min(plan_.chunk, plan_.stored - begin(k)); }
  Tensor on_disk(int64_t k, size_t i) const { return stored_[i].slice(begin(k), {size(k)}); }

  const std::vector<Tensor>& stored_;
  SwapPlan plan_;
  SwapBuffers buffers_;                    // outlive the transfers, whose destructors wait
  std::vector<Transfers> reads_, writes_;  // by buffer
};

}  // namespace

SwapPlan swap_plan(const Swap& swap, int64_t n) {
  SwapPlan plan{.stored = round_up(n, kBlock)};
  const int64_t chunk = std::clamp<int64_t>(swap.sub_group_size, 1, std::max(plan.stored, kBlock));
  plan.chunk = round_up(chunk, kBlock);
  plan.buffers = std::min<int64_t>(1 + swap.pipeline_read + swap.pipeline_write,
                                   (plan.stored + plan.chunk - 1) / plan.chunk);
  return plan;
}

Tensor new_swapped(Memory& disk, MemoryUse use, int64_t n, Dtype type) {
  return Tensor::empty(disk, use, {round_up(n, kBlock)}, type);  // a new part of the file is zeros
}

SwapBuffers new_swap_buffers(const std::vector<Tensor>& stored, Memory& memory, const Swap& swap) {
  const SwapPlan plan = swap_plan(swap, stored[0].numel());
  SwapBuffers buffers(size_t(plan.buffers));
  for (std::vector<Tensor>& buffer : buffers)
    for (const Tensor& t : stored)
      buffer.push_back(Tensor::empty(memory, t.use(), {plan.chunk}, t.dtype()));
  return buffers;
}

void update_swapped(const std::vector<Tensor>& stored, Memory& memory, const Swap& swap,
                    const UpdateChunk& update) {
  if (stored.empty() || stored[0].numel() == 0) return;
  Pass pass(stored, memory, swap);
  const int64_t chunks = pass.chunks();
  for (int64_t k = 0; k < chunks; ++k) {
    if (k == 0 || !swap.pipeline_read) pass.start_read(k);
    if (swap.pipeline_read && k + 1 < chunks) pass.start_read(k + 1);
    pass.finish_read(k);
    update(pass.begin(k), pass.buffer(k));
    pass.start_write(k);
    if (!swap.pipeline_write) pass.finish_write(k);
  }
  pass.finish();
}

}  // namespace zl
