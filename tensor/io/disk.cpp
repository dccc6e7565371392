#include "tensor/io/disk.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "tensor/error.h"

namespace zl {
namespace {

constexpr const char* kTry = "; free some space, or name another folder as nvme_path";

// The address of a tensor is its offset in the file plus kFirst, because no address is 0. Kernels
// are refused: they ask for values, and the host cannot read a tensor on disk.
class DiskBackend final : public Backend {
 public:
  DiskBackend(const std::string& folder, FileCalls& calls)
      : calls_(calls),
        folder_(folder),
        path_(temporary_beside(folder + "/swap")),
        file_(calls, path_, O_CREAT | O_EXCL | O_RDWR, folder + ": the file of offloaded state") {
    calls.remove(path_);
  }

  const char* name() const override { return cached_ ? "disk in the page cache" : "disk"; }
  bool host_addressable() const override { return false; }
  void* allocate(int64_t bytes) override;
  void release(void*, int64_t) noexcept override {}  // the file ends with the backend
  void poison(void*, int64_t) noexcept override {}
  int64_t workspace(KernelId, std::span<const int64_t>, Dtype) const override { return 0; }

  void upload(const void* host, const Tensor& to) override { start(true, to, host).get(); }
  void download(const Tensor& from, void* host) override { start(false, from, host).get(); }
  void copy(const Tensor& from, const Tensor& to) override {
    require(from.dtype() == to.dtype(), "a tensor on disk is copied without a cast");
    if (other(from, to).backend().host_addressable()) return start_copy(from, to).get();
    in_pieces(to, [&](int64_t at, const Tensor& part) {
      from.backend().download(from.slice(at, part.shape()), part.address());
    });
  }
  std::future<void> start_copy(const Tensor& from, const Tensor& to) override {
    if (!other(from, to).backend().host_addressable()) return Backend::start_copy(from, to);
    return is_here(from) ? start(false, from, to.address()) : start(true, to, from.address());
  }

  void fill(double value, const Tensor& out) override {
    in_pieces(out, [&](int64_t, const Tensor& part) { cpu_backend().fill(value, part); });
  }
  void normal(uint64_t seed, uint64_t stream, int64_t first, double mean, double deviation,
              const Tensor& out) override {
    in_pieces(out, [&](int64_t at, const Tensor& part) {
      cpu_backend().normal(seed, stream, first + at, mean, deviation, part);
    });
  }
  void move_bytes(const void*, void*, int64_t) override {  // takes addresses as they are
    throw std::logic_error("a tensor on disk is copied to memory before it is moved");
  }

 private:
  static constexpr uintptr_t kFirst = kDiskBlock;
  static constexpr int64_t kStaged = 1 << 20;  // [B] of a staging buffer
  static constexpr int64_t kPiece = 64 << 20;  // [B] in flight, and so in the page cache

  bool is_here(const Tensor& t) const { return &t.backend() == this; }
  const Tensor& other(const Tensor& a, const Tensor& b) const { return is_here(a) ? b : a; }

  // Writes a tensor in pieces: make(at, part) fills the one from element `at` on, on the host.
  template <class Make>
  void in_pieces(const Tensor& to, const Make& make) {
    const int64_t each = kStaged / size_of(to.dtype());
    for (int64_t at = 0; at < to.numel(); at += each) {
      const int64_t n = std::min(each, to.numel() - at);
      const Tensor part = Tensor::empty(staging_, MemoryUse::workspace, {n}, to.dtype());
      make(at, part);
      to.backend().upload(part.address(), to.slice(at, part.shape()));
    }
  }

  // Between a tensor on disk and the host's memory.
  std::future<void> start(bool writes, const Tensor& t, const void* host) {
    const auto address = reinterpret_cast<uintptr_t>(t.address());  // 0 if it has no elements
    return std::async(std::launch::async, [=, this, bytes = t.bytes()] {
      move(writes, int64_t(address - kFirst), static_cast<std::byte*>(const_cast<void*>(host)),
           bytes);
    });
  }
  void move(bool writes, int64_t at, std::byte* data, int64_t bytes);
  [[noreturn]] void fail(const std::string& what, int error, const std::string& more) const {
    throw OutputError(str(folder_, ": ", what, ": ", std::strerror(error), more));
  }

  FileCalls& calls_;
  const std::string folder_, path_;
  WrittenFile file_;
  int64_t size_ = 0;  // [B]
  std::atomic<bool> cached_ = false;
  EventStream events_;
  Memory staging_{Device{}, cpu_backend(), events_};
};

void* DiskBackend::allocate(int64_t bytes) {
  const int64_t begin = size_, end = round_up(begin + bytes, kDiskBlock);
  int error = EINTR;
  while (error == EINTR) error = calls_.posix_fallocate(file_.descriptor(), begin, end - begin);
  std::error_code unknown;
  const auto room = std::filesystem::space(folder_, unknown);
  if (error != 0)
    fail(str("no disk space for ", end - begin, " bytes of offloaded state beside ", begin), error,
         unknown ? kTry : str(" (", room.available, " bytes are free)", kTry));
  size_ = end;
  return reinterpret_cast<void*>(uintptr_t(begin) + kFirst);
}

void DiskBackend::move(bool writes, int64_t at, std::byte* data, int64_t bytes) {
  for (; bytes > kPiece; at += kPiece, data += kPiece, bytes -= kPiece)
    move(writes, at, data, kPiece);
  if (bytes == 0) return;  // to leave_cache 0 means "to the end"
  const int file = file_.descriptor();
  int64_t moved = move_all(bytes, [&](int64_t done) {
    return writes ? calls_.pwrite(file, data + done, size_t(bytes - done), at + done)
                  : calls_.pread(file, data + done, size_t(bytes - done), at + done);
  });
  if (moved == bytes) {
    const int64_t begin = at / kDiskBlock * kDiskBlock;  // whole pages
    if (calls_.leave_cache(file, begin, round_up(at + bytes, kDiskBlock) - begin) == 0) return;
    if (errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP || errno == EPERM)
      return void(cached_ = true);
    moved = 0;  // the device refused an unknown part
  }
  const int error = errno;
  fail(str(bytes - moved, " bytes of offloaded state cannot be ",
           writes ? "written to" : "read from", " offset ", at + moved),
       error != 0 ? error : EIO,
       error == 0 && !writes ? str("; the swap file, of ", size_, " bytes, ends before")
       : error == ENOSPC || error == EDQUOT ? kTry
                                            : "; the log of the kernel (dmesg) may say why");
}

}  // namespace

std::unique_ptr<Backend> make_disk_backend(const std::string& folder, FileCalls& calls) {
  return std::make_unique<DiskBackend>(folder, calls);
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
