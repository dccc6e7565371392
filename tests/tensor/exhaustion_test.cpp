// Memory when the system has none left, in a child process with a limit.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <cstdlib>

#include "tensor/cpu/cpu_backend.h"

namespace {

using namespace zl;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

void* volatile last_block;  // volatile, so that the compiler does not remove the allocations

void use_up_all_memory() {
  const rlimit none{1, 1};
  setrlimit(RLIMIT_AS, &none);
  for (size_t bytes = size_t(1) << 20; bytes >= 16; bytes /= 2) {
    do last_block = std::malloc(bytes);
    while (last_block);
  }
}

TEST_CASE("memory can be released when the system has none left for the pool's lists", "[tensor]") {
  if (kSanitized) SKIP("a sanitizer ends the program when it gets no memory");
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    EventStream events;
    Memory memory(Device{}, cpu_backend(), events);
    std::vector<void*> blocks;
    for (int64_t i = 0; i < 500; ++i)
      blocks.push_back(memory.allocate(MemoryUse::activation, 1000 + i));
    use_up_all_memory();
    for (int64_t i = 0; i < 500; ++i)
      memory.release(blocks[size_t(i)], MemoryUse::activation, 1000 + i);
    _exit(memory.ledger().live_total() == 0 ? 0 : 1);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
}

}  // namespace
