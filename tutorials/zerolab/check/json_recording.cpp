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
std::string text(const Value& value) { return value.is_string() ? value.get<std::string>() : ""; }
double real(const Value& object, const char* key, double missing = 0) {
  const Value found = part(object, key);
  return found.is_number() ? found.get<double>() : missing;
}
Value first(const Value& list) { return list.is_array() && !list.empty() ? list[0] : Value(); }

// [n] Of a tensor's shape, or of a list of those. -1: no tensor.
int64_t elements_of(const Value& shape) {
  if (!shape.is_array()) return -1;
  int64_t product = 1, sum = 0;
  for (const Value& part : shape)
    if (part.is_array())
      sum += elements_of(part);
    else if (part.is_number_integer())
      product *= part.get<int64_t>();
  return first(shape).is_array() ? sum : product;
}

bool shards(const std::string& collective) {
  return collective == "all_gather" || collective == "reduce_scatter";
}

struct Span {
  double begin, end;
  int rank;
  std::string name;
  bool has(double time) const { return begin <= time && time < end; }
};
struct Timed : SeenCall {
  double time = 0;
};

class JsonReader {
 public:
  explicit JsonReader(const std::string& path) : path_(path) {}

  // One event of a list "traceEvents" or "entries".
  void event(const Value& e) {
    ++events_;
    if (e.is_object() && e.contains("profiling_name")) return recorded(e);
    const std::string category = text(part(e, "cat")), name = text(part(e, "name"));
    const Value args = part(e, "args");
    const double begin = real(e, "ts");
    const Span span{begin, begin + real(e, "dur"), int(real(e, "pid")), name};
    if (category == "phase") phases_.push_back(span);
    if (category == "collective" && args.contains("kind")) ours(args, span);
    if (category == "user_annotation" && name.starts_with("ProfilerStep")) steps_.push_back(span);
    if (category == "user_annotation" && name.starts_with("gloo:"))
      types_[elements_of(first(part(args, "Input Dims")))] =
          our_type(text(first(part(args, "Input type"))));
    if (category != "cpu_op") return;
    if (name.starts_with("_c10d_functional::")) functional_.push_back(span);
    if (name.starts_with("c10d::")) c10d(args, span);
    if (name == "record_param_comms") comms(args, span);
  }

  Recording finish(const Value& header) {
    require_input(events_ > 0, "'", path_,
                  "' is JSON, but no trace (\"traceEvents\") and no flight ",
                  "recorder (\"entries\") with an event");
    const Value info = part(header, "distributedInfo");
    all_.ranks = int(real(info, "world_size", real(part(header, "otherData"), "ranks")));
    if (!ours_.empty())
      finish_ours();
    else if (!entries_.empty())
      finish_entries(part(header, "pg_config"), int(real(header, "rank", -1)));
    else
      finish_kineto(int(real(info, "rank", -1)));
    return std::move(all_);
  }

 private:
  // zerolab's own --trace: a process of the timeline is a rank.
  void ours(const Value& args, const Span& span) {
    const auto n = int64_t(real(args, "count")), bytes = int64_t(real(args, "bytes"));
    const int64_t size = n > 0 ? bytes / n : 0;
    Timed& call = ours_.emplace_back();
    call.rank = span.rank, call.time = span.begin, call.elements = n;
    call.collective = text(part(args, "kind")), call.name = text(part(args, "name"));
    call.dtype = size == 4 ? "f32" : size == 8 ? "f64" : size == 2 ? "16-bit" : "";
  }
  // A step ends with its phase "step"; an evaluation belongs to none.
  void finish_ours() {
    all_.kind = "trace of zerolab";
    for (Timed& call : ours_) {
      int ended = 0;
      for (const Span& phase : phases_) {
        if (phase.rank != call.rank) continue;
        ended += phase.name == "step" && phase.end <= call.time;
        if (phase.has(call.time) && phase.name != "data" && phase.name != "evaluation")
          call.step = 0;
      }
      if (call.step == 0) call.step = ended;
      all_.calls.push_back(call);
    }
    for (const Span& phase : phases_) all_.steps[phase.rank] += phase.name == "step";
  }

