// What the student's code did in one check, as the process that ran it measured it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace zl::exercises {

// texts["error"] is what measure() or the student's code threw, texts["sandbox"] why there is no
// sandbox: the grader reports both, and no judge sees them. Floats, and integers below 2^53, are
// exact. NaN and infinity are kept.
struct Record {
  std::map<std::string, std::vector<double>> numbers;
  std::map<std::string, std::string> texts;
};

// Begins and ends with `key`, which only the grader and the measuring code know.
std::string encode(const Record& record, uint64_t key);
// Throws InputError if the bytes are no record with this key, or end too early.
Record decode_record(const std::string& bytes, uint64_t key);

}  // namespace zl::exercises
