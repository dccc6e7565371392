#include "tensor/io/disk.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <future>

#include "tensor/error.h"
#include "tensor/io/pending_file.h"

namespace zl {
namespace {

constexpr const char* kTry = "; free some space, or name another folder as nvme_path";

}  // namespace

class SwapFile::FileTransfer final : public Transfer {
 public:
  FileTransfer(std::future<void> moved, std::atomic<bool>& dropped)
      : moved_(std::move(moved)), dropped_(dropped) {}
  ~FileTransfer() override {  // the future's destructor waits
    if (moved_.valid() && std::uncaught_exceptions() == 0) dropped_ = true;
  }
  void wait() override {
    if (!moved_.valid())
      throw std::logic_error("a transfer from or to the disk was waited for twice");
    moved_.get();
  }

 private:
  std::future<void> moved_;
  std::atomic<bool>& dropped_;
};

SwapFile::SwapFile(const std::string& folder, FileCalls& calls) : calls_(calls), folder_(folder) {
  const std::string path = temporary_beside(folder + "/swap");
  do file_ = calls_.open(path, O_CREAT | O_EXCL | O_RDWR);
  while (file_ < 0 && errno == EINTR);
  if (file_ < 0) fail("no file can be made for offloaded state", errno);
  calls_.remove(path);
  direct_ = calls_.set_direct(file_, true);
}

SwapFile::~SwapFile() { calls_.close(file_); }

int64_t SwapFile::reserve(int64_t bytes) {
  const int64_t begin = size_, end = round_up(begin + bytes, kBlock);
  if (begin == end) return begin;
  // Where a file system reserves no space, glibc writes a byte into each block: O_DIRECT refuses.
  if (direct_) calls_.set_direct(file_, false);
  int error = 0;
  do error = calls_.posix_fallocate(file_, begin, end - begin);
  while (error == EINTR);
  if (direct_) calls_.set_direct(file_, true);
  if (error != 0) {
    std::error_code unknown;
    const auto space = std::filesystem::space(folder_, unknown);
    fail(str("no disk space for ", end - begin, " bytes of offloaded state beside ", begin), error,
         str(unknown ? "" : str(" (", int64_t(space.available), " bytes are free)"), kTry));
  }
  size_ = end;
  return begin;
}

std::unique_ptr<Transfer> SwapFile::start_read(int64_t at, std::span<std::byte> into) {
  return start(Way::read, at, into.data(), int64_t(into.size()));
}
std::unique_ptr<Transfer> SwapFile::start_write(int64_t at, std::span<const std::byte> from) {
  return start(Way::write, at, const_cast<std::byte*>(from.data()), int64_t(from.size()));
}

std::unique_ptr<Transfer> SwapFile::start(Way way, int64_t at, std::byte* data, int64_t bytes) {
  if (dropped_) throw std::logic_error("a transfer from or to the disk was never waited for");
  require(at >= 0 && at + bytes <= size_, "the swap file has ", size_, " bytes, not [", at, ", ",
          at + bytes, ")");
  return std::make_unique<FileTransfer>(
      std::async(std::launch::async, [=, this] { move(way, at, data, bytes); }), dropped_);
}

void SwapFile::move(Way way, int64_t at, std::byte* data, int64_t bytes) {
  const std::unique_ptr<std::byte, decltype(&std::free)> blocks(
      static_cast<std::byte*>(std::aligned_alloc(kBlock, size_t(kPiece))), &std::free);
  if (!blocks) throw std::bad_alloc();
  for (int64_t n = 0; bytes > 0; at += n, data += n, bytes -= n) {
    n = std::min(bytes, round_up(at + 1, kPiece) - at);
    const int64_t begin = at / kBlock * kBlock, end = round_up(at + n, kBlock);
    const bool whole = begin == at && end == at + n;
    const bool aligned = whole && reinterpret_cast<uintptr_t>(data) % kBlock == 0;
    std::byte* const buffer = aligned ? data : blocks.get();
    std::byte* const here = buffer + (at - begin);
    if (way == Way::read || !whole) transfer(Way::read, begin, buffer, end - begin);
    if (way == Way::read && !aligned) std::memcpy(data, here, size_t(n));
    if (way == Way::write && !aligned) std::memcpy(here, data, size_t(n));
    if (way == Way::write) transfer(Way::write, begin, buffer, end - begin);
  }
}

void SwapFile::transfer(Way way, int64_t at, std::byte* data, int64_t bytes) {
  const bool writes = way == Way::write;
  bool buffered = false;
  for (int without_progress = 0; bytes > 0;) {
    const ssize_t n = writes ? calls_.pwrite(file_, data, size_t(bytes), at)
                             : calls_.pread(file_, data, size_t(bytes), at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EINVAL && !buffered) {  // O_DIRECT has larger blocks here
      buffered = true, direct_ = false;
      calls_.set_direct(file_, false);
      continue;
    }
    // O_DIRECT goes on where a block begins.
    const int64_t moved = n == bytes ? n : n / kBlock * kBlock;
    without_progress = moved == 0 ? without_progress + 1 : 0;
    if (n <= 0 || without_progress == 16) {
      const int error = n < 0 ? errno : EIO;
      fail(str(bytes, " bytes of offloaded state cannot be ", writes ? "written to" : "read from",
               " offset ", at),
           error,
           n == 0 && !writes ? str("; the swap file, of ", size_, " bytes, ends before")
           : error == ENOSPC ? kTry
                             : "; the log of the kernel (dmesg) may say why");
    }
    data += moved, at += moved, bytes -= moved;
  }
}

void SwapFile::fail(const std::string& what, int error, const std::string& more) const {
  throw OutputError(str(folder_, ": ", what, ": ", std::strerror(error), more));
}

std::string SwapFile::method() const {
  return direct_ ? str("O_DIRECT, aligned to ", kBlock, " bytes") : "buffered, without O_DIRECT";
}

int64_t free_disk_space(const std::string& folder) {
  std::error_code error;
  const bool is_folder = std::filesystem::is_directory(folder, error);
  require_input(is_folder && ::access(folder.c_str(), W_OK | X_OK) == 0, "nvme_path ", folder,
                is_folder ? " is a folder in which no files may be made"
                          : " is not a folder; make it, or name another one");
  const auto space = std::filesystem::space(folder, error);
  require_input(!error, folder, ": its free space is unknown: ", error.message());
  return int64_t(space.available);
}

}  // namespace zl
