// What the student's code did in one check, as the process that ran it measured it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace zl::exercises {

// texts["error"] is what measure() or the student's code threw: observe() reports it. Floats, and
// integers below 2^53, are exact. NaN and infinity are kept.
struct Record {
  std::map<std::string, std::vector<double>> numbers;
  std::map<std::string, std::string> texts;

  // Throws InputError if the check did not measure it.
  const std::vector<double>& list(const std::string& name) const;
  double number(const std::string& name) const { return list(name).at(0); }
  // Of one rank: "sent 2".
  const std::vector<double>& of(const std::string& name, int rank) const {
    return list(name + " " + std::to_string(rank));
  }
};

std::string encode(const Record& record);
// Throws InputError if the bytes are no record, or end too early.
Record decode_record(const std::string& bytes);

}  // namespace zl::exercises
