#include "tensor/io/disk.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <filesystem>
#include <future>

#include "tensor/backend.h"
#include "tensor/error.h"
#include "tensor/io/file_calls.h"

namespace zl {
namespace {

constexpr int64_t kPiece = 64 << 20;  // [B]
constexpr const char* kTry = "; free some space, or name another folder as nvme_path";

class FileTransfer final : public Transfer {
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

}  // namespace

SwapFile::SwapFile(const std::string& folder, FileCalls& calls)
    : calls_(calls),
      folder_(folder),
      name_(temporary_beside(folder + "/swap")),
      file_(calls, name_, O_CREAT | O_EXCL | O_RDWR, folder + ": the file of offloaded state") {
  calls.remove(name_);
}

int64_t SwapFile::reserve(int64_t bytes) {
  const int64_t begin = size_, end = round_up(begin + bytes, kBlock);
  if (begin == end) return begin;
  int error = 0;
  do error = calls_.posix_fallocate(file_.descriptor(), begin, end - begin);
  while (error == EINTR);
  if (error != 0) {
    std::error_code unknown;
    const auto space = std::filesystem::space(folder_, unknown);
    fail(str("no disk space for ", end - begin, " bytes of offloaded state beside ", begin), error,
         str(unknown ? "" : str(" (", space.available, " bytes are free)"), kTry));
  }
  size_ = end;
  return begin;
}

std::unique_ptr<Transfer> SwapFile::start_read(int64_t at, std::span<std::byte> into) {
  return start(false, at, into.data(), int64_t(into.size()));
}
std::unique_ptr<Transfer> SwapFile::start_write(int64_t at, std::span<const std::byte> from) {
  return start(true, at, const_cast<std::byte*>(from.data()), int64_t(from.size()));
}

std::unique_ptr<Transfer> SwapFile::start(bool writes, int64_t at, std::byte* data, int64_t bytes) {
  if (dropped_) throw std::logic_error("a transfer from or to the disk was never waited for");
  require(at >= 0 && at + bytes <= size_, "the swap file has ", size_, " bytes, not [", at, ", ",
          at + bytes, ")");
  return std::make_unique<FileTransfer>(
      std::async(std::launch::async, [=, this] { move(writes, at, data, bytes); }), dropped_);
}

void SwapFile::move(bool writes, int64_t at, std::byte* data, int64_t bytes) {
  // In pieces, because what is in flight is in the page cache too.
  for (; bytes > kPiece; at += kPiece, data += kPiece, bytes -= kPiece)
    move(writes, at, data, kPiece);
  if (bytes == 0) return;  // to leave_cache 0 means "to the end"
  const int file = file_.descriptor();
  int64_t moved = move_all(bytes, [&](int64_t done) {
    return writes ? calls_.pwrite(file, data + done, size_t(bytes - done), at + done)
                  : calls_.pread(file, data + done, size_t(bytes - done), at + done);
  });
  if (moved == bytes) {
    const int64_t begin = at / kBlock * kBlock, end = round_up(at + bytes, kBlock);  // whole pages
    if (calls_.leave_cache(file, begin, end - begin) == 0) return;
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

void SwapFile::fail(const std::string& what, int error, const std::string& more) const {
  throw OutputError(str(folder_, ": ", what, ": ", std::strerror(error), more));
}

namespace {

// The address of a tensor is its offset in the file plus kFirst, because no address is 0. Kernels
// are refused: they ask for values, and the host cannot read a tensor on disk.
class DiskBackend final : public Backend {
 public:
  DiskBackend(const std::string& folder, FileCalls& calls) : file_(folder, calls) {}

  const char* name() const override { return "disk"; }
  bool host_addressable() const override { return false; }
  void* allocate(int64_t bytes) override {
    return reinterpret_cast<void*>(uintptr_t(file_.reserve(bytes)) + kFirst);
  }
  void release(void*, int64_t) noexcept override {}  // the file ends with the backend
  void poison(void*, int64_t) noexcept override {}
  int64_t workspace(KernelId, std::span<const int64_t>, Dtype) const override { return 0; }

  void upload(const void* host, const Tensor& to) override {
    start_write(to, static_cast<const std::byte*>(host))->wait();
  }
  void download(const Tensor& from, void* host) override {
    start_read(from, static_cast<std::byte*>(host))->wait();
  }
  void copy(const Tensor& from, const Tensor& to) override {
    require(from.dtype() == to.dtype(), "a tensor on disk is copied without a cast");
    if (other(from, to).backend().host_addressable()) return start_copy(from, to)->wait();
    in_pieces(to, [&](int64_t at, const Tensor& part) {
      from.backend().download(from.slice(at, part.shape()), part.address());
    });
  }
  std::unique_ptr<Transfer> start_copy(const Tensor& from, const Tensor& to) override {
    if (!other(from, to).backend().host_addressable()) return Backend::start_copy(from, to);
    return is_here(from) ? start_read(from, static_cast<std::byte*>(to.address()))
                         : start_write(to, static_cast<const std::byte*>(from.address()));
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

  // Those that take an address as it is.
  void adamw(const AdamWUpdate&) override { refuse(); }
  void sgd(const SgdUpdate&) override { refuse(); }
  void move_bytes(const void*, void*, int64_t) override { refuse(); }

 private:
  static constexpr uintptr_t kFirst = SwapFile::kBlock;
  static constexpr int64_t kPiece = 1 << 20;  // [B] of a staging buffer

  [[noreturn]] static void refuse() {
    throw std::logic_error("a tensor on disk is copied to memory before it is computed with");
  }
  bool is_here(const Tensor& t) const { return &t.backend() == this; }
  const Tensor& other(const Tensor& a, const Tensor& b) const { return is_here(a) ? b : a; }
  static int64_t offset(const Tensor& t) {
    if (t.numel() == 0) return 0;  // it has no address
    return int64_t(reinterpret_cast<uintptr_t>(t.address()) - kFirst);
  }
  std::unique_ptr<Transfer> start_read(const Tensor& from, std::byte* host) {
    return file_.start_read(offset(from), {host, size_t(from.bytes())});
  }
  std::unique_ptr<Transfer> start_write(const Tensor& to, const std::byte* host) {
    return file_.start_write(offset(to), {host, size_t(to.bytes())});
  }

  // Writes a tensor in pieces: make(at, part) fills the one from element `at` on, on the host.
  template <class Make>
  void in_pieces(const Tensor& to, const Make& make) {
    const int64_t each = kPiece / size_of(to.dtype());
    for (int64_t at = 0; at < to.numel(); at += each) {
      const int64_t n = std::min(each, to.numel() - at);
      const Tensor part = Tensor::empty(staging_, MemoryUse::workspace, {n}, to.dtype());
      make(at, part);
      to.backend().upload(part.address(), to.slice(at, part.shape()));
    }
  }

  SwapFile file_;
  EventStream events_;
  Memory staging_{Device{}, cpu_backend(), events_};
};

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
