// The side of an exercise that runs the student's code, in a process that is not the judge's.
//
// Each exercise defines measure() once, in NN_name/measure.cpp; 05 to 07 share that of stages/.
// program_main.cpp calls it and writes the record to a file. The judge reads that file when the
// process has ended, and only then computes what is expected.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <map>
#include <ranges>
#include <string>
#include <vector>

#include "dist/communicator.h"
#include "tensor/error.h"
#include "tensor/memory.h"
#include "tensor/random.h"

namespace zl::exercises {

using Values = std::vector<double>;

// texts["error"] is what measure() or the student's code threw: observe() reports it. Floats, and
// integers below 2^53, are exact. NaN and infinity are kept.
struct Record {
  std::map<std::string, Values> numbers;
  std::map<std::string, std::string> texts;

  // A name that is put again has what was put last.
  void put(const std::string& name, double number) { numbers[name] = {number}; }
  void put(const std::string& name, const std::ranges::range auto& list) {
    numbers[name].assign(std::ranges::begin(list), std::ranges::end(list));
  }
  // Rows of a type without pointers, as they are in memory: both sides of an exercise are compiled
  // with the same type.
  template <class Row>
  void put_rows(const std::string& name, const std::vector<Row>& rows) {
    texts[name].assign(reinterpret_cast<const char*>(rows.data()), rows.size() * sizeof(Row));
  }
  // Adds what rank r measured: its list "sent" becomes "sent r".
  void add(int r, const Record& of_rank) {
    for (const auto& [name, values] : of_rank.numbers) numbers[str(name, " ", r)] = values;
    for (const auto& [name, text] : of_rank.texts) texts[str(name, " ", r)] = text;
  }

  // list(), number(), of() and rows() throw InputError if the check did not measure it: a check
  // that goes through what was measured must not pass because there is nothing.
  const Values& list(const std::string& name) const { return measured(numbers, name); }
  // Empty if there is none.
  std::string text(const std::string& name) const {
    const auto found = texts.find(name);
    return found == texts.end() ? "" : found->second;
  }
  double number(const std::string& name) const { return list(name).at(0); }
  // Of one rank: "sent 2".
  const Values& of(const std::string& name, int rank) const {
    return list(name + " " + std::to_string(rank));
  }
  template <class Row>
  std::vector<Row> rows(const std::string& name) const {
    const std::string& bytes = measured(texts, name);
    std::vector<Row> all(bytes.size() / sizeof(Row));
    std::copy_n(bytes.data(), all.size() * sizeof(Row), reinterpret_cast<char*>(all.data()));
    return all;
  }

 private:
  template <class Value>
  static const Value& measured(const std::map<std::string, Value>& all, const std::string& name) {
    const auto found = all.find(name);
    require_input(found != all.end(), "the check measured no '", name, "'");
    return found->second;
  }
};

// Measuring and judging process derive the same sizes, ranks and data from it.
struct CheckOptions {
  int exercise = 0;   // its number
  uint64_t seed = 0;  // of the student, or of this run
  std::string check;
  DeviceKind device = DeviceKind::cpu;
  // Shows the run on the terminal, from this event of rank 0 on; -1: does not.
  int64_t step_from = -1;

  bool is(const char* name) const { return check == name; }
  uint64_t check_seed() const { return seed ^ fnv1a(check); }
};

// Of the words NUMBER SEED cpu|cuda, which the judge and the program get. The check is not among
// them: the judge names the one that runs, and the program gets it as a further word.
inline CheckOptions check_options(const char* const* words) {
  return {.exercise = int(std::strtol(words[0], nullptr, 10)),
          .seed = std::strtoull(words[1], nullptr, 10),
          .device = words[2] == std::string("cuda") ? DeviceKind::cuda : DeviceKind::cpu};
}

// Of run_ranks(), whose process ends when both have passed once more after a failure. A check has
// 10 s: ranks that wait fail after 8 s, and the report of a rank that loops comes 1 s later.
inline constexpr std::chrono::seconds kRankTimeout{8}, kRankGrace{-7};

// Numbers that follow from the seed and a check's name.
class Draw {
 public:
  explicit Draw(const CheckOptions& options) : stream_{options.seed, fnv1a(options.check)} {}
  int64_t between(int64_t low, int64_t high) {  // both included
    return low + int64_t(stream_.uniform(next_++) * double(high - low + 1));
  }
  double normal() { return stream_.normal(2 * next_++); }

 private:
  PhiloxStream stream_;
  uint64_t next_ = 0;
};

// What a rank costs: its memory at the peak [B], what it sends [B], its calls. Rows "costs" of a
// record have those of each rank, for `exercise board`.
using Costs = std::array<int64_t, 3>;

// From now on, by the rank's events.
inline void count_costs(EventStream& events, Costs& costs) {
  events.listen([&costs, live = int64_t{0}](const Event& event) mutable {
    if (event.kind == EventKind::allocate) costs[0] = std::max(costs[0], live += event.bytes);
    if (event.kind == EventKind::release) live -= event.bytes;
    if (event.kind == EventKind::collective_end) costs[1] += event.bytes, ++costs[2];
  });
}

// Runs `body` once per rank, each with a record, which Record::add() joins, and puts "costs". What
// ended the communication becomes texts["communication"].
Record run_on_ranks(int ranks, const std::function<void(Communicator&, Record&)>& body);

// Runs one check on the student's code. With step_from the record may be empty. What it throws
// reaches the judge as texts["error"].
Record measure(const CheckOptions& options);

}  // namespace zl::exercises
