#include "optim/parameter_groups.h"

namespace zl {

bool matches_glob(std::string_view glob, std::string_view name) {
  size_t g = 0, n = 0, star = std::string_view::npos, tried = 0;
  while (n < name.size()) {
    if (g < glob.size() && glob[g] == '*') {
      star = g++;  // the star matches no text first
      tried = n;
    } else if (g < glob.size() && (glob[g] == '?' || glob[g] == name[n])) {
      ++g, ++n;
    } else if (star != std::string_view::npos) {
      g = star + 1;  // the last star matches one more character
      n = ++tried;
    } else {
      return false;
    }
  }
  while (g < glob.size() && glob[g] == '*') ++g;
  return g == glob.size();
}

}  // namespace zl
