#include "tutorials/zerolab/bench/kernel_cases.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "nn/data/corpus.h"

namespace zl::cli {
namespace {

constexpr Dtype f32 = Dtype::f32;
constexpr Transpose no = Transpose::no, yes = Transpose::yes;

// An operand of a case: random values, zeros or token ids.
struct Operand {
  Shape shape;
  bool random = false;
  std::optional<Dtype> type{};  // none: that of the case
  std::vector<int32_t> ids{};
  bool padded = false;  // stored as the device stores logits of this shape

  Tensor make(Workbench& bench, Dtype of_case) const {
    Shape stored = shape;
    if (padded) stored.back() = bench.memory().backend().padded_columns(shape.back());
    if (random) return bench.noise(stored, type.value_or(of_case));
    Tensor t = Tensor::zeros(bench.memory(), MemoryUse::activation, stored, type.value_or(of_case));
    if (!ids.empty()) kernel::upload<int32_t>(ids, t);
    return t;
  }
};
Operand noise(Shape shape, std::optional<Dtype> type = {}) {
  return {std::move(shape), true, type};
}
Operand zeros(Shape shape, std::optional<Dtype> type = {}) {
  return {std::move(shape), false, type};
}
Operand tokens(const std::vector<int32_t>& ids) {
  return {.shape = {std::ssize(ids)}, .type = Dtype::i32, .ids = ids};
}
Operand padded(Operand logits) {
  logits.padded = true;
  return logits;
}

// At most 509 token ids, spread over the table. Each is as frequent as the others.
std::vector<int32_t> spread_tokens(int64_t rows, int64_t vocab) {
  std::vector<int32_t> all;
  for (int64_t i = 0; i < rows; ++i) all.push_back(int32_t(i % 509 * 7919 % vocab));
  return all;
}

// The first bytes of the shipped text, which are the tokens of a run without --data.
std::vector<int32_t> text_tokens(int64_t rows) {
  const std::string_view text = default_corpus();
  std::vector<int32_t> all;
  for (int64_t i = 0; i < rows; ++i)
    all.push_back(static_cast<unsigned char>(text[size_t(i) % text.size()]));
  return all;
}

int percent_of_most_frequent(const std::vector<int32_t>& ids) {
  std::map<int32_t, int64_t> counts;
  int64_t most = 0;
  for (const int32_t id : ids) most = std::max(most, ++counts[id]);
  return int((200 * most + std::ssize(ids)) / (2 * std::ssize(ids)));
}

struct Cases {
  using Kernel = std::function<void(const std::vector<Tensor>&)>;
  const KernelSizes s;
  std::vector<KernelCase> all{};

  // `first` writes what the kernel reads.
  void add(const std::string& name, const std::string& shape, std::vector<Operand> operands,
           const Kernel& kernel, const Kernel& first = nullptr) {
    all.push_back({name, shape, [=](Workbench& bench, Dtype dtype) -> Work {
                     std::vector<Tensor> t;
                     for (const Operand& o : operands) t.push_back(o.make(bench, dtype));
                     if (first) first(t);
                     return [=] { kernel(t); };
                   }});
  }
  void add(const std::string& name, const Shape& shape, std::vector<Operand> operands,
           const Kernel& kernel, const Kernel& first = nullptr) {
    add(name, to_string(shape), std::move(operands), kernel, first);
  }

  // a·b; an operand is stored transposed if its flag says so.
  void add_matmul(const std::string& name, Shape a, Transpose ta, Shape b, Transpose tb) {
    const Shape out = {a[0], b[1]};
    const auto stored = [](Shape& shape, Transpose t) {
      if (t == yes) std::swap(shape[0], shape[1]);
      return to_string(shape) + (t == yes ? "ᵀ" : "");
    };
    const std::string shape = stored(a, ta) + stored(b, tb);
    add("matmul, " + name, shape, {padded(noise(a)), noise(b), padded(zeros(out))},
        [=](const auto& t) { kernel::matmul(t[0], ta, t[1], tb, t[2]); });
  }

  // A linear layer (in) -> (out), and its two products of backward.
  void add_linear(const std::string& name, int64_t in, int64_t out) {
    add_matmul(name + " forward", {s.rows, in}, no, {in, out}, no);
    add_matmul(name + ", input gradient", {s.rows, out}, no, {out, in}, yes);
    add_matmul(name + ", weight gradient", {in, s.rows}, yes, {s.rows, out}, no);
  }

  void add_matmuls() {
    add_linear("qkv", s.width, 3 * s.width);
    add_linear("projection", s.width, s.width);
    add_linear("MLP up", s.width, 4 * s.width);
    add_linear("MLP down", 4 * s.width, s.width);
    add_matmul("head forward", {s.rows, s.width}, no, {s.width, s.vocab}, yes);
    add_matmul("head, input gradient", {s.rows, s.vocab}, no, {s.vocab, s.width}, no);
    add_matmul("head, weight gradient", {s.vocab, s.rows}, yes, {s.rows, s.width}, no);
    const Shape x{s.rows, s.width}, w{s.width, 4 * s.width}, y{s.rows, 4 * s.width}, c{w[1]};
    add("matmul with bias, MLP up", to_string(x) + to_string(w),
        {noise(x), noise(w), noise(c), zeros(y)},
        [](const auto& t) { kernel::matmul_bias(t[0], t[1], no, t[2], t[3]); });
    add("sum_rows", y, {noise(y), zeros(c)}, [](const auto& t) { kernel::sum_rows(t[0], t[1]); });
  }

