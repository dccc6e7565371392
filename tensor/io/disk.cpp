#include "tensor/io/disk.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <filesystem>
#include <mutex>
#include <thread>
#include <vector>

#include "tensor/error.h"
#include "tensor/io/pending_file.h"

namespace zl {
namespace {

// One read or write of any size, in pieces.
struct Flight {
  std::mutex mutex;
  std::condition_variable landed;
  int64_t pieces = 0;        // that have not ended
  std::exception_ptr error;  // the first one
};

struct Piece {
  std::shared_ptr<Flight> flight;
  bool writes;
  int64_t at;
  std::byte* data;
  int64_t bytes;
};

class FileTransfer final : public Transfer {
 public:
  FileTransfer(std::shared_ptr<Flight> flight, std::shared_ptr<std::atomic<bool>> dropped)
      : flight_(std::move(flight)), dropped_(std::move(dropped)) {}
  ~FileTransfer() override {
    if (waited_) return;
    land();
    if (std::uncaught_exceptions() == 0) *dropped_ = true;
  }
  void wait() override {
    if (std::exchange(waited_, true))
      throw std::logic_error("a transfer from or to the disk was waited for twice");
    land();
    if (flight_->error) std::rethrow_exception(flight_->error);
  }

 private:
  void land() {
    std::unique_lock lock(flight_->mutex);
    flight_->landed.wait(lock, [&] { return flight_->pieces == 0; });
  }
  std::shared_ptr<Flight> flight_;
  std::shared_ptr<std::atomic<bool>> dropped_;
  bool waited_ = false;
};

constexpr const char* kTry = "; free some space, or name another folder as nvme_path";

// The file and its system calls. Thread-safe but for reserve().
class File {
 public:
  File(const std::string& folder, FileCalls& calls) : calls_(calls), folder_(folder) {
    for (const int direct : {O_DIRECT, 0})
      if (open(direct)) break;
    if (file_ < 0) fail("no file can be made for offloaded state", errno, "");
    alignment_ = direct_ ? calls_.direct_alignment(file_) : 0;
    // O_DIRECT is taken, but has no effect; or its blocks are larger than a SwapFile's.
    if (direct_ && (alignment_ == 0 || alignment_ > SwapFile::kBlock)) {
      calls_.close(file_);
      file_ = -1;
      alignment_ = 1;
      if (!open(0)) fail("no file can be made for offloaded state", errno, "");
    }
    alignment_ = std::max<int64_t>(alignment_, 1);
  }
  ~File() { calls_.close(file_); }

  int64_t reserve(int64_t bytes) {
    const int64_t begin = size_;
    const int64_t size = round_up(begin + bytes, SwapFile::kBlock);
    int error = 0;
    do error = calls_.posix_fallocate(file_, begin, size - begin);
    while (error == EINTR);
    // Without such a call glibc writes a byte into each block, which O_DIRECT refuses.
    if (error == EINVAL || error == EOPNOTSUPP)
      write_zeros(begin, size - begin);
    else if (error != 0) {
      std::error_code unknown;
      const auto space = std::filesystem::space(folder_, unknown);
      const bool full = error == ENOSPC || error == EDQUOT || error == EFBIG;
      fail(str(full ? "no disk space for " : "no space could be reserved for ", size - begin,
               " bytes of offloaded state beside ", begin),
           error,
           str(unknown ? "" : str(" (", int64_t(space.available), " bytes are free)"), kTry));
    }
    size_ = size;
    return begin;
  }
  int64_t size() const { return size_; }
  int64_t alignment() const { return alignment_; }
  bool direct() const { return direct_; }

  // `bounce`: kPiece and two blocks more, for what O_DIRECT cannot move where it is.
  void move(const Piece& p, std::byte* bounce) {
    const int64_t begin = p.at / alignment_ * alignment_;
    const int64_t end = round_up(p.at + p.bytes, alignment_);
    if (begin == p.at && end == p.at + p.bytes &&
        reinterpret_cast<uintptr_t>(p.data) % uintptr_t(alignment_) == 0)
      return transfer(p.writes, begin, p.data, p.bytes);
    if (!p.writes || begin != p.at || end != p.at + p.bytes)
      transfer(false, begin, bounce, end - begin);
    if (!p.writes) {
      std::memcpy(p.data, bounce + (p.at - begin), size_t(p.bytes));
      return;
    }
    std::memcpy(bounce + (p.at - begin), p.data, size_t(p.bytes));
    transfer(true, begin, bounce, end - begin);
  }

 private:
  // False: the file system has no such files.
  bool open(int direct) {
    direct_ = direct != 0;
    do file_ = calls_.open(folder_, O_TMPFILE | O_RDWR | direct);
    while (file_ < 0 && errno == EINTR);
    if (file_ >= 0) return true;
    const auto unknown = [] { return errno == EINVAL || errno == EOPNOTSUPP || errno == EISDIR; };
    if (!unknown()) fail("no file can be made for offloaded state", errno, "");
    std::string path;
    do {
      path = temporary_beside(folder_ + "/swap");
      file_ = calls_.open(path, O_CREAT | O_EXCL | O_RDWR | direct);
    } while (file_ < 0 && (errno == EEXIST || errno == EINTR));
    const int error = errno;
    // A file system without O_DIRECT may have made the file before it says so.
    if (file_ >= 0 || error == EINVAL) calls_.unlink(path);
    errno = error;
    if (file_ < 0 && !unknown()) fail("no file can be made for offloaded state", errno, "");
    return file_ >= 0;
  }

