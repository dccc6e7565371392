// The malloc hook: whatever a step needs comes from Memory, so a steady step asks the system for
// nothing.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cstdlib>

#include "nn/data/windows.h"
#include "stages/train/gpt_spec.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define ZEROLAB_HOOKS_MALLOC 0  // the sanitizers have hooks of their own
#else
#define ZEROLAB_HOOKS_MALLOC 1
#endif

namespace {

constexpr size_t kLarge = 4096;  // [B]
thread_local bool watching = false;
thread_local int large_allocations = 0;

[[maybe_unused]] void note(size_t bytes) {
  if (watching && bytes >= kLarge) ++large_allocations;
}

}  // namespace

#if ZEROLAB_HOOKS_MALLOC
extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
void* malloc(size_t n) {
  note(n);
  return __libc_malloc(n);
}
void* calloc(size_t n, size_t size) {
  note(n * size);
  return __libc_calloc(n, size);
}
void* realloc(void* p, size_t n) {
  note(n);
  return __libc_realloc(p, n);
}
void* memalign(size_t alignment, size_t n) {
  note(n);
  return __libc_memalign(alignment, n);
}
void* aligned_alloc(size_t alignment, size_t n) {
  note(n);
  return __libc_memalign(alignment, n);
}
int posix_memalign(void** out, size_t alignment, size_t n) {
  note(n);
  *out = __libc_memalign(alignment, n);
  return *out ? 0 : 12;
}
}
#endif

using namespace zl;

namespace {

// Large allocations of rank 0 during its fourth step.
int allocations_of_a_steady_step(StageKind stage, int ranks, bool extra) {
  GptTrainingSpec spec =
      gpt_spec({.layers = 3, .heads = 2, .width = 64, .block_size = 64, .vocab = 256});
  spec.engine.stage = stage;
  spec.engine.accumulation = 2;
  spec.ranks = ranks;
  const Windows windows(TokenData::of_text("text", std::string(5000, 'x')), 64);
  spec.data = &windows;
  int counted = -1;
  run_ranks(ranks, [&](Communicator& comm) {
    Memory memory({DeviceKind::cpu}, cpu_backend(), comm.events());
    Memory host({DeviceKind::cpu}, cpu_backend(), comm.events(), {.pool = Pool::host});
    Trainer training(spec, comm, {memory, &host});
    for (int step = 0; step < 3; ++step) training.step();
    large_allocations = 0;
    watching = true;
    training.step();
    if (extra) std::free(std::malloc(kLarge));
    watching = false;
    if (comm.rank() == 0) counted = large_allocations;
  });
  return counted;
}

}  // namespace

TEST_CASE("a steady step makes no allocation of 4 KiB or more, in any stage", "[stages]") {
  if (!ZEROLAB_HOOKS_MALLOC) SKIP("the sanitizers hook malloc themselves");
  const StageKind stage =
      GENERATE(StageKind::ddp, StageKind::zero1, StageKind::zero2, StageKind::zero3);
  const int ranks = GENERATE(1, 3);
  CAPTURE(name(stage), ranks);
  CHECK(allocations_of_a_steady_step(stage, ranks, false) == 0);
  CHECK(allocations_of_a_steady_step(stage, ranks, true) == 1);  // the hook sees what there is
}
