// Differentiable operations. Each takes and returns Vars; letters as in tensor/shape.h.
//
// An op computes its value at once. If a tape records and an input needs a gradient, it records a
// backward function that keeps only what the comment says. Gradients of weights are added into the
// parameters' buffers, never built beside them. All throw std::invalid_argument when shapes do not
// fit, and OutOfMemory.
#pragma once

#include "autograd/tape.h"

namespace zl {

// y = x w + b.  x (…, I), weight (I, O), bias (O) -> (…, O).  Keeps x.
Var linear(const Var& x, const Var& weight, const Var& bias);

// y = x w^T.  x (…, C), weight (V, C) -> (…, V): the output head that shares the token embedding.
// Keeps x.
Var project(const Var& x, const Var& weight);

// The same elements in another shape.  Keeps nothing, copies nothing.
Var reshape(const Var& x, Shape shape);

// y = a + b, same shape.  Keeps nothing.
Var add(const Var& a, const Var& b);

// Gaussian error linear unit, tanh form: Hendrycks & Gimpel 2016 (arXiv:1606.08415), section 2.
// Keeps x.
Var gelu(const Var& x);

// Normalises each row to mean 0 and variance 1, then scales and shifts it. Ba et al. 2016
// (arXiv:1607.06450), eq. 4.
//   x (…, C), weight (C), bias (C) -> (…, C).  Keeps x, and mean and 1/std of each row.
Var layer_norm(const Var& x, const Var& weight, const Var& bias, double eps = 1e-5);

// Causal self-attention of all heads. Vaswani et al. 2017 (arXiv:1706.03762), section 3.2.
//   qkv (B, T, 3C): queries, keys, values side by side -> (B, T, C).  Keeps qkv, y, and log-sum-exp
//   (B, H, T); the T x T weights are computed again in backward, tile by tile.
Var attention(const Var& qkv, int64_t heads);

// Rows of `table` (V, C) at `ids` (B, T) -> (B, T, C).  Keeps ids.
Var embedding(const Tensor& ids, const Var& table);

// y[b, t] = x[b, t] + table[t].  x (B, T, C), table (at least T, C).  Keeps nothing.
Var add_positions(const Var& x, const Var& table);

// Mean negative log-likelihood of `targets` (…) under softmax(logits (…, V)) -> (1), fp32 (f64 for
// f64). Keeps the logits, and writes their gradient over them if nobody else holds them.
Var cross_entropy(const Var& logits, const Tensor& targets);

}  // namespace zl
