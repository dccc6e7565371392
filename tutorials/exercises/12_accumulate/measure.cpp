#include "tutorials/exercises/12_accumulate/accumulate_case.h"

namespace zl::exercises {

// "answers": of each way its bytes, or the choice (-1: none).
Record measure(const CheckOptions& options) {
  Record record;
  for (const auto& way : accumulate_checks::ways_of(options)) {
    const std::optional<bool> choice =
        options.is("the choice") ? choose_keep(way.step, way.memory) : std::nullopt;
    record.numbers["answers"].push_back(options.is("the choice") ? (choice ? *choice : -1.0)
                                        : options.is("peak")
                                            ? double(peak_bytes(way.step, way.keep))
                                            : double(sent_bytes(way.step, way.keep)));
  }
  return record;
}

}  // namespace zl::exercises