  void add_layer_norm() {
    const Shape x{s.rows, s.width}, c{s.width}, r{s.rows};
    const auto forward = [](const auto& t) {
      kernel::layer_norm({t[0], t[1], t[2], t[3]}, t[4], 1e-5, t[5]);
    };
    const auto backward = [](const auto& t) {
      kernel::layer_norm_backward({t[0], t[1], t[2], t[3]}, t[6], {t[5], Write::set, t[7], t[8]});
    };
    const std::vector<Operand> operands = {noise(x),      noise(c), zeros(r, f32),
                                           zeros(r, f32), noise(c), zeros(x),
                                           noise(x),      zeros(c), zeros(c)};
    add("layer_norm", x, operands, forward);
    add("layer_norm_backward", x, operands, backward, forward);
  }

  void add_attention() {
    const int64_t B = s.rows / s.window, T = s.window, C = s.width, H = C / s.head;
    const std::string shape = str("B ", B, ", T ", T, ", H ", H, ", D ", s.head);
    const auto forward = [=](const auto& t) { kernel::attention({t[0], t[1], t[2], H}); };
    const auto backward = [=](const auto& t) {
      kernel::attention_backward({t[0], t[1], t[2], H}, t[3], t[4]);
    };
    const std::vector<Operand> operands = {noise({B, T, 3 * C}), zeros({B, T, C}),
                                           zeros({B, H, T}, f32), noise({B, T, C}),
                                           zeros({B, T, 3 * C})};
    add("attention", shape, operands, forward);
    add("attention_backward", shape, operands, backward, forward);
  }

  void add_elementwise() {
    const Shape x{s.rows, s.width}, y{s.rows, 4 * s.width};
    add("gelu", y, {noise(y), zeros(y)}, [](const auto& t) { kernel::gelu(t[0], t[1]); });
    add("gelu_backward", y, {noise(y), noise(y), zeros(y)},
        [](const auto& t) { kernel::gelu_backward(t[0], t[1], t[2], Write::set); });
    add("add", x, {noise(x), noise(x), zeros(x)},
        [](const auto& t) { kernel::add(t[0], t[1], t[2]); });
  }

  void add_embedding_and_loss() {
    const Shape x{s.rows, s.width}, y{s.rows, s.vocab};
    const Operand ids = tokens(spread_tokens(s.rows, s.vocab)), table = zeros({s.vocab, s.width});
    const std::vector<int32_t> text = text_tokens(s.rows);
    const auto backward = [](const auto& t) { kernel::embedding_backward(t[0], t[1], t[2]); };
    add("embedding", x, {ids, table, zeros(x)},
        [](const auto& t) { kernel::embedding(t[0], t[1], t[2]); });
    add("embedding_backward", x, {ids, noise(x), table}, backward);
    add("embedding_backward, text",
        str(to_string(x), ", ", percent_of_most_frequent(text), " % one token"),
        {tokens(text), noise(x), table}, backward);
    add("cross_entropy", y, {padded(noise(y)), ids, zeros({1}, f32)},
        [](const auto& t) { kernel::cross_entropy(t[0], t[1], t[2]); });
    add(
        "cross_entropy_backward", y, {padded(noise(y)), ids, zeros({1}, f32), padded(zeros(y))},
        [](const auto& t) { kernel::cross_entropy_backward(t[0], t[1], t[2], t[3]); },
        [](const auto& t) { kernel::fill(1, t[2]); });
  }

  // The update of one block's parameters.
  void add_update() {
    const Shape n{12 * s.width * s.width + 13 * s.width};
    add("adamw", n, {noise(n), noise(n), zeros(n, f32), zeros(n, f32), noise(n, f32)},
        [](const auto& t) {
          kernel::adamw({.parameter = t[0],
                         .gradient = t[1],
                         .exp_avg = t[2],
                         .exp_avg_sq = t[3],
                         .master = t[0].dtype() == f32 ? Tensor() : t[4]});
        });
    add("sum_of_squares", n, {noise(n), zeros({1}, Dtype::f64)},
        [](const auto& t) { kernel::sum_of_squares(t[0], t[1]); });
    add("copy that casts", to_string(n) + " fp32 to 16 bits",
        {noise(n, f32), zeros(n), zeros(n, Dtype::bf16)},
        [](const auto& t) { kernel::copy(t[0], t[1].dtype() == f32 ? t[2] : t[1]); });
  }
};

}  // namespace

std::vector<KernelCase> kernel_cases(const KernelSizes& sizes) {
  Cases cases{sizes};
  cases.add_matmuls();
  cases.add_layer_norm();
  cases.add_attention();
  cases.add_elementwise();
  cases.add_embedding_and_loss();
  cases.add_update();
  return cases.all;
}

}  // namespace zl::cli
