// Ranks that talk through the fake, and the same ranks as threads without it.
#pragma once

#include <memory>

#include "dist/nccl_ranks.h"
#include "tests/dist/ranks.h"
#include "tests/nccl/fake_nccl.h"

namespace zl::test {

// Where a rank's tensors lie: on the CPU, whose calls are done when they return, or behind a stream that lags.
inline RankBackends fake_backends(bool lagging) {
  RankBackends backends;
  if (lagging) backends.device = std::make_unique<LaggingCpu>();
  return backends;
}

struct FakeOptions {
  bool lagging = false, ordered = true;
  std::vector<Fault> faults = {};
};

// What every rank's buffer holds after `call` through NCCL. Throws if NCCL was misused, or the compute lane hurried on.
template <class T>
Buffers<T> after_nccl(const Buffers<T>& in, const std::function<void(Communicator&, const Tensor&)>& call, const FakeOptions& options = {}) {
  Buffers<T> out(in.size());
  FakeNccl fake(options.faults);
  const NcclApi api = fake.api();
  std::atomic<bool> hurried{false};
  run_nccl_ranks(
      int(in.size()),
      [&](Communicator& comm) {
        Rank rank(comm, {}, fake_backends(options.lagging));
        const Tensor t = rank.tensor(in[size_t(comm.rank())]);
        call(comm, t);
        if (const auto* lagging = dynamic_cast<LaggingCpu*>(&t.backend()); lagging && lagging->hurried()) hurried = true;
        out[size_t(comm.rank())] = contents<T>(t);
      },
      within(std::chrono::seconds(20)), {.api = &api, .ordered = options.ordered});
  if (hurried) throw std::logic_error("the compute lane did not wait");
  if (const std::string misuse = fake.misuse(); !misuse.empty()) throw std::logic_error(misuse);
  return out;
}

}  // namespace zl::test
