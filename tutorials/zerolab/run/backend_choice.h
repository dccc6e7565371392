// What --backend means on this machine: how ranks communicate.
#pragma once

#include <string>

#include "tutorials/zerolab/run/device_choice.h"
#include "tutorials/zerolab/run/own_rank.h"

namespace zl::cli {

struct BackendChoice {
  Transport transport = Transport::threads;
  std::optional<LaunchedRank> process;  // this process is one rank
  std::string version;                  // of NCCL, "2.28.9"

  bool on_nccl() const { return transport == Transport::nccl; }
};

// auto takes NCCL if there are several ranks and a GPU for each of them, or if ranks are processes.
// Throws InputError if it must be NCCL and cannot be.
BackendChoice choose_backend(const RunOptions& options, const DeviceChoice& device, int ranks,
                             const std::optional<LaunchedRank>& process = {});

// How the ranks of `spec` communicate; spec.config.ordered decides who adds. `settings`: what
// processes must have alike.
void place(TrainingSpec& spec, const BackendChoice& backend, const DeviceChoice& device,
           const std::string& settings = "");

// "NCCL 2.28.9, sums in rank order".
std::string describe(const BackendChoice& backend, const Config& config);

}  // namespace zl::cli
