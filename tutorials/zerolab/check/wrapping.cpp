// Which units a run has: by the sizes of its reduce-scatters, which each unit makes once.

#include <algorithm>
#include <set>

#include "tensor/error.h"
#include "tutorials/zerolab/check/differences.h"
#include "tutorials/zerolab/cli/number_text.h"

namespace zl::cli {
namespace {

using Parameters = std::vector<CheckedModel::Parameter>;

bool may_be(int64_t size, const Parameters& parameters, int ranks) {
  return sizes_of({"", parameters}, ranks, true).has(size);
}

Parameters joined(const CheckedModel& model, size_t first, size_t count, bool with_root) {
  Parameters all;
  if (with_root) all = model.units[0].parameters;
  for (size_t i = first; i < first + count; ++i)
    all.insert(all.end(), model.units[i].parameters.begin(), model.units[i].parameters.end());
  return all;
}

// Units that are one in the run: a sequence of blocks, with root or without.
bool merge(CheckedModel& model, int64_t size, int ranks, std::vector<Difference>& differences) {
  const size_t n = model.units.size();
  for (const bool with_root : {true, false})
    for (size_t count = with_root ? 1 : 2; count < n; ++count)
      for (size_t first = n - count; first >= 1; --first) {
        Parameters all = joined(model, first, count, with_root);
        if (!may_be(size, all, ranks)) continue;
        std::string names = with_root ? model.units[0].name : "";
        for (size_t i = first; i < first + count; ++i)
          names += (names.empty()            ? ""
                    : i + 1 == first + count ? " and "
                                             : ", ") +
                   model.units[i].name;
        differences.push_back(
            {str("a unit is missing: ", names, " are one unit of ", with_commas(size),
                 " elements; fully_shard was not called for each of them")});
        model.units[with_root ? 0 : first].parameters = std::move(all);
        const auto begin = model.units.begin() + int64_t(first) + !with_root;
        model.units.erase(begin, begin + int64_t(count) - !with_root);
        return true;
      }
  return false;
}

// A module that is a unit by itself, as fully_shard(model.wte) makes it; or one that is there
// twice, such as a head that is not tied to the embedding.
bool split(CheckedModel& model, int64_t size, const std::set<int64_t>& seen, int ranks,
           std::vector<Difference>& differences) {
  for (size_t u = 0; u < model.units.size(); ++u) {
    auto& unit = model.units[u];
    const bool whole =
        std::ranges::any_of(seen, [&](int64_t s) { return may_be(s, unit.parameters, ranks); });
    for (const auto& p : unit.parameters) {
      const std::string module = p.name.substr(0, p.name.rfind('.'));
      Parameters of_module, rest, twice = unit.parameters;
      for (const auto& other : unit.parameters)
        (other.name.substr(0, other.name.rfind('.')) == module ? of_module : rest).push_back(other);
      twice.push_back({p.name + " (again)", p.shape});
      if (p.shape.size() == 2 && may_be(size, twice, ranks)) {
        differences.push_back(
            {str(unit.name, " has ", with_commas(size), " elements, as many as with a second ",
                 p.name, ": is the head not tied to the embedding?")});
        unit.parameters = twice;
        return true;
      }
      if (!may_be(size, of_module, ranks)) continue;
      differences.push_back({str("an extra unit: ", module, " of ", with_commas(size),
                                 " elements is gathered and reduced by itself",
                                 whole ? ", beside all of " + unit.name : "")});
      if (!whole) unit.parameters = rest;
      model.units.push_back({whole ? module + " (again)" : module, of_module});
      return true;
    }
  }
  return false;
}

}  // namespace

CheckedModel as_wrapped(const TrafficCase& c, const std::vector<SeenCall>& calls,
                        std::vector<Difference>& differences) {
  CheckedModel model = c.model;
  std::set<int64_t> seen, planned;
  for (const PlannedCall& p : c.system.plan(c.model, c.config, c.ranks).calls) {
    if (p.sum_only) return model;
    planned.insert(p.elements);
  }
  for (const SeenCall& call : calls)
    if (call.collective == "reduce_scatter" && call.elements > 0) seen.insert(call.elements);
  for (const int64_t size : seen) {
    const bool known =
        planned.contains(size) || std::ranges::any_of(model.units, [&](const auto& unit) {
          return may_be(size, unit.parameters, c.ranks);
        });
    if (!known && !merge(model, size, c.ranks, differences))
      split(model, size, seen, c.ranks, differences);
  }
  return model;
}

}  // namespace zl::cli
