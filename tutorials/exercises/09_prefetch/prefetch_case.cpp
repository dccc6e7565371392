#include "tutorials/exercises/09_prefetch/prefetch_case.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "tensor/error.h"
#include "tensor/random.h"

namespace zl::exercises::prefetch_checks {
namespace {

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

class Writer {
 public:
  Writer(const std::string& check, uint64_t seed) : stream_{seed, fnv1a(check)} {}

  int64_t between(int64_t low, int64_t high) {  // both included
    return low + int64_t(stream_.uniform(next_++) * double(high - low + 1));
  }

  // Units of an odd number of blocks of 16 elements per rank, and without a limit.
  PrefetchTask task(int64_t blocks, int64_t largest) {
    PrefetchTask task;
    const int64_t ranks = 2 * between(1, 3) + 1;
    task.full.push_back(16 * ranks * (2 * between(0, largest) + 1));
    for (int64_t b = 0; b < blocks; ++b)
      task.full.push_back(16 * ranks * (2 * between(0, largest) + 1));
    std::vector<int> order(size_t(blocks), 0);
    std::iota(order.begin(), order.end(), 1);
    for (size_t i = order.size(); i > 1; --i)
      std::swap(order[i - 1], order[size_t(between(0, int64_t(i) - 1))]);
    task.forward = task.backward = {0};
    task.forward.insert(task.forward.end(), order.begin(), order.end());
    task.backward.insert(task.backward.end(), order.rbegin(), order.rend());
    task.max_live_parameters = kNoLimit;
    return task;
  }

  // [n] Of `count` units in the order of the forward pass, from position `first`.
  static int64_t run_of(const PrefetchTask& task, size_t first, size_t count) {
    int64_t n = 0;
    for (size_t i = first; i < first + count; ++i) n += task.full[size_t(task.forward[i])];
    return n;
  }

  static int64_t smallest_block(const PrefetchTask& task) {
    return *std::min_element(task.full.begin() + 1, task.full.end());
  }

  // Buckets that one unit fills: of any size, exactly, and where all units but root are equal.
  void one(std::vector<PrefetchTask>& tasks) {
    for (int i = 0; i < 3; ++i) {
      PrefetchTask t = task(between(4, 7), 9);
      t.prefetch_bucket_size = i == 0 ? 1 : smallest_block(t);
      if (i == 2) {
        const int64_t size = t.full[0] + 16 * between(1, 9);
        std::fill(t.full.begin() + 1, t.full.end(), size);
        t.prefetch_bucket_size = size;
      }
      tasks.push_back(t);
    }
  }

  // Buckets at the border: two neighbours exactly, one element less and one more.
  void bucket(std::vector<PrefetchTask>& tasks) {
    for (const int64_t more : {-1, 0, 1}) {
      PrefetchTask t = task(between(7, 9), 9);
      t.prefetch_bucket_size = run_of(t, size_t(between(2, 4)), 2) + more;
      tasks.push_back(t);
    }
    PrefetchTask t = task(between(7, 9), 9);
    t.prefetch_bucket_size = run_of(t, 1, 3) + between(1, 15);
    tasks.push_back(t);
  }

  // Limits at the border, beside root for one to three neighbours, with a bucket for all units.
  void limit(std::vector<PrefetchTask>& tasks) {
    for (const int64_t more : {-1, 0, 1}) {
      for (const size_t neighbours : {3, 2, 1}) {
        PrefetchTask t = task(between(7, 9), 9);
        t.prefetch_bucket_size = run_of(t, 0, t.full.size());
        t.max_live_parameters = t.full[0] + run_of(t, size_t(between(2, 3)), neighbours) + more;
        tasks.push_back(t);
      }
    }
  }

  // One block is as large as three of the others, which all fit beside root.
  void misfit(std::vector<PrefetchTask>& tasks) {
    for (int64_t i = 0; i < 3; ++i) {
      PrefetchTask t = task(between(7, 9), 4);
      const int64_t others = std::accumulate(t.full.begin() + 1, t.full.end(), int64_t(0));
      t.full[size_t(t.forward[size_t(between(4, 5))])] = others;
      t.prefetch_bucket_size = 3 * others;
      t.max_live_parameters = t.full[0] + others - 1;
      tasks.push_back(t);
    }
  }

  // Even root or a single block does not fit.
  void tight(std::vector<PrefetchTask>& tasks) {
    for (int64_t i = 0; i < 3; ++i) {
      PrefetchTask t = task(between(4, 6), 9);
      t.prefetch_bucket_size = run_of(t, 1, 2);
      t.max_live_parameters = i == 0 ? 0 : i == 1 ? t.full[0] - 1 : t.full[0] + smallest_block(t);
      tasks.push_back(t);
    }
  }

  PrefetchTask any(int64_t most_blocks, int64_t largest, bool limited) {
    PrefetchTask t = task(between(1, most_blocks), largest);
    const int64_t all = run_of(t, 0, t.full.size());
    t.prefetch_bucket_size = between(0, 4) == 0 ? 0 : between(1, all);
    if (limited) t.max_live_parameters = between(t.full[0], all);
    return t;
  }

 private:
  PhiloxStream stream_;
  uint64_t next_ = 0;
};

}  // namespace

bool asks_for_peaks(const std::string& check) { return check == kPeak || check == kPeakLimit; }

std::vector<PrefetchTask> prefetch_tasks(const std::string& check, uint64_t seed) {
  Writer writer(check, seed);
  std::vector<PrefetchTask> tasks;
  if (check == kNone) {
    for (int i = 0; i < 3; ++i) tasks.push_back(writer.task(writer.between(4, 7), 9));
  } else if (check == kOne) {
    writer.one(tasks);
  } else if (check == kBucket) {
    writer.bucket(tasks);
  } else if (check == kLimit) {
    writer.limit(tasks);
  } else if (check == kMisfit) {
    writer.misfit(tasks);
  } else if (check == kTight) {
    writer.tight(tasks);
  } else if (check == kPeak || check == kPeakLimit) {
    for (int i = 0; i < 40; ++i) tasks.push_back(writer.any(12, 99'999, check == kPeakLimit));
  } else if (check == kAll) {
    for (int i = 0; i < 40; ++i) tasks.push_back(writer.any(12, 9, i % 3 != 0));
  } else {
    throw InputError("exercise 09 has no check '" + check + "'");
  }
  return tasks;
}

}  // namespace zl::exercises::prefetch_checks
