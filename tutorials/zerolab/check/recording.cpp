// Traces and flight recorders are JSON that may be larger than memory, so that one event at a time
// becomes a value; logs of NCCL are read by line.

#include "tutorials/zerolab/check/recording.h"

#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <nlohmann/json.hpp>
#include <regex>

#include "tensor/error.h"

namespace zl::cli {
namespace {

using Value = nlohmann::json;

// ---- what the formats share --------------------------------------------------------------------

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](char c) { return char(std::tolower(c)); });
  return text;
}

// "all_gather" for "_allgather_base_" and "AllGather".
std::string our_name(std::string name) {
  std::erase(name, '_');
  name = lower(name);
  for (const std::string ours : {"all_gather", "reduce_scatter", "all_reduce", "broadcast",
                                 "all_to_all", "barrier", "send", "recv"}) {
    std::string plain = ours;
    std::erase(plain, '_');
    if (name.find(plain) != name.npos) return ours == "recv" ? "receive" : ours;
  }
  return name;
}

// Of what a file has, its names and what goes in and comes out, to what we have.
void complete(SeenCall& call, int ranks) {
  call.collective = our_name(call.collective), call.dtype = our_type(call.dtype);
  if (call.collective == "barrier") call.elements = 0;
  if (call.collective != "all_gather" && call.collective != "reduce_scatter") return;
  const auto [less, more] = std::minmax({call.elements, call.out});
  if (less > 0 && more > less && call.group == 0) call.group = int(more / less);
  if (call.group > 0) ranks = call.group;
  const bool one_side = less < 0 && more > 0;  // a shard, until the number of ranks is known
  call.elements = !one_side ? more : ranks > 0 && more <= (1LL << 45) ? more * ranks : -1;
}

// ---- JSON --------------------------------------------------------------------------------------

// What is at a place, a JSON pointer; null, "" or `missing` if it is not there or of another type.
Value at(const Value& value, const char* place) {
  const Value::json_pointer pointer(place);
  return value.contains(pointer) ? value[pointer] : Value();
}
std::string text(const Value& value, const char* place) {
  const Value found = at(value, place);
  return found.is_string() ? found.get<std::string>() : "";
}
double real(const Value& value, const char* place, double missing = 0) {
  const Value found = at(value, place);
  return found.is_number() ? found.get<double>() : missing;
}
int64_t whole(const Value& value, const char* place, double missing = 0) {
  return int64_t(std::clamp(real(value, place, missing), -0x1p45, 0x1p45));
}

// [n] Of a tensor's shape, of a list of those, or a number. -1: none, or a list that is not shown:
// [], which is also the shape of a `scalar`.
int64_t elements_of(const Value& shape, bool scalar = false) {
  if (shape.is_number()) return whole(shape, "");
  if (!shape.is_array() || (shape.empty() && !scalar)) return -1;
  const bool list = !shape.empty() && shape[0].is_array();
  double n = list ? 0 : 1;
  for (const Value& part : shape) {
    const auto more = double(elements_of(part, true));
    n = list ? n + more : n * more;
  }
  require_input(n >= 0 && n <= 0x1p45, "the trace has a tensor of ", shape.dump(),
                ", which no run has");
  return int64_t(n);
}

// Which events are collectives, and where they say what.
struct Form {
  const char *kind, *category, *event;  // the event's name begins so
  const char *name, *type, *in, *out, *group, *rank;
};
// Of the first form that a file has, so that c10d's calls count where the GPU's do not repeat them.
constexpr Form kForms[] = {
    {"Kineto trace", "cpu_op", "record_param_comms", "/args/Collective name", "/args/dtype",
     "/args/In msg nelems", "/args/Out msg nelems", "/args/Group size", ""},
    {"flight recorder", "", "", "/profiling_name", "/input_dtypes/0", "/input_sizes",
     "/output_sizes", "", ""},
    {"trace of zerolab", "collective", "", "/args/kind", "", "/args/count", "/args/count", "",
     "/pid"},
    {"Kineto trace", "cpu_op", "c10d::", "/name", "/args/Input type/0", "/args/Input Dims/0",
     "/args/Input Dims/1", "", ""}};

class JsonReader : Recording {
 public:
  // The parser drops what the callback refuses: each event after it was read, and large values that
  // are not needed. A file may be a list of events.
  Recording read(InputText& file, const std::string& path) {
    static const std::set<std::string> needed = {"traceEvents", "entries",   "distributedInfo",
                                                 "otherData",   "pg_config", "rank"};
    const auto keep = [&](int depth, Value::parse_event_t event, Value& value) {
      if (event == Value::parse_event_t::key && depth == 1)
        return needed.contains(value.get<std::string>());
      const bool ends = event == Value::parse_event_t::object_end && depth <= 2;
      return depth < 100 && !(ends && takes(value));
    };
    try {
      finish(Value::parse(static_cast<std::istream&>(file), keep));
    } catch (const Value::exception& e) {
      throw InputError(str("'", path, "' is no JSON: ", e.what()));
    }
    require_input(events_ > 0, "'", path, "' is JSON, but no trace (\"traceEvents\") and no ",
                  "flight recorder (\"entries\") with an event");
    const auto sized = [](const SeenCall& call) { return std::max(call.elements, call.out) > 0; };
    require_input(calls.empty() || std::ranges::any_of(calls, sized), "'", path,
                  "' does not say the sizes of its collectives; profile with record_shapes=True");
    return *this;
  }

