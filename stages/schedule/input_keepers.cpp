#include "stages/schedule/input_keepers.h"

#include <algorithm>
#include <utility>

#include "tensor/kernels.h"

namespace zl {

InputKeeper inputs_on_host(Memory& host) {
  return [&host](Tensor x) -> Kept {
    const Tensor copy = Tensor::empty(host, MemoryUse::activation, x.shape(), x.dtype());
    kernel::copy(x, copy);
    return [copy, &device = x.memory()] {
      const Tensor back = Tensor::empty(device, MemoryUse::activation, copy.shape(), copy.dtype());
      kernel::copy(copy, back);
      return back;
    };
  };
}

// The last parts may be short, or empty; zeros fill them up.
InputKeeper partitioned_inputs(Communicator& comm, InputKeeper keep_part) {
  return [&comm, keep_part = std::move(keep_part)](Tensor x) -> Kept {
    const int64_t n = x.numel(), part = (n + comm.size() - 1) / comm.size();
    const int64_t begin = std::min(n, comm.rank() * part), mine = std::min(part, n - begin);
    const Tensor own = activation_like(x, {part});
    if (mine < part) kernel::fill(0, own.slice(mine, {part - mine}));
    if (mine > 0) kernel::copy(x.slice(begin, {mine}), own.slice(0, {mine}));
    const auto gather = [&comm, shape = x.shape()](const Tensor& own) {
      const Tensor all = activation_like(own, {comm.size() * own.numel()});
      kernel::copy(own, all.slice(comm.rank() * own.numel(), own.shape()));
      const std::string text = str(comm.events().unit(), " input");
      comm.all_gather(all, {text, Purpose::activation}).wait();
      return all.slice(0, shape);
    };
    return [gather, kept = keep_part(own)] { return gather(kept()); };
  };
}

InputKeeper input_keeper(const Options& o, Communicator& comm, Memory* host) {
  const std::string misfit = activations_misfit(o, comm.size());
  require_input(misfit.empty(), misfit);
  require_input(!o.cpu_checkpointing || host != nullptr,
                "cpu_checkpointing needs host memory: pass a host Memory to initialize()");
  InputKeeper keeper;
  if (o.cpu_checkpointing) keeper = inputs_on_host(*host);
  if (!o.partition_activations || comm.size() == 1) return keeper;
  const InputKeeper stays = [](Tensor part) -> Kept { return [part] { return part; }; };
  return partitioned_inputs(comm, keeper ? keeper : stays);
}

}  // namespace zl
