// Traces and flight recorders: JSON that may be larger than memory, so that one event at a time
// becomes a value.

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tensor/error.h"
#include "tutorials/zerolab/check/recording.h"

namespace zl::cli {
namespace {

using Value = nlohmann::json;

// Of an object; null, "" or `missing` if it is not there or of another type.
Value part(const Value& object, const char* key) {
  return object.is_object() ? object.value(key, Value()) : Value();
}
std::string as_text(const Value& value) {
  return value.is_string() ? value.get<std::string>() : "";
}
std::string text(const Value& object, const char* key) { return as_text(part(object, key)); }
double real(const Value& object, const char* key, double missing = 0) {
  const Value found = part(object, key);
  return found.is_number() ? found.get<double>() : missing;
}
int64_t whole(const Value& object, const char* key, double missing = 0) {
  return int64_t(std::clamp(real(object, key, missing), -0x1p45, 0x1p45));
}
Value first(const Value& list) { return list.is_array() && !list.empty() ? list[0] : Value(); }
// [n] Of a tensor's shape, or of a list of those. -1: no tensor.
int64_t elements_of(const Value& shape) {
  if (!shape.is_array()) return -1;
  int64_t product = 1, sum = 0;
  for (const Value& part : shape)
    if (part.is_array())
      sum += elements_of(part);
    else if (part.is_number_integer()) {
      const int64_t n = part.get<int64_t>(), most = int64_t(1) << 45;
      require_input(n >= 0 && n <= most / std::max<int64_t>(1, product),
                    "the trace has a tensor of ", shape.dump(), ", which no run has");
      product *= n;
    }
  return first(shape).is_array() ? sum : product;
}

struct Span {  // a phase or a step
  std::string name;
  double begin, end;
};

class JsonReader {
 public:
  // One event of a list "traceEvents" or "entries".
  void event(const Value& e) {
    ++events_;
    if (e.is_object() && e.contains("profiling_name")) return recorded(e);
    const std::string category = text(e, "cat"), name = text(e, "name");
    const Value args = part(e, "args"), sizes = part(args, "Input Dims");
    const std::string type = as_text(first(part(args, "Input type")));
    const double begin = real(e, "ts"), end = begin + real(e, "dur");
    const int process = int(whole(e, "pid"));
    const bool annotation = category == "user_annotation", on_cpu = category == "cpu_op";
    if (category == "phase") spans_[process].push_back({name, begin, end});
    if (annotation && name.starts_with("ProfilerStep")) spans_[-1].push_back({"step", begin, end});
    if (annotation && name.starts_with("gloo:")) types_[elements_of(first(sizes))] = our_type(type);
    std::vector<SeenCall>& calls = on_cpu && name.starts_with("c10d::") ? on_cpu_ : all_.calls;
    const size_t before = calls.size();
    if (category == "collective" && args.contains("kind"))
      ours(args).rank = process;
    else if (&calls == &on_cpu_)
      calls.emplace_back(name.substr(6), type, side(sizes, 0), side(sizes, 1));
    else if (on_cpu && name == "record_param_comms")
      on_gpu(args, text(args, "Collective name"));
    if (calls.size() > before) calls.back().time = begin;
  }

  Recording finish(const Value& header, const std::string& path) {
    require_input(events_ > 0, "'", path, "' is JSON, but no trace (\"traceEvents\") and no ",
                  "flight recorder (\"entries\") with an event");
    const Value info = part(header, "distributedInfo");
    const int rank = int(whole(info, "rank", real(header, "rank", -1)));
    all_.ranks = int(whole(info, "world_size", real(part(header, "otherData"), "ranks")));
    for (const Value& group : part(header, "pg_config")) {      // of a flight recorder
      const std::string members = part(group, "ranks").dump();  // "[0, 1]"
      const int more = int(std::ranges::count(members, ','));
      if (more > 0) all_.ranks = std::max(all_.ranks, more + 1);
    }
    if (all_.calls.empty()) all_.calls.swap(on_cpu_);
    const auto sized = [](const SeenCall& call) { return call.elements > 0; };
    require_input(all_.calls.empty() || std::ranges::any_of(all_.calls, sized), "'", path,
                  "' does not say the sizes of its collectives; profile with record_shapes=True");
    std::ranges::stable_sort(all_.calls, {}, &SeenCall::time);
    for (SeenCall& call : all_.calls) {
      call.step = step_of(call);
      if (call.rank < 0) call.rank = rank;
      all_.steps[call.rank] += 0;
      if (const auto type = types_.find(call.elements); type != types_.end() && call.dtype.empty())
        call.dtype = type->second;
    }
    for (const auto& [of, spans] : spans_)
      all_.steps[of < 0 ? rank : of] += int(std::ranges::count(spans, "step", &Span::name));
    return std::move(all_);
  }

