#include "tutorials/zerolab/bench/onednn.h"

#include <cstdlib>

#include "tensor/error.h"
#include "tensor/platform/shared_library.h"

namespace zl::cli {

std::optional<OneDnn> OneDnn::open(int threads) {
  // OpenMP reads it when oneDNN loads OpenMP.
  setenv("OMP_NUM_THREADS", std::to_string(threads).c_str(), 1);
  for (const char* file : {"libdnnl.so.3", "libdnnl.so.2"}) {
    try {
      const SharedLibrary library("oneDNN", file, "");
      OneDnn found;
      found.gemm_ = library.function("dnnl_sgemm");
      found.version_ = library.function("dnnl_version");
      return found;
    } catch (const LibraryError&) {  // the next version
    }
  }
  return std::nullopt;
}

std::string OneDnn::version() const {
  const Version& v = *version_();
  return str("oneDNN ", v.major, ".", v.minor, ".", v.patch);
}

void OneDnn::multiply(const Product& p, const float* a, const float* b, float* c) const {
  const auto letter = [](Transpose t) { return t == Transpose::yes ? 'T' : 'N'; };
  const int status =
      gemm_(letter(p.a), letter(p.b), p.m, p.n, p.k, 1.0f, a, p.a == Transpose::yes ? p.m : p.k, b,
            p.b == Transpose::yes ? p.k : p.n, 0.0f, c, p.n);
  require_input(status == 0, version(), "'s dnnl_sgemm failed with status ", status,
                "; without that library this command measures zerolab alone");
}

}  // namespace zl::cli
