#include "tutorials/exercises/03_ring_all_reduce/ring_case.h"

#include "tensor/random.h"

namespace zl::exercises::ring_checks {

RingCase make_case(const std::string& check, const CheckOptions& options) {
  const PhiloxStream stream{options.seed, fnv1a(check)};
  uint64_t next = 0;
  const auto number = [&](int64_t least, int64_t most) {
    return least + int64_t(stream.uniform(next++) * double(most - least + 1));
  };
  const bool again = check == "two calls", few = check == "fewer values than ranks",
             bits = check == "same bits on every rank",
             uneven = bits || check == "size that N does not divide" || check == "bytes sent";
  RingCase c;
  c.ranks = check == "sum at 2 ranks"            ? 2
            : check == "sum at 3 ranks" || again ? 3
            : few                                ? 5
            : check == "one rank"                ? 1
                                                 : int(number(4, 5));
  const int64_t n =
      few ? number(2, 4) : c.ranks * number(7, 19) + (uneven ? number(1, c.ranks - 1) : 0);
  for (int call = 0; call < (again ? 2 : 1); ++call) {
    std::vector<std::vector<float>>& of_ranks = c.values.emplace_back(size_t(c.ranks));
    for (int64_t i = 0; i < n - 2 * call; ++i) {
      auto value = float(number(1, 60) * (number(0, 1) == 1 ? 1 : -1));
      for (std::vector<float>& of_rank : of_ranks) {
        of_rank.push_back(bits ? float(stream.normal(2 * next++)) : value);
        value *= float(kBase);
      }
    }
  }
  return c;
}

}  // namespace zl::exercises::ring_checks
