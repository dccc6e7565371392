// Memory that is extended by a file: tensors of Pool::disk are in it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "tensor/backend.h"
#include "tensor/io/file_calls.h"

namespace zl {

inline constexpr int64_t kDiskBlock = 4096;  // [B] of which a tensor takes a whole number

// Keeps tensors in a file in `folder`, for a Memory of Pool::disk, without MemoryOptions::poison.
// It moves them to and from memory, and fills them; any other kernel throws std::logic_error. A new
// block is zeros. The space of a released block is not used again; the backend's destructor gives
// all of it back. The name of the file is removed as soon as it is made, so that nothing is left of
// it when the process ends, also by SIGKILL.
//
// Space is taken when a tensor is allocated: a full disk shows then, and not in the middle of a
// run. Allocate only while nothing is in flight.
//
// start_copy() is a thread. A write ends when the bytes are on the device, so that it sees the
// device's errors. A transfer takes its pages out of the page cache where the file system can do
// that; name() is "disk", or "disk in the page cache" where it cannot. A call that was interrupted
// or came short is continued, and any other failure throws OutputError with the folder, the offset
// and what to try: also the constructor, if no file can be made. `calls` must outlive the backend.
std::unique_ptr<Backend> make_disk_backend(const std::string& folder,
                                           FileCalls& calls = system_file_calls());

// [B] The space that a file in `folder` could take. Throws InputError if it is no folder in which
// files can be made.
int64_t free_disk_space(const std::string& folder);

}  // namespace zl
