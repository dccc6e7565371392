// The kernels of one kind of device. The class Backend has every kernel in its textbook form, by
// plain loops and matrix products: the specification. A file of tensor/reference/ begins with the
// formulas and their source; the class below lists the files in reading order. tensor/cpu/ computes
// the same fast, tensor/cuda/ on a GPU, and the meta backend does nothing. The tests compare them.
// Optimizers, sums of squares, ordered sums, casts and embedding_backward have the same bits in all
// three. The others agree within the rounding of their sums.
//
// Only kernel::matmul and its siblings (tensor/kernels.h) call the kernels: they check shapes, take
// workspace from the Memory and append an event. In tensor/reference/ each call is followed by its
// kernel. A kernel never allocates, and does not repeat those checks. All tensors are contiguous.
// Outputs come last and are handles to memory that the caller owns.
#pragma once

#include <functional>
#include <future>
#include <memory>
#include <span>

#include "tensor/tensor.h"

namespace zl {

// Whether a kernel overwrites its output or adds to it. Backward adds to gradient buffers.
enum class Write { set, add };
enum class Transpose { no, yes };

// An operand of a matmul, and whether the matmul reads its transpose.
struct Factor {
  const Tensor& tensor;
  Transpose transpose = Transpose::no;
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
  sums_of_squares
};

// What the forward pass of attention keeps for backward.
struct AttentionSaved {
  Tensor qkv;          // (B, T, 3C): queries, keys, values; each consists of H heads of D channels
  Tensor y;            // (B, T, C)
  Tensor log_sum_exp;  // (B, H, T), compute type: log of each query's softmax denominator
  int64_t heads;
};

// References, as in Factor: what they name lives until the call has returned.
struct LayerNormSaved {
  const Tensor& x;            // (R, C)
  const Tensor& weight;       // (C)
  const Tensor &mean, &rstd;  // (R), compute type
};
struct LayerNormGradients {
  const Tensor& dx;  // (R, C)
  Write write_dx;
  const Tensor &dweight, &dbias;  // (C), added to
};

enum class OptimizerKind { adamw, sgd };
constexpr const char* name(OptimizerKind kind) {
  return kind == OptimizerKind::adamw ? "adamw" : "sgd";
}

struct OptimizerConfig {
  OptimizerKind kind = OptimizerKind::adamw;
  double lr = 1e-3;  // the rate of the constant schedule
  double weight_decay = 0;
  // AdamW, with the names and defaults of torch.optim.AdamW.
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  bool bias_correction = true;
  bool decoupled = true;  // DeepSpeed's adam_w_mode; false adds the decay to the gradient
  // SGD, as torch.optim.SGD.
  double momentum = 0, dampening = 0;
  bool nesterov = false;

  // The optimizer keeps an fp32 copy of the parameters and updates that; the parameters are its
  // rounding. It does so always if they are bf16 or f16. In fp32 it is an option that costs 4 more
  // bytes per parameter (20 instead of 16). Kernels read OptimizerUpdate::master instead.
  bool separate_master = false;
  // Parameters whose names match one of these globs (fnmatch's) do not decay.
  std::vector<std::string> no_weight_decay;
};

// One update of n elements.
// AdamW, as torch.optim.AdamW: Loshchilov & Hutter 2019 (arXiv:1711.05101), algorithm 2. Decay,
// moments, then p -= lr / (1 - beta1^step) * m / (sqrt(v / (1 - beta2^step)) + eps); without
// bias_correction both divisors in parentheses are 1.
// SGD, as torch.optim.SGD.
struct OptimizerUpdate {
  Tensor parameter;  // (n) any float type; written
  Tensor gradient;   // (n) any float type; read
  // (n) compute type of the parameter; undefined where the optimizer has none.
  Tensor moment;             // exp_avg of AdamW, the momentum buffer of SGD
  Tensor exp_avg_sq;         // of AdamW
  Tensor master;             // undefined: then the parameter itself is updated
  OptimizerConfig config{};  // with this update's lr and weight decay
  float gradient_scale = 1;  // gradients are multiplied by this first
  int64_t step = 1;          // of this optimizer; the first one writes SGD's buffer without reading
};

// Sums elements [begin, end) over the ranks' buffers, in the order of `buffers`, and writes the
// result into the same elements of each of `results`, which may be some of the buffers. Accumulates
// in fp32 (fp64 for f64, modulo 2^32 for i32), divides once for a mean, then rounds to the type.
struct OrderedSum {
  std::span<char*const> buffers, results;  // addresses of element 0
  int64_t begin = 0, end = 0;              // [n]
  Dtype dtype = Dtype::f32;
  bool mean = false;  // not for i32
  int64_t added = 0;  // the divisor of a mean; 0: the number of buffers
  // `unfinished`: results are sums in the accumulating type, neither divided nor rounded.
  // `continues`: buffers[0] holds such a sum. The calls together have the bits of one sum.
  bool continues = false, unfinished = false;
};

// The type in which an OrderedSum accumulates values of type T. Unsigned integers wrap around.
template <class T>
using OrderedSumType = std::conditional_t<std::is_same_v<T, int32_t>, uint32_t, Compute<T>>;
// The Dtype in which such a sum is stored.
constexpr Dtype ordered_sum_type(Dtype t) { return t == Dtype::i32 ? Dtype::i32 : compute_type(t); }

// A backend has two in-order streams: kernels run in `compute`, copies and sums between ranks in
// `communication`. On a GPU, streams run behind the host's calls. On the CPU all work is done when
// a call returns.
enum class Stream { compute, communication };

// An event recorded on a stream: it is done when all earlier work of the stream is done.
// It may outlive the backend that recorded it.
class StreamEvent {
 public:
  virtual ~StreamEvent() = default;
  // Never waits; any thread may ask. Throws std::runtime_error if the device's work failed.
  virtual bool done() const = 0;
};

// A class for another device overrides every kernel: those below take the addresses of tensors as
// addresses of the host, and refuse tensors that the host cannot read.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual const char* name() const { return "reference"; }
  virtual bool holds_data() const { return true; }        // false on meta
  virtual bool host_addressable() const { return true; }  // whether the host may read its memory

