// The kernels of one kind of device. cpu/ is the plain reference, cuda/ must agree with it, meta
// does nothing.
//
// Nobody but tensor/kernels.cpp calls these: kernel::matmul and its siblings check shapes, provide
// workspace from the Memory and append an event. A kernel never allocates and never checks what was
// checked there. All tensors are contiguous; outputs come last and are handles to memory that the
// caller owns.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "tensor/tensor.h"

namespace zl {

// Whether a kernel overwrites its output or adds to it. Gradient buffers are added to.
enum class Write { set, add };
enum class Transpose { no, yes };

// A factor of a product: stored as it is read, or transposed.
struct Factor {
  const Tensor& tensor;
  Transpose transpose;
};

// Kernels that may need workspace.
enum class KernelId {
  matmul,
  attention,
  attention_backward,
  layer_norm_backward,
  sum_rows,
  embedding_backward,
  add_positions_backward,
  cross_entropy,
  sum_of_squares
};

// What an attention pass saved. qkv (B, T, 3C): queries, keys, values side by side, each head by
// head.
struct AttentionSaved {
  Tensor qkv;          // (B, T, 3C)
  Tensor y;            // (B, T, C)
  Tensor log_sum_exp;  // (B, H, T), f32 (f64 for f64): log of each query's softmax denominator
  int64_t heads;
};

struct LayerNormSaved {
  Tensor x;           // (R, C)
  Tensor weight;      // (C)
  Tensor mean, rstd;  // (R), f32 (f64 for f64)
};
struct LayerNormGradients {
  Tensor dx;  // (R, C)
  Write write_dx;
  Tensor dweight, dbias;  // (C), added to
};

// One AdamW update of n elements. Loshchilov & Hutter 2019 (arXiv:1711.05101), algorithm 2; the
// arithmetic of torch.optim.AdamW: decay, moments, then p -= step_size * m / (sqrt(v) /
// sqrt_correction2 + eps).
struct AdamWUpdate {
  Tensor parameter;                    // (n) f32, bf16, f16 or f64; written
  Tensor gradient;                     // (n) any float type; read
  Tensor first_moment, second_moment;  // (n) f32 (f64 if the parameter is f64)
  Tensor master;             // (n) f32, or undefined: then the parameter is its own master
  float gradient_scale = 1;  // gradients are multiplied by this first
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
  double correction1 = 1, correction2 = 1;  // 1 - beta^t; 1 switches bias correction off
  bool decoupled = true;  // false: weight decay is added to the gradient (Adam with L2)
};

// One SGD update of n elements, as torch.optim.SGD.
struct SgdUpdate {
  Tensor parameter, gradient;
  Tensor momentum_buffer;  // (n) f32, or undefined when momentum is 0
  Tensor master;
  float gradient_scale = 1;
  double lr = 1e-3, momentum = 0, dampening = 0, weight_decay = 0;
  bool nesterov = false, first_step = false;  // the first step copies the gradient into the buffer
};

// Adds the ranks' elements [begin, end) in the order of `buffers` and writes the result into the
// same elements of each of `results`, which may be some of the buffers. Adds in fp32 (fp64 for f64,
// modulo 2^32 for i32); a mean is divided once, after adding; then rounded to the type.
struct OrderedSum {
  std::span<char*const> buffers, results;  // addresses of element 0
  int64_t begin = 0, end = 0;              // [n]
  Dtype dtype = Dtype::f32;
  bool mean = false;  // not for i32
  int64_t added = 0;  // how many values a mean is of; 0: as many as there are buffers
};

// What a backend is told it does in order, in one of two lanes: kernels in the first, moves between
// ranks in the second. On a GPU a lane is a stream, and may lag behind the calls. On the CPU
// everything is done when a call returns.
enum class Stream { compute, communication };

// A place in a lane: behind all that it had been told by then.
class StreamEvent {
 public:
  virtual ~StreamEvent() = default;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual const char* name() const = 0;
  virtual bool holds_data() const { return true; }        // false on meta
  virtual bool host_addressable() const { return true; }  // whether the host may read its memory

  // A block aligned to 64 bytes, or null if there is none left. Called by Memory only.
  virtual void* allocate(int64_t bytes) = 0;
  virtual void release(void* block, int64_t bytes) noexcept = 0;
  // Whether it keeps released blocks itself, so that Memory need not.
  virtual bool keeps_blocks() const { return false; }
  virtual int64_t driver_calls() const {
    return 0;
  }  // how often it took memory from a GPU's driver or gave some back
  // Makes every element of every type in the block NaN (tests).
  virtual void poison(void* block, int64_t bytes) noexcept = 0;

  // Bytes of workspace that a kernel wants for these dimensions, in the order of its comment below.
  virtual int64_t workspace(KernelId kernel, std::span<const int64_t> dims, Dtype dtype) const = 0;

