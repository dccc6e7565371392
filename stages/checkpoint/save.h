// Saving a checkpoint, so that at every instant the old one or the new one is complete:
//
//   1. rank 0 makes a temporary folder, .zerolab-…
//   2. every rank writes its pieces into the files there, and syncs them
//   3. rank 0 writes checkpoint.json with all checksums, and syncs it and the folder
//   4. rank 0 renames the folder to step-00000100, and syncs the folder above
//   5. rank 0 writes `latest`, and removes older checkpoints
//
// What a killed process leaves has a name of temporary_beside() (tensor/io/file_calls.h). The next
// process that saves into the folder removes it.
#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <string>
#include <string_view>
#include <vector>

#include "nn/model.h"
#include "stages/checkpoint/manifest.h"
#include "stages/checkpoint/state_pieces.h"
#include "stages/engine.h"

namespace zl {

// The run that is saved.
struct SavedRun {
  Engine& engine;
  const Model& model;
  Memory& host;  // for copies; those are booked as workspace
  // Through it a writing thread reads the device's memory; not needed where the host can read that
  // itself.
  Backend* device = nullptr;
};

// What a save allocates in `host` until it is committed: room for a snapshot of this rank's shard,
// with its padding; otherwise one buffer, or nothing where the host can read the whole shard.
// `host_reads`: whether it can read the device's memory.
std::vector<Tensor> save_buffers(Stage& stage, const std::vector<StateFile>& files, Memory& host,
                                 CheckpointWrites writes, bool host_reads);

// One save by one rank; all ranks make the same calls, between two steps. Every function throws
// OutputError on all ranks if the checkpoint cannot be written on one; without a commit() that
// returns, the destructors leave in the folder what it held before.
class CheckpointSave {
 public:
  // Begins to write a temporary folder. Returns when the run may go on: with `still` until its next
  // update, otherwise as long as it wants. Throws std::invalid_argument inside a step. Where the
  // folder is on NFS, the ranks write one after another, and the run waits for all of them.
  CheckpointSave(const SavedRun& run, const CheckpointOptions& options,
                 const RunPosition& position);
  CheckpointSave(const CheckpointSave&) = delete;
  CheckpointSave& operator=(const CheckpointSave&) = delete;

  bool written() const;  // whether this rank has written its pieces; does not wait
  // Waits for all ranks, and gives the checkpoint its name. When it returns, the checkpoint is
  // durable. Then the folder's `latest` names it, and older checkpoints beyond `keep` are removed.
  CheckpointRecord commit();

 private:
  // Where the ranks write. Rank 0 makes it. If the save ends before all have written, each rank
  // removes it when it writes no more, so the last of them leaves nothing. Later rank 0 alone
  // removes it, unless it has become the checkpoint.
  struct TemporaryFolder {
    ~TemporaryFolder();
    FileCalls& calls;
    std::string path{};  // empty where there is none
  };

  void begin_folder();
  std::vector<StatePiece> pieces(Stage& stage, Memory& host, CheckpointWrites writes);
  std::string write(const std::vector<StatePiece>& pieces, Backend* device);
  void describe_files(const std::vector<std::string>& of_ranks);
  void name_folder();
  std::vector<std::string> on_ranks(std::string_view name,
                                    const std::function<std::string()>& action);

  Communicator& comm_;
  const CheckpointOptions options_;
  const std::chrono::steady_clock::time_point begin_;
  Manifest manifest_;
  const std::vector<StateFile> files_;
  const std::string folder_;
  TemporaryFolder temporary_;
  std::vector<Tensor> buffers_;
  bool renamed_ = false;              // the checkpoint has its name
  double stall_ = 0;                  // [s]
  std::future<std::string> writing_;  // what this rank wrote; ends before the rest is destroyed
};

}  // namespace zl
