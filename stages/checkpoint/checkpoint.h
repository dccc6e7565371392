// A checkpoint is the complete state of a training run, in a folder such as runs/a/step-00000100:
//
//   model.safetensors   the weights in fp32: the master weights where there are any
//   exp_avg.safetensors, exp_avg_sq.safetensors, or momentum_buffer.safetensors: the optimizer
//   checkpoint.json     everything but the tensors, and the sizes and checksums of the files
//
// The files hold whole parameters without padding. So their bytes depend on the state alone: not on
// the stage, the number of ranks or the engine that saved it, and any of them can load it. A rank
// writes only its pieces; a rank that loads reads the files once, checks them, and keeps its
// pieces. Nothing is converted or gathered.
#pragma once

#include <cstdint>
#include <string>

#include "tensor/io/file_calls.h"

namespace zl {

// How saving and training share the time.
enum class CheckpointWrites {
  wait,      // training waits until the checkpoint is complete
  still,     // a thread writes while the state does not change: in the next step's forward and
             // backward passes, until its update; this costs no memory
  snapshot,  // a thread writes a copy in host memory, for as long as it takes
};
const char* name(CheckpointWrites writes);

// Where a run saves its checkpoints, and which one it begins with.
struct CheckpointOptions {
  std::string folder;      // gets step-00000100 and so on; empty: nothing is saved
  int64_t save_every = 0;  // steps; the last step is saved too; 0: nothing is saved
  int64_t keep = 3;        // how many of the newest checkpoints stay; at least 1
  CheckpointWrites writes = CheckpointWrites::wait;
  // A checkpoint, or a folder of checkpoints: the newest that is complete. A folder without one:
  // the run begins at its start. Empty: the same.
  std::string resume;
  bool new_data = false;  // resume also with other data, from their first row
  // The ranks write one after another. Always so if any host reaches the folder by NFS, where a
  // host that opens a file sees only what others had written when they closed it, and may lose what
  // they write at the same time.
  bool one_by_one = false;
  FileCalls* files = &system_file_calls();

  bool saves() const { return save_every > 0 && !folder.empty(); }
};

// The progress of a run that neither its model nor its engine knows.
struct RunPosition {
  int64_t step = 0;         // steps made
  int64_t next_window = 0;  // the first row of the data that was not read yet
  int64_t micro_batch = 0;  // B; for people
  std::string data;         // BatchSource::identity()
};

// A checkpoint that was saved, as seen by rank 0.
struct CheckpointRecord {
  std::string folder;
  int64_t step = 0, bytes = 0;  // [B] of all files
  double seconds = 0;           // from its beginning to its commit
  double stall = 0;             // [s] of these in which training waited
  std::string problem{};        // what failed after the commit, such as removing an older one
};

}  // namespace zl
