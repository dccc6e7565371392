#include "nn/model.h"

#include <cmath>
#include <ostream>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "tensor/printable.h"

namespace zl {
namespace {

constexpr int64_t kMostElements = int64_t(1) << 48;

// By name: the parameters that were checked before, and their unit.
using Checked = std::unordered_map<std::string_view, std::pair<const Parameter*, const Unit*>>;

// Words of an error, formed only when it is thrown: a model may have a million parameters.
struct Name {
  const std::string& text;
};

struct Which {
  const Unit& unit;
  size_t number;
};

std::ostream& operator<<(std::ostream& out, const Name& name) {
  return out << printable(name.text);
}

std::ostream& operator<<(std::ostream& out, const Which& which) {
  return out << "unit " << Name{which.unit.name} << ": parameter '"
             << Name{which.unit.parameters[which.number]->name} << "' (" << which.number
             << " of its list)";
}

void check_parameter(const Unit& unit, size_t number, Checked& before) {
  const Parameter* const p = unit.parameters[number];
  require(p != nullptr, "unit ", Name{unit.name}, ": parameter ", number,
          " of its list is a null pointer");
  const Which which{unit, number};
  require(!p->name.empty() && is_utf8(p->name) && p->name != "__metadata__", which,
          " has a name that no file of weights can have: give it one in UTF-8 that is not empty "
          "and not __metadata__");
  const auto [at, is_new] = before.emplace(p->name, std::pair(p, &unit));
  const auto& [same, unit_before] = at->second;
  require(is_new || same != p, which, " is in unit ", Name{unit_before->name},
          " already; put what several units share into root");
  require(is_new, which, " has the name of another one in unit ", Name{unit_before->name},
          "; the name decides the initial values and where files keep the weights");
  int64_t n = 1;
  for (const int64_t d : p->shape) {
    const bool empty_vector = d == 0 && p->shape.size() == 1;
    require(empty_vector || (d > 0 && n <= kMostElements / d), which, " has shape ",
            in_words(p->shape),
            "; each dimension of a matrix is at least 1, and all elements together at most 2^48");
    n *= d;
  }
  require(std::isfinite(float(p->initial_mean)), which, " has initial values of mean ",
          p->initial_mean, "; the mean is a finite number in fp32");
  require(std::isfinite(float(p->initial_deviation)) && p->initial_deviation >= 0, which,
          " has initial values of deviation ", p->initial_deviation,
          "; the deviation is a finite number in fp32, and at least 0");
}

}  // namespace

void check_units(const std::vector<Unit>& units) {
  require(!units.empty(), "a model needs at least one unit");
  std::unordered_set<std::string_view> names;
  Checked parameters;
  for (size_t i = 0; i < units.size(); ++i) {
    const Unit& unit = units[i];
    require(!unit.name.empty() && is_utf8(unit.name), "unit ", i, " of the model's list is named '",
            Name{unit.name}, "': give it a name in UTF-8 that is not empty");
    require(names.insert(unit.name).second, "two units have the name ", Name{unit.name},
            ": give unit ", i, " of the model's list another one");
    require(unit.index == int(i), "unit ", Name{unit.name}, " is number ", i,
            " of the model's list, but its index is ", unit.index);
    for (size_t k = 0; k < unit.parameters.size(); ++k) check_parameter(unit, k, parameters);
  }
}

}  // namespace zl
