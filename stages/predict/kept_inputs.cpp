#include "stages/predict/kept_inputs.h"

#include <algorithm>

namespace zl {
namespace {

// [n] that this rank keeps of an input of n elements.
int64_t part(const KeptInputs& inputs, int64_t n) {
  return inputs.gathered() ? (n + inputs.ranks - 1) / inputs.ranks : n;
}

}  // namespace

int64_t kept_bytes(const KeptInputs& inputs) {
  int64_t elements = 0;
  for (const int64_t n : inputs.elements) elements += part(inputs, n);
  return elements * size_of(inputs.dtype);
}

int64_t returned_bytes(const KeptInputs& inputs) {
  if ((!inputs.gathered() && !inputs.on_host) || inputs.elements.empty()) return 0;
  const int64_t largest = *std::ranges::max_element(inputs.elements);
  const int64_t pieces = inputs.gathered() ? inputs.ranks : 1;
  return pieces * part(inputs, largest) * size_of(inputs.dtype);
}

void add_input_moves(MoveLog& log, const KeptInputs& inputs) {
  if (!inputs.on_host) return;
  for (const Move move : {Move::device_to_host, Move::host_to_device})
    for (const int64_t n : inputs.elements) log.add(move, part(inputs, n) * size_of(inputs.dtype));
}

void add_input_gathers(CommunicationLog& log, const KeptInputs& inputs) {
  if (!inputs.gathered()) return;
  for (const int64_t n : inputs.elements) {
    const int64_t all = inputs.ranks * part(inputs, n);
    log.add(Collective::all_gather, Purpose::activation, all, all * size_of(inputs.dtype),
            inputs.ranks);
  }
}

}  // namespace zl
