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
  const SwapPlan plan = swap_plan(swap, stored[0].numel());
  const int64_t chunks = (plan.stored + plan.chunk - 1) / plan.chunk;
  const SwapBuffers buffers = new_swap_buffers(stored, memory, swap);
  // By buffer; the buffers outlive them, because their destructors wait.
  std::vector<Transfers> reads(buffers.size()), writes(buffers.size());
  const auto slot = [&](int64_t k) { return size_t(k) % buffers.size(); };  // chunk k's buffer
  const auto part = [&](const Tensor& t, int64_t begin, int64_t k) {
    return t.slice(begin, {std::min(plan.chunk, plan.stored - k * plan.chunk)});
  };
  const auto on_disk = [&](int64_t k, size_t i) { return part(stored[i], k * plan.chunk, k); };
  const auto in_memory = [&](int64_t k, size_t i) { return part(buffers[slot(k)][i], 0, k); };
  const auto start_read = [&](int64_t k) {
    wait(writes[slot(k)]);  // a buffer is filled again when its last chunk has been written
    for (size_t i = 0; i < stored.size(); ++i)
      reads[slot(k)].push_back(kernel::start_copy(on_disk(k, i), in_memory(k, i)));
  };
  for (int64_t k = 0; k < chunks; ++k) {
    if (k == 0 || !swap.pipeline_read) start_read(k);
    if (swap.pipeline_read && k + 1 < chunks) start_read(k + 1);
    wait(reads[slot(k)]);
    std::vector<Tensor> chunk;
    for (size_t i = 0; i < stored.size(); ++i) chunk.push_back(in_memory(k, i));
    update(k * plan.chunk, chunk);
    for (size_t i = 0; i < stored.size(); ++i)
      writes[slot(k)].push_back(kernel::start_copy(chunk[i], on_disk(k, i)));
    if (!swap.pipeline_write) wait(writes[slot(k)]);
  }
  for (Transfers& last : writes) wait(last);
}

}  // namespace zl
