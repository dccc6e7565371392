// What each check of exercise 03 computes with: sizes, ranks and values follow from the seed.
#pragma once

#include <string>
#include <vector>

#include "tutorials/exercises/grader/measure.h"

namespace zl::exercises::ring_checks {

inline constexpr char kTwo[] = "sum at 2 ranks", kThree[] = "sum at 3 ranks",
                      kUneven[] = "size that N does not divide", kFew[] = "fewer values than ranks",
                      kOne[] = "one rank", kBits[] = "same bits on every rank",
                      kAgain[] = "two calls", kMessages[] = "messages to neighbours",
                      kBytes[] = "bytes sent", kMemory[] = "memory";

struct Case {
  int ranks = 1;
  // By call, rank and element. Sums of them are exact in f32, except in kBits.
  std::vector<std::vector<std::vector<float>>> values;

  int64_t n(size_t call) const { return int64_t(values[call][0].size()); }
};

Case make_case(const std::string& check, const CheckOptions& options);

// A message of one rank, as measure() saw it.
struct Message {
  bool sent = false;  // or received
  int peer = 0;
  int64_t elements = 0;
};
// In Record::numbers, by rank: three numbers per message.
std::vector<double> encoded(const std::vector<Message>& messages);
std::vector<Message> decoded(const std::vector<double>& numbers);

}  // namespace zl::exercises::ring_checks