  // Takes space, in whole blocks, where the file system cannot reserve it.
  void write_zeros(int64_t at, int64_t bytes) {
    const std::unique_ptr<std::byte, decltype(&std::free)> zeros(
        static_cast<std::byte*>(std::aligned_alloc(SwapFile::kBlock, size_t(SwapFile::kPiece))),
        &std::free);
    if (!zeros) throw std::bad_alloc();
    std::memset(zeros.get(), 0, size_t(SwapFile::kPiece));
    for (int64_t n = 0; bytes > 0; at += n, bytes -= n) {
      n = std::min(bytes, SwapFile::kPiece);
      transfer(true, at, zeros.get(), n);
    }
  }

  void transfer(bool writes, int64_t at, std::byte* data, int64_t bytes) {
    const int64_t first = at, all = bytes;
    for (int without_progress = 0; bytes > 0;) {
      const ssize_t n = writes ? calls_.pwrite(file_, data, size_t(bytes), at)
                               : calls_.pread(file_, data, size_t(bytes), at);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) fail_at(writes, at, bytes, errno);
      if (n == 0) fail_at(writes, at, bytes, writes ? EIO : 0);
      // O_DIRECT goes on where a block begins.
      const int64_t moved = n == bytes ? n : n / alignment_ * alignment_;
      without_progress = moved == 0 ? without_progress + 1 : 0;
      if (without_progress == 16) fail_at(writes, at, bytes, EIO);
      data += moved, at += moved, bytes -= moved;
    }
    if (!direct_) calls_.posix_fadvise(file_, first, all, POSIX_FADV_DONTNEED);
  }

  [[noreturn]] void fail_at(bool writes, int64_t at, int64_t bytes, int error) const {
    const std::string what = str(bytes, " bytes of offloaded state cannot be ",
                                 writes ? "written to" : "read from", " offset ", at);
    if (error == 0)
      throw OutputError(str(folder_, ": ", what, ": the swap file, of ", size_,
                            " bytes, ends before; was it made shorter?"));
    fail(what, error, error == ENOSPC ? kTry : "; the log of the kernel (dmesg) may say why");
  }
  [[noreturn]] void fail(const std::string& what, int error, const std::string& more) const {
    throw OutputError(str(folder_, ": ", what, ": ", std::strerror(error), more));
  }

  FileCalls& calls_;
  std::string folder_;
  int file_ = -1;
  bool direct_ = false;
  int64_t alignment_ = 1, size_ = 0;  // [B]
};

}  // namespace

class SwapFile::Threads {
 public:
  Threads(const std::string& folder, FileCalls& calls) : file(folder, calls) {}
  ~Threads() {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  std::unique_ptr<Transfer> start(bool writes, int64_t at, std::byte* data, int64_t bytes) {
    if (*dropped_) throw std::logic_error("a transfer from or to the disk was never waited for");
    require(at >= 0 && at + bytes <= file.size(), "the swap file has ", file.size(),
            " bytes, not [", at, ", ", at + bytes, ")");
    const auto flight = std::make_shared<Flight>();
    std::deque<Piece> pieces;
    for (int64_t n = 0; bytes > 0; at += n, data += n, bytes -= n) {
      n = std::min(bytes, round_up(at + 1, kPiece) - at);
      pieces.push_back({flight, writes, at, data, n});
    }
    auto transfer = std::make_unique<FileTransfer>(flight, dropped_);
    {
      const std::lock_guard lock(mutex_);
      while (threads_.size() < std::min<size_t>(kThreads, queue_.size() + pieces.size()))
        threads_.emplace_back([this] { run(); });
      queue_.insert(queue_.end(), pieces.begin(), pieces.end());
      flight->pieces = int64_t(pieces.size());  // nothing above that throws leaves it in flight
    }
    changed_.notify_all();
    return transfer;
  }

  File file;

 private:
  void run() {
    const std::unique_ptr<std::byte, decltype(&std::free)> bounce(
        static_cast<std::byte*>(std::aligned_alloc(kBlock, size_t(kPiece + 2 * kBlock))),
        &std::free);
    for (std::unique_lock lock(mutex_);;) {
      changed_.wait(lock, [&] { return ends_ || !queue_.empty(); });
      if (queue_.empty()) return;
      const Piece piece = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      std::exception_ptr error;
      try {
        if (!bounce) throw std::bad_alloc();
        file.move(piece, bounce.get());
      } catch (...) {
        error = std::current_exception();
      }
      {
        const std::lock_guard landing(piece.flight->mutex);
        if (error && !piece.flight->error) piece.flight->error = error;
        if (--piece.flight->pieces == 0) piece.flight->landed.notify_all();
      }
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Piece> queue_;
  bool ends_ = false;
  std::shared_ptr<std::atomic<bool>> dropped_ = std::make_shared<std::atomic<bool>>(false);
  std::vector<std::thread> threads_;
};

SwapFile::SwapFile(const std::string& folder, FileCalls& calls)
    : threads_(std::make_unique<Threads>(folder, calls)) {}
SwapFile::~SwapFile() = default;

int64_t SwapFile::reserve(int64_t bytes) { return threads_->file.reserve(bytes); }
int64_t SwapFile::size() const { return threads_->file.size(); }

std::unique_ptr<Transfer> SwapFile::start_read(int64_t at, std::span<std::byte> into) {
  return threads_->start(false, at, into.data(), int64_t(into.size()));
}
std::unique_ptr<Transfer> SwapFile::start_write(int64_t at, std::span<const std::byte> from) {
  return threads_->start(true, at, const_cast<std::byte*>(from.data()), int64_t(from.size()));
}

std::string SwapFile::method() const {
  return threads_->file.direct()
             ? str("O_DIRECT, aligned to ", threads_->file.alignment(), " bytes")
             : "buffered, without O_DIRECT";
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
