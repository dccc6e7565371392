#include "tensor/memory.h"

#include <algorithm>
#include <cstdio>
#include <new>

#include "tensor/backend.h"
#include "tensor/error.h"
#include "tensor/shape.h"

namespace zl {

const char* name(MemoryUse use) {
  static constexpr const char* names[] = {"parameter",       "master_weights", "gradient",
                                          "optimizer_state", "activation",     "communication",
                                          "workspace"};
  return names[size_t(use)];
}
const char* name(Pool pool) {
  return pool == Pool::device ? "device" : pool == Pool::host ? "host" : "disk";
}
const char* name(DeviceKind kind) {
  return kind == DeviceKind::cpu ? "cpu" : kind == DeviceKind::cuda ? "cuda" : "meta";
}

std::string human_bytes(int64_t bytes) {
  const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  double value = double(bytes);
  int unit = 0;
  while (std::abs(value) >= 1024 && unit < 5) value /= 1024, ++unit;
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.2f %s", value, units[unit]);
  return text;
}

void MemoryLedger::add(MemoryUse use, int64_t bytes) {
  live_[size_t(use)] += bytes;
  total_ += bytes;
  peak_[size_t(use)] = std::max(peak_[size_t(use)], live_[size_t(use)]);
  peak_total_ = std::max(peak_total_, total_);
}

void MemoryLedger::reset_peak() {
  peak_ = live_;
  peak_total_ = total_;
}

std::string MemoryLedger::holders() const {
  std::array<int, kMemoryUses> order{};
  for (int i = 0; i < kMemoryUses; ++i) order[size_t(i)] = i;
  std::ranges::stable_sort(order,
                           [&](int a, int b) { return live_[size_t(a)] > live_[size_t(b)]; });
  std::string text;
  for (int i : order)
    if (live_[size_t(i)])
      text += str(text.empty() ? "" : ", ", name(MemoryUse(i)), " ", human_bytes(live_[size_t(i)]));
  return text.empty() ? "nothing" : text;
}

namespace {
// What pairs the event of a release with that of its allocation.
int64_t address(const void* block) { return int64_t(reinterpret_cast<uintptr_t>(block)); }
}  // namespace

Memory::Memory(Device device, Backend& backend, EventStream& events, MemoryOptions options)
    : device_(device), backend_(backend), events_(events), options_(options), pool_(backend) {
  // No processor has memory there, and the pools of a rank do not overlap.
  next_on_meta_ = uintptr_t(1 + int(options.pool)) << 60;
}

Memory::~Memory() {
  while (!users_.empty()) {  // one at a time, because one may let go of another
    const auto user = std::move(users_.back());
    users_.pop_back();
  }
}

void* Memory::allocate(MemoryUse use, int64_t bytes) {
  if (int(use) < 0 || int(use) >= kMemoryUses) refuse("there is no MemoryUse ", int(use));
  ++allocations_;
  if (fail_in_ > 0 && --fail_in_ == 0)
    out_of_memory(use, bytes, "fail_at makes this allocation fail");
  if (options_.limit > 0 && bytes > options_.limit - ledger_.live_total())
    out_of_memory(
        use, bytes,
        str("the limit is ", human_bytes(options_.limit), " (", options_.limit, " bytes)"));
  void* block = nullptr;
  if (bytes > 0 && !backend_.holds_data()) {
    block = reinterpret_cast<void*>(next_on_meta_);
    next_on_meta_ += uintptr_t(round_up(bytes, 64));
  } else if (bytes > 0) {
    try {
      block = pool_.allocate(bytes);
    } catch (const std::bad_alloc&) {  // for the pool's lists
    }
    if (!block) out_of_memory(use, bytes, "the system has no memory left");
    if (options_.poison) backend_.poison(block, bytes);
  }
  ledger_.add(use, bytes);
  try {
    events_.append(EventKind::allocate, name(use), bytes, address(block), name(options_.pool));
  } catch (...) {  // of a listener
    release(block, use, bytes);
    throw;
  }
  return block;
}

void Memory::release(void* block, MemoryUse use, int64_t bytes) noexcept {
  ledger_.add(use, -bytes);
  events_.append(EventKind::release, name(use), bytes, address(block), name(options_.pool));
  if (!block || !backend_.holds_data()) return;
  if (options_.poison) backend_.poison(block, bytes);
  pool_.release(block, bytes);
}

void Memory::out_of_memory(MemoryUse use, int64_t bytes, const std::string& why) const {
  const std::string phase = events_.phase(), unit = events_.unit();
  std::string where = phase;
  if (!unit.empty()) where += str(where.empty() ? "" : ", ", "unit ", unit);
  throw OutOfMemory(str("rank ", events_.rank(), " is out of ", name(options_.pool), " memory",
                        where.empty() ? "" : " in " + where, ": asked for ", human_bytes(bytes),
                        " (", bytes, " bytes) of ", name(use), ", ", why, ", in use ",
                        human_bytes(ledger_.live_total()), " = ", ledger_.holders(),
                        options_.pool != Pool::device
                            ? ". Try more ranks, which share what is offloaded, or a larger limit."
                        : use == MemoryUse::activation || ledger_.live(MemoryUse::activation) > 0
                            ? ". Try a smaller micro-batch, activation checkpointing, or a larger "
                              "limit."
                            : ". Try a smaller model or a larger limit."),
                    events_.rank(), options_.pool, phase, unit, bytes);
}

}  // namespace zl
