#include "nn/model.h"

#include <cmath>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "tensor/printable.h"

namespace zl {
namespace {

constexpr int64_t kMostElements = int64_t(1) << 48;

// By name: the parameters that were checked before, and their unit.
using Checked = std::unordered_map<std::string_view, std::pair<const Parameter*, const Unit*>>;

void check_parameter(const Unit& unit, const std::string& name, size_t number, Checked& before) {
  const Parameter* const p = unit.parameters[number];
  if (!p) refuse("unit ", name, ": parameter ", number, " of its list is a null pointer");
  const auto wrong = [&](const auto&... words) {
    refuse("unit ", name, ": parameter '", printable(p->name), "' (", number, " of its list)",
           words...);
  };
  if (p->name.empty() || !is_utf8(p->name) || p->name == "__metadata__")
    wrong(
        " has a name that no file of weights can have: give it one in UTF-8 that is not empty "
        "and not __metadata__");
  const auto [at, is_new] = before.emplace(p->name, std::pair(p, &unit));
  if (!is_new) {
    const std::string unit_before = printable(at->second.second->name);
    if (at->second.first == p)
      wrong(" is in unit ", unit_before, " already; put what several units share into root");
    wrong(" has the name of another one in unit ", unit_before,
          "; the name decides the initial values and where files keep the weights");
  }
  int64_t n = 1;
  for (const int64_t d : p->shape) {
    const bool empty_vector = d == 0 && p->shape.size() == 1;
    if (!empty_vector && (d <= 0 || n > kMostElements / d))
      wrong(" has shape ", to_string(p->shape),
            "; each dimension of a matrix is at least 1, and all elements together at most 2^48");
    n *= d;
  }
  if (!std::isfinite(float(p->initial_mean)))
    wrong(" has initial values of mean ", p->initial_mean, "; the mean is a finite number in fp32");
  if (!std::isfinite(float(p->initial_deviation)) || p->initial_deviation < 0)
    wrong(" has initial values of deviation ", p->initial_deviation,
          "; the deviation is a finite number in fp32, and at least 0");
}

}  // namespace

void check_units(const std::vector<Unit>& units) {
  require(!units.empty(), "a model needs at least one unit");
  std::unordered_set<std::string_view> names;
  Checked parameters;
  for (size_t i = 0; i < units.size(); ++i) {
    const Unit& unit = units[i];
    const std::string name = printable(unit.name);
    require(!unit.name.empty() && is_utf8(unit.name), "unit ", i, " of the model's list is named '",
            name, "': give it a name in UTF-8 that is not empty");
    require(names.insert(unit.name).second, "two units have the name ", name, ": give unit ", i,
            " of the model's list another one");
    require(unit.index == int(i), "unit ", name, " is number ", i,
            " of the model's list, but its index is ", unit.index);
    for (size_t k = 0; k < unit.parameters.size(); ++k) check_parameter(unit, name, k, parameters);
  }
}

}  // namespace zl
