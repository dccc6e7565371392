#include "tensor/kernels.h"

#include <initializer_list>

namespace zl::kernel {
namespace {

// Appends the event of one kernel: its floating-point operations and the bytes that it must touch
// at least once.
void record(const char* what, const Tensor& where, int64_t operations,
            std::initializer_list<const Tensor*> touched) {
  int64_t bytes = 0;
  for (const Tensor* t : touched) bytes += t->bytes();
  where.memory().events().append(EventKind::kernel, what, bytes, operations);
}

void require_same(const char* what, const Tensor& a, const Tensor& b) {
  require(a.numel() == b.numel() && a.dtype() == b.dtype(), what, ": ", to_string(a.shape()), " ",
          name(a.dtype()), " does not match ", to_string(b.shape()), " ", name(b.dtype()));
}

// The type of row statistics: fp32, or fp64 beside fp64.
Dtype statistics(Dtype t) { return t == Dtype::f64 ? Dtype::f64 : Dtype::f32; }

void require_statistics(const char* what, const Tensor& t, int64_t n, Dtype beside) {
  require(t.numel() == n && t.dtype() == statistics(beside), what, ": row statistics must be ", n,
          " elements of ", name(statistics(beside)), ", not ", to_string(t.shape()), " ",
          name(t.dtype()));
}

int64_t rows(const Tensor& t) { return t.dim(-1) ? t.numel() / t.dim(-1) : 0; }

Tensor workspace(KernelId kernel, std::initializer_list<int64_t> dims, const Tensor& beside) {
  const int64_t bytes =
      beside.backend().workspace(kernel, {dims.begin(), dims.size()}, beside.dtype());
  if (bytes == 0) return {};
  return Tensor::empty(beside.memory(), MemoryUse::workspace, {(bytes + 3) / 4}, Dtype::f32);
}

void require_ids(const char* what, const Tensor& ids) {
  require(ids.dtype() == Dtype::i32, what, ": token ids must be i32, not ", name(ids.dtype()));
}

}  // namespace

void fill(double value, const Tensor& out) {
  record("fill", out, 0, {&out});
  out.backend().fill(value, out);
}

void copy(const Tensor& from, const Tensor& to) {
  require(from.numel() == to.numel(), "copy: ", to_string(from.shape()), " does not fit into ",
          to_string(to.shape()));
  require(from.dtype() == to.dtype() || (is_float(from.dtype()) && is_float(to.dtype())),
          "copy: cannot cast ", name(from.dtype()), " to ", name(to.dtype()));
  const bool moves = &from.memory() != &to.memory();
  if (from.dtype() != to.dtype() &&
      &from.backend() !=
          &to.backend()) {  // between a GPU and the host it comes over first, as it is
    const Tensor here =
        Tensor::empty(to.memory(), MemoryUse::workspace, from.shape(), from.dtype());
    copy(from, here);
    return copy(here, to);
  }
  record(moves ? "transfer" : "copy", to, 0, {&from, &to});
  // Between a GPU and the host, the GPU's backend knows both sides.
  (from.backend().host_addressable() ? to.backend() : from.backend()).copy(from, to);
}

void normal(const NormalStream& s, int64_t first, const Tensor& out) {
  record("normal", out, 0, {&out});
  out.backend().normal(s.seed, s.stream, first, s.mean, s.deviation, out);
}

void add(const Tensor& a, const Tensor& b, const Tensor& y) {
  require_same("add", a, b);
  require_same("add", a, y);
  record("add", y, y.numel(), {&a, &b, &y});
  y.backend().add(a, b, y);
}

void accumulate(const Tensor& from, const Tensor& into) {
  require(from.numel() == into.numel() && is_float(from.dtype()) && is_float(into.dtype()),
          "accumulate: ", to_string(from.shape()), " ", name(from.dtype()), " cannot be added to ",
          to_string(into.shape()), " ", name(into.dtype()));
  if (&from.memory() != &into.memory()) {  // it comes over first, as it is
    const Tensor here =
        Tensor::empty(into.memory(), MemoryUse::workspace, from.shape(), from.dtype());
    copy(from, here);
    return accumulate(here, into);
  }
  record("accumulate", into, into.numel(), {&from, &into});
  into.backend().accumulate(from, into);
}

// Operations per element: two products and a cubic for the argument, an exponential and a division
// for tanh.
constexpr int64_t kGeluOperations = 14;

void gelu(const Tensor& x, const Tensor& y) {
  require_same("gelu", x, y);
  record("gelu", y, kGeluOperations * x.numel(), {&x, &y});
  y.backend().gelu(x, y);
}

void gelu_backward(const Tensor& x, const Tensor& dy, const Tensor& dx, Write write) {
  require_same("gelu_backward", x, dy);
  require_same("gelu_backward", x, dx);
  record("gelu_backward", dx, 2 * kGeluOperations * x.numel(), {&x, &dy, &dx});
  dx.backend().gelu_backward(x, dy, dx, write);
}

namespace {
void product(Factor fa, Factor fb, const Tensor& bias, const Tensor& out, Write write) {
  const auto& [a, ta] = fa;
  const auto& [b, tb] = fb;
  const int64_t m = ta == Transpose::no ? rows(a) : a.dim(-1),
                k = ta == Transpose::no ? a.dim(-1) : rows(a);
  const int64_t n = tb == Transpose::no ? b.dim(-1) : rows(b),
                kb = tb == Transpose::no ? rows(b) : b.dim(-1);
  require(k == kb && rows(out) == m && out.dim(-1) == n, "matmul: (", m, ", ", k, ")(", kb, ", ", n,
          ") cannot give ", to_string(out.shape()));
  require(a.dtype() == b.dtype() && a.dtype() == out.dtype() && is_float(a.dtype()),
          "matmul: types ", name(a.dtype()), ", ", name(b.dtype()), " and ", name(out.dtype()),
          " must be one float type");
  record("matmul", out, 2 * m * n * k, {&a, &b, &out});
  out.backend().matmul(fa, fb, bias, out, write, workspace(KernelId::matmul, {m, n, k}, out));
}
}  // namespace

void matmul(const Tensor& a, Transpose ta, const Tensor& b, Transpose tb, const Tensor& out,
            Write write) {
  product({a, ta}, {b, tb}, {}, out, write);
}

void matmul_bias(const Tensor& a, const Tensor& b, Transpose tb, const Tensor& bias,
                 const Tensor& out) {
  require(bias.numel() == out.dim(-1) && bias.dtype() == out.dtype(), "matmul_bias: a bias of ",
          to_string(bias.shape()), " ", name(bias.dtype()), " does not fit rows of ",
          to_string(out.shape()), " ", name(out.dtype()));
  product({a, Transpose::no}, {b, tb}, bias, out, Write::set);
}

void sum_rows(const Tensor& x, const Tensor& out) {
  require(out.numel() == x.dim(-1) && out.dtype() == x.dtype(), "sum_rows: rows of ",
          to_string(x.shape()), " ", name(x.dtype()), " do not fit into ", to_string(out.shape()),
          " ", name(out.dtype()));
  record("sum_rows", out, x.numel(), {&x, &out});
  out.backend().sum_rows(x, out, workspace(KernelId::sum_rows, {rows(x), x.dim(-1)}, out));
}

void layer_norm(const LayerNormSaved& s, const Tensor& bias, double eps, const Tensor& y) {
  const int64_t c = s.x.dim(-1);
  require_same("layer_norm", s.x, y);
  require(s.weight.numel() == c && bias.numel() == c && s.weight.dtype() == y.dtype() &&
              bias.dtype() == y.dtype(),
          "layer_norm: weight ", to_string(s.weight.shape()), " and bias ", to_string(bias.shape()),
          " must be (", c, ") of ", name(y.dtype()));
  require_statistics("layer_norm", s.mean, rows(s.x), y.dtype());
  require_statistics("layer_norm", s.rstd, rows(s.x), y.dtype());
  record("layer_norm", y, 8 * y.numel(), {&s.x, &s.weight, &bias, &s.mean, &s.rstd, &y});
  y.backend().layer_norm(s, bias, eps, y);
}

void layer_norm_backward(const LayerNormSaved& s, const Tensor& dy, const LayerNormGradients& out) {
  require_same("layer_norm_backward", s.x, dy);
  require_same("layer_norm_backward", s.x, out.dx);
  require_same("layer_norm_backward", s.weight, out.dweight);
  require_same("layer_norm_backward", s.weight, out.dbias);
  record("layer_norm_backward", out.dx, 14 * dy.numel(),
         {&s.x, &s.weight, &s.mean, &s.rstd, &dy, &out.dx, &out.dweight, &out.dbias});
  out.dx.backend().layer_norm_backward(
      s, dy, out, workspace(KernelId::layer_norm_backward, {rows(dy), dy.dim(-1)}, out.dx));
}

namespace {
struct AttentionDims {
  int64_t B, T, H, D;
};

AttentionDims attention_dims(const char* what, const AttentionSaved& s) {
  require(s.qkv.shape().size() == 3 && s.qkv.dim(2) % 3 == 0, what,
          ": qkv must be (B, T, 3C), not ", to_string(s.qkv.shape()));
  const int64_t B = s.qkv.dim(0), T = s.qkv.dim(1), C = s.qkv.dim(2) / 3;
  require(s.heads > 0 && C % s.heads == 0, what, ": ", C, " channels cannot be split into ",
          s.heads, " heads");
  require(s.y.numel() == B * T * C && s.y.dtype() == s.qkv.dtype(), what, ": y must be (", B, ", ",
          T, ", ", C, "), not ", to_string(s.y.shape()));
  require_statistics(what, s.log_sum_exp, B * s.heads * T, s.qkv.dtype());
  return {B, T, s.heads, C / s.heads};
}
}  // namespace

void attention(const AttentionSaved& s) {
  const auto [B, T, H, D] = attention_dims("attention", s);
  // Scores and weighted values over the lower triangle, diagonal included: 2 products of 2
  // operations each.
  record("attention", s.y, 4 * B * H * D * (T * (T + 1) / 2), {&s.qkv, &s.y, &s.log_sum_exp});
  s.y.backend().attention(s, workspace(KernelId::attention, {B, T, H, D}, s.y));
}

void attention_backward(const AttentionSaved& s, const Tensor& dy, const Tensor& dqkv) {
  const auto [B, T, H, D] = attention_dims("attention_backward", s);
  require_same("attention_backward", s.y, dy);
  require_same("attention_backward", s.qkv, dqkv);
  record("attention_backward", dqkv, 10 * B * H * D * (T * (T + 1) / 2),
         {&s.qkv, &s.y, &s.log_sum_exp, &dy, &dqkv});
  dqkv.backend().attention_backward(s, dy, dqkv,
                                    workspace(KernelId::attention_backward, {B, T, H, D}, dqkv));
}

void embedding(const Tensor& ids, const Tensor& table, const Tensor& y) {
  require_ids("embedding", ids);
  require(y.dim(-1) == table.dim(-1) && rows(y) == ids.numel() && y.dtype() == table.dtype(),
          "embedding: ids ", to_string(ids.shape()), " and table ", to_string(table.shape()),
          " cannot give ", to_string(y.shape()));
  record("embedding", y, 0, {&ids, &y, &y});
  y.backend().embedding(ids, table, y);
}

void embedding_backward(const Tensor& ids, const Tensor& dy, const Tensor& dtable) {
  require_ids("embedding_backward", ids);
  require(dy.dim(-1) == dtable.dim(-1) && rows(dy) == ids.numel() && dy.dtype() == dtable.dtype(),
          "embedding_backward: dy ", to_string(dy.shape()), " does not fit ids ",
          to_string(ids.shape()), " and table ", to_string(dtable.shape()));
  record("embedding_backward", dtable, dy.numel(), {&ids, &dy, &dy});
  dtable.backend().embedding_backward(
      ids, dy, dtable,
      workspace(KernelId::embedding_backward, {rows(dy), rows(dtable), dy.dim(-1)}, dtable));
}

namespace {
void require_positions(const char* what, const Tensor& x, const Tensor& table) {
  require(x.shape().size() == 3 && table.dim(-1) == x.dim(2) && rows(table) >= x.dim(1) &&
              x.dtype() == table.dtype(),
          what, ": ", to_string(x.shape()), " does not fit a table of positions ",
          to_string(table.shape()));
}
}  // namespace

void add_positions(const Tensor& x, const Tensor& table, const Tensor& y) {
  require_positions("add_positions", x, table);
  require_same("add_positions", x, y);
  record("add_positions", y, x.numel(), {&x, &y});
  y.backend().add_positions(x, table, y);
}

void add_positions_backward(const Tensor& dy, const Tensor& dtable) {
  require_positions("add_positions_backward", dy, dtable);
  record("add_positions_backward", dtable, dy.numel(), {&dy});
  dtable.backend().add_positions_backward(
      dy, dtable,
      workspace(KernelId::add_positions_backward, {dy.dim(0), dy.dim(1), dy.dim(2)}, dtable));
}

namespace {
void require_loss(const char* what, const Tensor& logits, const Tensor& targets,
                  const Tensor& loss) {
  require_ids(what, targets);
  require(rows(logits) == targets.numel(), what, ": logits ", to_string(logits.shape()),
          " and targets ", to_string(targets.shape()), " have different rows");
  require_statistics(what, loss, 1, logits.dtype());
}
}  // namespace

void cross_entropy(const Tensor& logits, const Tensor& targets, const Tensor& loss) {
  require_loss("cross_entropy", logits, targets, loss);
  record("cross_entropy", loss, 4 * logits.numel(), {&logits, &targets, &loss});
  loss.backend().cross_entropy(logits, targets, loss,
                               workspace(KernelId::cross_entropy, {rows(logits)}, logits));
}

void cross_entropy_backward(const Tensor& logits, const Tensor& targets, const Tensor& dloss,
                            const Tensor& dlogits) {
  require_loss("cross_entropy_backward", logits, targets, dloss);
  require_same("cross_entropy_backward", logits, dlogits);
  record("cross_entropy_backward", dlogits, 6 * logits.numel(), {&logits, &targets, &dlogits});
  dlogits.backend().cross_entropy_backward(logits, targets, dloss, dlogits);
}

namespace {
void require_state(const char* what, const Tensor& state, const char* which,
                   const Tensor& parameter) {
  require(!state.defined() || (state.numel() == parameter.numel() &&
                               state.dtype() == statistics(parameter.dtype())),
          what, ": ", which, " holds ", state.numel(), " elements for ", parameter.numel(),
          " parameters");
}
}  // namespace

void adamw(const AdamWUpdate& u) {
  require(u.gradient.numel() == u.parameter.numel(), "adamw: ", u.gradient.numel(),
          " gradients for ", u.parameter.numel(), " parameters");
  require(u.first_moment.defined() && u.second_moment.defined(), "adamw: both moments must exist");
  require_state("adamw", u.first_moment, "the first moment", u.parameter);
  require_state("adamw", u.second_moment, "the second moment", u.parameter);
  require_state("adamw", u.master, "the master copy", u.parameter);
  const Tensor& master = u.master.defined() ? u.master : u.parameter;
  record("adamw", u.parameter, 16 * u.parameter.numel(),
         {&u.parameter, &u.gradient, &u.first_moment, &u.first_moment, &u.second_moment,
          &u.second_moment, &master, &master});
  u.parameter.backend().adamw(u);
}

void sgd(const SgdUpdate& u) {
  require(u.gradient.numel() == u.parameter.numel(), "sgd: ", u.gradient.numel(), " gradients for ",
          u.parameter.numel(), " parameters");
  require(u.momentum == 0 || u.momentum_buffer.defined(), "sgd: momentum ", u.momentum,
          " needs a momentum buffer");
  require_state("sgd", u.momentum_buffer, "the momentum buffer", u.parameter);
  require_state("sgd", u.master, "the master copy", u.parameter);
  record("sgd", u.parameter, 6 * u.parameter.numel(), {&u.parameter, &u.parameter, &u.gradient});
  u.parameter.backend().sgd(u);
}

void sum_of_squares(const Tensor& x, const Tensor& out) {
  require(out.numel() == 1 && out.dtype() == Dtype::f64 && is_float(x.dtype()),
          "sum_of_squares: out must be one f64, not ", to_string(out.shape()), " ",
          name(out.dtype()));
  record("sum_of_squares", out, 2 * x.numel(), {&x, &out});
  out.backend().sum_of_squares(x, out, workspace(KernelId::sum_of_squares, {x.numel()}, out));
}

}  // namespace zl::kernel
