#include "tutorials/exercises/12_accumulate/accumulate_case.h"

namespace zl::exercises {

// "sent" or "peak" of each step, resharded and kept. Or "choice" (-1: none) at each "memory", which
// is one of the two right peaks, or one byte less.
Record measure(const CheckOptions& options) {
  Record record;
  for (const Accumulation& step : accumulate_checks::steps_of(options))
    for (const bool keep : {false, true}) {
      if (options.is("one micro-batch") || options.is("sent"))
        record.numbers["sent"].push_back(double(sent_bytes(step, keep)));
      if (options.is("peak")) record.numbers["peak"].push_back(double(peak_bytes(step, keep)));
      for (int64_t less = 0; options.is("the choice") && less < 2; ++less) {
        const int64_t memory = int64_t(accumulate_checks::Way{step, keep}.peak()) - less;
        const std::optional<bool> choice = choose_keep(step, memory);
        record.numbers["memory"].push_back(double(memory));
        record.numbers["choice"].push_back(choice ? double(*choice) : -1);
      }
    }
  return record;
}

}  // namespace zl::exercises
