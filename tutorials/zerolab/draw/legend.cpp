#include "tutorials/zerolab/draw/legend.h"

#include <algorithm>

namespace zl::draw {

double draw_legend(Svg& svg, Point at, const std::vector<MemoryUse>& uses) {
  for (const MemoryUse use : uses) {
    std::string text = name(use);
    std::ranges::replace(text, '_', ' ');
    svg.box({at.x, at.y - 12, 16, 16}, name(use));
    svg.text({at.x + 22, at.y}, text);
    at.x += 40 + 7.2 * double(text.size());
  }
  return at.x;
}

}  // namespace zl::draw
