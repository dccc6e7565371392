// Which format a file has, the names that the formats share, and the lines of NCCL.

#include "tutorials/zerolab/check/recording.h"

#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <iterator>
#include <string_view>

#include "tensor/error.h"

namespace zl::cli {

// zlib reads files that are not gzip as they are.
InputText::InputText(const std::string& path) : path_(path), file_(gzopen(path.c_str(), "rb")) {
  require_input(file_, "'", path, "' cannot be opened: ", std::strerror(errno));
}
InputText::~InputText() { gzclose(file_); }

InputText::int_type InputText::underflow() {
  const int read = gzread(file_, text_, sizeof text_);
  if (read <= 0) return traits_type::eof();
  setg(text_, text_, text_ + read);
  return traits_type::to_int_type(*text_);
}

void InputText::require_complete() const {
  int code = Z_OK;
  const char* problem = gzerror(file_, &code);
  if (code == Z_ERRNO) problem = std::strerror(errno);
  require_input(code == Z_OK || code == Z_STREAM_END, "'", path_, "' cannot be read to its end (",
                problem, "): it is cut or damaged; copy it again");
}

Recording read_recording(const std::string& path) {
  InputText file(path);
  const int first = (file.stream() >> std::ws).peek();
  file.require_complete();
  require_input(first != EOF, "'", path, "' is empty");
  require_input(first != 0x80, "'", path, "' is a pickle; write the flight recorder as JSON, with ",
                "torch._C._distributed_c10d._dump_nccl_trace_json()");
  const bool json = first == '{' || first == '[';
  Recording all = json ? read_json_recording(file) : read_nccl_log(file.stream());
  file.require_complete();
  require_input(json || !all.calls.empty(), "'", path, "' is neither JSON nor a log of NCCL with ",
                "collectives; for those run with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=COLL");
  require_input(!all.calls.empty(), "'", path, "' is a ", all.kind,
                " without a collective: was the run on one rank, or did the profiler stop before?");
  return all;
}

std::string our_name(const std::string& name) {
  const auto plain = [](std::string text) {
    std::erase(text, '_');
    std::ranges::transform(text, text.begin(), [](char c) { return char(std::tolower(c)); });
    return text;
  };
  for (const std::string ours : {"all_gather", "reduce_scatter", "all_reduce", "broadcast",
                                 "all_to_all", "barrier", "send", "recv"})
    if (plain(name).find(plain(ours)) != name.npos) return ours == "recv" ? "receive" : ours;
  return plain(name);
}

std::string our_type(std::string type) {
  for (const std::string space : {"torch.", "c10::"})
    if (type.starts_with(space)) type.erase(0, space.size());
  std::ranges::transform(type, type.begin(), [](char c) { return char(std::tolower(c)); });
  static const std::map<std::string, std::string> names = {
      {"float", "f32"},        {"float32", "f32"}, {"fp32", "f32"},    {"half", "f16"},
      {"float16", "f16"},      {"fp16", "f16"},    {"double", "f64"},  {"float64", "f64"},
      {"bfloat16", "bf16"},    {"int", "i32"},     {"long", "i64"},    {"long int", "i64"},
      {"unsigned char", "u8"}, {"byte", "u8"},     {"tensorlist", ""}, {"genericlist", ""}};
  const auto found = names.find(type);
  return found == names.end() ? type : found->second;
}

// ---- NCCL --------------------------------------------------------------------------------------

namespace {

// Of nccl.h, by their numbers.
constexpr const char* kTypes[] = {"i8",  "u8",  "i32", "u32",  "i64",     "u64",
                                  "f16", "f32", "f64", "bf16", "f8_e4m3", "f8_e5m2"};

// The number behind `word`; `missing` if there is none.
int64_t number(std::string_view line, const std::string& word, int64_t missing) {
  const size_t at = line.find(word);
  if (at == line.npos) return missing;
  std::from_chars(line.data() + at + word.size(), line.data() + line.size(), missing);
  return missing;
}

}  // namespace

// With NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=COLL. A line of NVIDIA/nccl, src/enqueue.cc:
//   host:1234:1250 [0] NCCL INFO AllGather: opCount 3 sendbuff 0x… recvbuff 0x… count 4640 datatype
//   7 op 0 root 0 comm 0x… [nranks=2] stream 0x…
// The count is what a rank sends in an all-gather, and what it receives in a reduce-scatter.
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
        head.substr(0, head.rfind(':')) + head.substr(std::min(info, head.rfind('[')));
    const int64_t rank = number(line, " rank ", -1),
                  ranks = number(line, " nRanks ", number(line, " nranks ", 0));
    if (line.find("comm 0x") != line.npos && rank >= 0 && ranks > 0 && ranks >= all.ranks) {
      all.ranks = int(ranks);
      said[process] = int(rank);
    }
    const size_t begin = info + kInfo.size(), end = line.find(kCount, begin);
    if (end == line.npos) continue;
    SeenCall call{.collective = our_name(line.substr(begin, end - begin)),
                  .elements = number(line, " count ", -1),
                  .group = int(number(line, "[nranks=", 0))};
    if (call.shards() && call.elements > 0)
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
