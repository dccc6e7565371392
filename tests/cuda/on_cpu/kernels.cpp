// Running kernels: the threads of a block are coroutines.
#include <mma_on_cpu.h>
#include <ucontext.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tests/cuda/on_cpu/devices.h"
#include "tests/cuda/on_cpu/launches.h"

namespace zl::cuda_on_cpu {

dim3 thread_index, block_index, block_size, grid_size;
constinit thread_local Launches launches;

namespace {

constexpr size_t kStack = 128 << 10;  // [B] per CUDA thread

// A point at which execution can continue. The compiler's own setjmp makes no system call for
// signals, and does not tell a sanitizer that the frames in between have ended, which they have
// not.
struct Continuation {
  void* registers[5];
};
[[gnu::noinline, gnu::no_sanitize_address]] void go_to(Continuation& there) {
  __builtin_longjmp(there.registers, 1);
}
[[gnu::noinline]] void switch_to(Continuation& there, Continuation& here) {
  if (__builtin_setjmp(here.registers) == 0) go_to(there);
}

// One block at a time: its threads are coroutines that are resumed in turn.
struct Block {
  struct Thread {
    Continuation here{};
    ucontext_t first{};
    std::unique_ptr<char[]> stack = std::make_unique_for_overwrite<char[]>(kStack);
    bool begun = false, done = false, waits_for_block = false;
    std::array<Offer, 2> offers;  // at this call of the warp and at the one before
    uint64_t calls = 0;
    std::vector<Copy> copies;
  };
  Continuation scheduler{};
  std::vector<std::unique_ptr<Thread>> threads;
  const std::function<void()>* body = nullptr;
  bool alone = false;  // the threads of this block run one after the other, each to its end
  bool downwards = false;
  std::exception_ptr error;

