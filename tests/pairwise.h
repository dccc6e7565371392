// Few combinations of settings in which every two values of two settings occur together: most
// mistakes show with two (Kuhn, Wallace and Gallo 2004, "Software fault interactions").
#pragma once

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <initializer_list>
#include <vector>

#include "stages/options.h"

namespace zl::test {

// One value of each setting, by its number in the list of values.
class SettingsRow {
 public:
  SettingsRow(std::vector<int> chosen, std::vector<int> counts)
      : chosen_(std::move(chosen)), counts_(std::move(counts)) {}
  // The value of the next setting, which has these.
  template <class T>
  T next(std::initializer_list<T> values) {
    REQUIRE(int(values.size()) == counts_.at(at_));
    return values.begin()[chosen_[at_++]];
  }
  const std::vector<int>& chosen() const { return chosen_; }
  StageKind next_stage() {
    return next({StageKind::ddp, StageKind::zero1, StageKind::zero2, StageKind::zero3});
  }

 private:
  std::vector<int> chosen_, counts_;
  size_t at_ = 0;
};

// `counts`: the number of values of each setting. A greedy search: a row starts from a pair that no
// row has, and each further setting takes the value that adds most such pairs.
inline std::vector<SettingsRow> pairwise(const std::vector<int>& counts) {
  const size_t n = counts.size();
  const int most = *std::ranges::max_element(counts);
  const auto number = [=](size_t i, int a, size_t j, int b) {
    return ((i * n + j) * size_t(most) + size_t(a)) * size_t(most) + size_t(b);
  };
  std::vector<bool> done(n * n * size_t(most * most));
  std::vector<SettingsRow> rows;
  for (size_t i = 0; i < n; ++i)
    for (size_t j = i + 1; j < n; ++j)
      for (int pair = 0; pair < counts[i] * counts[j]; ++pair) {
        std::vector<int> row(n, -1);
        row[i] = pair / counts[j], row[j] = pair % counts[j];
        if (done[number(i, row[i], j, row[j])]) continue;
        const auto each_pair = [&](size_t k, const auto& use) {  // of setting k
          for (size_t l = 0; l < n; ++l)
            if (l != k && row[l] >= 0)
              use(k < l ? number(k, row[k], l, row[l]) : number(l, row[l], k, row[k]));
        };
        for (size_t k = 0; k < n; ++k) {
          if (row[k] >= 0) continue;
          int best = 0, most_added = -1;
          for (int v = 0; v < counts[k]; ++v) {
            row[k] = (v + int(rows.size())) % counts[k];  // ties: each value in turn
            int added = 0;
            each_pair(k, [&](size_t p) { added += !done[p]; });
            if (added > most_added) best = row[k], most_added = added;
          }
          row[k] = best;
        }
        for (size_t k = 0; k < n; ++k) each_pair(k, [&](size_t p) { done[p] = true; });
        rows.emplace_back(row, counts);
      }
  return rows;
}

// Each of these rows, one after another. Once in a test.
inline SettingsRow any_pair(const std::vector<int>& counts) {
  return GENERATE_COPY(from_range(pairwise(counts)));
}

}  // namespace zl::test
