#include "tutorials/exercises/judge/measure.h"

#include "tutorials/exercises/09_prefetch/prefetch_case.h"

namespace zl::exercises {

// "schedule 0", "schedule 1" … of the tasks, or "peak": of all.
Record measure(const CheckOptions& options) {
  using namespace prefetch_checks;
  Record record;
  for (size_t k = 0; const PrefetchTask& task : prefetch_tasks(options))
    if (asks_for_peaks(options))
      record.numbers["peak"].push_back(double(predicted_peak(task)));
    else
      record.put_rows(str("schedule ", k++), prefetch_schedule(task));
  return record;
}

}  // namespace zl::exercises
