#include <algorithm>
#include <cmath>
#include <ranges>
#include <span>

#include "stages/diagnosis/plain_training.h"
#include "tensor/error.h"
#include "tutorials/exercises/judge/judge.h"

namespace zl::exercises {
namespace {

double magnitude(double v) { return std::abs(v); }

// Values that are a * must + b * before, and what that means.
struct Guess {
  double a, b;
  std::string meaning;
};

std::vector<Guess> guesses(const Numbers& n) {
  const std::string held = "what " + n.what + " held before ",
                    every = n.must.size() == 1 ? n.what : "every value of " + n.what;
  std::vector<Guess> all;
  if (!n.before.empty())
    all = {{1, -1, held + "is lost: add to it, do not set it"},
           {0, 1, "nothing was added to " + n.what},
           {1, 1, held + "counts twice"},
           {2, -2,
            held + "was overwritten, and the new part counts twice: the memory that was written "
                   "is another tensor's too"}};
  all.push_back(
      {0, 0, n.what + " is zero everywhere: nothing was computed, or the result was not kept"});
  for (const auto& [name, value] : n.factors) {
    all.push_back({value, 0, str(every, " is ", value, " x the right one: times ", name)});
    all.push_back(
        {1 / value, 0, str(every, " is 1/", value, " of the right one: divided by ", name)});
  }
  all.push_back({-1, 0, n.what + " has the wrong sign"});
  all.push_back({2, 0, every + " is twice the right one: it was added twice"});
  const auto largest = std::ranges::max_element(n.must, {}, magnitude);
  const double factor = n.is[size_t(largest - n.must.begin())] / *largest;
  all.push_back({factor, 0, str(every, " is ", factor, " x the right one")});
  return all;
}

}  // namespace

void compare(const Numbers& n) {
  const size_t size = n.must.size();
  if (n.is.size() != size)
    fail(str(n.what, " has ", n.is.size(), " values, must have ", size),
         n.is.empty() ? "Nothing was written to it." : "");
  const size_t row = n.row == 0 ? size : n.row;
  // `scale`: of what the row must be.
  const auto close = [&](size_t i, double value, double scale = 1) {
    const auto begin = n.must.begin() + int64_t(i / row * row);
    const double largest =
        std::ranges::max(std::span(begin, row) | std::views::transform(magnitude));
    return n.is[i] == value || magnitude(n.is[i] - value) <= n.tolerance * largest * scale;
  };
  size_t first = size, count = 0;
  for (size_t i = size; i-- > 0;)
    if (!close(i, n.must[i])) first = i, ++count;
  if (count == 0) return;
  const auto says = [&](const std::string& meaning) {
    const std::string row = n.row == 0 ? ": " : str(": row ", first / n.row, ", "),
                      at = str("element ", n.row == 0 ? first : first % n.row),
                      rest = str("; ", count, " of ", size, " values differ");
    fail(meaning, str(n.what, size == 1 ? "" : row + at, compared(n.is[first], n.must[first]),
                      size == 1 ? "" : rest, n.details.empty() ? "" : "\n", n.details));
  };
  if (!n.meaning.empty()) says(n.meaning);
  for (const auto& [value, meaning] : n.known)
    if (close(0, value, magnitude(value / n.must[0]))) says(meaning);
  if (std::ranges::any_of(n.is, [](double v) { return std::isnan(v); }))
    says(n.what +
         " has NaN: memory was used that was never written, or was freed; or it is 0/0, or the "
         "root of a negative number");
  if (std::ranges::any_of(n.is, [](double v) { return std::isinf(v); }))
    says(n.what + " has infinite values: a division by 0, or a factor that is too large");
  for (const auto& [a, b, meaning] : guesses(n)) {
    size_t i = 0;
    while (i < size &&
           close(i, a * n.must[i] + (b == 0 ? 0 : b * n.before[i]), magnitude(a) + magnitude(b)))
      ++i;
    if (i == size) says(meaning);
  }
  says(n.what + " is wrong");
}

}  // namespace zl::exercises
