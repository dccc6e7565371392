// The parameters of a model, by unit: of its list, and as a run shows them by the sizes of its
// reduce-scatters, which each unit makes once.

#include <algorithm>
#include <iterator>
#include <regex>
#include <sstream>

#include "nn/gpt.h"
#include "tensor/error.h"
#include "tutorials/zerolab/check/traffic.h"
#include "tutorials/zerolab/cli/number_text.h"

namespace zl::cli {
namespace {

using Parameters = std::vector<CheckedModel::Parameter>;

bool may_be(int64_t size, const Parameters& parameters, int ranks) {
  const UnitSizes sizes = sizes_of(parameters, ranks);
  return size == sizes.exact || size == sizes.rows;
}
bool has_unit(const CheckedModel& model, int64_t size, int ranks) {
  return std::ranges::any_of(model.units,
                             [&](const auto& u) { return may_be(size, u.parameters, ranks); });
}

// Units that are one in the run: a sequence of blocks, with root or without.
std::string merge(CheckedModel& model, int64_t size, int ranks) {
  auto& units = model.units;
  for (const bool with_root : {true, false})
    for (size_t first = units.size(); first-- > 1;) {
      CheckedModel::Unit one = units[with_root ? 0 : first];
      std::vector<std::string> names(1, one.name);
      for (size_t next = first + !with_root; next < units.size(); ++next) {
        std::ranges::copy(units[next].parameters, std::back_inserter(one.parameters));
        names.push_back(units[next].name);
        if (!may_be(size, one.parameters, ranks)) continue;
        units[with_root ? 0 : first] = one;
        units.erase(units.begin() + int64_t(first) + !with_root, units.begin() + int64_t(next) + 1);
        return str("a unit is missing: ", list_of(names), " are one unit of ", with_commas(size),
                   " elements; fully_shard was not called for each of them");
      }
    }
  return "";
}

// A module that is a unit by itself, as fully_shard(model.wte) makes it; or one that is there
// twice, such as a head that is not tied to the embedding.
std::string split(CheckedModel& model, int64_t size, const std::set<int64_t>& seen, int ranks) {
  const auto module_of = [](const auto& p) { return p.name.substr(0, p.name.rfind('.')); };
  for (auto& unit : model.units)
    for (const auto& p : unit.parameters) {
      Parameters part, rest, twice = unit.parameters;
      twice.push_back({p.name + " (again)", p.shape});
      if (p.shape.size() == 2 && may_be(size, twice, ranks)) {
        const std::string text =
            str(unit.name, " has ", with_commas(size), " elements, as many as with a second ",
                p.name, ": is the head not tied to the embedding?");
        return unit.parameters = twice, text;
      }
      for (const auto& other : unit.parameters)
        (module_of(other) == module_of(p) ? part : rest).push_back(other);
      if (!may_be(size, part, ranks)) continue;
      const bool whole = std::ranges::any_of(
          seen, [&](int64_t other) { return may_be(other, unit.parameters, ranks); });
      const std::string text = str("an extra unit: ", module_of(p), " of ", with_commas(size),
                                   " elements is gathered and reduced by itself",
                                   whole ? ", beside all of " + unit.name : "");
      const CheckedModel::Unit extra{module_of(p), part};
      if (!whole) unit.parameters = rest;
      return model.units.push_back(extra), text;
    }
  return "";
}

}  // namespace

Parameters CheckedModel::parameters() const {
  Parameters all;
  for (const Unit& unit : units) std::ranges::copy(unit.parameters, std::back_inserter(all));
  return all;
}

int64_t CheckedModel::numel() const { return sizes_of(parameters(), 1).exact; }

void CheckedModel::add(const std::string& unit, Parameter parameter) {
  auto found = std::ranges::find(units, unit, &Unit::name);
  if (found == units.end())
    found = units.insert(unit == "root" ? units.begin() : units.end(), {unit, {}});
  found->parameters.push_back(std::move(parameter));
}

CheckedModel gpt_units(const GptConfig& config) {
  CheckedModel model{.either_layout = true};
  Gpt gpt(config);
  for (const zl::Unit& unit : gpt.units())
    for (const zl::Parameter* p : unit.parameters) model.add(unit.name, {p->name, p->shape});
  return model;
}

CheckedModel read_units(const std::string& path) {
  static const std::regex row(R"(\s*(\S+)\s+([\dx()[\], ]+)\s+(\S+)\s+(\S+)\s*)");
  InputText file(path);
  CheckedModel model;
  std::string line;
  for (int number = 1; std::getline(file.stream(), line); ++number) {
    const auto require_line = [&](bool fine, const auto&... problem) {
      require_input(fine, path, ":", number, ": '", problem...);
    };
    line.resize(std::min({line.find('#'), line.size(), size_t(999)}));
    if (line.find_first_of(" \t") == line.npos) std::ranges::replace(line, ',', ' ');
    if (line.find_first_not_of(" \t\r") == line.npos) continue;
    std::smatch words;
    require_line(std::regex_match(line, words, row), line.substr(0, 80),
                 "' is not name, shape, dtype and unit, such as 'wte.weight 256x32 float32 root'");
    const std::string name = words[1], type = our_type(words[3]);
    require_line(type == "f32" || type == "bf16" || type == "f16", type,
                 "' is none of float32, bfloat16 and float16");
    require_line(model.dtype.empty() || model.dtype == type, name, "' is ", type,
                 ", those before it are ", model.dtype, "; give one type");
    model.dtype = type;
    // "256x32", "(256, 32)" or "[256,32]"; "()" of a scalar
    std::istringstream numbers(std::regex_replace(words[2].str(), std::regex("\\D"), " "));
    const Shape sizes{std::istream_iterator<int64_t>(numbers), {}};
    double n = 1;
    for (const int64_t size : sizes) n *= double(size);
    require_line(n <= 0x1p45 && numbers.eof(), name, "' of shape ", words[2].str(),
                 " is too large");
    model.add(words[4], {name, sizes});
  }
  file.require_complete();
  require_input(!model.units.empty(), "'", path, "' names no parameter");
  return model;
}

UnitSizes sizes_of(const Parameters& parameters, int ranks) {
  UnitSizes sizes;
  for (const auto& [name, shape] : parameters) {
    const int64_t n = numel(shape), rows = shape.empty() ? 1 : shape[0];
    sizes.exact += n;
    sizes.rows += rows == 0 ? 0 : n / rows * round_up(rows, ranks);
  }
  return sizes;
}

void fit_units(TrafficCase& c, const std::vector<SeenCall>& calls, TrafficVerdict& verdict) {
  std::set<int64_t> seen, planned;
  for (const PlannedCalls& p : c.plan.calls) {
    if (p.sum_only) return;
    planned.insert(p.elements);
  }
  CheckedModel transposed = c.model;
  for (auto& unit : transposed.units)
    for (auto& p : unit.parameters)
      if (c.model.either_layout && p.shape.size() == 2 && p.name.starts_with("h."))
        std::swap(p.shape[0], p.shape[1]);
  for (const SeenCall& call : calls)
    if (call.collective == "reduce_scatter" && call.elements > 0) seen.insert(call.elements);
  for (const int64_t size : seen) {
    if (planned.contains(size) || has_unit(c.model, size, c.ranks)) continue;
    if (has_unit(transposed, size, c.ranks)) {
      c.model = transposed;
      verdict.notes = {"linear weights are (out, in), as in nn.Linear: so is their padding"};
      continue;
    }
    std::string text = merge(c.model, size, c.ranks);
    if (text.empty()) text = split(c.model, size, seen, c.ranks);
    if (!text.empty()) verdict.differences.push_back({false, text});
  }
  c.plan = plan_traffic(c.system, c.model, c.config, c.ranks);
}

}  // namespace zl::cli
