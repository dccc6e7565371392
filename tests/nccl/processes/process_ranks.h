// Ranks that are processes and communicate through the fake, from bootstrap to leaving.
#pragma once

#include "dist/nccl/nccl_transport.h"
#include "tests/dist/processes/free_ports.h"
#include "tests/dist/ranks.h"
#include "tests/nccl/fake/fake_nccl.h"
#include "tests/nccl/processes/processes.h"

namespace zl::test {

struct ProcessRanks {
  int size = 3;
  std::chrono::milliseconds timeout{20'000};
  std::vector<Fault> faults = {};
  Deaths deaths = Deaths::noticed;
  bool ordered = true;
  int per_machine = 0;  // ranks; 0: all are on one machine
  int port = free_ports();
};

inline NcclOptions nccl_options(const ProcessRanks& run, const NcclApi& api) {
  NcclOptions options{.api = &api, .ordered = run.ordered};
  if (run.per_machine > 0)
    options.machine = [on_each = run.per_machine](int rank) { return str(rank / on_each); };
  return options;
}

// Is this rank of the run.
inline void start_rank(const ProcessRanks& run, int rank, const NcclApi& api,
                       const std::function<void(Communicator&)>& body, const RankOptions& options) {
  const LaunchedRank place{rank, run.size, rank, run.size, "127.0.0.1", run.port, "test", "a test"};
  run_process_rank(place, body, options, nccl_transport(place, options, nccl_options(run, api)),
                   {});
}

// The exit codes of the program, and those of children that find something wrong.
inline constexpr int kFine = 0, kUsage = 2, kOutOfMemory = 3, kCommunication = 4, kOther = 70,
                     kMisused = 99;

// One rank's process: does `body`, says what it throws, and how NCCL was misused.
inline Processes::Body rank_process(
    const ProcessRanks& run,
    const std::function<void(Communicator&, const Processes::Say&)>& body) {
  return [run, body](int child, const Processes::Say& say) {
    int code = kFine;
    FakeNccl fake(run.faults, run.deaths);
    const NcclApi api = fake.api();
    try {
      start_rank(run, child, api, [&](Communicator& comm) { body(comm, say); },
                 {.timeout = run.timeout, .grace = run.timeout});
    } catch (const CommunicationError& error) {
      say(error.what()), code = kCommunication;
    } catch (const InputError& error) {
      say(error.what()), code = kUsage;
    } catch (const OutOfMemory& error) {
      say(error.what()), code = kOutOfMemory;
    } catch (const std::exception& error) {
      say(error.what()), code = kOther;
    }
    if (const std::string misuse = fake.misuse(); !misuse.empty())
      say(" MISUSED: " + misuse), code = kMisused;
    return code;
  };
}

inline std::vector<ProcessEnd> run_as_processes(
    const ProcessRanks& run,
    const std::function<void(Communicator&, const Processes::Say&)>& body) {
  return run_processes(run.size, rank_process(run, body), run.timeout + std::chrono::seconds(20));
}

// Whether the run's ports are free again.
inline bool left_no_port(const ProcessRanks& run) {
  return listen_on(run.port).open() && listen_on(run.port + 1).open();
}

}  // namespace zl::test
