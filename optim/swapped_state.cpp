#include "optim/swapped_state.h"

#include <algorithm>

#include "tensor/kernels.h"

namespace zl {
namespace {

constexpr int64_t kBlock = 1024;  // [n]

using Transfers = std::vector<std::future<void>>;

void wait(Transfers& transfers) {
  for (std::future<void>& transfer : transfers) transfer.get();
  transfers.clear();
}

std::vector<Tensor> slices(const std::vector<Tensor>& tensors, int64_t begin, int64_t n) {
  std::vector<Tensor> parts;
  for (const Tensor& t : tensors) parts.push_back(t.slice(begin, {n}));
  return parts;
}

void start_copies(const std::vector<Tensor>& from, const std::vector<Tensor>& to, Transfers& in) {
  for (size_t i = 0; i < from.size(); ++i) in.push_back(kernel::start_copy(from[i], to[i]));
}

}  // namespace

SwapPlan swap_plan(const Swap& swap, int64_t n) {
  SwapPlan plan{.stored = round_up(n, kBlock)};
  const int64_t chunk = std::clamp<int64_t>(swap.sub_group_size, 1, std::max(plan.stored, kBlock));
  plan.chunk = round_up(chunk, kBlock);
  plan.buffers = std::min<int64_t>(1 + swap.pipeline_read + swap.pipeline_write,
                                   (plan.stored + plan.chunk - 1) / plan.chunk);
  return plan;
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
  if (stored[0].numel() == 0) return;
  const SwapPlan plan = swap_plan(swap, stored[0].numel());
  const int64_t chunks = (plan.stored + plan.chunk - 1) / plan.chunk;
  const SwapBuffers buffers = new_swap_buffers(stored, memory, swap);
  // By buffer; the buffers outlive them, because their destructors wait.
  std::vector<Transfers> reads(buffers.size()), writes(buffers.size());
  const auto slot = [&](int64_t k) { return size_t(k) % buffers.size(); };  // chunk k's buffer
  const auto size = [&](int64_t k) { return std::min(plan.chunk, plan.stored - k * plan.chunk); };
  const auto on_disk = [&](int64_t k) { return slices(stored, k * plan.chunk, size(k)); };
  const auto in_memory = [&](int64_t k) { return slices(buffers[slot(k)], 0, size(k)); };
  const auto start_read = [&](int64_t k) {
    wait(writes[slot(k)]);  // a buffer is filled again when its last chunk has been written
    start_copies(on_disk(k), in_memory(k), reads[slot(k)]);
  };
  for (int64_t k = 0; k < chunks; ++k) {
    if (k == 0 || !swap.pipeline_read) start_read(k);
    if (swap.pipeline_read && k + 1 < chunks) start_read(k + 1);
    wait(reads[slot(k)]);
    update(k * plan.chunk, in_memory(k));
    start_copies(in_memory(k), on_disk(k), writes[slot(k)]);
    if (!swap.pipeline_write) wait(writes[slot(k)]);
  }
  for (Transfers& last : writes) wait(last);
}

}  // namespace zl
