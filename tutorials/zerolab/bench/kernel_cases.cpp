#include "tutorials/zerolab/bench/kernel_cases.h"

#include <algorithm>
#include <map>
#include <utility>

#include "nn/data/corpus.h"

namespace zl::cli {
namespace {

constexpr Dtype f32 = Dtype::f32;

// Allocates the operands of one case.
struct Operands {
  Workbench& bench;
  Dtype dtype;
  Tensor noise(Shape shape) { return bench.noise(std::move(shape), dtype); }
  Tensor zeros(Shape shape) { return zeros(std::move(shape), dtype); }
  Tensor zeros(Shape shape, Dtype type) {
    return Tensor::zeros(bench.memory(), MemoryUse::activation, std::move(shape), type);
  }
  // The shape with which the device stores logits of this shape.
  Shape padded(Shape shape) {
    shape.back() = bench.memory().backend().padded_columns(shape.back());
    return shape;
  }
  Tensor ids(const std::vector<int32_t>& ids) {
    Tensor t = Tensor::empty(bench.memory(), MemoryUse::activation, {std::ssize(ids)}, Dtype::i32);
    kernel::upload<int32_t>(ids, t);
    return t;
  }
  // At most 509 token ids, spread over the table. Each is as frequent as the others.
  Tensor ids(int64_t rows, int64_t vocab) {
    std::vector<int32_t> all(static_cast<size_t>(rows));
    for (size_t i = 0; i < all.size(); ++i) all[i] = int32_t(int64_t(i % 509) * 7919 % vocab);
    return ids(all);
  }
};

// The first bytes of the shipped text, which are the tokens of a run without --data.
std::vector<int32_t> text_tokens(int64_t rows) {
  std::vector<int32_t> tokens;
  for (const std::string_view text = default_corpus(); std::ssize(tokens) < rows;)
    tokens.push_back(static_cast<unsigned char>(text[tokens.size() % text.size()]));
  return tokens;
}

int percent_of_most_frequent(const std::vector<int32_t>& tokens) {
  std::map<int32_t, int64_t> counts;
  int64_t most = 0;
  for (const int32_t token : tokens) most = std::max(most, ++counts[token]);
  return int((200 * most + std::ssize(tokens)) / (2 * std::ssize(tokens)));
}

class Cases {
 public:
  explicit Cases(const KernelSizes& sizes) : s(sizes) {
    add_matmuls();
    add_layer_norm();
    add_attention();
    add_elementwise();
    add_embedding_and_loss();
    add_update();
  }
  const std::vector<KernelCase>& all() const { return cases_; }

 private:
  void add(const std::string& kernel, const std::string& shape,
           std::function<Work(Operands)> prepare) {
    const auto on = [prepare = std::move(prepare)](Workbench& bench, Dtype dtype) {
      return prepare({bench, dtype});
    };
    cases_.push_back({.kernel = kernel, .shape = shape, .prepare = on});
  }

  void add_matmul(const std::string& name, const Product& p) {
    const auto text = [](const Shape& shape, Transpose t) {
      return to_string(shape) + (t == Transpose::yes ? "ᵀ" : "");
    };
    const auto stored = [](int64_t rows, int64_t columns, Transpose t) {
      return t == Transpose::no ? Shape{rows, columns} : Shape{columns, rows};
    };
    const Shape a = stored(p.m, p.k, p.a), b = stored(p.k, p.n, p.b);
    add("matmul, " + name, text(a, p.a) + text(b, p.b), [=](Operands make) {
      const Tensor left = make.noise(make.padded(a)), right = make.noise(b),
                   out = make.zeros(make.padded({p.m, p.n}));
      return [=] { kernel::matmul(left, p.a, right, p.b, out); };
    });
  }

  // A linear layer (in) -> (out), and its two products of backward.
  void add_linear(const std::string& name, int64_t in, int64_t out) {
    const auto no = Transpose::no, yes = Transpose::yes;
    add_matmul(name + " forward", {s.rows, in, out, no, no});
    add_matmul(name + ", input gradient", {s.rows, out, in, no, yes});
    add_matmul(name + ", weight gradient", {in, s.rows, out, yes, no});
  }

  void add_matmuls() {
    const auto no = Transpose::no, yes = Transpose::yes;
    add_linear("qkv", s.width, 3 * s.width);
    add_linear("projection", s.width, s.width);
    add_linear("MLP up", s.width, 4 * s.width);
    add_linear("MLP down", 4 * s.width, s.width);
    add_matmul("head forward", {s.rows, s.width, s.vocab, no, yes});
    add_matmul("head, input gradient", {s.rows, s.vocab, s.width, no, no});
    add_matmul("head, weight gradient", {s.vocab, s.rows, s.width, yes, no});
    add_bias();
  }

  void add_bias() {
    const Shape x{s.rows, s.width}, w{s.width, 4 * s.width}, y{s.rows, 4 * s.width},
        row{4 * s.width};
    add("matmul with bias, MLP up", to_string(x) + to_string(w), [=](Operands make) {
      const Tensor in = make.noise(x), weight = make.noise(w), bias = make.noise(row),
                   out = make.zeros(y);
      return [=] { kernel::matmul_bias(in, weight, Transpose::no, bias, out); };
    });
    add("sum_rows", to_string(y), [=](Operands make) {
      const Tensor dy = make.noise(y), sum = make.zeros(row);
      return [=] { kernel::sum_rows(dy, sum); };
    });
  }

