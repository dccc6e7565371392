// Matmul with a bias by cuBLASLt: its epilogue adds the bias to the sums in fp32, so the product
// passes through memory once.
#include "tensor/cuda/blas.h"
#include "tensor/cuda/workspace.h"

namespace zl::ZEROLAB_CUDA {
namespace {

struct CublasLt {
#ifndef ZEROLAB_CUDA_ON_CPU
  SharedLibrary file{"cuBLASLt", str("libcublasLt.so.", CUBLAS_VER_MAJOR), ZEROLAB_CUBLAS_FOLDER};
#endif
  decltype(&cublasLtMatmulDescCreate) create_operation = ZL_BLAS(cublasLtMatmulDescCreate);
  decltype(&cublasLtMatmulDescSetAttribute) set_operation = ZL_BLAS(cublasLtMatmulDescSetAttribute);
  decltype(&cublasLtMatmulDescDestroy) destroy_operation = ZL_BLAS(cublasLtMatmulDescDestroy);
  decltype(&cublasLtMatrixLayoutCreate) create_layout = ZL_BLAS(cublasLtMatrixLayoutCreate);
  decltype(&cublasLtMatrixLayoutDestroy) destroy_layout = ZL_BLAS(cublasLtMatrixLayoutDestroy);
  decltype(&cublasLtMatmulPreferenceCreate) create_preference =
      ZL_BLAS(cublasLtMatmulPreferenceCreate);
  decltype(&cublasLtMatmulPreferenceSetAttribute) set_preference =
      ZL_BLAS(cublasLtMatmulPreferenceSetAttribute);
  decltype(&cublasLtMatmulPreferenceDestroy) destroy_preference =
      ZL_BLAS(cublasLtMatmulPreferenceDestroy);
  decltype(&cublasLtMatmulAlgoGetHeuristic) choose = ZL_BLAS(cublasLtMatmulAlgoGetHeuristic);
  decltype(&cublasLtMatmul) matmul = ZL_BLAS(cublasLtMatmul);
};

const CublasLt& lt() {
  static const CublasLt functions;
  return functions;
}

cublasLtHandle_t lt_handle(cublasHandle_t blas) {  // cuBLAS's guide, "cublasLtHandle_t"
  return reinterpret_cast<cublasLtHandle_t>(blas);
}

template <class T>
void set(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t attribute, T value) {
  require_blas(lt().set_operation(operation, attribute, &value, sizeof value), "matmul");
}

cublasLtMatrixLayout_t layout(cudaDataType_t type, int rows, int columns, int leading) {
  cublasLtMatrixLayout_t made = nullptr;
  require_blas(lt().create_layout(&made, type, uint64_t(rows), uint64_t(columns), int64_t(leading)),
               "matmul");
  return made;
}

// An operand (rows, columns) as it is stored.
cublasLtMatrixLayout_t layout(const Product::Operand& of, cudaDataType_t type, int rows,
                              int columns) {
  return of.operation == CUBLAS_OP_T ? layout(type, columns, rows, of.leading)
                                     : layout(type, rows, columns, of.leading);
}

// [B] What the heuristic is told of all addresses. Parameters begin at multiples of 16 elements,
// activations at multiples of 256 bytes.
constexpr uint32_t kAlignment = 16;

bool aligned(std::initializer_list<const void*> addresses) {
  return std::ranges::all_of(addresses,
                             [](const void* a) { return uintptr_t(a) % kAlignment == 0; });
}

// What the heuristic may choose.
cublasLtMatmulPreference_t make_preference() {
  cublasLtMatmulPreference_t made = nullptr;
  require_blas(lt().create_preference(&made), "matmul");
  const auto set = [made](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    require_blas(lt().set_preference(made, attribute, &value, sizeof value), "matmul");
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t(kMatmulWorkspace));
  // Partial sums in fp32, not in bf16 or fp16.
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, uint32_t(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  for (const auto attribute :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
    set(attribute, kAlignment);
  return made;
}

}  // namespace

BiasProducts::~BiasProducts() {
  for (auto& [kind, p] : plans_) {
    for (const auto made : {p.left, p.right, p.out}) lt().destroy_layout(made);
    lt().destroy_operation(p.operation);
  }
}

BiasProducts::Plan& BiasProducts::plan(const Product& p) {
  const auto [entry, is_new] = plans_.try_emplace(
      {int(p.left.operation), p.left.leading, int(p.right.operation), p.right.leading, p.rows,
       p.columns, p.depth, int(p.type), int(p.compute), p.leading});
  Plan& plan = entry->second;
  if (!is_new) return plan;
  require_blas(lt().create_operation(&plan.operation, p.compute, CUDA_R_32F), "matmul");
  set(plan.operation, CUBLASLT_MATMUL_DESC_TRANSA, int32_t(p.left.operation));
  set(plan.operation, CUBLASLT_MATMUL_DESC_TRANSB, int32_t(p.right.operation));
  set(plan.operation, CUBLASLT_MATMUL_DESC_EPILOGUE, uint32_t(CUBLASLT_EPILOGUE_BIAS));
  // cublasLt.h: the heuristic does not read the bias, but takes its alignment from this address.
  set(plan.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
      reinterpret_cast<const void*>(uintptr_t(kAlignment)));
  plan.left = layout(p.left, p.type, p.rows, p.depth);
  plan.right = layout(p.right, p.type, p.depth, p.columns);
  plan.out = layout(p.type, p.rows, p.columns, p.leading);
  const cublasLtMatmulPreference_t preference = make_preference();
  cublasLtMatmulHeuristicResult_t best = {};
  int found = 0;
  const cublasStatus_t status = lt().choose(lt_handle(blas_), plan.operation, plan.left, plan.right,
                                            plan.out, plan.out, preference, 1, &best, &found);
  lt().destroy_preference(preference);
  plan.works = status == CUBLAS_STATUS_SUCCESS && found == 1 && best.state == CUBLAS_STATUS_SUCCESS;
  plan.algorithm = best.algo;
  return plan;
}

bool BiasProducts::enqueue(const Product& p, const void* bias, void* workspace,
                           CUstream_st* stream) {
  if (p.type == CUDA_R_64F || !aligned({p.left.data, p.right.data, p.out, bias})) return false;
  Plan& plan = this->plan(p);
  if (!plan.works) return false;
  set(plan.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  const float one = 1, zero = 0;
  const cublasStatus_t status =
      lt().matmul(lt_handle(blas_), plan.operation, &one, p.left.data, plan.left, p.right.data,
                  plan.right, &zero, p.out, plan.out, p.out, plan.out, &plan.algorithm, workspace,
                  kMatmulWorkspace, stream);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) return plan.works = false;
  require_blas(status, "matmul");
  return true;
}

}  // namespace zl::ZEROLAB_CUDA
