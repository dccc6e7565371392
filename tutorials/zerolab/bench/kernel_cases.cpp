#include "tutorials/zerolab/bench/kernel_cases.h"

namespace zl::cli {
namespace {

using Work = std::function<void()>;
using Cases = std::vector<KernelCase>;

Tensor noise(Memory& memory, Shape shape, Dtype dtype) {
  Tensor t = Tensor::empty(memory, MemoryUse::activation, std::move(shape), dtype);
  kernel::normal({.seed = 1337, .stream = uint64_t(memory.allocations())}, 0, t);
  return t;
}

Tensor zeros(Memory& memory, Shape shape, Dtype dtype) {
  return Tensor::zeros(memory, MemoryUse::activation, std::move(shape), dtype);
}

// Token ids as text has them in one respect: the same rows of the table come again and again.
// Multiples of a prime.
Tensor token_ids(Memory& memory, int64_t rows, int64_t vocab) {
  std::vector<int32_t> ids(static_cast<size_t>(rows));
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = int32_t(int64_t(i % 509) * 7919 % vocab);
  Tensor t = Tensor::empty(memory, MemoryUse::activation, {rows}, Dtype::i32);
  kernel::upload<int32_t>(ids, t);
  return t;
}

struct Product {
  const char* name;
  int64_t m, k, n;
  Transpose ta, tb;
};

KernelCase product(const Product& p) {
  const auto stored = [](int64_t rows, int64_t columns, Transpose t) {
    return t == Transpose::no ? str("(", rows, ", ", columns, ")")
                              : str("(", columns, ", ", rows, ")ᵀ");
  };
  return {p.name, stored(p.m, p.k, p.ta) + stored(p.k, p.n, p.tb),
          [p](Memory& memory, Dtype dtype) -> Work {
            const auto factor = [&](int64_t rows, int64_t columns, Transpose t) {
              return noise(memory, t == Transpose::no ? Shape{rows, columns} : Shape{columns, rows},
                           dtype);
            };
            const Tensor a = factor(p.m, p.k, p.ta), b = factor(p.k, p.n, p.tb),
                         out = zeros(memory, {p.m, p.n}, dtype);
            return [=] { kernel::matmul(a, p.ta, b, p.tb, out); };
          }};
}

// The three layouts, on the layer that widens; the widest product of all is the head's.
void add_products(Cases& cases, const KernelSizes& s) {
  const auto no = Transpose::no, yes = Transpose::yes;
  cases.push_back(product({"matmul, forward", s.rows, s.width, 4 * s.width, no, no}));
  cases.push_back(product({"matmul, backward to input", s.rows, 4 * s.width, s.width, no, yes}));
  cases.push_back(product({"matmul, backward to weight", s.width, s.rows, 4 * s.width, yes, no}));
  cases.push_back(product({"matmul, head", s.rows, s.width, s.vocab, no, yes}));
}

void add_layer_norm(Cases& cases, const KernelSizes& s) {
  const Shape x{s.rows, s.width}, c{s.width}, r{s.rows};
  const auto saved = [=](Memory& memory, Dtype dtype) {
    return LayerNormSaved{noise(memory, x, dtype), noise(memory, c, dtype),
                          zeros(memory, r, Dtype::f32), zeros(memory, r, Dtype::f32)};
  };
  cases.push_back({"layer_norm", to_string(x), [=](Memory& memory, Dtype dtype) -> Work {
                     const LayerNormSaved at = saved(memory, dtype);
                     const Tensor bias = noise(memory, c, dtype), y = zeros(memory, x, dtype);
                     return [=] { kernel::layer_norm(at, bias, 1e-5, y); };
                   }});
  cases.push_back({"layer_norm_backward", to_string(x), [=](Memory& memory, Dtype dtype) -> Work {
                     const LayerNormSaved at = saved(memory, dtype);
                     kernel::layer_norm(at, noise(memory, c, dtype), 1e-5,
                                        zeros(memory, x, dtype));  // writes the statistics
                     const Tensor dy = noise(memory, x, dtype);
                     const LayerNormGradients out{zeros(memory, x, dtype), Write::set,
                                                  zeros(memory, c, dtype), zeros(memory, c, dtype)};
                     return [=] { kernel::layer_norm_backward(at, dy, out); };
                   }});
}

void add_attention(Cases& cases, const KernelSizes& s) {
  const int64_t B = s.rows / s.window, T = s.window, C = s.width, H = C / s.head;
  const std::string shape = str("B ", B, ", T ", T, ", H ", H, ", D ", s.head);
  const auto saved = [=](Memory& memory, Dtype dtype) {
    return AttentionSaved{noise(memory, {B, T, 3 * C}, dtype), zeros(memory, {B, T, C}, dtype),
                          zeros(memory, {B, H, T}, Dtype::f32), H};
  };
  cases.push_back({"attention", shape, [=](Memory& memory, Dtype dtype) -> Work {
                     const AttentionSaved at = saved(memory, dtype);
                     return [=] { kernel::attention(at); };
                   }});
  cases.push_back({"attention_backward", shape, [=](Memory& memory, Dtype dtype) -> Work {
                     const AttentionSaved at = saved(memory, dtype);
                     kernel::attention(at);
                     const Tensor dy = noise(memory, {B, T, C}, dtype),
                                  dqkv = zeros(memory, {B, T, 3 * C}, dtype);
                     return [=] { kernel::attention_backward(at, dy, dqkv); };
                   }});
}

void add_elementwise(Cases& cases, const KernelSizes& s) {
  const Shape x{s.rows, s.width}, wide{s.rows, 4 * s.width};
  cases.push_back({"gelu", to_string(wide), [=](Memory& memory, Dtype dtype) -> Work {
                     const Tensor in = noise(memory, wide, dtype), y = zeros(memory, wide, dtype);
                     return [=] { kernel::gelu(in, y); };
                   }});
  cases.push_back({"gelu_backward", to_string(wide), [=](Memory& memory, Dtype dtype) -> Work {
                     const Tensor in = noise(memory, wide, dtype), dy = noise(memory, wide, dtype),
                                  dx = zeros(memory, wide, dtype);
                     return [=] { kernel::gelu_backward(in, dy, dx, Write::set); };
                   }});
  cases.push_back({"add", to_string(x), [=](Memory& memory, Dtype dtype) -> Work {
                     const Tensor a = noise(memory, x, dtype), b = noise(memory, x, dtype),
                                  y = zeros(memory, x, dtype);
                     return [=] { kernel::add(a, b, y); };
                   }});
}

void add_tables(Cases& cases, const KernelSizes& s) {
  const Shape table{s.vocab, s.width}, x{s.rows, s.width}, logits{s.rows, s.vocab};
  cases.push_back({"embedding", to_string(x), [=](Memory& memory, Dtype dtype) -> Work {
                     const Tensor ids = token_ids(memory, s.rows, s.vocab),
                                  t = zeros(memory, table, dtype), y = zeros(memory, x, dtype);
                     return [=] { kernel::embedding(ids, t, y); };
                   }});
  cases.push_back({"embedding_backward", to_string(x), [=](Memory& memory, Dtype dtype) -> Work {
                     const Tensor ids = token_ids(memory, s.rows, s.vocab),
                                  dy = noise(memory, x, dtype), dt = zeros(memory, table, dtype);
                     return [=] { kernel::embedding_backward(ids, dy, dt); };
                   }});
  cases.push_back({"cross_entropy", to_string(logits), [=](Memory& memory, Dtype dtype) -> Work {
                     const Tensor ids = token_ids(memory, s.rows, s.vocab),
                                  l = noise(memory, logits, dtype),
                                  loss = zeros(memory, {1}, Dtype::f32);
                     return [=] { kernel::cross_entropy(l, ids, loss); };
                   }});
  cases.push_back(
      {"cross_entropy_backward", to_string(logits), [=](Memory& memory, Dtype dtype) -> Work {
         const Tensor ids = token_ids(memory, s.rows, s.vocab), l = noise(memory, logits, dtype),
                      dl = zeros(memory, logits, dtype);
         const Tensor dloss = zeros(memory, {1}, Dtype::f32);
         kernel::fill(1, dloss);
         return [=] { kernel::cross_entropy_backward(l, ids, dloss, dl); };
       }});
}

// What an update does, to one block at once.
void add_update(Cases& cases, const KernelSizes& s) {
  const Shape n{s.parameters()};
  cases.push_back({"adamw", to_string(n), [=](Memory& memory, Dtype dtype) -> Work {
                     AdamWUpdate u{.parameter = noise(memory, n, dtype),
                                   .gradient = noise(memory, n, dtype),
                                   .first_moment = zeros(memory, n, Dtype::f32),
                                   .second_moment = zeros(memory, n, Dtype::f32)};
                     if (dtype != Dtype::f32) u.master = noise(memory, n, Dtype::f32);
                     return [u] { kernel::adamw(u); };
                   }});
  cases.push_back({"sum_of_squares", to_string(n), [=](Memory& memory, Dtype dtype) -> Work {
                     const Tensor x = noise(memory, n, dtype), out = zeros(memory, {1}, Dtype::f64);
                     return [=] { kernel::sum_of_squares(x, out); };
                   }});
  cases.push_back({"copy that casts", to_string(n) + " fp32 to 16 bits",
                   [=](Memory& memory, Dtype dtype) -> Work {
                     const Tensor from = noise(memory, n, Dtype::f32),
                                  to = zeros(memory, n, dtype == Dtype::f32 ? Dtype::bf16 : dtype);
                     return [=] { kernel::copy(from, to); };
                   }});
}

}  // namespace

KernelSizes quick_sizes() {
  return {.rows = 64, .window = 32, .width = 64, .head = 32, .vocab = 509};
}

std::vector<KernelCase> kernel_cases(const KernelSizes& sizes) {
  Cases cases;
  add_products(cases, sizes);
  add_layer_norm(cases, sizes);
  add_attention(cases, sizes);
  add_elementwise(cases, sizes);
  add_tables(cases, sizes);
  add_update(cases, sizes);
  return cases;
}

}  // namespace zl::cli
