// Which of some known words a mistyped one most likely meant.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace zl::cli {

// Insertions, deletions, replacements and swaps of neighbours that turn one into the other: Damerau
// 1964.
inline int edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<int>> d(a.size() + 1, std::vector<int>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) d[i][0] = int(i);
  for (size_t j = 0; j <= b.size(); ++j) d[0][j] = int(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      d[i][j] =
          std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d[a.size()][b.size()];
}

// The known word that `word` begins or is closest to, or "" if none is close.
inline std::string nearest(std::string_view word, const std::vector<std::string>& known) {
  std::string best;
  int distance = std::max(2, int(word.size()) / 4) + 1;
  for (const std::string& candidate : known) {
    const int d = edit_distance(word, candidate);
    if (d < distance) distance = d, best = candidate;
  }
  if (!best.empty()) return best;
  for (const std::string& candidate : known)
    if (word.size() > 3 && candidate.starts_with(word)) return candidate;
  return "";
}

// "; did you mean '--steps'?" or "".
inline std::string did_you_mean(std::string_view word, const std::vector<std::string>& known) {
  const std::string found = nearest(word, known);
  return found.empty() ? "" : "; did you mean '" + found + "'?";
}

}  // namespace zl::cli