  // Moving data. copy casts between float types.
  virtual void fill(double value, const Tensor& out) = 0;
  virtual void copy(const Tensor& from, const Tensor& to) = 0;
  virtual void upload(const void* host, const Tensor& to) = 0;  // to.bytes() bytes
  virtual void download(const Tensor& from, void* host) = 0;
  virtual void normal(uint64_t seed, uint64_t stream, int64_t first, double mean, double deviation,
                      const Tensor& out) = 0;

  // Elementwise.
  virtual void add(const Tensor& a, const Tensor& b, const Tensor& y) = 0;  // y may be a
  virtual void accumulate(const Tensor& from, const Tensor& into) = 0;  // casts if the types differ
  virtual void gelu(const Tensor& x, const Tensor& y) = 0;
  virtual void gelu_backward(const Tensor& x, const Tensor& dy, const Tensor& dx,
                             Write) = 0;  // dx may be dy if set

  // Matrices. dims: M, N, K of (M, K)(K, N) -> (M, N).
  // bias (N) is added to every row; undefined: none, as always where it adds to out.
  virtual void matmul(Factor a, Factor b, const Tensor& bias, const Tensor& out, Write,
                      const Tensor& workspace) = 0;
  virtual void sum_rows(const Tensor& x, const Tensor& out,
                        const Tensor& workspace) = 0;  // (M, N), (N) added to. dims: M, N

  // Layers.
  virtual void layer_norm(const LayerNormSaved& saved, const Tensor& bias, double eps,
                          const Tensor& y) = 0;
  virtual void layer_norm_backward(const LayerNormSaved&, const Tensor& dy,
                                   const LayerNormGradients&,
                                   const Tensor& workspace) = 0;               // dims: R, C
  virtual void attention(const AttentionSaved&, const Tensor& workspace) = 0;  // dims: B, T, H, D
  virtual void attention_backward(const AttentionSaved&, const Tensor& dy, const Tensor& dqkv,
                                  const Tensor& workspace) = 0;  // as above
  virtual void embedding(const Tensor& ids, const Tensor& table,
                         const Tensor& y) = 0;  // (R), (V, C), (R, C)
  virtual void embedding_backward(const Tensor& ids, const Tensor& dy, const Tensor& dtable,
                                  const Tensor& workspace) = 0;  // added. dims: R, V, C
  virtual void add_positions(const Tensor& x, const Tensor& table,
                             const Tensor& y) = 0;  // (B, T, C), (>=T, C)
  virtual void add_positions_backward(const Tensor& dy, const Tensor& dtable,
                                      const Tensor& workspace) = 0;  // added. dims: B, T, C
  // loss = the mean over rows. (R, V), (R), (1) f32. dims: R
  virtual void cross_entropy(const Tensor& logits, const Tensor& targets, const Tensor& loss,
                             const Tensor& workspace) = 0;
  // dlogits = dloss / R * (softmax(logits) - onehot(targets)); dlogits may be the logits.
  virtual void cross_entropy_backward(const Tensor& logits, const Tensor& targets,
                                      const Tensor& dloss, const Tensor& dlogits) = 0;

  // Optimizer.
  virtual void adamw(const AdamWUpdate&) = 0;
  virtual void sgd(const SgdUpdate&) = 0;
  // Sum of squares in fp64 by one fixed order: blocks of 1,024 from the start, lanes and blocks
  // pairwise.
  virtual void sum_of_squares(const Tensor& x, const Tensor& out,
                              const Tensor& workspace) = 0;  // (n), (1) f64. dims: n

  // Among ranks that are threads: for dist/threads/thread_communicator.cpp, in the communication
  // lane. The buffers may be any rank's.
  virtual void ordered_sum(const OrderedSum& sum) = 0;
  virtual void move_bytes(const void* from, void* to, int64_t bytes) = 0;

  // Order between lanes, also of different backends. Null stands for a point that was passed
  // already.
  virtual std::shared_ptr<const StreamEvent> record_event(Stream) { return nullptr; }
  virtual void wait_event(Stream, const StreamEvent*) {
  }                              // what the lane is told from now on happens behind that point
  virtual void synchronize() {}  // returns when both lanes have done all they were told
  // Whether all that stood before the point is done; never waits. Throws std::runtime_error if the
  // device's work failed.
  virtual bool event_done(const StreamEvent*) { return true; }
  // The lane as its device's own interface knows it (a cudaStream_t), for NCCL; null on the CPU.
  // Lives as long as the backend.
  virtual void* native_stream(Stream) { return nullptr; }
  // Seconds that the compute lane takes for what `work` tells it, by the device's own clock;
  // returns when it is done.
  virtual double seconds(const std::function<void()>& work);
};

Backend& cpu_backend();
// Holds no data and computes nothing; answers workspace questions for the kind of device that it
// stands for, which need not be here. Never destroyed.
Backend& meta_backend(DeviceKind stands_for = DeviceKind::cpu);

}  // namespace zl
