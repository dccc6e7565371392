#include <cuda_runtime.h>
#include <ucontext.h>

#include <cstdlib>
#include <exception>
#include <utility>
#include <vector>

namespace zl::cuda_on_cpu {

constinit thread_local dim3 thread_index, block_index, block_size, grid_size;

namespace {

constexpr size_t kStack = 128 << 10;  // [B] of a CUDA thread
constexpr unsigned kWarp = 32;

// One block: its threads are coroutines that the scheduler below resumes in turn.
struct Block {
  struct Thread {
    ucontext_t context{};
    std::vector<char> stack = std::vector<char>(kStack);
    bool done = false, waits_for_block = false;
    uint64_t offered = 0;
  };
  ucontext_t scheduler{};
  std::vector<Thread> threads;
  const std::function<void()>* body = nullptr;
  std::exception_ptr error;

  void begin(unsigned i);
  void run(unsigned n, const std::function<void()>& f);
};

thread_local Block block;

void pause() {
  const unsigned i = thread_index.x;
  swapcontext(&block.threads[i].context, &block.scheduler);
}

void thread_main() {
  try {
    (*block.body)();
  } catch (...) {
    block.error = std::current_exception();
  }
  block.threads[thread_index.x].done = true;
  pause();
}

void Block::begin(unsigned i) {
  Thread& t = threads[i];
  getcontext(&t.context);
  t.context.uc_stack.ss_sp = t.stack.data();
  t.context.uc_stack.ss_size = t.stack.size();
  t.context.uc_link = nullptr;
  t.done = t.waits_for_block = false;
  makecontext(&t.context, thread_main, 0);
}

void Block::run(unsigned n, const std::function<void()>& f) {
  if (threads.size() < n) threads.resize(n);
  body = &f;
  for (unsigned i = 0; i < n; ++i) begin(i);
  for (unsigned running = n; running > 0;) {
    unsigned waiting = 0;
    running = 0;
    for (unsigned i = 0; i < n; ++i) {
      Thread& t = threads[i];
      if (!t.done && !t.waits_for_block) {
        thread_index = {i, 0, 0};
        swapcontext(&scheduler, &t.context);
      }
      waiting += !t.done && t.waits_for_block;
      running += !t.done;
    }
    // As on a GPU since Volta, a barrier waits for the threads that have not ended.
    if (waiting == running)
      for (unsigned i = 0; i < n; ++i) threads[i].waits_for_block = false;
  }
  if (error) std::rethrow_exception(std::exchange(error, nullptr));
}

}  // namespace

void wait_for_block() {
  block.threads[thread_index.x].waits_for_block = true;
  pause();
}

uint64_t exchange_in_warp(uint64_t mine, int offset) {
  const unsigned i = thread_index.x, other = (i / kWarp) * kWarp + ((i % kWarp) ^ unsigned(offset));
  if (other >= block_size.x) throw std::logic_error("a shuffle reads a thread that the block does not have");
  block.threads[i].offered = mine;
  pause();  // all of the warp have offered theirs
  const uint64_t theirs = block.threads[other].offered;
  pause();  // all have taken theirs
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

cudaError_t cudaMalloc(void** to, size_t bytes) {
  *to = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  return *to ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaFree(void* memory) { return std::free(memory), cudaSuccess; }
