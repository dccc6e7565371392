// Token and position tables. R rows (tokens of all sequences), V table rows, C channels.
//
//   y_r = E_id(r)                       embedding: row id(r) of the table
//   dE_v += sum of dy_r over id(r) = v  embedding_backward
//   y_bt = x_bt + P_t                   add_positions
//   dP_t += sum over b of dy_bt         add_positions_backward: sum_rows of rows of T C elements
//
// The first is the product of a matrix of one-hot rows with E, so its gradient is that of a matmul
// (matmul.cpp) without the zeros. A sum is taken in the order of the rows, in the compute type, and
// added to the table once: a token that occurs a thousand times is rounded once.
#include <algorithm>

#include "tensor/reference/kernel_call.h"

namespace zl {
namespace {

int64_t checked_id(std::span<const int32_t> ids, int64_t row, int64_t V) {
  const int32_t id = ids[size_t(row)];
  if (id < 0 || id >= V)
    refuse("embedding: token id ", id, " of row ", row, " is out of range for a table of ", V,
           " rows");
  return id;
}

// `rows`: one of the table for each id.
void require_rows(const char* what, const Tensor& ids, const Tensor& table, const Tensor& rows) {
  kernel::require_ids(what, ids);
  if (rows.dim(-1) != table.dim(-1) || rows.rows() != ids.numel() || rows.dtype() != table.dtype())
    refuse(what, ": rows ", to_string(rows.shape()), " do not fit ids ", to_string(ids.shape()),
           " and table ", to_string(table.shape()));
}

void require_positions(const char* what, const Tensor& x, const Tensor& table) {
  if (x.shape().size() != 3 || table.dim(-1) != x.dim(2) || table.rows() < x.dim(1) ||
      x.dtype() != table.dtype())
    refuse(what, ": ", to_string(x.shape()), " does not fit a table of positions ",
           to_string(table.shape()));
}

}  // namespace

void kernel::embedding(const Tensor& ids, const Tensor& table, const Tensor& y) {
  require_rows("embedding", ids, table, y);
  recorded("embedding", y, 0, {&ids, &y, &y}).embedding(ids, table, y);
}

void Backend::embedding(const Tensor& ids, const Tensor& table, const Tensor& y) {
  const int64_t R = ids.numel(), V = table.rows(), C = y.dim(-1);
  for_float_type(y.dtype(), [&]<class T>(T) {
    const T* const rows = table.data<T>().data();
    for (int64_t r = 0; r < R; ++r)
      std::copy_n(rows + checked_id(ids.data<int32_t>(), r, V) * C, C, &y.data<T>()[size_t(r * C)]);
  });
}

void kernel::embedding_backward(const Tensor& ids, const Tensor& dy, const Tensor& dtable) {
  require_rows("embedding_backward", ids, dtable, dy);
  recorded("embedding_backward", dtable, dy.numel(), {&ids, &dy, &dy})
      .embedding_backward(
          ids, dy, dtable,
          workspace(KernelId::embedding_backward, {dy.rows(), dtable.rows(), dy.dim(-1)}, dtable));
}

// Workspace: the sum of one token's rows (C).
void Backend::embedding_backward(const Tensor& ids, const Tensor& dy, const Tensor& dtable,
                                 const Tensor& workspace) {
  const std::span<const int32_t> id = ids.data<int32_t>();
  const int64_t R = ids.numel(), V = dtable.rows(), C = dy.dim(-1);
  for (int64_t r = 0; r < R; ++r) checked_id(id, r, V);
  for_float_type(dtable.dtype(), [&]<class T>(T) {
    using F = Compute<T>;
    F* const sum = static_cast<F*>(workspace.address());
    const T* const terms = dy.data<T>().data();
    for (auto first = id.begin(); first != id.end(); ++first) {
      if (std::find(id.begin(), first, *first) != first) continue;  // this token has been summed
      std::fill_n(sum, C, F(0));
      for (auto same = first; same != id.end(); same = std::find(same + 1, id.end(), *first))
        for (int64_t c = 0; c < C; ++c) sum[c] += F(terms[(same - id.begin()) * C + c]);
      T* const row = dtable.data<T>().data() + *first * C;
      for (int64_t c = 0; c < C; ++c) row[c] = T(F(row[c]) + sum[c]);
    }
  });
}

void kernel::add_positions(const Tensor& x, const Tensor& table, const Tensor& y) {
  require_positions("add_positions", x, table);
  require_same("add_positions", x, {&y});
  recorded("add_positions", y, x.numel(), {&x, &y}).add_positions(x, table, y);
}

void Backend::add_positions(const Tensor& x, const Tensor& table, const Tensor& y) {
  const Shape TC = {x.dim(1) * x.dim(2)};
  for (int64_t b = 0; b < x.dim(0); ++b)
    Backend::add(x.slice(b * TC[0], TC), table.slice(0, TC), y.slice(b * TC[0], TC));
}

void kernel::add_positions_backward(const Tensor& dy, const Tensor& dtable) {
  require_positions("add_positions_backward", dy, dtable);
  recorded("add_positions_backward", dtable, dy.numel(), {&dy})
      .add_positions_backward(dy, dtable,
                              workspace(KernelId::add_positions_backward, dy.shape(), dtable));
}

void Backend::add_positions_backward(const Tensor& dy, const Tensor& dtable, const Tensor&) {
  Backend::sum_rows(dy, dtable.slice(0, {dy.dim(1) * dy.dim(2)}), {});
}

}  // namespace zl
