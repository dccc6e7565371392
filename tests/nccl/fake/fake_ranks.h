// Ranks that talk through the fake, and the same ranks as threads without it.
#pragma once

#include <memory>

#include "dist/nccl/nccl_ranks.h"
#include "tests/dist/ranks.h"
#include "tests/nccl/fake/fake_nccl.h"

struct CUstream_st;
namespace zl::cuda_on_cpu {
void enqueue_until(CUstream_st* stream, std::function<bool()> what);
void reserve(CUstream_st* stream, bool reserved);
void* on_host(const void* address);
void allocate_for_nccl();
}  // namespace zl::cuda_on_cpu

namespace zl::test {

// Those of the GPU that tests/cuda/on_cpu makes of the CPU.
inline constexpr FakeStreams kEmulatedStreams{
    .reserve =
        [](void* stream, bool reserved) {
          cuda_on_cpu::reserve(static_cast<CUstream_st*>(stream), reserved);
        },
    .enqueue_until =
        [](void* stream, std::function<bool()> work) {
          cuda_on_cpu::enqueue_until(static_cast<CUstream_st*>(stream), std::move(work));
        },
    .on_host = cuda_on_cpu::on_host,
    .allocate = cuda_on_cpu::allocate_for_nccl};

// The device of a rank's tensors: the CPU, whose calls are done when they return, the CPU behind a
// stream that lags, or the GPU that tests/cuda/on_cpu emulates, where both streams lag.
enum class Place { cpu, lagging, emulated };

inline RankBackends fake_backends(Place place) {
  RankBackends backends;
  if (place == Place::lagging) backends.device = std::make_unique<LaggingCpu>();
  if (place == Place::emulated)
    backends = {cuda_on_cpu::make_gpu_backend(0, emulated_options()),
                cuda_on_cpu::make_pinned_backend()};
  return backends;
}
inline RankBackends fake_backends(bool lagging) {
  return fake_backends(lagging ? Place::lagging : Place::cpu);
}
// The emulated GPU changes stacks, which the thread sanitizer cannot follow.
inline void require_emulator() {
#if defined(__SANITIZE_THREAD__)
  SKIP("no emulated GPU under the thread sanitizer");
#endif
}
inline const FakeStreams& streams_of(Place place) {
  return place == Place::emulated ? kEmulatedStreams : kLaggingStreams;
}

struct FakeOptions {
  bool lagging = false, ordered = true;
  std::vector<Fault> faults = {};
  bool emulated = false;
  Place place() const { return emulated ? Place::emulated : lagging ? Place::lagging : Place::cpu; }
};

// What every rank's buffer holds after `call` through NCCL. Throws if NCCL was misused.
template <class T>
Buffers<T> after_nccl(const Buffers<T>& in,
                      const std::function<void(Communicator&, const Tensor&)>& call,
                      const FakeOptions& options = {}) {
  Buffers<T> out(in.size());
  FakeNccl fake(options.faults, 22809, streams_of(options.place()));
  const NcclApi api = fake.api();
  run_nccl_ranks(int(in.size()),
                 [&](Communicator& comm) {
                   Rank rank(comm, {}, fake_backends(options.place()));
                   const Tensor t = rank.tensor(in[size_t(comm.rank())]);
                   call(comm, t);
                   out[size_t(comm.rank())] = contents<T>(t);
                 },
                 within(std::chrono::seconds(20)), {.api = &api, .ordered = options.ordered});
  if (const std::string misuse = fake.misuse(); !misuse.empty()) throw std::logic_error(misuse);
  return out;
}

}  // namespace zl::test
