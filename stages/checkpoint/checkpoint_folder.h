// A folder of checkpoints: which there are, which is the newest, which are removed. And how the
// ranks that save or load agree that one of them has failed.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "dist/communicator.h"
#include "stages/checkpoint/manifest.h"

namespace zl {

// A folder with the name of a checkpoint.
struct CheckpointPath {
  int64_t step = 0;
  std::string path;
};
std::string checkpoint_path(const std::string& folder, int64_t step);  // FOLDER/step-00000100
// In the order of their steps; empty if the folder does not exist. Throws InputError if it cannot
// be read.
std::vector<CheckpointPath> list_checkpoints(const std::string& folder);
// Whether `path` is a checkpoint itself, rather than a folder of them.
bool is_checkpoint(const std::string& path);

// Reads checkpoint.json and compares the sizes of the files. Throws InputError.
Manifest read_manifest(const std::string& checkpoint);

struct NewestCheckpoint {
  std::string path;  // empty: there is none
  Manifest manifest;
  std::vector<std::string> rejected;  // newer ones, each with the reason
};
// `path`: a checkpoint, which must be complete, or a folder of them. Throws InputError.
NewestCheckpoint newest_checkpoint(const std::string& path);

// A folder that this process saves into. While it lives, no other process can have one of the same
// folder, on file systems that have flock(2).
class CheckpointFolder {
 public:
  // Prepares the folder for a run that begins after `step`: creates it, removes what interrupted
  // saves left, and renames broken checkpoints of later steps. Throws InputError if another process
  // saves into it or a complete checkpoint of a later step is there, OutputError if it cannot be
  // changed.
  CheckpointFolder(const CheckpointOptions& options, int64_t step);

 private:
  const WrittenFile lock_;  // holds the folder's flock until it is destroyed
};

// Removes the oldest checkpoints until `keep` are left, but never the one of `newest`. Symbolic
// links stay.
void remove_old_checkpoints(const CheckpointOptions& options, int64_t newest);
// Removes a file, a symbolic link, or a folder and what is in it. Throws OutputError.
void remove_path(FileCalls& calls, const std::string& path);
// Renames a file or a folder within its folder. Throws OutputError.
void rename_path(FileCalls& calls, const std::string& from, const std::string& to);

// What `action` throws as a sentence; "" if it throws nothing.
std::string error_of(const std::function<void()>& action);

// Runs `action` on this rank, and returns what it returned on each rank. If it throws an InputError
// or OutputError on a rank, all ranks throw the first rank's. Every rank must call it; other
// exceptions leave at once.
std::vector<std::string> on_all_ranks(Communicator& comm, std::string_view name,
                                      const std::function<std::string()>& action);

}  // namespace zl
