// Suggestions for mistyped words.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace zl::cli {

// The fewest insertions, deletions, replacements and swaps of neighbouring characters that turn one
// word into the other (Damerau 1964).
inline int edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<int>> d(a.size() + 1, std::vector<int>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i)
    for (size_t j = 0; j <= b.size(); ++j) {
      d[i][j] = int(std::max(i, j));
      if (i == 0 || j == 0) continue;
      const int replace = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, replace});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  return d[a.size()][b.size()];
}

// The known word that is closest to `word` or begins with it, or "" if none is close.
inline std::string nearest(std::string_view word, const std::vector<std::string>& known) {
  std::string best;
  int distance = std::max(2, int(word.size()) / 4) + 1;
  for (const std::string& candidate : known)
    if (const int d = edit_distance(word, candidate); d < distance) distance = d, best = candidate;
  for (const std::string& candidate : known)
    if (best.empty() && word.size() > 3 && candidate.starts_with(word)) best = candidate;
  return best;
}

// "; did you mean '--steps'?" or "".
inline std::string did_you_mean(std::string_view word, const std::vector<std::string>& known) {
  const std::string found = nearest(word, known);
  return found.empty() ? "" : "; did you mean '" + found + "'?";
}

}  // namespace zl::cli
