#include <algorithm>
#include <cmath>
#include <optional>
#include <span>

#include "tensor/error.h"
#include "tutorials/exercises/judge/judge.h"

namespace zl::exercises {
namespace {

class Comparison {
 public:
  explicit Comparison(const Numbers& n)
      : n_(n), row_(n.row == 0 ? n.must.size() : n.row), allowed_(n.must.size()) {
    for (size_t i = 0; i < n.must.size(); ++i) {
      double& of_row = allowed_[i / row_ * row_];
      of_row = std::max(of_row, n.tolerance * std::abs(n.must[i]));
    }
  }

  // Whether the values from `begin` to `end` are a * must + b * before.
  bool is(double a, double b, size_t begin = 0, size_t end = SIZE_MAX) const {
    for (size_t i = begin; i < std::min(end, n_.must.size()); ++i)
      if (!close(i, a * n_.must[i] + (b == 0 ? 0 : b * n_.before[i]), std::abs(a) + std::abs(b)))
        return false;
    return true;
  }

  std::string meaning() const {
    const std::string& what = n_.what;
    const auto any = [&](bool (*holds)(double)) { return std::ranges::any_of(n_.is, holds); };
    if (any([](double v) { return std::isnan(v); }))
      return what +
             " has NaN: memory was used that was never written, or was freed; or it is 0/0, or the "
             "root of a negative number";
    if (any([](double v) { return std::isinf(v); }))
      return what + " has infinite values: a division by 0, or a factor that is too large";
    if (!n_.before.empty())
      if (const std::string said = meaning_of_before(); !said.empty()) return said;
    if (std::ranges::all_of(n_.is, [](double v) { return v == 0; }))
      return what + " is zero everywhere: nothing was computed, or the result was not kept";
    if (const auto factor = common_factor(0, n_.must.size())) return meaning_of_factor(*factor);
    return meaning_of_rows();
  }

  std::string evidence() const {
    size_t first = n_.must.size(), count = 0;
    for (size_t i = n_.must.size(); i-- > 0;)
      if (!close(i, n_.must[i])) first = i, ++count;
    if (count == 0) return "";
    std::string text = row_ == n_.must.size()
                           ? str("element ", first)
                           : str("row ", first / row_, ", element ", first % row_);
    text += str(" is ", n_.is[first], ", must be ", n_.must[first]);
    const double more = n_.is[first] - n_.must[first], ratio = n_.is[first] / n_.must[first];
    if (n_.must[first] != 0 && std::isfinite(n_.is[first]))
      text += std::abs(ratio - 1) < 1e-4 ? str(" (a difference of ", more, ")")
                                         : str(" (ratio ", ratio, ")");
    return text + str("; ", count, " of ", n_.must.size(), " values differ");
  }

 private:
  // `scale`: of what the row must be.
  bool close(size_t i, double value, double scale = 1) const {
    return n_.is[i] == value || std::abs(n_.is[i] - value) <= allowed_[i / row_ * row_] * scale;
  }

  std::string meaning_of_before() const {
    if (is(1, -1)) return "what " + n_.what + " held before is lost: add to it, do not set it";
    if (is(0, 1)) return "nothing was added to " + n_.what;
    if (is(1, 1)) return "what " + n_.what + " held before counts twice";
    if (is(2, -2))
      return "what " + n_.what + " held before was overwritten, and the new part counts twice: " +
             "the memory that was written is another tensor's too";
    return "";
  }

  // By which the right values from `begin` on must be multiplied; nothing if there is no such
  // number.
  std::optional<double> common_factor(size_t begin, size_t end) const {
    size_t at = begin;
    for (size_t i = begin; i < end; ++i)
      if (std::abs(n_.must[i]) > std::abs(n_.must[at])) at = i;
    if (n_.must[at] == 0) return {};
    const double factor = n_.is[at] / n_.must[at];
    if (!is(factor, 0, begin, end)) return {};
    return factor;
  }
  std::string meaning_of_factor(double factor) const {
    const auto equals = [&](double value) {
      return std::abs(factor - value) <= std::max(1e-6, 10 * n_.tolerance) * std::abs(value);
    };
    const std::string every = "every value of " + n_.what + " is ";
    for (const auto& [name, value] : n_.factors) {
      if (value == 1) continue;
      if (equals(value)) return str(every, value, " x the right one: times ", name);
      if (equals(1 / value)) return str(every, "1/", value, " of the right one: divided by ", name);
    }
    if (equals(-1)) return n_.what + " has the wrong sign";
    if (equals(2)) return every + "twice the right one: it was added twice";
    return str(every, factor, " x the right one");
  }

  std::string meaning_of_rows() const {
    bool multiples = row_ < n_.must.size();
    for (size_t begin = 0; begin < n_.must.size(); begin += row_)
      multiples = multiples && common_factor(begin, std::min(begin + row_, n_.must.size()));
    return multiples ? "each row of " + n_.what + " is a multiple of the right one, but another " +
                           "multiple: its factor is wrong, not its values"
                     : n_.what + " is wrong";
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
