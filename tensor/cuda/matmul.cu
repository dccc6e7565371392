// Matmul by cuBLAS, in our workspace: cuBLAS allocates nothing, and every byte is counted. A bias
// is added by cuBLASLt, before it rounds the sums.
#include <cublasLt.h>
#include <cublas_v2.h>

#include <array>
#include <limits>

#include "tensor/cuda/launch.h"
#include "tensor/cuda/workspace.h"
#include "tensor/platform/shared_library.h"

#ifdef ZEROLAB_CUDA_ON_CPU
#define ZL_BLAS(name) name
#else
#define ZL_BLAS(name) file.function(ZL_TEXT(name))
#define ZL_TEXT(name) #name  // after expansion: cublasCreate is a macro for cublasCreate_v2
#endif

namespace zl::ZEROLAB_CUDA {
namespace {

// cuBLAS's functions, with the types of its header. The library is opened with the first GPU: it
// takes 600 MiB to map and relocate, and programs also run without a GPU.
struct Cublas {
#ifndef ZEROLAB_CUDA_ON_CPU
  SharedLibrary file{"cuBLAS", str("libcublas.so.", CUBLAS_VER_MAJOR), ZEROLAB_CUBLAS_FOLDER};
#endif
  decltype(&cublasCreate) create = ZL_BLAS(cublasCreate);
  decltype(&cublasDestroy) destroy = ZL_BLAS(cublasDestroy);
  decltype(&cublasGetStatusString) status_string = ZL_BLAS(cublasGetStatusString);
  decltype(&cublasSetStream) set_stream = ZL_BLAS(cublasSetStream);
  decltype(&cublasSetMathMode) set_math_mode = ZL_BLAS(cublasSetMathMode);
  decltype(&cublasSetWorkspace) set_workspace = ZL_BLAS(cublasSetWorkspace);
  // The header overloads this name, so the type selects the function.
  using Gemm =
      decltype(static_cast<cublasStatus_t (*)(
                   cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int, const void*,
                   const void*, cudaDataType_t, int, const void*, cudaDataType_t, int, const void*,
                   void*, cudaDataType_t, int, cublasComputeType_t, cublasGemmAlgo_t)>(
          &cublasGemmEx));
  Gemm gemm = ZL_BLAS(cublasGemmEx);
};

// The same of cuBLASLt, on which cuBLAS is built.
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

const Cublas& cublas() {
  static const Cublas functions;
  return functions;
}
const CublasLt& lt() {
  static const CublasLt functions;
  return functions;
}

void require_blas(cublasStatus_t status, const char* what = "matmul") {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw std::runtime_error(std::string(what) + ": cuBLAS says: " + cublas().status_string(status));
}

cudaDataType_t blas_type(Dtype dtype) {
  return dtype == Dtype::f64    ? CUDA_R_64F
         : dtype == Dtype::f32  ? CUDA_R_32F
         : dtype == Dtype::bf16 ? CUDA_R_16BF
                                : CUDA_R_16F;
}

// A product as cuBLAS sees it, column-major: out (rows, columns) = left (rows, depth) times right
// (depth, columns).
struct Product {
  struct Operand {
    const void* data;
    cublasOperation_t operation;
    int leading;  // [n] the length of a stored column
  };
  Operand left, right;
  int rows, columns, depth;
  cudaDataType_t type;
  cublasComputeType_t compute;
  void* out;
  int leading;  // of out
};

struct Range {  // [n] of rows, columns or depth
  int begin, end;
};

// The product of some rows and columns, summed over a part of the depth.
Product part(const Product& p, Range rows, Range columns, Range depth) {
  const int64_t size = p.type == CUDA_R_64F ? 8 : p.type == CUDA_R_32F ? 4 : 2;  // [B]
  const auto at = [size](const void* matrix, int leading, int row, int column) {
    return static_cast<const char*>(matrix) + (row + int64_t(column) * leading) * size;
  };
  const auto move = [&at](Product::Operand& o, int row, int column) {
    if (o.operation == CUBLAS_OP_T) std::swap(row, column);
    o.data = at(o.data, o.leading, row, column);
  };
  Product some = p;
  move(some.left, rows.begin, depth.begin);
  move(some.right, depth.begin, columns.begin);
  some.out = const_cast<char*>(at(p.out, p.leading, rows.begin, columns.begin));
  some.rows = rows.end - rows.begin;
  some.columns = columns.end - columns.begin;
  some.depth = depth.end - depth.begin;
  return some;
}

Product::Operand operand(Factor f) {
  return {device_address(f.tensor.address()),
          f.transpose == Transpose::yes ? CUBLAS_OP_T : CUBLAS_OP_N, int(f.tensor.dim(-1))};
}

template <class T>
void set(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t attribute, T value) {
  require_blas(lt().set_operation(operation, attribute, &value, sizeof value));
}

cublasLtMatrixLayout_t layout(cudaDataType_t type, int rows, int columns, int leading,
                              bool transposed = false) {
  if (transposed) std::swap(rows, columns);
  cublasLtMatrixLayout_t made = nullptr;
  require_blas(
      lt().create_layout(&made, type, uint64_t(rows), uint64_t(columns), int64_t(leading)));
  return made;
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
  require_blas(lt().create_preference(&made));
  const auto set = [made](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    require_blas(lt().set_preference(made, attribute, &value, sizeof value));
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

class Blas {
 public:
  explicit Blas(CUstream_st* stream);
  ~Blas();
  Blas(const Blas&) = delete;
  Blas& operator=(const Blas&) = delete;

  // Splits sizes that cuBLAS would read element by element. Each part of the depth is rounded to
  // the type of `out`.
  void multiply(const Product& product, Write write, void* workspace);
  // The product + bias (rows) in each column. False: cuBLASLt cannot do it for these sizes or this
  // type, and nothing was enqueued.
  bool multiply_with_bias(const Product& product, const void* bias, void* workspace);

 private:
  void multiply_at_once(const Product& product, Write write, void* workspace);

  struct Plan {  // for products of one kind
    cublasLtMatmulDesc_t operation = nullptr;
    cublasLtMatrixLayout_t left = nullptr, right = nullptr, out = nullptr;
    cublasLtMatmulAlgo_t algorithm = {};
    bool works = false;
  };
  using Kind = std::array<int, 10>;  // all of a Product but addresses
  Plan& plan(const Product& product);
  // cuBLAS's guide, "cublasLtHandle_t": a handle of cuBLAS is one.
  cublasLtHandle_t lt_handle() { return reinterpret_cast<cublasLtHandle_t>(handle_); }

  cublasHandle_t handle_ = nullptr;
  CUstream_st* stream_;
  std::map<Kind, Plan> plans_;
};

Blas::Blas(CUstream_st* stream) : stream_(stream) {
  require_blas(cublas().create(&handle_), "cannot use cuBLAS");
  require_blas(cublas().set_stream(handle_, stream), "cannot use cuBLAS");
  // By default cuBLAS may split the sums of bf16 and fp16 matrices, and add the parts in bf16 or
  // fp16.
  require_blas(cublas().set_math_mode(
                   handle_, cublasMath_t(int(CUBLAS_DEFAULT_MATH) |
                                         int(CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION))),
               "cannot use cuBLAS");
}

Blas::~Blas() {
  for (auto& [kind, p] : plans_) {
    for (const auto made : {p.left, p.right, p.out}) lt().destroy_layout(made);
    lt().destroy_operation(p.operation);
  }
  cublas().destroy(handle_);
}

// Matrix units read 16 bytes at a time. If a matrix is stored along a size that is not a multiple
// of 8, cuBLAS takes kernels that read single elements, although the matrix's columns begin at
// multiples of 16 bytes: on an H100 they reach an eighth of its peak. Such a size is split into a
// multiple of 8 and a rest. Example: the vocabulary, where rows of logits are padded. One rule
// holds for all types. The rest of the depth comes first, so that the small part of a sum is
// rounded twice, not the large one.
void Blas::multiply(const Product& p, Write write, void* workspace) {
  const auto multiple_of_8 = [](int size, bool stored_along_it) {
    return stored_along_it && size > 8 ? size / 8 * 8 : size;
  };
  const bool left_turned = p.left.operation == CUBLAS_OP_T,
             right_turned = p.right.operation == CUBLAS_OP_T;
  // Whether the columns of a matrix in memory begin at multiples of 8 elements.
  const bool left = p.left.leading % 8 == 0, right = p.right.leading % 8 == 0,
             out = p.leading % 8 == 0;
  const int rows = multiple_of_8(p.rows, out || (left && !left_turned)),
            columns = multiple_of_8(p.columns, right && right_turned),
            depth = multiple_of_8(p.depth, (left && left_turned) || (right && !right_turned));
  for (const Range d : {Range{depth, p.depth}, Range{0, depth}}) {
    if (d.begin == d.end) continue;
    for (const Range r : {Range{0, rows}, Range{rows, p.rows}})
      for (const Range c : {Range{0, columns}, Range{columns, p.columns}})
        if (r.begin < r.end && c.begin < c.end)
          multiply_at_once(part(p, r, c, d), write, workspace);
    write = Write::add;
  }
}

void Blas::multiply_at_once(const Product& p, Write write, void* workspace) {
  // The scalars have cuBLAS's compute type: fp32 also for bf16 and fp16.
  const double one = 1, beta = write == Write::add ? 1 : 0;
  const float one_float = 1, beta_float = float(beta);
  const bool in_double = p.compute == CUBLAS_COMPUTE_64F;
  require_blas(cublas().set_workspace(handle_, workspace, size_t(kMatmulWorkspace)));
  require_blas(cublas().gemm(handle_, p.left.operation, p.right.operation, p.rows, p.columns,
                             p.depth, in_double ? static_cast<const void*>(&one) : &one_float,
                             p.left.data, p.type, p.left.leading, p.right.data, p.type,
                             p.right.leading,
                             in_double ? static_cast<const void*>(&beta) : &beta_float, p.out,
                             p.type, p.leading, p.compute, CUBLAS_GEMM_DEFAULT));
}

// The heuristic chooses among algorithms, which add in different orders. All ranks and stages must
// choose the same one, so what it is told depends on sizes and types only, not on addresses.
Blas::Plan& Blas::plan(const Product& p) {
  const auto [entry, is_new] = plans_.try_emplace(
      {int(p.left.operation), p.left.leading, int(p.right.operation), p.right.leading, p.rows,
       p.columns, p.depth, int(p.type), int(p.compute), p.leading});
  Plan& plan = entry->second;
  if (!is_new) return plan;
  require_blas(lt().create_operation(&plan.operation, p.compute, CUDA_R_32F));
  set(plan.operation, CUBLASLT_MATMUL_DESC_TRANSA, int32_t(p.left.operation));
  set(plan.operation, CUBLASLT_MATMUL_DESC_TRANSB, int32_t(p.right.operation));
  set(plan.operation, CUBLASLT_MATMUL_DESC_EPILOGUE, uint32_t(CUBLASLT_EPILOGUE_BIAS));
  // cublasLt.h: the heuristic does not read the bias, but takes its alignment from this address.
  set(plan.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
      reinterpret_cast<const void*>(uintptr_t(kAlignment)));
  plan.left = layout(p.type, p.rows, p.depth, p.left.leading, p.left.operation == CUBLAS_OP_T);
  plan.right =
      layout(p.type, p.depth, p.columns, p.right.leading, p.right.operation == CUBLAS_OP_T);
  plan.out = layout(p.type, p.rows, p.columns, p.leading);
  const cublasLtMatmulPreference_t preference = make_preference();
  cublasLtMatmulHeuristicResult_t best = {};
  int found = 0;
  const cublasStatus_t status = lt().choose(lt_handle(), plan.operation, plan.left, plan.right,
                                            plan.out, plan.out, preference, 1, &best, &found);
  lt().destroy_preference(preference);
  plan.works = status == CUBLAS_STATUS_SUCCESS && found == 1 && best.state == CUBLAS_STATUS_SUCCESS;
  plan.algorithm = best.algo;
  return plan;
}

bool Blas::multiply_with_bias(const Product& p, const void* bias, void* workspace) {
  if (p.type == CUDA_R_64F || !aligned({p.left.data, p.right.data, p.out, bias})) return false;
  Plan& plan = this->plan(p);
  if (!plan.works) return false;
  set(plan.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  const float one = 1, zero = 0;
  const cublasStatus_t status =
      lt().matmul(lt_handle(), plan.operation, &one, p.left.data, plan.left, p.right.data,
                  plan.right, &zero, p.out, plan.out, p.out, plan.out, &plan.algorithm, workspace,
                  size_t(kMatmulWorkspace), stream_);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) return plan.works = false;
  require_blas(status);
  return true;
}

std::shared_ptr<Blas> make_blas(CUstream_st* stream) { return std::make_shared<Blas>(stream); }

void CudaBackend::matmul(Factor a, Factor b, const Tensor& bias, const Tensor& out, Write write,
                         const Tensor& workspace) {
  const bool b_turned = b.transpose == Transpose::yes;
  const int64_t M = out.rows(), N = b_turned ? b.tensor.rows() : b.tensor.dim(-1),
                K = b_turned ? b.tensor.dim(-1) : b.tensor.rows(), row = out.dim(-1);
  if (M == 0 || N == 0) return;
  if (K == 0) {  // empty sums
    if (write == Write::set) fill(0, out);
    if (bias.defined()) add_bias(bias, out);
    return set_padding(N, out);
  }
  constexpr int64_t most = std::numeric_limits<int>::max();
  require(M <= most && row <= most && K <= most, "matmul: (", M, ", ", K, ")(", K, ", ", N,
          ") exceeds the sizes that cuBLAS can count");
  const bool tf32 = options_.tf32 && out.dtype() == Dtype::f32;
  // cuBLAS is column-major and sees our matrices transposed. So it computes out^T = b^T a^T.
  const Product product{.left = operand(b),
                        .right = operand(a),
                        .rows = int(N),
                        .columns = int(M),
                        .depth = int(K),
                        .type = blas_type(out.dtype()),
                        .compute = out.dtype() == Dtype::f64 ? CUBLAS_COMPUTE_64F
                                   : tf32                    ? CUBLAS_COMPUTE_32F_FAST_TF32
                                                             : CUBLAS_COMPUTE_32F,
                        .out = device_address(out.address()),
                        .leading = int(row)};
  void* const scratch = device_address(workspace.address());
  const bool fused = bias.defined() && write == Write::set &&
                     blas_->multiply_with_bias(product, device_address(bias.address()), scratch);
  if (!fused) {
    blas_->multiply(product, write, scratch);
    if (bias.defined()) add_bias(bias, out);
  }
  set_padding(N, out);
}

}  // namespace zl::ZEROLAB_CUDA
