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
// process ends, also by SIGKILL. Each transfer is a thread that moves pieces of 1 MiB, through an
// aligned buffer where the memory is not aligned, past the page cache where the file system has
// O_DIRECT for blocks of this size. Every result is checked: a piece that was interrupted or came
// short is continued, and any other failure throws OutputError with the path, the offset and what
// to try. Where O_DIRECT turns out to need larger blocks, or a call moves less than one, the file
// goes on without it.
class SwapFile {
 public:
  static constexpr int64_t kPiece = 1 << 20;  // [B]
  static constexpr int64_t kBlock = 4096;     // [B] of O_DIRECT

  // `calls` must outlive the file. Throws OutputError if no file can be made in `folder`.
  explicit SwapFile(const std::string& folder, FileCalls& calls = system_file_calls());
  ~SwapFile();  // every Transfer must have ended
  SwapFile(const SwapFile&) = delete;
  SwapFile& operator=(const SwapFile&) = delete;

  // Takes disk space at the end of the file, which reads as zeros. Returns where it begins, a
  // multiple of kBlock. So a full disk shows now, and not in the middle of a run. Throws
  // OutputError if there is no room. Call it only while nothing is in flight.
  int64_t reserve(int64_t bytes);
  int64_t size() const { return size_; }  // [B] reserved

  // Until Transfer::wait() has returned, the memory must stay, must not be changed, and what a read
  // fills must not be used. wait() throws what failed in flight; these throw std::invalid_argument
  // outside the reserved bytes. Transfers that are in flight together must not touch the same
  // kBlock of the file if one of them writes. After a Transfer that was never waited for, the next
  // call throws std::logic_error.
  std::unique_ptr<Transfer> start_read(int64_t at, std::span<std::byte> into);
  std::unique_ptr<Transfer> start_write(int64_t at, std::span<const std::byte> from);

  // "O_DIRECT, aligned to 4096 bytes" or "buffered, without O_DIRECT".
  std::string method() const;

 private:
  std::unique_ptr<Transfer> start(bool writes, int64_t at, std::byte* data, int64_t bytes);
  // Runs in the transfer's thread: piece after piece, through a buffer of whole blocks.
  void move(bool writes, int64_t at, std::byte* data, int64_t bytes);
  void move_blocks(bool writes, int64_t at, std::byte* blocks, int64_t bytes);
  [[noreturn]] void fail(const std::string& what, int error, const std::string& more = "") const;

  FileCalls& calls_;
  const std::string folder_;
  int file_ = -1;
  std::atomic<bool> direct_ = false;
  int64_t size_ = 0;  // [B]
  std::atomic<bool> dropped_ = false;
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
