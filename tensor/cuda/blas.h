// Products by cuBLAS (matmul.cu), and with a bias by cuBLASLt (matmul_bias.cu). Only .cu files of
// this folder include it.
#pragma once

#include <cublasLt.h>
#include <cublas_v2.h>

#include <array>
#include <map>

#include "tensor/cuda/launch.h"
#include "tensor/platform/shared_library.h"

#ifdef ZEROLAB_CUDA_ON_CPU
#define ZL_BLAS(name) name
#else
#define ZL_BLAS(name) file.function(ZL_TEXT(name))
#define ZL_TEXT(name) #name  // after expansion: cublasCreate is a macro for cublasCreate_v2
#endif

namespace zl::ZEROLAB_CUDA {

// Throws std::runtime_error with cuBLAS's message if `status` is an error.
void require_blas(cublasStatus_t status, const char* what);

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

// Products to which cuBLASLt adds a bias before it rounds them.
//
// Its heuristic chooses among algorithms, which add in different orders. Ranks and stages must
// choose the same one, so what it is told depends on sizes and types only, not on addresses.
class BiasProducts {
 public:
  explicit BiasProducts(cublasHandle_t blas) : blas_(blas) {}
  ~BiasProducts();
  BiasProducts(const BiasProducts&) = delete;
  BiasProducts& operator=(const BiasProducts&) = delete;

  // out = the product + bias (rows) in each column. `workspace` has kMatmulWorkspace bytes. False:
  // cuBLASLt cannot do it for these sizes or this type, and nothing was enqueued.
  bool enqueue(const Product& product, const void* bias, void* workspace, CUstream_st* stream);

 private:
  struct Plan {  // for products of one kind
    cublasLtMatmulDesc_t operation = nullptr;
    cublasLtMatrixLayout_t left = nullptr, right = nullptr, out = nullptr;
    cublasLtMatmulAlgo_t algorithm = {};
    bool works = false;
  };
  using Kind = std::array<int, 10>;  // all of a Product but addresses
  Plan& plan(const Product& product);

  cublasHandle_t blas_;
  std::map<Kind, Plan> plans_;
};

}  // namespace zl::ZEROLAB_CUDA
