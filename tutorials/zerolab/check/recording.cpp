// Which format a file has, the names that the formats share, and the lines of NCCL.

#include "tutorials/zerolab/check/recording.h"

#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <iterator>
#include <regex>
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

std::string_view InputText::ahead() {
  if (stream_.peek() == EOF) return "";
  return {gptr(), size_t(egptr() - gptr())};
}

bool is_json(std::string_view text) {
  const std::string begin(text.substr(0, 99));
  static const std::regex json("^(\xEF\xBB\xBF)?\\s*(\\{|\\[\\s*[{\\]])");
  return std::regex_search(begin, json);
}

Recording read_recording(const std::string& path) {
  InputText file(path);
  const std::string_view begin = file.ahead();
  file.require_complete();
  require_input(!begin.empty(), "'", path, "' is empty");
  require_input(begin[0] != '\x80', "'", path, "' is a pickle; write the flight recorder as JSON, ",
                "with torch._C._distributed_c10d._dump_nccl_trace_json()");
  const bool json = is_json(begin);
  Recording all = json ? read_json_recording(file) : read_nccl_log(file.stream());
  file.require_complete();
  require_input(json || !all.calls.empty(), "'", path, "' is neither JSON nor a log of NCCL with ",
                "collectives; for those run with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=COLL");
  require_input(!all.calls.empty(), "'", path, "' is a ", all.kind,
                " without a collective: was the run on one rank, or did the profiler stop before?");
  for (SeenCall& call : all.calls)
    if (call.is_shard) call.elements = all.ranks > 0 ? call.elements * all.ranks : -1;
  return all;
}

// "all_gather" for "_allgather_base_".
static std::string our_name(const std::string& name) {
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

SeenCall::SeenCall(const std::string& name, const std::string& type, int64_t in, int64_t out,
                   int ranks)
    : collective(our_name(name)), dtype(our_type(type)), elements(in), group(ranks) {
  if (collective == "barrier") elements = 0;
  if (collective != "all_gather" && collective != "reduce_scatter") return;
  const auto [less, more] = std::minmax(in, out);
  elements = more;
  if (less > 0 && more > less && group == 0) group = int(more / less);
  if (less < 0 && group > 0) elements *= more > 0 ? group : 1;
  is_shard = less < 0 && more > 0 && group == 0;
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
  std::map<std::string, int> places;  // of processes, as they appear
  std::map<int, int> said;            // the rank of a place, as NCCL says it
  constexpr std::string_view kInfo = "NCCL INFO ", kCount = ": opCount ";
  for (std::string line; std::getline(text, line);) {
    const size_t info = line.find(kInfo);
    if (info == line.npos) continue;
    // "host:pid:thread [device]", behind what others write before it: threads of a process are one
    // rank, but for its devices.
    const size_t device = std::min(info, line.rfind('[', info)),
                 end_of_word = line.find_last_not_of(' ', device - 1),
                 word = line.find_last_of(' ', end_of_word) + 1;
    const std::string process =
        line.substr(word, line.rfind(':', end_of_word) - word) + line.substr(device, info - device);
    const size_t begin = info + kInfo.size(), end = line.find(kCount, begin);
    const int64_t rank = number(line, " rank ", -1), type = number(line, " datatype ", -1),
                  ranks = number(line, " nRanks ", number(line, " nranks ", 0));
    const bool starts = line.find("comm 0x") != line.npos && rank >= 0 && ranks > 0;
    if (!starts && end == line.npos) continue;
    const int place = places.emplace(process, int(places.size())).first->second;
    if (starts && ranks >= all.ranks) all.ranks = int(ranks), said[place] = int(rank);
    if (end == line.npos) continue;
    all.calls.emplace_back(line.substr(begin, end - begin),
                           type >= 0 && type < std::ssize(kTypes) ? kTypes[type] : "",
                           number(line, " count ", -1), -1, int(number(line, "[nranks=", 0)));
    all.calls.back().rank = place;
  }
  for (SeenCall& call : all.calls) {
    if (said.size() == places.size()) call.rank = said[call.rank];
    all.steps.emplace(call.rank, 0);
  }
  return all;
}

}  // namespace zl::cli
