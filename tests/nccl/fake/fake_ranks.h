// Ranks that communicate through the fake NCCL.
#pragma once

#include <memory>
#include <thread>

#include "dist/nccl/nccl_transport.h"
#include "tests/dist/processes/free_ports.h"
#include "tests/dist/ranks.h"
#include "tests/nccl/fake/fake_nccl.h"

struct CUstream_st;
namespace zl::cuda_on_cpu {
void enqueue_until(CUstream_st* stream, std::function<bool()> what);
void reserve(CUstream_st* stream, bool reserved);
void* on_host(const void* address);
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
    .on_host = cuda_on_cpu::on_host};

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
  std::chrono::milliseconds timeout = std::chrono::seconds(20);
  int version = 22809;
  std::vector<int> machine_of = {};  // by rank; empty: all are on one
  bool told = true;                  // ranks know that
  Place place() const { return emulated ? Place::emulated : lagging ? Place::lagging : Place::cpu; }
};

// What ranks that talk through a fake came to.
struct FakeUse {
  std::string misuse;  // also says that a communicator was not ended exactly once
  int aborted = 0, destroyed = 0, groups = 0;
  int64_t network = 0;  // [B] between machines
};
struct FakeOutcome : Outcome, FakeUse {};

// Ranks on `transport(place)` as threads of this process. All else is as between processes: how
// they connect, compare their calls and fail. Throws what a rank threw that failed by itself, else
// what rank 0 threw.
inline void run_as_processes_would(
    int size, const std::function<void(Communicator&)>& body, const RankOptions& options,
    const std::function<ProcessTransport(const LaunchedRank&)>& transport) {
  const int port = free_ports();
  std::vector<std::exception_ptr> errors(static_cast<size_t>(size));
  std::string report;
  const auto run_rank = [&](int r) {
    const LaunchedRank place{r, size, r, size, "127.0.0.1", port, "test", kNoLauncher};
    try {
      run_process_rank(place, body, options, transport(place), {});
    } catch (...) {
      errors[size_t(r)] = std::current_exception();
    }
    if (r == 0) report = last_failure_report();
  };
  {
    std::vector<std::jthread> threads;
    for (int r = 0; r < size; ++r) threads.emplace_back(run_rank, r);
  }
  set_last_failure_report(report);
  std::exception_ptr first = errors[0];
  for (const std::exception_ptr& error : errors) try {
      if (error) std::rethrow_exception(error);
    } catch (const CommunicationError&) {
    } catch (...) {
      first = error;
    }
  if (first) std::rethrow_exception(first);
}

inline void run_on_nccl(int size, const std::function<void(Communicator&)>& body,
                        const RankOptions& options, const NcclOptions& nccl) {
  run_as_processes_would(size, body, options, [&](const LaunchedRank& place) {
    return nccl_transport(place, options, nccl);
  });
}

// Calls `run(size, body, options)`, which starts ranks, once or several times. Throws what it does.
inline FakeUse with_fake(const FakeOptions& how, const std::function<void(const RunRanks&)>& run) {
  FakeNccl fake(how.faults, how.version, streams_of(how.place()));
  const NcclApi api = fake.api();
  if (!how.machine_of.empty()) fake.set_machines(how.machine_of);
  NcclOptions options{.api = &api, .ordered = how.ordered};
  if (how.told && !how.machine_of.empty())
    options.machine = [&](int rank) { return str(how.machine_of[size_t(rank)]); };
  run([&](int size, const std::function<void(Communicator&)>& body,
          const RankOptions& rank_options) { run_on_nccl(size, body, rank_options, options); });
  return {fake.misuse(), fake.calls("ncclCommAbort"), fake.calls("ncclCommDestroy"),
          fake.calls("ncclGroupEnd"), fake.bytes_between_machines()};
}

inline FakeOutcome fake_outcome(int ranks, const FakeOptions& how,
                                const std::function<void(Rank&)>& body) {
  FakeOutcome ended;
  const auto on_rank = [&](Communicator& comm) {
    Rank rank(comm, {}, fake_backends(how.place()));
    body(rank);
  };
  static_cast<FakeUse&>(ended) = with_fake(how, [&](const RunRanks& run) {
    static_cast<Outcome&>(ended) =
        outcome_of(ranks, on_rank, [&](const auto& one) { run(ranks, one, within(how.timeout)); });
  });
  return ended;
}

// What every rank's buffer holds after `call` through NCCL. Throws what ended the run, or how NCCL
// was misused.
template <class T>
Buffers<T> after_nccl(const Buffers<T>& in,
                      const std::function<void(Communicator&, const Tensor&)>& call,
                      const FakeOptions& how = {}, int64_t* network = nullptr) {
  Buffers<T> out(in.size());
  const FakeOutcome ended = fake_outcome(int(in.size()), how, [&](Rank& rank) {
    const auto r = size_t(rank.comm.rank());
    const Tensor t = rank.tensor(in[r]);
    call(rank.comm, t);
    out[r] = contents<T>(t);
  });
  if (ended.cause) std::rethrow_exception(ended.cause);
  if (!ended.misuse.empty()) throw std::logic_error(ended.misuse);
  if (network) *network = ended.network;
  return out;
}

}  // namespace zl::test
