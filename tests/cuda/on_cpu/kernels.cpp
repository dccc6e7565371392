// Running kernels: the threads of a block are coroutines.
#include <cuda_runtime.h>
#include <ucontext.h>

#include <exception>
#include <memory>
#include <utility>
#include <vector>

namespace zl::cuda_on_cpu {

constinit thread_local dim3 thread_index, block_index, block_size, grid_size;

namespace {

constexpr size_t kStack = 128 << 10;  // [B] per CUDA thread
constexpr unsigned kWarp = 32;

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
    std::vector<char> stack = std::vector<char>(kStack);
    bool begun = false, done = false, waits_for_block = false;
    uint64_t offered = 0;
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
  void run(unsigned n, const std::function<void()>& f);
};

thread_local Block block;

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
  t.first.uc_stack.ss_sp = t.stack.data();
  t.first.uc_stack.ss_size = t.stack.size();
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

// Thread 0 runs first, the others upwards in one block and downwards in the next. So one of the two
// reveals a missing barrier between a write and a read of another thread.
void Block::run(unsigned n, const std::function<void()>& f) {
  body = &f;
  downwards = !downwards;
  const auto nth = [&](unsigned k) { return k == 0 || !downwards ? k : n - k; };
  for (unsigned i = 0; i < n; ++i) thread(i).done = thread(i).waits_for_block = false;
  resume(0);
  if (threads[0]->done) return end_alone(n);  // then no other thread waits either
  for (unsigned k = 1; k < n; ++k) resume(nth(k));
  for (unsigned running = n; running > 0;) {
    unsigned waiting = 0;
    running = 0;
    for (unsigned i = 0; i < n; ++i) {
      waiting += !threads[i]->done && threads[i]->waits_for_block;
      running += !threads[i]->done;
    }
    // As on a GPU since Volta, a barrier waits for the threads that have not ended.
    if (waiting == running)
      for (unsigned i = 0; i < n; ++i) threads[i]->waits_for_block = false;
    for (unsigned k = 0; k < n; ++k)
      if (!threads[nth(k)]->done && !threads[nth(k)]->waits_for_block) resume(nth(k));
  }
  throw_error();
}

}  // namespace

void wait_for_block() {
  block.threads[thread_index.x]->waits_for_block = true;
  pause();
}

uint64_t exchange_in_warp(uint64_t mine, int offset) {
  const unsigned i = thread_index.x, other = (i / kWarp) * kWarp + ((i % kWarp) ^ unsigned(offset));
  if (other >= block_size.x) throw std::logic_error("a shuffle reads a thread outside the block");
  block.threads[i]->offered = mine;
  pause();  // until all threads of the warp have offered
  const uint64_t theirs = block.threads[other]->offered;
  pause();  // until all have read
  return theirs;
}

void run(unsigned blocks, unsigned threads, const std::function<void()>& body) {
  block_size = {threads, 1, 1};
  grid_size = {blocks, 1, 1};
  for (unsigned b = 0; b < blocks; ++b) {
    block_index = {b, 0, 0};
    block.run(threads, body);
  }
}

}  // namespace zl::cuda_on_cpu
