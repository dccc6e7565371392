#include "optim/flat_optimizer.h"

namespace zl {

bool matches_glob(std::string_view glob, std::string_view name) {
  size_t g = 0, n = 0, star = std::string_view::npos, tried = 0;
  while (n < name.size()) {
    if (g < glob.size() && glob[g] == '*') {
      star = g++;  // first let the star stand for nothing
      tried = n;
    } else if (g < glob.size() && (glob[g] == '?' || glob[g] == name[n])) {
      ++g, ++n;
    } else if (star != std::string_view::npos) {
      g = star + 1;  // let the last star stand for one character more
      n = ++tried;
    } else {
      return false;
    }
  }
  while (g < glob.size() && glob[g] == '*') ++g;
  return g == glob.size();
}

}  // namespace zl