  // ---- tensor/reference/host_memory.cpp

  // [B] The size of the segments that Memory divides into blocks (tensor/block_pool.h). 0: each
  // block has its own segment, which is given back when the block is released.
  virtual int64_t segment() const { return 0; }
  // A segment from the system or from a GPU's driver, aligned to 64 bytes on the CPU, to 256 on a
  // GPU; null if there is no memory left. Called by Memory's pool only.
  virtual void* allocate(int64_t bytes);
  // Returns when work that was enqueued before and uses the segment has ended.
  virtual void release(void* segment, int64_t bytes) noexcept;
  // Makes every element of every type in the block NaN (tests).
  virtual void poison(void* block, int64_t bytes) noexcept;

  // [B] The workspace of a kernel for these dimensions, which are listed at each kernel below.
  virtual int64_t workspace(KernelId kernel, std::span<const int64_t> dims, Dtype dtype) const;

  // [n] The length of the stored rows of logits with n columns. A GPU's matrix units need rows that
  // begin at multiples of 16 bytes, and vocabularies have odd sizes. See matmul for the padding.
  virtual int64_t padded_columns(int64_t n) const { return n; }

  // ---- elementwise.cpp: what a storage type is

  virtual void fill(double value, const Tensor& out);
  // Element i is number first + i of the stream, times the deviation, plus the mean.
  virtual void normal(uint64_t seed, uint64_t stream, int64_t first, double mean, double deviation,
                      const Tensor& out);

  virtual void add(const Tensor& a, const Tensor& b, const Tensor& y);  // y may be a

  // ---- transfer.cpp

  // These two cast between float types.
  virtual void copy(const Tensor& from, const Tensor& to);
  virtual void accumulate(const Tensor& from, const Tensor& into);
  // As copy() without a cast, and it may be in flight: both tensors must stay as they are until
  // get() has returned, which throws what failed. The future's destructor returns when neither
  // tensor is used any more. The default copies at once.
  [[nodiscard]] virtual std::future<void> start_copy(const Tensor& from, const Tensor& to);
  // to.bytes() bytes of the host's memory, which may be reused when a call has returned.
  virtual void upload(const void* host, const Tensor& to);
  virtual void download(const Tensor& from, void* host);
  // As download(), after the earlier work of the compute stream, but without waiting for it. The
  // returned function waits and returns the elements, which are valid as long as the function is.
  virtual std::function<const void*()> start_download(const Tensor& from);
  // How often the host has waited for the device: download, large upload, synchronize().
  virtual int64_t host_waits() const { return 0; }

  // ---- gelu.cpp

  // The tanh form. All tensors have one type and size.
  virtual void gelu(const Tensor& x, const Tensor& y);
  // dx may be dy if it is set.
  virtual void gelu_backward(const Tensor& x, const Tensor& dy, const Tensor& dx, Write);

  // ---- matmul.cpp, with product.h

  // dims: M, N, K of (M, K)(K, N) -> (M, N). The bias (N) is added to every row; it may be
  // undefined, and is with Write::add. The rows of out, and of a, may be as long as padded_columns
  // says: the padding of out becomes -infinity, which a softmax ignores; that of a is not read.
  virtual void matmul(Factor a, Factor b, const Tensor& bias, const Tensor& out, Write,
                      const Tensor& workspace);
  // (M, N) -> (N), added to out. dims: M, N
  virtual void sum_rows(const Tensor& x, const Tensor& out, const Tensor& workspace);