 private:
  bool takes(const Value& e) {  // whether it is an event
    const std::string category = text(e, "/cat"), event = text(e, "/name");
    if (category.empty() && !e.contains("ph") && !e.contains("profiling_name")) return false;
    ++events_;
    const bool phase = category == "phase" && event != "data" && event != "evaluate";
    if (phase || (category == "user_annotation" && event.starts_with("ProfilerStep")))
      spans_[phase ? int(whole(e, "/pid")) : -1].emplace(
          real(e, "/ts"), Span{!phase || event == "step", real(e, "/ts") + real(e, "/dur")});
    if (category == "user_annotation" && event.starts_with("gloo:"))
      types_[elements_of(at(e, "/args/Input Dims/0"), true)] = text(e, "/args/Input type/0");
    for (const Form* form = kForms; form <= form_; ++form)
      if (category == form->category && event.starts_with(form->event)) call(e, form);
    return true;
  }

  void call(const Value& e, const Form* form) {
    const std::string name = text(e, form->name);
    const int64_t in = elements_of(at(e, form->in)), out = elements_of(at(e, form->out));
    std::string type = our_type(text(e, form->type));
    if (const double bytes = real(e, "/args/bytes"); bytes > 0 && in > 0)  // zerolab's
      type = bytes == 4 * in ? "f32" : bytes == 8 * in ? "f64" : bytes == 2 * in ? "16-bit" : "";
    if (name.ends_with("coalesced") && in < 0 && *form->category == 0)
      notes = {"entries 'coalesced' close groups of the calls before them; not counted"};
    else if (!name.empty() && name != "wait" && name != "init") {
      if (std::exchange(form_, form) != form) calls.clear();
      calls.push_back({name.substr(name.rfind(':') + 1), type, in, out, int(whole(e, form->group)),
                       int(whole(e, form->rank, -1)), real(e, "/ts")});
    }
  }

  void finish(const Value& header) {
    kind = form_->kind;
    const int rank = int(whole(header, "/distributedInfo/rank", real(header, "/rank", -1)));
    ranks = int(whole(header, "/distributedInfo/world_size", real(header, "/otherData/ranks")));
    for (const Value& group : at(header, "/pg_config"))  // of a flight recorder; ranks: "[0, 1]"
      if (const auto more = std::ranges::count(at(group, "/ranks").dump(), ','); more > 0)
        ranks = std::max(ranks, int(more) + 1);
    for (auto& [of, spans] : spans_) {
      int& number = steps[of < 0 ? rank : of];
      for (auto& [begin, span] : spans) span.step = number, number += span.ends_step;
    }
    std::ranges::stable_sort(calls, {}, &SeenCall::time);
    for (SeenCall& call : calls) {
      const std::multimap<double, Span>& spans = spans_[call.rank];
      const auto next = spans.upper_bound(call.time);
      if (next != spans.begin() && call.time < std::prev(next)->second.end)
        call.step = std::prev(next)->second.step;
      if (call.rank < 0) call.rank = rank;
      const auto type = types_.find(std::max(call.elements, call.out));
      if (type != types_.end() && call.dtype.empty()) call.dtype = type->second;
    }
  }

  // A step, or a phase of zerolab's, whose steps end with the phase "step". They do not overlap;
  // data and evaluations belong to no step.
  struct Span {
    bool ends_step;
    double end;
    int step = 0;
  };
  int64_t events_ = 0;
  const Form* form_ = std::end(kForms) - 1;           // the first of those that the file has
  std::map<int, std::multimap<double, Span>> spans_;  // by begin; of each rank; -1: the file's
  std::map<int64_t, std::string> types_;  // of gloo's events, which repeat calls, by elements
};

// ---- NCCL --------------------------------------------------------------------------------------

