#include <algorithm>
#include <cmath>

#include "stages/diagnosis/plain_training.h"
#include "tensor/error.h"
#include "tutorials/exercises/judge/judge.h"

namespace zl::exercises {
namespace {

// Values that are a * must + b * before, and what that means.
struct Guess {
  double a, b;
  std::string meaning;
};

std::vector<Guess> guesses(const Numbers& n) {
  const std::string held = "what " + n.what + " held before ", every = "every value of " + n.what;
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
  return all;
}

class Comparison {
 public:
  explicit Comparison(const Numbers& n)
      : n_(n), row_(n.row == 0 ? n.must.size() : n.row), allowed_(n.must.size()) {
    for (size_t i = 0; i < n.must.size(); ++i) {
      double& of_row = allowed_[i / row_ * row_];
      of_row = std::max(of_row, n.tolerance * std::abs(n.must[i]));
    }
  }

  // Whether the values are a * must + b * before.
  bool is(double a, double b) const {
    for (size_t i = 0; i < n_.must.size(); ++i)
      if (!close(i, a * n_.must[i] + (b == 0 ? 0 : b * n_.before[i]), std::abs(a) + std::abs(b)))
        return false;
    return true;
  }

  std::string meaning() const {
    if (std::ranges::any_of(n_.is, [](double v) { return std::isnan(v); }))
      return n_.what +
             " has NaN: memory was used that was never written, or was freed; or it is 0/0, or the "
             "root of a negative number";
    if (!std::ranges::all_of(n_.is, [](double v) { return std::isfinite(v); }))
      return n_.what + " has infinite values: a division by 0, or a factor that is too large";
    for (const Guess& guess : guesses(n_))
      if (is(guess.a, guess.b)) return guess.meaning;
    const auto largest =
        size_t(std::ranges::max_element(n_.must, {}, [](double v) { return std::abs(v); }) -
               n_.must.begin());
    if (const double factor = n_.is[largest] / n_.must[largest]; is(factor, 0))
      return str("every value of ", n_.what, " is ", factor, " x the right one");
    return n_.what + " is wrong";
  }

  std::string evidence() const {
    size_t first = n_.must.size(), count = 0;
    for (size_t i = n_.must.size(); i-- > 0;)
      if (!close(i, n_.must[i])) first = i, ++count;
    return str(row_ == n_.must.size() ? "" : str("row ", first / row_, ", "), "element ",
               first % row_, compared(n_.is[first], n_.must[first]), "; ", count, " of ",
               n_.must.size(), " values differ");
  }

 private:
  // `scale`: of what the row must be.
  bool close(size_t i, double value, double scale = 1) const {
    return n_.is[i] == value || std::abs(n_.is[i] - value) <= allowed_[i / row_ * row_] * scale;
  }

  const Numbers& n_;
  const size_t row_;
  Values allowed_;  // by row, at its first element
};

}  // namespace

void compare(const Numbers& numbers) {
  if (numbers.is.size() != numbers.must.size())
    fail(str(numbers.what, " has ", numbers.is.size(), " values, must have ", numbers.must.size()),
         numbers.is.empty() ? "Nothing was written to it." : "");
  const Comparison comparison(numbers);
  if (!comparison.is(1, 0))
    fail(numbers.meaning.empty() ? comparison.meaning() : numbers.meaning,
         numbers.what + ": " + comparison.evidence());
}

}  // namespace zl::exercises
