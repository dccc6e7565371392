#include "tensor/kernels.h"

#include <array>
#include <initializer_list>

namespace zl::kernel {
namespace {

// Appends the event of one kernel: its floating-point operations, and the bytes of the tensors that
// it must read or write at least once. Returns the backend that runs it.
Backend& recorded(const char* what, const Tensor& out, int64_t operations,
                  std::initializer_list<const Tensor*> touched) {
  int64_t bytes = 0;
  for (const Tensor* t : touched) bytes += t->bytes();
  out.memory().append_kernel(what, bytes, operations);
  return out.backend();
}

template <class... Tensors>
void require_same(const char* what, const Tensor& a, const Tensors&... others) {
  for (const Tensor* b : {&others...})
    require(a.numel() == b->numel() && a.dtype() == b->dtype(), what, ": ", a, " does not match ",
            *b);
}

// `t`, which the message calls `which`, has n elements of this type.
void require_is(const char* what, const char* which, const Tensor& t, int64_t n, Dtype type) {
  require(t.numel() == n && t.dtype() == type, what, ": ", which, " must be ", n, " elements of ",
          name(type), ", not ", t);
}

// t: n statistics of the rows of a tensor of type `rows`.
void require_statistics(const char* what, const Tensor& t, int64_t n, Dtype rows) {
  require_is(what, "row statistics", t, n, compute_type(rows));
}

// The kernel's workspace, in the memory of `out`; undefined if it needs none.
Tensor workspace(KernelId kernel, const std::vector<int64_t>& dims, const Tensor& out) {
  const int64_t bytes = out.backend().workspace(kernel, dims, out.dtype());
  if (bytes == 0) return {};
  return Tensor::empty(out.memory(), MemoryUse::workspace, {(bytes + 3) / 4}, Dtype::f32);
}

void require_ids(const char* what, const Tensor& ids) {
  require(ids.dtype() == Dtype::i32, what, ": token ids must be i32, not ", name(ids.dtype()));
}

// B, T, H, D
std::array<int64_t, 4> attention_dims(const char* what, const AttentionSaved& s) {
  require(s.qkv.shape().size() == 3 && s.qkv.dim(2) % 3 == 0, what,
          ": qkv must be (B, T, 3C), not ", in_words(s.qkv.shape()));
  const int64_t B = s.qkv.dim(0), T = s.qkv.dim(1), C = s.qkv.dim(2) / 3;
  require(s.heads > 0 && C % s.heads == 0, what, ": ", C, " channels cannot be split into ",
          s.heads, " heads");
  require_is(what, "y", s.y, B * T * C, s.qkv.dtype());
  require_statistics(what, s.log_sum_exp, B * s.heads * T, s.qkv.dtype());
  return {B, T, s.heads, C / s.heads};
}

// `rows`: one of the table for each id.
void require_rows(const char* what, const Tensor& ids, const Tensor& table, const Tensor& rows) {
  require_ids(what, ids);
  require(
      rows.dim(-1) == table.dim(-1) && rows.rows() == ids.numel() && rows.dtype() == table.dtype(),
      what, ": rows ", in_words(rows.shape()), " do not fit ids ", in_words(ids.shape()),
      " and table ", in_words(table.shape()));
}

void require_positions(const char* what, const Tensor& x, const Tensor& table) {
  require(x.shape().size() == 3 && table.dim(-1) == x.dim(2) && table.rows() >= x.dim(1) &&
              x.dtype() == table.dtype(),
          what, ": ", in_words(x.shape()), " does not fit a table of positions ",
          in_words(table.shape()));
}

void require_loss(const char* what, const Tensor& logits, const Tensor& targets,
                  const Tensor& loss) {
  require_ids(what, targets);
  require(logits.rows() == targets.numel(), what, ": logits ", in_words(logits.shape()),
          " and targets ", in_words(targets.shape()), " have different rows");
  require_statistics(what, loss, 1, logits.dtype());
}

}  // namespace

void fill(double value, const Tensor& out) { recorded("fill", out, 0, {&out}).fill(value, out); }

void normal(const NormalStream& s, int64_t first, const Tensor& out) {
  if (s.deviation == 0) return fill(s.mean, out);
  recorded("normal", out, 0, {&out}).normal(s.seed, s.stream, first, s.mean, s.deviation, out);
}

void add(const Tensor& a, const Tensor& b, const Tensor& y) {
  require_same("add", a, b, y);
  recorded("add", y, y.numel(), {&a, &b, &y}).add(a, b, y);
}

// Operations per element: a cubic polynomial for tanh's argument, an exponential, a division.
constexpr int64_t kGeluOperations = 14;

void gelu(const Tensor& x, const Tensor& y) {
  require_same("gelu", x, y);
  recorded("gelu", y, kGeluOperations * x.numel(), {&x, &y}).gelu(x, y);
}

void gelu_backward(const Tensor& x, const Tensor& dy, const Tensor& dx, Write write) {
  require_same("gelu_backward", x, dy, dx);
  recorded("gelu_backward", dx, 2 * kGeluOperations * x.numel(), {&x, &dy, &dx})
      .gelu_backward(x, dy, dx, write);
}

void matmul(Factor fa, Factor fb, const Tensor& bias, const Tensor& out, Write write) {
  const auto& [a, ta] = fa;
  const auto& [b, tb] = fb;
  const bool a_turned = ta == Transpose::yes, b_turned = tb == Transpose::yes;
  const int64_t m = out.rows(), k = b_turned ? b.dim(-1) : b.rows(),
                n = b_turned ? b.rows() : b.dim(-1);
  const auto fits = [&out = out](int64_t stored, int64_t columns) {
    return stored == columns || stored == out.backend().padded_columns(columns);
  };
  require(
      a.rows() == (a_turned ? k : m) && fits(a.dim(-1), a_turned ? m : k) && fits(out.dim(-1), n),
      "matmul: (", a_turned ? a.dim(-1) : a.rows(), ", ", a_turned ? a.rows() : a.dim(-1), ")(", k,
      ", ", n, ") cannot give ", in_words(out.shape()));
  require(a.dtype() == b.dtype() && a.dtype() == out.dtype() && is_float(a.dtype()),
          "matmul: types ", name(a.dtype()), ", ", name(b.dtype()), " and ", name(out.dtype()),
          " must be one float type");
  require(!bias.defined() || write == Write::set, "matmul: a bias needs Write::set");
  if (bias.defined()) require_is("matmul", "the bias", bias, n, out.dtype());
  recorded("matmul", out, 2 * m * n * k, {&a, &b, &out})
      .matmul(fa, fb, bias, out, write, workspace(KernelId::matmul, {m, n, k}, out));
}

void sum_rows(const Tensor& x, const Tensor& out) {
  require_is("sum_rows", "out", out, x.dim(-1), x.dtype());
  recorded("sum_rows", out, x.numel(), {&x, &out})
      .sum_rows(x, out, workspace(KernelId::sum_rows, {x.rows(), x.dim(-1)}, out));
}

void layer_norm(const LayerNormSaved& s, const Tensor& bias, double eps, const Tensor& y) {
  const int64_t c = s.x.dim(-1);
  require_same("layer_norm", s.x, y);
  require_is("layer_norm", "the weight", s.weight, c, y.dtype());
  require_is("layer_norm", "the bias", bias, c, y.dtype());
  require_statistics("layer_norm", s.mean, s.x.rows(), y.dtype());
  require_statistics("layer_norm", s.rstd, s.x.rows(), y.dtype());
  recorded("layer_norm", y, 8 * y.numel(), {&s.x, &s.weight, &bias, &s.mean, &s.rstd, &y})
      .layer_norm(s, bias, eps, y);
}

void layer_norm_backward(const LayerNormSaved& s, const Tensor& dy, const LayerNormGradients& out) {
  require_same("layer_norm_backward", s.x, dy, out.dx);
  require_same("layer_norm_backward", s.weight, out.dweight, out.dbias);
  recorded("layer_norm_backward", out.dx, 14 * dy.numel(),
           {&s.x, &s.weight, &s.mean, &s.rstd, &dy, &out.dx, &out.dweight, &out.dbias})
      .layer_norm_backward(
          s, dy, out, workspace(KernelId::layer_norm_backward, {dy.rows(), dy.dim(-1)}, out.dx));
}

void attention(const AttentionSaved& s) {
  const auto [B, T, H, D] = attention_dims("attention", s);
  // Two matmuls (scores, weighted values) over the lower triangle, diagonal included; a
  // multiply-add counts as 2 operations.
  recorded("attention", s.y, 4 * B * H * D * (T * (T + 1) / 2), {&s.qkv, &s.y, &s.log_sum_exp})
      .attention(s, workspace(KernelId::attention, {B, T, H, D}, s.y));
}

void attention_backward(const AttentionSaved& s, const Tensor& dy, const Tensor& dqkv) {
  const auto [B, T, H, D] = attention_dims("attention_backward", s);
  require_same("attention_backward", s.y, dy);
  require_same("attention_backward", s.qkv, dqkv);
  recorded("attention_backward", dqkv, 10 * B * H * D * (T * (T + 1) / 2),
           {&s.qkv, &s.y, &s.log_sum_exp, &dy, &dqkv})
      .attention_backward(s, dy, dqkv, workspace(KernelId::attention_backward, {B, T, H, D}, dqkv));
}

void embedding(const Tensor& ids, const Tensor& table, const Tensor& y) {
  require_rows("embedding", ids, table, y);
  recorded("embedding", y, 0, {&ids, &y, &y}).embedding(ids, table, y);
}

void embedding_backward(const Tensor& ids, const Tensor& dy, const Tensor& dtable) {
  require_rows("embedding_backward", ids, dtable, dy);
  recorded("embedding_backward", dtable, dy.numel(), {&ids, &dy, &dy})
      .embedding_backward(
          ids, dy, dtable,
          workspace(KernelId::embedding_backward, {dy.rows(), dtable.rows(), dy.dim(-1)}, dtable));
}

void add_positions(const Tensor& x, const Tensor& table, const Tensor& y) {
  require_positions("add_positions", x, table);
  require_same("add_positions", x, y);
  recorded("add_positions", y, x.numel(), {&x, &y}).add_positions(x, table, y);
}

void add_positions_backward(const Tensor& dy, const Tensor& dtable) {
  require_positions("add_positions_backward", dy, dtable);
  recorded("add_positions_backward", dtable, dy.numel(), {&dy})
      .add_positions_backward(dy, dtable,
                              workspace(KernelId::add_positions_backward, dy.shape(), dtable));
}

void cross_entropy(const Tensor& logits, const Tensor& targets, const Tensor& loss) {
  require_loss("cross_entropy", logits, targets, loss);
  recorded("cross_entropy", loss, 4 * logits.numel(), {&logits, &targets, &loss})
      .cross_entropy(logits, targets, loss,
                     workspace(KernelId::cross_entropy, {logits.rows()}, logits));
}

void cross_entropy_backward(const Tensor& logits, const Tensor& targets, const Tensor& dloss,
                            const Tensor& dlogits) {
  require_loss("cross_entropy_backward", logits, targets, dloss);
  require_same("cross_entropy_backward", logits, dlogits);
  recorded("cross_entropy_backward", dlogits, 6 * logits.numel(), {&logits, &targets, &dlogits})
      .cross_entropy_backward(logits, targets, dloss, dlogits);
}

void update_parameters(const OptimizerUpdate& u) {
  const char* const what = name(u.config.kind);
  const bool adamw = u.config.kind == OptimizerKind::adamw;
  const int64_t n = u.parameter.numel();
  require(u.gradient.numel() == n, what, ": ", u.gradient.numel(), " gradients for ", n,
          " parameters");
  const auto require_state = [&](const char* which, const Tensor& state, bool needed) {
    require(state.defined() || !needed, what, " needs ", which);
    if (state.defined()) require_is(what, which, state, n, compute_type(u.parameter.dtype()));
  };
  require_state(adamw ? "exp_avg" : "the momentum buffer", u.moment,
                adamw || u.config.momentum != 0);
  require_state("exp_avg_sq", u.exp_avg_sq, adamw);
  require_state("the master copy", u.master, false);
  const Tensor &p = u.parameter, &g = u.gradient, &m = u.moment, &v = u.exp_avg_sq,
               &master = u.master.defined() ? u.master : p;
  Backend& backend = adamw ? recorded(what, p, 16 * n, {&p, &g, &m, &m, &v, &v, &master, &master})
                           : recorded(what, p, 6 * n, {&p, &p, &g});
  backend.update_parameters(u);
}

void sum_of_squares(const Tensor& x, const Tensor& out) { sums_of_squares({&x, 1}, out); }

void sums_of_squares(std::span<const Tensor> xs, const Tensor& out) {
  require_is("sums_of_squares", "out", out, int64_t(xs.size()), Dtype::f64);
  std::vector<int64_t> sizes;
  int64_t operations = 0, bytes = out.bytes();
  for (const Tensor& x : xs) {
    require(is_float(x.dtype()) && x.dtype() == xs[0].dtype() && &x.memory() == &out.memory(),
            "sums_of_squares: ", name(x.dtype()), " beside ", name(xs[0].dtype()),
            "; all tensors must have one float type and be in the memory of out");
    sizes.push_back(x.numel());
    operations += 2 * x.numel();
    bytes += x.bytes();
  }
  out.memory().append_kernel("sums_of_squares", bytes, operations);
  out.backend().sums_of_squares(xs, out, workspace(KernelId::sums_of_squares, sizes, out));
}

void squares_of_blocks(const Tensor& x, const Tensor& out) {
  const int64_t blocks = (x.numel() + kSquaresBlock - 1) / kSquaresBlock;
  require_is("squares_of_blocks", "out", out, blocks, Dtype::f64);
  recorded("squares_of_blocks", out, 2 * x.numel(), {&x, &out}).squares_of_blocks(x, out);
}

}  // namespace zl::kernel