  // ---- layer_norm.cpp

  // x, weight and bias give y; mean and rstd are written too.
  virtual void layer_norm(const LayerNormSaved& saved, const Tensor& bias, double eps,
                          const Tensor& y);
  // dims: R, C
  virtual void layer_norm_backward(const LayerNormSaved&, const Tensor& dy,
                                   const LayerNormGradients&, const Tensor& workspace);

  // ---- attention.cpp

  // Causal attention of each head: qkv gives y; log_sum_exp is written too. dims: B, T, H, D
  virtual void attention(const AttentionSaved&, const Tensor& workspace);
  // dqkv is overwritten. dims: B, T, H, D
  virtual void attention_backward(const AttentionSaved&, const Tensor& dy, const Tensor& dqkv,
                                  const Tensor& workspace);

  // ---- embedding.cpp

  // ids (R), table (V, C), y (R, C)
  virtual void embedding(const Tensor& ids, const Tensor& table, const Tensor& y);
  // A token's rows of dy are summed in order; dtable gets the sum once. dims: R, V, C
  virtual void embedding_backward(const Tensor& ids, const Tensor& dy, const Tensor& dtable,
                                  const Tensor& workspace);
  // x (B, T, C), table (at least T, C)
  virtual void add_positions(const Tensor& x, const Tensor& table, const Tensor& y);
  // dtable is added to. dims: B, T, C
  virtual void add_positions_backward(const Tensor& dy, const Tensor& dtable,
                                      const Tensor& workspace);

  // ---- cross_entropy.cpp

  // loss = the mean over rows. logits (R, V), targets (R), loss (1) compute type. dims: R
  virtual void cross_entropy(const Tensor& logits, const Tensor& targets, const Tensor& loss,
                             const Tensor& workspace);
  // dlogits = dloss / R * (softmax(logits) - onehot(targets)); dlogits may be the logits.
  virtual void cross_entropy_backward(const Tensor& logits, const Tensor& targets,
                                      const Tensor& dloss, const Tensor& dlogits);

  // ---- optimizer.cpp, with tensor/optimizer_math.h

  // In place. An element's new value depends on that element alone.
  virtual void update_parameters(const OptimizerUpdate&);

  // ---- sums.cpp: sums whose order is part of the contract

  // out[i] (f64) = the sum of squares of xs[i], in fp64, in one fixed order: blocks of 1,024 from
  // the start, each in lanes; lanes and blocks are added pairwise. All xs have one type.
  // dims: the elements of each
  virtual void sums_of_squares(std::span<const Tensor> xs, const Tensor& out,
                               const Tensor& workspace);
  // The same sum of each block: x (n), out (ceil(n / 1024)) f64.
  virtual void squares_of_blocks(const Tensor& x, const Tensor& out);

  // Between ranks that are threads (dist/threads/thread_communicator.cpp), in the communication
  // stream. The buffers may belong to any rank.
  virtual void ordered_sum(const OrderedSum& sum);
  // Between the memories of any two ranks of one kind of device.
  virtual void move_bytes(const void* from, void* to, int64_t bytes);

  // Order between streams, also those of different backends. A null event is done already.
  virtual std::shared_ptr<const StreamEvent> record_event(Stream) { return nullptr; }
  // Later work of the stream begins after the event.
  virtual void wait_event(Stream, const StreamEvent*) {}
  virtual void synchronize() {}  // returns when both streams have finished their work
  bool event_done(const StreamEvent* event) const { return !event || event->done(); }
  // For a thread that is not the rank's, before it asks whether events are done: makes this
  // backend's GPU the thread's. Without it CUDA would open GPU 0 as well, and take its memory.
  virtual void select_for_this_thread() {}
  // The stream as a cudaStream_t, for NCCL; null on the CPU. Lives as long as the backend.
  virtual void* native_stream(Stream) { return nullptr; }
  // Calls `work`, which enqueues on `stream`, and does not wait for the GPU. The returned function
  // waits for the work and returns the time [s] that the stream took, by the device's own clock.
  virtual std::function<double()> timing(Stream stream, const std::function<void()>& work);
  // The same of the compute stream. Returns when the work is done.
  double seconds(const std::function<void()>& work) { return timing(Stream::compute, work)(); }
};

Backend& reference_backend();  // stateless; never destroyed
Backend& cpu_backend();
// Holds no data and computes nothing. Answers workspace queries as the given kind of device, which
// this machine need not have. Never destroyed.
Backend& meta_backend(DeviceKind stands_for = DeviceKind::cpu);
Backend& meta_reference_backend();  // likewise, as tensor/reference

}  // namespace zl
