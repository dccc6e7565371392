// Differentiable operations on Vars. Letters as in tensor/shape.h.
//
// An op computes its value immediately. If a tape records and an input needs a gradient, the op
// also records a backward function, which keeps only the values that the comment lists. Gradients
// of parameters are accumulated directly in the parameters' buffers. All ops throw
// std::invalid_argument if shapes do not fit, naming shapes and parameters, and OutOfMemory.
#pragma once

#include "autograd/tape.h"

namespace zl {

// How ops that need this output in backward keep it: as a tensor, or as a function that computes it
// again, with the same bits, from what the output's own op keeps. That is selective activation
// recomputation: Korthikanti et al. 2022 (arXiv:2205.05198), section 5.
// linear, matmul and project compute x again into a temporary, which is freed before dx is
// allocated. Other ops keep the tensor. Parameters are read a second time, so a layer norm's must
// be in the unit of the op that uses its output, or in root.
enum class Output { kept, recomputed };

// y = x w + b.  x (…, I), weight (I, O), bias (O) -> (…, O).  Keeps x.
Var linear(const Var& x, const Var& weight, const Var& bias);

// y = x w: linear without a bias.  x (…, I), weight (I, O) -> (…, O).  Keeps x.
Var matmul(const Var& x, const Var& weight);

// y = x w^T, the output head.  x (…, C), weight (V, C): the token embedding -> (…, V).  Keeps x.
// Backend::padded_columns may add columns of -infinity.
Var project(const Var& x, const Var& weight);

// The same elements in another shape.  Keeps nothing, copies nothing.
Var reshape(const Var& x, Shape shape);

// y = a + b, same shape.  Keeps nothing.
Var add(const Var& a, const Var& b);

// GELU, tanh form: Hendrycks & Gimpel 2016 (arXiv:1606.08415), section 2.  Keeps x.
Var gelu(const Var& x, Output output = Output::kept);

// Normalises each row to mean 0 and variance 1, scales and shifts it: arXiv:1607.06450, eq. 4.
//   x (…, C), weight (C), bias (C) -> (…, C).  Keeps x, and mean and 1/std of each row.
Var layer_norm(const Var& x, const Var& weight, const Var& bias, Output output = Output::kept,
               double eps = 1e-5);

// Causal self-attention of all heads. Vaswani et al. 2017 (arXiv:1706.03762), section 3.2.
//   qkv (B, T, 3C): queries, keys, values -> (B, T, C).  Keeps qkv, y and log-sum-exp (B, H, T).
//   Backward computes the T x T weights again, tile by tile.
Var attention(const Var& qkv, int64_t heads);

// Rows of `table` (V, C) at `ids` (B, T) -> (B, T, C).  Keeps ids.
Var embedding(const Tensor& ids, const Var& table);

// y[b, t] = x[b, t] + table[t].  x (B, T, C), table (at least T, C).  Keeps nothing.
Var add_positions(const Var& x, const Var& table);

// Mean negative log-likelihood of `targets` (…) under softmax(logits (…, V)) -> (1), fp32 (f64 for
// f64).  Keeps the logits. Backward overwrites them with their gradient if no other handle exists.
Var cross_entropy(const Var& logits, const Tensor& targets);

}  // namespace zl
