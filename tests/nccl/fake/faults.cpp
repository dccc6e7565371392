#include "tests/nccl/fake/faults.h"

#include <sstream>

#include "tensor/error.h"

namespace zl::test {
namespace {

Fault::Kind kind_from(const std::string& word) {
  static constexpr const char* kWords[] = {"slow",   "fails",  "fails_later", "never",
                                           "stalls", "breaks", "hangs"};
  for (size_t i = 0; i < std::size(kWords); ++i)
    if (word == kWords[i]) return Fault::Kind(i);
  throw InputError(str("no fault of NCCL is called '", word, "'"));
}

}  // namespace

std::vector<Fault> faults_from(const std::string& text) {
  std::vector<Fault> faults;
  std::istringstream in(text);
  for (std::string one; std::getline(in, one, ';');) {
    char function[32], kind[16];
    Fault fault;
    const int read = std::sscanf(one.c_str(), " %31[^:]:%15[^:]:rank=%d:call=%d", function, kind,
                                 &fault.rank, &fault.call);
    require_input(read == 4, "a fault is FUNCTION:KIND:rank=N:call=N, not '", one, "'");
    fault.function = function, fault.kind = kind_from(kind);
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
