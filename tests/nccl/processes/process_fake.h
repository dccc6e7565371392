// NCCL without GPUs for ranks that are processes: real bytes move between them, and it misbehaves
// on command.
//
// Tensors are on the CPU and there is no stream: a call is in progress for some polls, and until
// its data has moved. Nothing moves by itself, only while a rank calls NCCL; asking for the state
// is enough. As in FakeNccl, what does not fit never completes, and what NCCL leaves undefined is
// noted as misuse. Unlike there, a send is done when its bytes have left, received or not. A rank
// that dies leaves nothing behind, not even a file. Ranks may also be threads of one process.
#pragma once

#include <condition_variable>
#include <functional>
#include <list>
#include <mutex>
#include <string>
#include <vector>

#include "dist/nccl/api.h"
#include "tests/nccl/fake/faults.h"
#include "tests/nccl/processes/process_calls.h"

namespace zl::test {

// Whether the others hear of a rank that is gone: as ncclRemoteError from then on, or never. NCCL
// does either.
enum class Deaths { noticed, unnoticed };

class ProcessFake {
 public:
  explicit ProcessFake(std::vector<Fault> faults = {}, Deaths deaths = Deaths::noticed,
                       int version = 22809);
  ~ProcessFake();  // one at a time in a process
  ProcessFake(const ProcessFake&) = delete;

  NcclApi api() const;  // to be used while this lives
  // What was done in this process that NCCL does not allow, and who was not ended exactly once; ""
  // if nothing.
  std::string misuse() const;
  int calls(const std::string& function) const;  // in this process
  static constexpr int kPolls = 3;

  // Set: ranks compute on emulated GPUs. Then calls may be in a stream, and their data has moved
  // when they return: after this has executed all that the GPUs were given before.
  std::function<void()> finish_gpus;
  // All ranks are on one GPU: as NCCL, it refuses them if they have the host's name.
  bool one_gpu = false;

 private:
  struct Comm;
  struct Functions;  // what the table points to
  using Lock = std::unique_lock<std::mutex>;
  NcclResult enter(const char* function, Comm* comm, Lock& lock);
  NcclResult post(Comm& comm, const std::vector<AskedOfNccl>& calls);
  bool in_progress(Comm& comm);
  void note(const std::string& misuse) { misuse_ += misuse + "; "; }

  const Deaths deaths_;
  const int version_;
  mutable std::mutex mutex_;  // guards all below, and what moves
  std::list<Comm> comms_;     // also those that have ended, so that their use is seen
  FaultScript script_;
  std::string misuse_;
  std::condition_variable never_;
};

}  // namespace zl::test