  // PyTorch on CPUs. gloo's events repeat the calls, with the types that lists of tensors lack.
  void c10d(const Value& args, const Span& span) {
    const Value shapes = part(args, "Input Dims");
    Timed& call = c10d_.emplace_back();
    call.name = span.name, call.time = span.begin;
    call.collective = our_name(span.name.substr(6));
    call.dtype = our_type(text(first(part(args, "Input type"))));
    call.elements = call.collective == "barrier" ? 0 : elements_of(first(shapes));
    if (!shards(call.collective) || !shapes.is_array() || shapes.size() < 2) return;
    // Of allgather_ and reduce_scatter_ one side is a list of lists, which is not shown; the other
    // is a shard.
    const int64_t one = elements_of(shapes[0]), other = elements_of(shapes[1]);
    const bool list = shapes[0].empty() || shapes[1].empty();
    call.elements = std::max(one, other);
    call.group = list ? -1 : int(call.elements / std::max<int64_t>(1, std::min(one, other)));
  }
  // PyTorch on GPUs.
  void comms(const Value& args, const Span& span) {
    const std::string name = text(part(args, "Collective name"));
    if (name.empty() || name == "wait" || name == "init") return;
    Timed& call = comms_.emplace_back();
    call.name = name, call.time = span.begin, call.collective = our_name(name);
    call.dtype = our_type(text(part(args, "dtype")));
    const double in = real(args, "In msg nelems", -1), out = real(args, "Out msg nelems", -1);
    call.elements = int64_t(shards(call.collective) ? std::max(in, out) : in);
    call.group = int(real(args, "Group size"));
  }
  void finish_kineto(int rank) {
    all_.kind = "Kineto trace";
    std::vector<Timed>& calls = comms_.empty() ? c10d_ : comms_;
    require_input(
        calls.empty() || std::ranges::any_of(calls, [](const auto& c) { return c.elements > 0; }),
        "'", path_,
        "' has no \"Input Dims\", so the sizes of its collectives are unknown; profile ",
        "with record_shapes=True");
    std::ranges::sort(steps_, {}, &Span::begin);
    std::ranges::stable_sort(calls, {}, &Timed::time);
    for (Timed& call : calls) {
      call.rank = rank;
      if (call.group < 0) call.elements = all_.ranks > 0 ? call.elements * all_.ranks : -1;
      call.group = std::max(0, call.group);
      if (call.dtype.empty() && types_.contains(call.elements)) call.dtype = types_[call.elements];
      for (const Span& span : functional_) call.functional |= span.has(call.time);
      for (size_t i = 0; i < steps_.size(); ++i)
        if (steps_[i].has(call.time)) call.step = int(i);
      all_.calls.push_back(call);
    }
    all_.steps[rank] = int(steps_.size());
  }

  // PyTorch's flight recorder, as _dump_nccl_trace_json() writes it.
  void recorded(const Value& e) {
    SeenCall call{.name = text(part(e, "profiling_name"))};
    const Value in = part(e, "input_sizes"), out = part(e, "output_sizes");
    call.collective = our_name(call.name.substr(call.name.find(':') + 1));
    call.dtype = our_type(text(first(part(e, "input_dtypes"))));
    if (!first(in).is_null()) call.elements = elements_of(in);
    if (shards(call.collective)) call.elements = std::max(call.elements, elements_of(out));
    if (call.name.ends_with("coalesced") && call.elements < 0)
      all_.notes = {"entries 'coalesced' close groups of the calls before them; not counted"};
    else
      entries_.push_back({call, text(first(part(e, "process_group")))});
  }
  void finish_entries(const Value& groups, int rank) {
    all_.kind = "flight recorder";
    std::map<std::string, int> sizes;
    if (groups.is_object())
      for (const auto& [name, group] : groups.items()) {
        const std::string ranks = text(part(group, "ranks"));
        sizes[name] = ranks.size() < 3 ? 0 : 1 + int(std::ranges::count(ranks, ','));
        all_.ranks = std::max(all_.ranks, sizes[name]);
      }
    for (auto& [call, group] : entries_) {
      call.rank = rank, call.group = sizes[group];
      all_.calls.push_back(call);
    }
    all_.steps[rank] = 0;
  }

  const std::string path_;
  Recording all_;
  int64_t events_ = 0;
  std::vector<Timed> ours_, c10d_, comms_;
  std::vector<std::pair<SeenCall, std::string>> entries_;  // with their group's name
  std::vector<Span> phases_, steps_, functional_;
  std::map<int64_t, std::string> types_;  // of gloo's calls, by their elements
};

}  // namespace

// The parser drops what the callback refuses: each event after it was read, and large values that
// are not needed.
Recording read_json_recording(InputText& file, const std::string& path) {
  JsonReader reader(path);
  std::string list = "traceEvents";  // of a file that is a list
  int at = 1;
  const auto keep = [&](int depth, Value::parse_event_t kind, Value& value) {
    if (kind == Value::parse_event_t::key && depth == 1) {
      list = value.get<std::string>(), at = 2;
      return list == "traceEvents" || list == "entries" || list == "distributedInfo" ||
             list == "otherData" || list == "pg_config" || list == "rank";
    }
    if (kind != Value::parse_event_t::object_end || depth != at) return depth < 100;
    if (list != "traceEvents" && list != "entries") return true;
    reader.event(value);
    return false;
  };
  try {
    const Value header = Value::parse(file.stream(), keep);
    file.require_complete();
    return reader.finish(header);
  } catch (const Value::exception& e) {
    file.require_complete();
    throw InputError(str("'", path, "' is no JSON: ", e.what()));
  }
}

}  // namespace zl::cli
