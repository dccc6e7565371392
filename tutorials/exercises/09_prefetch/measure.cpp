#include "tutorials/exercises/judge/measure.h"

#include "tensor/error.h"
#include "tutorials/exercises/09_prefetch/prefetch_case.h"

namespace zl::exercises {

// "schedule 0", "schedule 1" … of the tasks: action and unit of each entry; or "peak": of all.
Record measure(const std::string& check, const CheckOptions& options) {
  using namespace prefetch_checks;
  Record record;
  const std::vector<PrefetchTask> tasks = prefetch_tasks(check, options);
  for (size_t k = 0; k < tasks.size(); ++k) {
    if (asks_for_peaks(check)) {
      record.numbers["peak"].push_back(double(predicted_peak(tasks[k])));
      continue;
    }
    std::vector<double>& numbers = record.numbers[str("schedule ", k)];
    for (const ScheduleEntry& entry : prefetch_schedule(tasks[k])) {
      numbers.push_back(double(entry.action));
      numbers.push_back(double(entry.unit));
    }
  }
  return record;
}

}  // namespace zl::exercises
