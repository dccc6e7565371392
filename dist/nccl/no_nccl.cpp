// A build without NCCL says so.
#include "dist/nccl/api.h"

namespace zl {

NcclInBuild nccl_in_build() {
  return {nullptr, "this program was built without NCCL",
          "install NCCL (apt: libnccl-dev) and the CUDA Toolkit, and build again; cmake "
          "--preset default -DZEROLAB_NCCL=ON says what is missing"};
}

int nccl_compiled_for() { return 0; }

}  // namespace zl
