#include "tutorials/exercises/03_ring_all_reduce/ring_case.h"

#include "tensor/random.h"

namespace zl::exercises::ring_checks {

// A chunk has more elements than there are ranks, so that the grader can find out how often each
// rank's values are in it.
Case make_case(const std::string& check, const CheckOptions& options) {
  const PhiloxStream stream{options.seed, fnv1a(check)};
  uint64_t next = 0;
  const auto number = [&](int64_t least, int64_t most) {
    return least + int64_t(stream.uniform(next++) * double(most - least + 1));
  };
  Case c;
  c.ranks = check == kTwo                        ? 2
            : check == kThree || check == kAgain ? 3
            : check == kFew                      ? 5
            : check == kOne                      ? 1
                                                 : int(number(4, 5));
  const int64_t N = c.ranks, chunk = number(N + 5, 2 * N + 9);
  for (int call = 0; call < (check == kAgain ? 2 : 1); ++call) {
    int64_t n = chunk * N;
    if (check == kFew) n = number(2, 4);
    if (check == kUneven || check == kBits || check == kBytes) n += number(1, N - 1);
    if (call == 1) n -= 2;
    std::vector<std::vector<float>> of_ranks;
    for (int64_t r = 0; r < N; ++r) {
      std::vector<float> values;
      for (int64_t i = 0; i < n; ++i)
        values.push_back(check == kBits ? float(stream.normal(2 * next++))
                                        : float(number(-999, 999)));
      of_ranks.push_back(values);
    }
    c.values.push_back(of_ranks);
  }
  return c;
}

std::vector<double> encoded(const std::vector<Message>& messages) {
  std::vector<double> numbers;
  for (const Message& message : messages)
    numbers.insert(numbers.end(),
                   {double(message.sent), double(message.peer), double(message.elements)});
  return numbers;
}

std::vector<Message> decoded(const std::vector<double>& numbers) {
  std::vector<Message> messages;
  for (size_t i = 0; i + 2 < numbers.size(); i += 3)
    messages.push_back({numbers[i] != 0, int(numbers[i + 1]), int64_t(numbers[i + 2])});
  return messages;
}

}  // namespace zl::exercises::ring_checks