// With NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=COLL. A line of NVIDIA/nccl, src/enqueue.cc:
//   host:1234:1250 [0] NCCL INFO AllGather: opCount 3 sendbuff 0x… recvbuff 0x… count 4640 datatype
//   7 op 0 root 0 comm 0x… [nranks=2] stream 0x…
// The count is what a rank sends in an all-gather, and what it receives in a reduce-scatter.
Recording read_nccl_log(std::istream& text) {
  // Of nccl.h, by their numbers.
  static const char* types[] = {"i8",  "u8",  "i32", "u32",  "i64",     "u64",
                                "f16", "f32", "f64", "bf16", "f8_e4m3", "f8_e5m2"};
  // Threads of a process are one rank, but for its devices.
  static const std::regex process("([^\\s:]+:\\d+):\\d+ *(\\[\\d+\\])? *$");
  Recording all{.kind = "NCCL log"};
  std::map<std::string, int> places;  // of processes, as they appear
  std::map<int, int> said;            // the rank of a place, as NCCL says it
  for (std::string line; std::getline(text, line);) {
    const size_t info = line.find("NCCL INFO "), name = info + 10;
    if (info == line.npos) continue;
    const auto number = [&](const std::string& word, int64_t missing) {
      const size_t at = line.find(word, name);
      return at == line.npos ? missing : std::strtoll(&line[at + word.size()], nullptr, 10);
    };
    const size_t end = line.find(": opCount ", name);
    const int64_t rank = number(" rank ", -1), type = number(" datatype ", -1),
                  ranks = number(" nRanks ", number(" nranks ", 0));
    const bool starts = line.find("comm 0x") != line.npos && rank >= 0 && ranks > 0;
    if (!starts && end == line.npos) continue;
    std::smatch of;
    const std::string before = line.substr(0, info).substr(info > 200 ? info - 200 : 0);
    std::regex_search(before, of, process);
    const int place = places.emplace(of.str(1) + of.str(2), int(places.size())).first->second;
    if (starts && ranks >= all.ranks) all.ranks = int(ranks), said[place] = int(rank);
    if (end == line.npos) continue;
    all.calls.push_back({line.substr(name, end - name),
                         type >= 0 && type < std::ssize(types) ? types[type] : "",
                         number(" count ", -1), -1, int(number("[nranks=", 0)), place});
  }
  for (SeenCall& call : all.calls)
    if (said.size() == places.size()) call.rank = said[call.rank];
  return all;
}

}  // namespace

// ---- files -------------------------------------------------------------------------------------

// zlib reads files that are not gzip as they are.
InputText::InputText(const std::string& path)
    : std::istream(this), path_(path), file_(gzopen(path.c_str(), "rb"), gzclose) {
  require_input(file_ != nullptr, "'", path, "' cannot be opened: ", std::strerror(errno));
  exceptions(badbit);  // so that what underflow() throws comes through
}

std::streambuf::int_type InputText::underflow() {
  const int read = gzread(file_.get(), text_, sizeof text_);
  if (read > 0) {
    setg(text_, text_, text_ + read);
    return std::char_traits<char>::to_int_type(*text_);
  }
  int code = Z_OK;
  const char* problem = gzerror(file_.get(), &code);
  if (code == Z_ERRNO) problem = std::strerror(errno);
  require_input(code == Z_OK || code == Z_STREAM_END, "'", path_, "' cannot be read to its end (",
                problem, "): it is cut or damaged; copy it again");
  return EOF;
}

std::string_view InputText::ahead() {
  if (peek() == EOF) return "";
  return {gptr(), size_t(egptr() - gptr())};
}

bool is_json(std::string_view text) {
  static const std::regex json("^(\xEF\xBB\xBF)?\\s*(\\{|\\[\\s*[{\\]])");
  return std::regex_search(std::string(text.substr(0, 99)), json);
}

Recording read_recording(const std::string& path) {
  InputText file(path);
  const std::string_view begin = file.ahead();
  require_input(!begin.empty(), "'", path, "' is empty");
  require_input(begin[0] != '\x80', "'", path, "' is a pickle; write the flight recorder as JSON, ",
                "with _dump_nccl_trace_json() or, on gloo, _dump_fr_trace_json() of ",
                "torch._C._distributed_c10d");
  const bool json = is_json(begin);
  Recording all = json ? JsonReader().read(file, path) : read_nccl_log(file);
  require_input(json || !all.calls.empty(), "'", path, "' is neither JSON nor a log of NCCL with ",
                "collectives; for those run with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=COLL");
  require_input(!all.calls.empty(), "'", path, "' is a ", all.kind,
                " without a collective: was the run on one rank, or did the profiler stop before?");
  for (SeenCall& call : all.calls) complete(call, all.ranks), all.steps.emplace(call.rank, 0);
  for (const SeenCall& call : all.calls) all.ranks = std::max(all.ranks, call.group);
  return all;
}

std::string our_type(std::string type) {
  type = lower(type.substr(type.find_last_of(".:") + 1));  // "torch.", "c10::"
  static const std::map<std::string, std::string> names = {
      {"float", "f32"},        {"float32", "f32"}, {"fp32", "f32"},    {"half", "f16"},
      {"float16", "f16"},      {"fp16", "f16"},    {"double", "f64"},  {"float64", "f64"},
      {"bfloat16", "bf16"},    {"int", "i32"},     {"long", "i64"},    {"long int", "i64"},
      {"unsigned char", "u8"}, {"byte", "u8"},     {"tensorlist", ""}, {"genericlist", ""}};
  const auto found = names.find(type);
  return found == names.end() ? type : found->second;
}

}  // namespace zl::cli