  Thread& thread(unsigned i);
  void resume(unsigned i);
  void end_alone(unsigned n);
  void throw_error();
  bool go_on(unsigned first, unsigned end);
  void run(unsigned n, const std::function<void()>& f);
};

// Kernels run one after the other: each thread's own shared memory would take 1.6 MB to clear.
std::mutex one_kernel;
Block block;

void pause() {
  if (block.alone)
    throw std::logic_error(
        "a thread of a kernel waits for others, but thread 0 has ended without waiting");
  switch_to(block.scheduler, block.threads[thread_index.x]->here);
}

void thread_main() {
  for (;;) {
    try {
      (*block.body)();
    } catch (...) {
      block.error = std::current_exception();
    }
    block.threads[thread_index.x]->done = true;
    pause();
  }
}

Block::Thread& Block::thread(unsigned i) {
  while (threads.size() <= i) threads.push_back(std::make_unique<Thread>());
  return *threads[i];
}

[[gnu::noinline]] void begin(Block::Thread& t) {
  getcontext(&t.first);
  t.first.uc_stack.ss_sp = t.stack.get();
  t.first.uc_stack.ss_size = kStack;
  t.first.uc_link = nullptr;
  makecontext(&t.first, thread_main, 0);
  setcontext(&t.first);
}

void Block::resume(unsigned i) {
  Thread& t = *threads[i];
  thread_index = {i, 0, 0};
  if (__builtin_setjmp(scheduler.registers) != 0) return;
  if (std::exchange(t.begun, true))
    go_to(t.here);
  else
    begin(t);
}

void Block::end_alone(unsigned n) {
  alone = true;
  for (unsigned i = 1; i < n && !error; ++i) {
    thread_index = {i, 0, 0};
    try {
      (*body)();
    } catch (...) {
      error = std::current_exception();
    }
  }
  alone = false;
  throw_error();
}

void Block::throw_error() {
  if (error) std::rethrow_exception(std::exchange(error, nullptr));
}

// Each thread of a warp runs once, until it waits. Returns whether any thread could run.
bool Block::go_on(unsigned first, unsigned end) {
  bool ran = false;
  for (unsigned k = first; k < end; ++k) {
    const unsigned i = downwards ? first + end - 1 - k : k;
    if (threads[i]->done || threads[i]->waits_for_block) continue;
    resume(i);
    ran = true;
  }
  return ran;
}

// A warp runs as far as it can before the next one does, upwards in one block and downwards in the
// next, and so do the threads of a warp. So one of the two reveals a missing barrier between a
// write and a read of another thread. Thread 0 begins.
void Block::run(unsigned n, const std::function<void()>& f) {
  body = &f;
  downwards = !downwards;
  for (unsigned i = 0; i < n; ++i) {
    Thread& t = thread(i);
    t.done = t.waits_for_block = false;
    t.calls = 0;
    t.copies.clear();
  }
  resume(0);
  if (threads[0]->done) return end_alone(n);  // then no other thread waits either
  const unsigned warps = (n + kWarpThreads - 1) / kWarpThreads;
  bool first_warp_pending = true;
  for (bool running = true; running;) {
    for (unsigned w = 0; w < warps; ++w) {
      const unsigned first = (downwards ? warps - 1 - w : w) * kWarpThreads;
      const unsigned end = std::min(n, first + kWarpThreads);
      if (first == 0 && std::exchange(first_warp_pending, false)) {
        const bool waits = std::exchange(threads[0]->waits_for_block, true);  // it has run already
        go_on(first, end);
        threads[0]->waits_for_block = waits;
      }
      while (go_on(first, end)) continue;
    }
    // As on a GPU since Volta, a barrier waits for the threads that have not ended.
    running = false;
    for (unsigned i = 0; i < n; ++i) {
      running |= !threads[i]->done;
      threads[i]->waits_for_block = false;
    }
  }
  throw_error();
}

}  // namespace

void wait_for_block() {
  block.threads[thread_index.x]->waits_for_block = true;
  pause();
}

std::vector<Copy>& copies_of_thread() { return block.threads[thread_index.x]->copies; }

namespace {

// Publishes `mine` and waits until all threads of the warp have offered. Returns the call's number.
uint64_t offer(const char* call, const Offer& mine) {
  Block::Thread& me = *block.threads[thread_index.x];
  const uint64_t number = ++me.calls;
  me.offers[number % 2] = mine;
  me.offers[number % 2].call = call;
  pause();  // they make their next offer elsewhere
  return number;
}

// What thread `i` of the block offered at this call.
const Offer& offered(unsigned i, const char* call, uint64_t number) {
  const Block::Thread& t = *block.threads[i];
  if (t.calls < number || t.offers[number % 2].call != call)
    throw std::logic_error(std::string("not all threads of a warp are at the same ") + call);
  return t.offers[number % 2];
}

}  // namespace

Offers offer_to_warp(const char* call, const Offer& mine) {
  const uint64_t number = offer(call, mine);
  const unsigned first = thread_index.x / kWarpThreads * kWarpThreads;
  Offers all{};
  for (unsigned i = 0; i < kWarpThreads && first + i < block_size.x; ++i)
    all[i] = &offered(first + i, call, number);
  return all;
}

uint64_t exchange_in_warp(uint64_t mine, int offset) {
  Offer words;
  std::memcpy(words.words.data(), &mine, sizeof mine);
  const uint64_t number = offer("shuffle", words);
  const unsigned first = thread_index.x / kWarpThreads * kWarpThreads;
  if (thread_index.x == first)  // for the whole warp, of which every thread comes here
    for (unsigned i = first; i < std::min(first + kWarpThreads, block_size.x); ++i)
      (void)offered(i, "shuffle", number);
  const unsigned other = first + (thread_index.x % kWarpThreads ^ unsigned(offset));
  if (other >= block_size.x) throw std::logic_error("a shuffle reads a thread outside the block");
  std::memcpy(&mine, offered(other, "shuffle", number).words.data(), sizeof mine);
  return mine;
}

unsigned ballot_of_warp(bool mine) {
  Offer offer;
  offer.words[0] = mine;
  unsigned lanes = 0, lane = 0;
  for (const Offer* one : offer_to_warp("ballot", offer)) {
    if (!one) throw std::logic_error("a ballot needs a full warp");
    lanes |= one->words[0] << lane++;
  }
  return lanes;
}

void count_launch(unsigned blocks) {
  ++launches.kernels;
  launches.blocks += blocks;
}

void check_vector_access(const void* address) {
  if (reinterpret_cast<uintptr_t>(address) % 16 != 0)
    throw std::logic_error("a kernel accesses 16 bytes at an address that is no multiple of 16");
  ++launches.vector_accesses;
}
uint4 load_16_bytes(const void* from) {
  check_vector_access(from);
  uint4 bits;
  std::memcpy(&bits, from, sizeof bits);
  return bits;
}
void store_16_bytes(uint4 bits, void* to) {
  check_vector_access(to);
  std::memcpy(to, &bits, sizeof bits);
}

void run(unsigned blocks, unsigned threads, const std::function<void()>& body) {
  may_die_at_kernel();
  if (dead()) return;
  const std::lock_guard lock(one_kernel);
  block_size = {threads, 1, 1};
  grid_size = {blocks, 1, 1};
  for (unsigned b = 0; b < blocks; ++b) {
    block_index = {b, 0, 0};
    block.run(threads, body);
  }
}

}  // namespace zl::cuda_on_cpu
