// The zerolab program with tests/nccl/fake/fake_nccl.h where its NCCL was, so that `zerolab
// launch -n 4 -- train --backend nccl
// --device cpu` runs on any machine. Only for tests; the program itself knows nothing of this.
//
// Two variables of the environment say what goes wrong, and where the ranks meet:
//   ZEROLAB_FAKE_FAULT="ncclAllGather:never:rank=1:call=3; …"   as faults_from() reads it
//                                                               (tests/nccl/fake/faults.h)
//   ZEROLAB_FAKE_FOLDER=DIR         the ranks meet in files of DIR, also across network namespaces
// Built as zerolab_on_fake_gpus, it also has the GPUs of tests/cuda/on_cpu, each of which several
// processes may open: `ZEROLAB_EMULATED_GPUS=1 zerolab_on_fake_gpus launch -n 2 --share-gpu -- …`.
// A program that ends well enough to say so, but has misused NCCL, says how on stderr and exits
// with 99.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "dist/nccl/api.h"
#include "tensor/error.h"
#include "tests/nccl/fake/fake_nccl.h"

namespace zl {
#ifdef ZEROLAB_ON_EMULATED_GPUS
namespace cuda_on_cpu {
void finish_gpu(int gpu);
void* on_host(const void* address);
}  // namespace cuda_on_cpu
#endif
namespace {

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value ? value : "";
}

constexpr test::FakeStreams kStreams{
#ifdef ZEROLAB_ON_EMULATED_GPUS
    .on_host = cuda_on_cpu::on_host, .finish = [] { cuda_on_cpu::finish_gpu(-1); }
#endif
};

struct Judged {
  test::FakeNccl fake{test::faults_from(variable("ZEROLAB_FAKE_FAULT")), test::Deaths::noticed,
                      kStreams};
  const NcclApi api = fake.api();
#ifdef ZEROLAB_ON_EMULATED_GPUS
  Judged() { fake.one_gpu = variable("ZEROLAB_EMULATED_GPUS") == "1"; }
#endif
  ~Judged() {
    const std::string misuse = fake.misuse();
    if (misuse.empty()) return;
    std::fflush(stdout);
    std::fprintf(stderr, "NCCL was misused: %s\n", misuse.c_str());
    _exit(99);
  }
};

}  // namespace

// The linker takes these two, and leaves the library's where they are.
NcclInBuild nccl_in_build() {
  static Judged judged;  // until the program exits
  return {&judged.api, "", ""};
}
int nccl_compiled_for() { return nccl_in_build().api->compiled_for; }

}  // namespace zl
