// A file that extends memory: tensors of Pool::disk are in it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "tensor/backend.h"
#include "tensor/io/file_calls.h"

namespace zl {

// A file whose name is removed as soon as it is made, so that nothing is left of it when the
// process ends, also by SIGKILL. Each transfer is a thread. A write ends when the bytes are on the
// device, so that it sees the device's errors. A transfer takes its pages out of the page cache
// where the file system can do that. One that was interrupted or came short is continued, and any
// other failure throws OutputError with the folder, the offset and what to try.
class SwapFile {
 public:
  static constexpr int64_t kBlock = 4096;  // [B] of which reserve() takes a whole number

  // `calls` must outlive the file. Throws OutputError if no file can be made in `folder`.
  explicit SwapFile(const std::string& folder, FileCalls& calls = system_file_calls());

  // Takes disk space at the end of the file, which reads as zeros. Returns where it begins, a
  // multiple of kBlock. So a full disk shows now, and not in the middle of a run. Throws
  // OutputError if there is no room. Call it only while nothing is in flight.
  int64_t reserve(int64_t bytes);
  int64_t size() const { return size_; }  // [B] reserved

  // Until Transfer::wait() has returned, the memory must stay, must not be changed, and what a read
  // fills must not be used. wait() throws what failed in flight; these throw std::invalid_argument
  // outside the reserved bytes. Every Transfer must have ended before the file is destroyed. After
  // one that was never waited for, the next call throws std::logic_error.
  std::unique_ptr<Transfer> start_read(int64_t at, std::span<std::byte> into);
  std::unique_ptr<Transfer> start_write(int64_t at, std::span<const std::byte> from);

  // How a transfer ends: "waits for the device" or "in the page cache".
  const char* method() const { return cached_ ? "in the page cache" : "waits for the device"; }

 private:
  std::unique_ptr<Transfer> start(bool writes, int64_t at, std::byte* data, int64_t bytes);
  void move(bool writes, int64_t at, std::byte* data, int64_t bytes);  // in the transfer's thread
  [[noreturn]] void fail(const std::string& what, int error, const std::string& more = "") const;

  FileCalls& calls_;
  const std::string folder_;
  const std::string name_;  // until the file is open
  WrittenFile file_;
  int64_t size_ = 0;  // [B]
  std::atomic<bool> cached_ = false, dropped_ = false;
};

// Keeps tensors in a SwapFile in `folder`. It moves them to and from memory, and fills them; any
// other kernel throws std::logic_error. For a Memory of Pool::disk, without MemoryOptions::poison.
// A new block is zeros. The space of a released block is not used again; the backend's destructor
// gives all of it back.
std::unique_ptr<Backend> make_disk_backend(const std::string& folder,
                                           FileCalls& calls = system_file_calls());

// [B] The space that a file in `folder` could take. Throws InputError if it is no folder in which
// files can be made.
int64_t free_disk_space(const std::string& folder);

}  // namespace zl
