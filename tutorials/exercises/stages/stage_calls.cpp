#include "tutorials/exercises/stages/stage_calls.h"

namespace zl::exercises {

const char* name(StageFunction function) {
  static constexpr const char* names[kStageFunctions] = {
      "the constructor", "allocate",        "reduces_every_micro_batch",
      "before_backward", "reduce_gradient", "after_reduce",
      "update",          "after_update",    "unshard",
      "reshard",         "Work::wait"};
  return names[size_t(function)];
}

bool has_unit(StageFunction function) {
  return function != StageFunction::constructor &&
         function != StageFunction::reduces_every_micro_batch;
}

std::vector<double> to_numbers(const std::vector<StageCall>& calls) {
  std::vector<double> numbers;
  for (const StageCall& call : calls) {
    for (const int64_t value : {int64_t(call.function), int64_t(call.unit), call.event, call.heap,
                                call.largest_on_heap, call.waits})
      numbers.push_back(double(value));
    for (const auto& by_use : {call.bytes, call.most})
      for (const int64_t bytes : by_use) numbers.push_back(double(bytes));
  }
  return numbers;
}

std::vector<StageCall> calls_from(const std::vector<double>& numbers) {
  constexpr size_t first = 6, row = first + 2 * kMemoryUses;
  std::vector<StageCall> calls;
  for (size_t at = 0; at + row <= numbers.size(); at += row) {
    const auto number = [&](size_t k) { return int64_t(numbers[at + k]); };
    StageCall& call = calls.emplace_back();
    call.function = StageFunction(number(0));
    call.unit = int(number(1));
    call.event = number(2);
    call.heap = number(3), call.largest_on_heap = number(4), call.waits = number(5);
    for (size_t use = 0; use < kMemoryUses; ++use)
      call.bytes[use] = number(first + use), call.most[use] = number(first + kMemoryUses + use);
  }
  return calls;
}

}  // namespace zl::exercises
