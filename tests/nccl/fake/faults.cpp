#include "tests/nccl/fake/faults.h"

#include <sstream>

#include "tensor/error.h"

namespace zl::test {
namespace {

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, at);) parts.push_back(part);
  return parts;
}

Fault::Kind kind_from(const std::string& word) {
  static constexpr const char* kWords[] = {"slow",   "fails",  "fails_later", "never",
                                           "stalls", "breaks", "hangs"};
  for (size_t i = 0; i < std::size(kWords); ++i)
    if (word == kWords[i]) return Fault::Kind(i);
  throw InputError(
      str("a fault is slow, fails, fails_later, never, stalls, breaks or hangs, not '", word, "'"));
}

NcclResult result_from(const std::string& word) {
  for (int i = 1; i <= int(NcclResult::in_progress); ++i)
    if (word == name(NcclResult(i))) return NcclResult(i);
  throw InputError(str("NCCL has no result '", word, "'"));
}

int number_from(const std::string& word) {
  const bool number = word == "-1" || (!word.empty() && word.size() < 9 &&
                                       word.find_first_not_of("0123456789") == std::string::npos);
  require_input(number, "a fault has the number '", word, "'");
  return std::stoi(word);
}

void set(Fault& fault, const std::string& setting) {
  const size_t at = setting.find('=');
  const std::string key = setting.substr(0, at),
                    value = at == std::string::npos ? "" : setting.substr(at + 1);
  if (key == "rank")
    fault.rank = number_from(value);
  else if (key == "call")
    fault.call = number_from(value);
  else if (key == "times")
    fault.times = number_from(value);
  else if (key == "result")
    fault.result = result_from(value);
  else if (key == "said")
    fault.said = value;
  else
    throw InputError(str("a fault has rank, call, times, result and said, not '", setting, "'"));
}

}  // namespace

std::vector<Fault> faults_from(const std::string& text) {
  std::vector<Fault> faults;
  for (const std::string& one : split(text, ';')) {
    const std::vector<std::string> words = split(one, ':');
    require_input(words.size() >= 2, "a fault is FUNCTION:KIND[:KEY=VALUE]…, not '", one, "'");
    Fault fault{.function = words[0].substr(words[0].find_first_not_of(' ')),
                .kind = kind_from(words[1])};
    for (size_t i = 2; i < words.size(); ++i) set(fault, words[i]);
    faults.push_back(fault);
  }
  return faults;
}

NcclResult Trouble::take(const Fault& fault) {
  switch (fault.kind) {
    case Fault::Kind::slow: slow = fault.times; break;
    case Fault::Kind::fails: return fault.result;
    case Fault::Kind::fails_later: slow = fault.times, error = fault.result; break;
    case Fault::Kind::never: never = true; break;
    case Fault::Kind::stalls: stalls = true; break;
    case Fault::Kind::breaks: stalls = true, breaks_in = fault.times, later = fault.result; break;
    case Fault::Kind::hangs: break;
  }
  return NcclResult::success;
}

void Trouble::poll() {
  if (slow > 0) --slow;
  if (breaks_in > 0 && --breaks_in == 0) error = later;
}

std::vector<Fault> FaultScript::call(const std::string& function, int rank) {
  const int nth = ++calls_[function][rank];
  std::vector<Fault> now;
  for (const Fault& fault : faults_) {
    if (fault.function != function || (fault.rank >= 0 && fault.rank != rank)) continue;
    if (fault.call > 0 && fault.call != nth) continue;
    if (!fault.said.empty()) said_.push_back(fault.said);
    now.push_back(fault);
    if (fault.kind == Fault::Kind::fails) break;  // there the call ends
  }
  return now;
}

int FaultScript::calls(const std::string& function) const {
  const auto found = calls_.find(function);
  int all = 0;
  if (found != calls_.end())
    for (const auto& [rank, calls] : found->second) all += calls;
  return all;
}

}  // namespace zl::test
