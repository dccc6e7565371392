// Saving a checkpoint, so that at every instant the old one or the new one is complete.
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

// What a save allocates in `host` until it is committed: a snapshot of this rank's shard, in the
// order of the units and their files; or, where the host cannot read the device's memory
// (`host_reads`), a buffer; or nothing.
std::vector<Tensor> save_buffers(Stage& stage, const std::vector<StateFile>& files, Memory& host,
                                 CheckpointWrites writes, bool host_reads);

// One save by one rank; all ranks make the same calls, between two steps. Every function throws
// OutputError on all ranks if the checkpoint cannot be written on one; then the folder holds what
// it held before.
class CheckpointSave {
 public:
  // Begins to write a temporary folder. Returns when the run may go on: with `still` until its next
  // update, otherwise as long as it wants. Throws std::invalid_argument inside a step. Where the
  // folder is on NFS, the ranks write one after another, and the run waits for all of them.
  CheckpointSave(const SavedRun& run, const CheckpointOptions& options,
                 const RunPosition& position);
  ~CheckpointSave();  // without commit() the temporary folder is removed
  CheckpointSave(const CheckpointSave&) = delete;
  CheckpointSave& operator=(const CheckpointSave&) = delete;

  bool written() const;  // whether this rank has written its pieces; does not wait
  // Waits for all ranks, and gives the checkpoint its name. When it returns, the checkpoint is
  // durable. Then the folder's `latest` names it, and older checkpoints beyond `keep` are removed.
  CheckpointRecord commit();

 private:
  CheckpointSave(const SavedRun& run, const CheckpointOptions& options, Manifest manifest);
  void begin_folder();
  std::vector<StatePiece> shard_pieces();
  std::string write(const std::vector<StatePiece>& pieces, Backend* device);
  uint32_t write_piece(WrittenFile& file, const StatePiece& piece, Backend* device);
  void describe_files(const std::vector<std::string>& checksums);
  void finish_folder();
  std::vector<std::string> results_or_remove(std::string_view name,
                                             const std::function<std::string()>& action);
  void point_and_remove_older();
  void remove_temporary();

  Communicator& comm_;
  Stage& stage_;
  const CheckpointOptions options_;
  const std::chrono::steady_clock::time_point begin_;
  Manifest manifest_;
  std::vector<StateFile> files_;
  std::string folder_, temporary_;  // temporary_: empty where there is none to remove
  std::vector<Tensor> buffers_;
  bool snapshot_ = false;
  std::future<std::string> writing_;  // the checksums of what this rank writes
  bool renamed_ = false;              // the checkpoint has its name
  double stall_ = 0;                  // [s]
};

}  // namespace zl