  void add_layer_norm() {
    const Shape x{s.rows, s.width}, c{s.width}, r{s.rows};
    const auto saved = [=](Operands make) {
      return LayerNormSaved{make.noise(x), make.noise(c), make.zeros(r, f32), make.zeros(r, f32)};
    };
    add("layer_norm", to_string(x), [=](Operands make) {
      const LayerNormSaved at = saved(make);
      const Tensor bias = make.noise(c), y = make.zeros(x);
      return [=] { kernel::layer_norm(at, bias, 1e-5, y); };
    });
    add("layer_norm_backward", to_string(x), [=](Operands make) {
      const LayerNormSaved at = saved(make);
      kernel::layer_norm(at, make.noise(c), 1e-5, make.zeros(x));  // writes the statistics
      const Tensor dy = make.noise(x);
      const LayerNormGradients out{make.zeros(x), Write::set, make.zeros(c), make.zeros(c)};
      return [=] { kernel::layer_norm_backward(at, dy, out); };
    });
  }

  void add_attention() {
    const int64_t B = s.rows / s.window, T = s.window, C = s.width, H = C / s.head;
    const std::string shape = str("B ", B, ", T ", T, ", H ", H, ", D ", s.head);
    const auto saved = [=](Operands make) {
      return AttentionSaved{make.noise({B, T, 3 * C}), make.zeros({B, T, C}),
                            make.zeros({B, H, T}, f32), H};
    };
    add("attention", shape,
        [=](Operands make) { return [at = saved(make)] { kernel::attention(at); }; });
    add("attention_backward", shape, [=](Operands make) {
      const AttentionSaved at = saved(make);
      kernel::attention(at);  // writes what backward reads
      const Tensor dy = make.noise({B, T, C}), dqkv = make.zeros({B, T, 3 * C});
      return [=] { kernel::attention_backward(at, dy, dqkv); };
    });
  }

  void add_elementwise() {
    const Shape x{s.rows, s.width}, wide{s.rows, 4 * s.width};
    add("gelu", to_string(wide), [=](Operands make) {
      const Tensor in = make.noise(wide), y = make.zeros(wide);
      return [=] { kernel::gelu(in, y); };
    });
    add("gelu_backward", to_string(wide), [=](Operands make) {
      const Tensor in = make.noise(wide), dy = make.noise(wide), dx = make.zeros(wide);
      return [=] { kernel::gelu_backward(in, dy, dx, Write::set); };
    });
    add("add", to_string(x), [=](Operands make) {
      const Tensor a = make.noise(x), b = make.noise(x), y = make.zeros(x);
      return [=] { kernel::add(a, b, y); };
    });
  }

  void add_embedding_and_loss() {
    const int64_t rows = s.rows, vocab = s.vocab;
    const Shape table{s.vocab, s.width}, x{s.rows, s.width}, logits{s.rows, s.vocab};
    add("embedding", to_string(x), [=](Operands make) {
      const Tensor ids = make.ids(rows, vocab), t = make.zeros(table), y = make.zeros(x);
      return [=] { kernel::embedding(ids, t, y); };
    });
    add("embedding_backward", to_string(x), [=](Operands make) {
      const Tensor ids = make.ids(rows, vocab), dy = make.noise(x), dt = make.zeros(table);
      return [=] { kernel::embedding_backward(ids, dy, dt); };
    });
    const std::vector<int32_t> text = text_tokens(rows);
    const int share = percent_of_most_frequent(text);
    add("embedding_backward, text", str(to_string(x), ", ", share, " % one token"),
        [=](Operands make) {
          const Tensor ids = make.ids(text), dy = make.noise(x), dt = make.zeros(table);
          return [=] { kernel::embedding_backward(ids, dy, dt); };
        });
    add("cross_entropy", to_string(logits), [=](Operands make) {
      const Tensor ids = make.ids(rows, vocab), l = make.noise(make.padded(logits)),
                   loss = make.zeros({1}, f32);
      return [=] { kernel::cross_entropy(l, ids, loss); };
    });
    add("cross_entropy_backward", to_string(logits), [=](Operands make) {
      const Shape shape = make.padded(logits);
      const Tensor ids = make.ids(rows, vocab), l = make.noise(shape), dl = make.zeros(shape);
      const Tensor dloss = make.zeros({1}, f32);
      kernel::fill(1, dloss);
      return [=] { kernel::cross_entropy_backward(l, ids, dloss, dl); };
    });
  }

  // The update of one block's parameters.
  void add_update() {
    const Shape n{12 * s.width * s.width + 13 * s.width};
    add("adamw", to_string(n), [=](Operands make) {
      const AdamWUpdate u{.parameter = make.noise(n),
                          .gradient = make.noise(n),
                          .exp_avg = make.zeros(n, f32),
                          .exp_avg_sq = make.zeros(n, f32),
                          .master = make.dtype == f32 ? Tensor() : make.bench.noise(n, f32)};
      return [=] { kernel::adamw(u); };
    });
    add("sum_of_squares", to_string(n), [=](Operands make) {
      const Tensor x = make.noise(n), out = make.zeros({1}, Dtype::f64);
      return [=] { kernel::sum_of_squares(x, out); };
    });
    add("copy that casts", to_string(n) + " fp32 to 16 bits", [=](Operands make) {
      const Tensor from = make.bench.noise(n, f32),
                   to = make.zeros(n, make.dtype == f32 ? Dtype::bf16 : make.dtype);
      return [=] { kernel::copy(from, to); };
    });
  }

  const KernelSizes s;
  std::vector<KernelCase> cases_;
};

}  // namespace

std::vector<KernelCase> kernel_cases(const KernelSizes& sizes) { return Cases(sizes).all(); }

}  // namespace zl::cli
