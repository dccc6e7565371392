#include "stages/predict/ground_truth/published.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <map>
#include <sstream>

#include "stages/variants/groups.h"
#include "tensor/error.h"

namespace zl {
namespace {

std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  size_t begin = 0;
  for (size_t end; (end = line.find(',', begin)) != std::string::npos; begin = end + 1)
    cells.push_back(line.substr(begin, end - begin));
  cells.push_back(line.substr(begin));
  return cells;
}

// One line of a table. Cells have no commas.
struct Row {
  const std::map<std::string, std::string>& cells;
  const std::string& where;  // "steps.csv, line 17"

  const std::string& text(const char* column) const {
    const auto found = cells.find(column);
    require_input(found != cells.end(), where, ": there is no column ", column);
    return found->second;
  }
  const std::string& name(const char* column) const {
    require_input(!text(column).empty(), where, ": ", column, " is empty");
    return text(column);
  }
  // From `least`; an empty cell is `least` if that is 0.
  double number(const char* column, double least) const {
    const std::string& cell = text(column);
    if (cell.empty() && least == 0) return 0;
    double value = 0;
    const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
    require_input(error == std::errc() && end == cell.data() + cell.size() &&
                      std::isfinite(value) && value >= least,
                  where, ": ", column, " must be a number of at least ", least, ", not '", cell,
                  "'");
    return value;
  }
  int64_t count(const char* column) const {
    const double value = number(column, 1);
    require_input(value == std::floor(value), where, ": ", column, " must be a whole number, not ",
                  value);
    return int64_t(value);
  }
  double seconds(const char* column, double unit) const { return unit * number(column, 1e-3); }
  MachineChange change(const char* memory) const {
    return {.network = number("network", 0), .memory_bandwidth = memory ? number(memory, 0) : 0};
  }
  template <class Value>
  Value one_of(const char* column, const std::vector<Value>& values) const {
    for (const Value value : values)
      if (name(column) == zl::name(value)) return value;
    throw InputError(str(where, ": ", column, " is '", name(column), "', which is unknown"));
  }
};

void each_row(const std::string& csv, const std::string& where,
              const std::function<void(const Row&)>& read) {
  std::istringstream lines(csv);
  std::vector<std::string> columns;
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (line.empty() || line[0] == '#') continue;
    const std::vector<std::string> cells = cells_of(line);
    if (columns.empty()) {
      columns = cells;
      continue;
    }
    const std::string at = str(where, ", line ", number);
    require_input(cells.size() == columns.size(), at, ": there are ", cells.size(), " values for ",
                  columns.size(), " columns");
    std::map<std::string, std::string> named;
    for (size_t i = 0; i < cells.size(); ++i) named[columns[i]] = cells[i];
    read({named, at});
  }
}

}  // namespace

Machine with(Machine m, const MachineChange& change) {
  if (change.network > 0) {
    m.network.bandwidth = change.network / m.network.ports;
    // Only ports of 400 Gb/s carry gathers worse than sums.
    if (m.network.bandwidth <= 25e9) m.network.gathers = m.network.sums;
    std::erase_if(m.collectives, [](const CollectiveRow& row) { return row.nodes > 1; });
  }
  if (change.memory_bandwidth > 0) m.rank.memory_bandwidth = change.memory_bandwidth;
  return m;
}

std::vector<PublishedCall> read_calls(const std::string& csv, const std::string& where) {
  std::vector<PublishedCall> calls;
  each_row(csv, where, [&](const Row& row) {
    calls.push_back({.machine = row.name("machine"),
                     .system = row.name("system"),
                     .change = row.change(nullptr),
                     .collective = row.one_of(
                         "collective", std::vector{Collective::all_reduce, Collective::all_gather,
                                                   Collective::reduce_scatter}),
                     .ranks = int(row.count("ranks")),
                     .nodes = int(row.count("nodes")),
                     .bytes = row.count("bytes"),
                     .seconds = row.seconds("microseconds", 1e-6),
                     .source = row.name("source")});
    const PublishedCall& call = calls.back();
    require_input(call.ranks > call.nodes, row.where, ": ", call.ranks, " ranks on ", call.nodes,
                  " nodes");
  });
  return calls;
}

std::vector<PublishedStep> read_steps(const std::string& csv, const std::string& where) {
  std::vector<PublishedStep> steps;
  each_row(csv, where, [&](const Row& row) {
    const std::string& shape = row.name("shape");
    require_input(shape == "gpt" || shape == "llama", row.where,
                  ": shape must be gpt or llama, not ", shape);
    steps.push_back({.program = row.name("program"),
                     .machine = row.name("machine"),
                     .model = row.name("model"),
                     .change = row.change("memory_bandwidth"),
                     .variant = row.text("case"),
                     .llama = shape == "llama",
                     .parameters = row.count("parameters"),
                     .shape = {.layers = row.count("layers"),
                               .heads = row.count("heads"),
                               .width = row.count("width"),
                               .block_size = row.count("window"),
                               .vocab = row.count("vocab")},
                     .ranks = int(row.count("ranks")),
                     .stage = row.one_of("stage", all_stages()),
                     .micro_batch = row.count("micro_batch"),
                     .accumulation = row.count("accumulation"),
                     .recomputed = row.number("recomputed", 0),
                     .update_ranks = std::max(1, int(row.number("update_ranks", 0))),
                     .unlike = row.text("unlike"),
                     .seconds = row.seconds("milliseconds", 1e-3),
                     .source = row.name("source")});
    require_input(steps.back().recomputed <= 1, row.where, ": recomputed is a share, not ",
                  steps.back().recomputed);
    steps.back().shape.check();
  });
  return steps;
}

const std::vector<PublishedCall>& published_calls() {
  static const auto calls = read_calls(published_tables().at(0), "collectives.csv");
  return calls;
}
const std::vector<PublishedStep>& published_steps() {
  static const auto steps = read_steps(published_tables().at(1), "steps.csv");
  return steps;
}

}  // namespace zl
