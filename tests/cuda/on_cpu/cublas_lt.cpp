// cuBLASLt, as unkind as its header and users' reports allow:
// - The heuristic takes alignments from what it is told, and from the address of the bias
//   (cublasLt.h, CUBLASLT_MATMUL_DESC_BIAS_POINTER). For other alignments it chooses another
//   algorithm, with another order of additions, and that one refuses addresses of less alignment.
// - If it may, it chooses one that rounds partial sums to the output's type.
// - It knows no algorithm for rows that do not begin at multiples of 16 bytes, nor for f64. For
//   products of one column it returns one that cublasLtMatmul refuses.
#include <cublasLt.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "tests/cuda/on_cpu/devices.h"
#include "tests/cuda/on_cpu/launches.h"

namespace {

// The fields of cublasLtMatmulAlgo_t::data.
enum Field { kAlignments, kParts, kInOutputType, kWorkspace, kRows, kColumns, kDepth };

// [B] The alignments of A, B, C, D and the bias, which an algorithm then asks of each address.
using Alignments = std::array<uint16_t, 5>;

uint64_t packed(const Alignments& all) {
  uint64_t bits = 0;
  for (const uint16_t one : all) bits = bits << 12 | one;
  return bits;
}
Alignments unpacked(uint64_t bits) {
  Alignments all;
  for (size_t i = all.size(); i-- > 0; bits >>= 12) all[i] = uint16_t(bits & 0xfff);
  return all;
}

template <class T>
cublasStatus_t take(T& field, const void* value, size_t bytes) {
  if (!value || bytes != sizeof field) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&field, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

bool fits(const cublasLtMatmulDescOpaque_t& o, const cublasLtMatrixLayoutOpaque_t& a,
          const cublasLtMatrixLayoutOpaque_t& b, const cublasLtMatrixLayoutOpaque_t& c,
          const cublasLtMatrixLayoutOpaque_t& d) {
  const bool turn_a = o.op_a == CUBLAS_OP_T, turn_b = o.op_b == CUBLAS_OP_T;
  return (turn_a ? a.columns : a.rows) == d.rows && (turn_b ? b.rows : b.columns) == d.columns &&
         (turn_a ? a.rows : a.columns) == (turn_b ? b.columns : b.rows) && c.rows == d.rows &&
         c.columns == d.columns;
}

bool supported(const cublasLtMatmulDescOpaque_t& o,
               std::initializer_list<const cublasLtMatrixLayoutOpaque_t*> layouts) {
  const cudaDataType_t type = (*layouts.begin())->type;
  const bool computes = o.compute == CUBLAS_COMPUTE_32F ||
                        (o.compute == CUBLAS_COMPUTE_32F_FAST_TF32 && type == CUDA_R_32F);
  return computes && o.scale == CUDA_R_32F && type != CUDA_R_64F &&
         o.epilogue == CUBLASLT_EPILOGUE_BIAS &&
         std::ranges::all_of(layouts, [&](const cublasLtMatrixLayoutOpaque_t* l) {
           return l->type == type && l->leading * (type == CUDA_R_32F ? 4 : 2) % 16 == 0;
         });
}

// [B] At most 256.
uint32_t alignment_of(const void* address) {
  uint32_t bytes = 256;
  while (uintptr_t(address) % bytes != 0) bytes /= 2;
  return bytes;
}

}  // namespace

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* made, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  *made = new cublasLtMatmulDescOpaque_t{.compute = compute, .scale = scale};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t of,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA: return take(of->op_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB: return take(of->op_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE: return take(of->epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return take(of->bias, value, bytes);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t operation) {
  return delete operation, CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* made, cudaDataType_t type,
                                          uint64_t rows, uint64_t columns, int64_t leading) {
  if (leading < int64_t(rows)) return CUBLAS_STATUS_INVALID_VALUE;
  *made = new cublasLtMatrixLayoutOpaque_t{type, rows, columns, leading};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  return delete layout, CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* made) {
  return *made = new cublasLtMatmulPreferenceOpaque_t, CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t of,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES: return take(of->workspace, value, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK: return take(of->reductions, value, bytes);
    default:
      return take(of->alignments[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], value,
                  bytes);
  }
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  return delete preference, CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t o,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t* results,
                                              int* found) {
  *found = 0;
  if (wanted <= 0 || !fits(*o, *a, *b, *c, *d)) return CUBLAS_STATUS_INVALID_VALUE;
  Alignments told;
  std::ranges::copy(preference->alignments, told.begin());
  told.back() = uint16_t(alignment_of(o->bias));
  if (!o->bias || std::ranges::min(told) < 16 || !supported(*o, {a, b, c, d}))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  const uint64_t depth = o->op_a == CUBLAS_OP_T ? a->rows : a->columns;
  uint64_t parts =
               std::min<uint64_t>(2 + std::accumulate(told.begin(), told.end(), 0) / 256, depth),
           workspace = parts * d->rows * d->columns * sizeof(float);
  if (workspace > preference->workspace || preference->reductions == 0) parts = 1, workspace = 0;
  const bool in_output_type = preference->reductions & (CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE |
                                                        CUBLASLT_REDUCTION_SCHEME_INPLACE);
  results[0] = {
      .algo = {{packed(told), parts, in_output_type, workspace, d->rows, d->columns, depth}},
      .workspaceSize = workspace,
      .state = CUBLAS_STATUS_SUCCESS,
      .wavesCount = 1,
      .reserved = {}};
  *found = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t o, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t of_a, const void* b,
                              cublasLtMatrixLayout_t of_b, const void* beta, const void* c,
                              cublasLtMatrixLayout_t of_c, void* d, cublasLtMatrixLayout_t of_d,
                              const cublasLtMatmulAlgo_t* algorithm, void* workspace, size_t bytes,
                              cudaStream_t stream) {
  const auto& of = algorithm->data;
  const uint64_t depth = o->op_a == CUBLAS_OP_T ? of_a->rows : of_a->columns;
  const bool chosen_for_it = of[kRows] == of_d->rows && of[kColumns] == of_d->columns &&
                             of[kDepth] == depth && fits(*o, *of_a, *of_b, *of_c, *of_d);
  const Alignments needed = unpacked(of[kAlignments]);
  const bool aligned = alignment_of(a) >= needed[0] && alignment_of(b) >= needed[1] &&
                       alignment_of(c) >= needed[2] && alignment_of(d) >= needed[3];
  if (!chosen_for_it || !aligned || !o->bias || bytes < of[kWorkspace] || c != d ||
      alignment_of(workspace) < 16)
    return CUBLAS_STATUS_INVALID_VALUE;
  if (of_d->columns == 1) return CUBLAS_STATUS_NOT_SUPPORTED;
  // Nothing checks the bias: a kernel that assumes 16 bytes "faults with misaligned address"
  // (pytorch/pytorch, pull request 194497).
  if (alignment_of(o->bias) < needed[4])
    throw std::logic_error("a product with a bias: misaligned address");
  ++zl::cuda_on_cpu::launches.bias_products;
  const GemmCall call{cublasOperation_t(o->op_a),
                      cublasOperation_t(o->op_b),
                      int(of_d->rows),
                      int(of_d->columns),
                      int(depth),
                      alpha,
                      a,
                      of_a->type,
                      int(of_a->leading),
                      b,
                      of_b->type,
                      int(of_b->leading),
                      beta,
                      d,
                      of_d->type,
                      int(of_d->leading),
                      o->compute,
                      CUBLAS_GEMM_DEFAULT};
  if (!zl::cuda_on_cpu::begin_launch(kernel_of(call), stream) && !zl::cuda_on_cpu::dead())
    return CUBLAS_STATUS_EXECUTION_FAILED;
  const GemmSums sums{int(of[kParts]), of[kInOutputType] != 0, o->bias};
  zl::cuda_on_cpu::enqueue(stream, [call, sums, alpha = *static_cast<const float*>(alpha),
                                    beta = *static_cast<const float*>(beta)] {
    run_gemm(call, sums, double(alpha), double(beta));
  });
  return CUBLAS_STATUS_SUCCESS;
}
