// What the student's code did in one check, as the process that ran it measured it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <ranges>
#include <string>
#include <vector>

#include "tensor/error.h"

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
  // Adds what each rank measured: rank r's list "sent" becomes "sent r".
  void add(std::vector<Record> ranks);

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

std::string encode(const Record& record);
// Throws InputError if the bytes are no record, or end too early.
Record decode_record(const std::string& bytes);

}  // namespace zl::exercises