 private:
  // Of allgather_ and reduce_scatter_ one side is a list of lists, which is not shown: [].
  static int64_t side(const Value& sizes, size_t which) {
    const bool is_there = sizes.is_array() && which < sizes.size() && !sizes[which].empty();
    return is_there ? elements_of(sizes[which]) : -1;
  }
  // zerolab's own --trace: a process of the timeline is a rank.
  SeenCall& ours(const Value& args) {
    const int64_t n = whole(args, "count"), bytes = whole(args, "bytes");
    const int64_t size = n > 0 ? bytes / n : 0;
    const char* type = size == 4 ? "f32" : size == 8 ? "f64" : size == 2 ? "16-bit" : "";
    all_.kind = "trace of zerolab";
    return all_.calls.emplace_back(text(args, "kind"), type, n, n);
  }
  void on_gpu(const Value& args, const std::string& name) {
    if (name.empty() || name == "wait" || name == "init") return;
    all_.calls.emplace_back(name, text(args, "dtype"), whole(args, "In msg nelems", -1),
                            whole(args, "Out msg nelems", -1), int(whole(args, "Group size")));
  }
  // PyTorch's flight recorder, as _dump_nccl_trace_json() writes it.
  void recorded(const Value& e) {
    all_.kind = "flight recorder";
    const std::string name = text(e, "profiling_name");
    const Value sizes = Value::array({part(e, "input_sizes"), part(e, "output_sizes")});
    if (name.ends_with("coalesced") && side(sizes, 0) < 0)
      all_.notes = {"entries 'coalesced' close groups of the calls before them; not counted"};
    else
      all_.calls.emplace_back(name.substr(name.find(':') + 1),
                              as_text(first(part(e, "input_dtypes"))), side(sizes, 0),
                              side(sizes, 1));
  }
  // zerolab's step ends with its phase "step", and an evaluation belongs to none.
  int step_of(const SeenCall& call) {
    int ended = 0;
    bool inside = false;
    for (const auto& [name, begin, end] : spans_[call.rank]) {
      ended += name == "step" && end <= call.time;
      inside |= begin <= call.time && call.time < end && name != "data" && name != "evaluate";
    }
    return inside ? ended : -1;
  }

  Recording all_{.kind = "Kineto trace"};
  int64_t events_ = 0;
  std::vector<SeenCall> on_cpu_;            // gloo's events repeat them, with the types of lists
  std::map<int, std::vector<Span>> spans_;  // of each rank; -1: the file's
  std::map<int64_t, std::string> types_;    // of gloo's calls, by their elements
};

}  // namespace

// The parser drops what the callback refuses: each event after it was read, and large values that
// are not needed.
Recording read_json_recording(InputText& file) {
  static const std::set<std::string> needed = {"traceEvents", "entries",   "distributedInfo",
                                               "otherData",   "pg_config", "rank"};
  JsonReader reader;
  std::string list = "traceEvents";  // of a file that is a list
  int at = 1;
  const auto keep = [&](int depth, Value::parse_event_t kind, Value& value) {
    if (kind == Value::parse_event_t::key && depth == 1) {
      list = value.get<std::string>(), at = 2;
      return needed.contains(list);
    }
    if (kind != Value::parse_event_t::object_end || depth != at) return depth < 100;
    if (list != "traceEvents" && list != "entries") return true;
    reader.event(value);
    return false;
  };
  try {
    const Value header = Value::parse(file.stream(), keep);
    file.require_complete();
    return reader.finish(header, file.path());
  } catch (const Value::exception& e) {
    file.require_complete();
    throw InputError(str("'", file.path(), "' is no JSON: ", e.what()));
  }
}

}  // namespace zl::cli
