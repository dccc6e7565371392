// NCCL's log with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=COLL. A line of NVIDIA/nccl, src/enqueue.cc:
//   host:1234:1250 [0] NCCL INFO AllGather: opCount 3 sendbuff 0x… recvbuff 0x… count 4640 datatype
//   7 op 0 root 0 comm 0x… [nranks=2] stream 0x…
// The count is what a rank sends in an all-gather, and what it receives in a reduce-scatter.

#include <cstdio>
#include <iterator>
#include <string_view>

#include "tutorials/zerolab/check/recording.h"

namespace zl::cli {
namespace {

// Of nccl.h, by their numbers.
constexpr const char* kTypes[] = {"i8",  "u8",  "i32", "u32",  "i64",     "u64",
                                  "f16", "f32", "f64", "bf16", "f8_e4m3", "f8_e5m2"};

// The number behind `word`; `missing` if there is none.
int64_t number(std::string_view line, const std::string& word, int64_t missing) {
  const size_t at = line.find(word);
  long long value = 0;
  const bool is =
      at != line.npos &&
      std::sscanf(std::string(line.substr(at + word.size(), 24)).c_str(), "%lld", &value) == 1;
  return is ? value : missing;
}

}  // namespace

Recording read_nccl_log(std::istream& text) {
  Recording all{.kind = "NCCL log"};
  std::map<std::string, int> order, said;  // ranks of processes: as they appear, as NCCL says
  std::vector<std::string> process_of;     // of each call
  constexpr std::string_view kInfo = "NCCL INFO ", kCount = ": opCount ";
  for (std::string line; std::getline(text, line);) {
    const size_t info = line.find(kInfo);
    if (info == line.npos) continue;
    // "host:pid:thread [device]": threads of a process are one rank, but for its devices.
    const std::string head = line.substr(0, info);
    const std::string process =
        head.substr(0, head.rfind(':')) +
        head.substr(head.find_last_of('[') == head.npos ? head.size() : head.find_last_of('['));
    const int64_t rank = number(line, " rank ", -1), ranks = number(line, " nranks ", 0),
                  ranks_too = number(line, " nRanks ", ranks);
    if (line.find("comm 0x") != line.npos && rank >= 0 && ranks_too > 0 && ranks_too >= all.ranks) {
      all.ranks = int(ranks_too);
      said[process] = int(rank);
    }
    const size_t begin = info + kInfo.size(), end = line.find(kCount, begin);
    if (end == line.npos) continue;
    SeenCall call{.name = line.substr(begin, end - begin)};
    call.collective = our_name(call.name);
    call.group = int(number(line, "[nranks=", 0));
    call.elements = number(line, " count ", -1);
    const bool shards = call.collective == "all_gather" || call.collective == "reduce_scatter";
    if (shards && call.elements > 0)
      call.elements = call.group > 0 ? call.elements * call.group : -1;
    const int64_t type = number(line, " datatype ", -1);
    if (type >= 0 && type < int64_t(std::size(kTypes))) call.dtype = kTypes[type];
    order.emplace(process, int(order.size()));
    process_of.push_back(process);
    all.calls.push_back(std::move(call));
  }
  for (size_t i = 0; i < all.calls.size(); ++i) {
    const bool known = said.size() >= order.size();
    all.calls[i].rank = (known ? said : order)[process_of[i]];
    all.steps.emplace(all.calls[i].rank, 0);
  }
  return all;
}

}  // namespace zl::cli
