// What training reads.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "tensor/shape.h"

namespace zl {

// Where micro-batches come from: the rows of a data set, numbered from 0 without end. Shared by the
// ranks: its functions may be called from several threads at once.
class BatchSource {
 public:
  virtual ~BatchSource() = default;
  virtual Shape input_row() const = 0;   // the shape of one row of Batch::inputs
  virtual Shape target_row() const = 0;  // the same of Batch::targets

  // Writes rows [first, first + B), where B follows from the sizes of the spans. Throws
  // std::invalid_argument if the sizes are no multiple of a row.
  virtual void fill_rows(int64_t first, std::span<int32_t> inputs,
                         std::span<int32_t> targets) const = 0;
  // Equal where all rows are equal: a checkpoint keeps it, and a run that continues compares it.
  virtual std::string identity() const { return ""; }

  // Rows that training never sees, and the values of rows [first, first + B) of them.
  virtual int64_t held_out() const { return 0; }
  virtual void fill_held_out(int64_t /*first*/, std::span<int32_t> /*inputs*/,
                             std::span<int32_t> /*targets*/) const {}
};

}  // namespace zl
