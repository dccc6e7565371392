// Memory of one rank: what it is used for, a ledger that counts it to the byte, and an allocator.
//
// Each rank has one Memory, with one ledger, per pool. Only the rank's own thread allocates and
// frees, at fixed points of the program. So live and peak bytes are exact and repeatable.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tensor/block_pool.h"
#include "tensor/events.h"

namespace zl {

class Backend;

// The rows of every memory table, in the order in which they are printed.
enum class MemoryUse {
  parameter,
  master_weights,
  gradient,
  optimizer_state,
  activation,
  communication,
  workspace
};
inline constexpr int kMemoryUses = 7;
const char* name(MemoryUse use);

// Which memory space a Memory allocates from: that of the device that computes, or the host's or a
// file's (tensor/io/disk.h), which hold what is offloaded.
enum class Pool { device, host, disk };
const char* name(Pool pool);

enum class DeviceKind { cpu, cuda, meta };
const char* name(DeviceKind kind);

// The device of a Memory. `index` numbers GPUs.
struct Device {
  DeviceKind kind = DeviceKind::cpu;
  int index = 0;
  bool operator==(const Device&) const = default;
};

// Counts live and peak bytes by use, and the peak of their total at one instant.
class MemoryLedger {
 public:
  void add(MemoryUse use, int64_t bytes);                           // negative when memory is freed
  int64_t live(MemoryUse use) const { return live_[size_t(use)]; }  // [B]
  // [B] The largest live() since construction or reset_peak().
  int64_t peak(MemoryUse use) const { return peak_[size_t(use)]; }
  int64_t live_total() const { return total_; }  // [B]
  // [B] The largest live_total(); less than the sum of the peaks if they occur at different times.
  int64_t peak_total() const { return peak_total_; }
  void reset_peak();
  // "parameter 1.5 MiB, gradient 1.5 MiB": the uses that hold anything, largest first.
  std::string holders() const;

 private:
  std::array<int64_t, kMemoryUses> live_{}, peak_{};
  int64_t total_ = 0, peak_total_ = 0;
};

// An allocation did not fit. Programs exit with 3.
class OutOfMemory : public std::runtime_error {
 public:
  OutOfMemory(const std::string& message, int rank, Pool pool, std::string phase, std::string unit,
              int64_t asked)
      : std::runtime_error(message),
        rank(rank),
        pool(pool),
        phase(std::move(phase)),
        unit(std::move(unit)),
        asked(asked) {}
  int rank;
  Pool pool;
  std::string phase, unit;
  int64_t asked;  // [B]
};

struct MemoryOptions {
  int64_t limit = 0;    // [B]; an allocation beyond it throws OutOfMemory. 0: no limit
  bool poison = false;  // fills fresh and freed memory with NaN (tests)
  Pool pool = Pool::device;
};

// The allocator of one rank in one pool, with a ledger and a limit. Each tensor knows its Memory,
// and an op allocates its result in the Memory of its input.
//
// Blocks come from a pool, which keeps released ones. So a training step that repeats allocates
// nothing from the system. Ledger and limit do not count free blocks: the process may hold more
// than live_total(). Must outlive its tensors, and its backend must outlive it. Not thread-safe.
class Memory {
 public:
  Memory(Device device, Backend& backend, EventStream& events, MemoryOptions options = {});
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory();

  Device device() const { return device_; }
  Pool pool() const { return options_.pool; }
  Backend& backend() const { return backend_; }
  EventStream& events() const { return events_; }
  MemoryLedger& ledger() { return ledger_; }
  const MemoryLedger& ledger() const { return ledger_; }
  int64_t limit() const { return options_.limit; }  // [B]; 0: none

  // Uninitialised memory, aligned to 64 bytes; null for 0 bytes. On meta an address that no other
  // block ever has, on disk one that says where the block is: neither may be read or written.
  // Throws OutOfMemory beyond the limit, or when the system has no memory left.
  void* allocate(MemoryUse use, int64_t bytes);
  void release(void* block, MemoryUse use, int64_t bytes) noexcept;

  // Owns an object that holds tensors of this memory, such as a collective in flight, until
  // let_go(). The destructor destroys these objects first. For the rank's own thread only.
  void keep(std::shared_ptr<void> user) { users_.push_back(std::move(user)); }
  void let_go(const void* user) {
    std::erase_if(users_, [=](const auto& kept) { return kept.get() == user; });
  }

  // The event of a kernel that writes into this memory: its floating-point operations, and the
  // bytes that it reads and writes. The event's detail is the pool: "" on the device.
  void append_kernel(const char* what, int64_t bytes, int64_t operations = 0) {
    events_.append(EventKind::kernel, what, bytes, operations,
                   pool() == Pool::device ? "" : name(pool()));
  }

  // Tests: the k-th allocation from now (counting from 1) throws OutOfMemory. 0 switches it off.
  void fail_at(int64_t k) { fail_in_ = k; }
  int64_t allocations() const { return allocations_; }  // since construction
  // Segments that the pool has taken from the system, or given back, since construction.
  int64_t system_calls() const { return pool_.system_calls(); }

 private:
  [[noreturn]] void out_of_memory(MemoryUse use, int64_t bytes, const std::string& why) const;

  Device device_;
  Backend& backend_;
  EventStream& events_;
  MemoryOptions options_;
  MemoryLedger ledger_;
  BlockPool pool_;
  int64_t fail_in_ = 0, allocations_ = 0;
  uintptr_t next_on_meta_ = 0;  // [B] the address of the next block on meta
  std::vector<std::shared_ptr<void>> users_;
};

// "1.50 MiB", "640 B": for people.
std::string human_bytes(int64_t bytes);

}  // namespace zl
