// Traces and flight recorders: JSON that may be larger than memory, so that only one event at a
// time becomes a value.

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>

#include "tensor/error.h"
#include "tutorials/zerolab/check/recording.h"

namespace zl::cli {
namespace {

using Value = nlohmann::json;

// ---- one event after the other -----------------------------------------------------------------

// Calls `element` with each value of the lists "traceEvents" and "entries" of an object, or of a
// list; what `header` names becomes a part of it. Of an event that is not `wanted` by its category
// and name, "args" are left out: nearly all of a trace is that.
class Events : public nlohmann::json_sax<Value> {
 public:
  std::function<void(const std::string& list, const Value& element)> element;
  std::function<bool(const Value& element)> wanted;
  Value header = Value::object();
  std::string problem;

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(int64_t value) override { return add(value); }
  bool number_unsigned(uint64_t value) override { return add(value); }
  bool number_float(double value, const std::string&) override { return add(value); }
  bool string(std::string& value) override { return add(std::move(value)); }
  bool binary(Value::binary_t&) override { return false; }
  bool start_object(size_t) override { return begin(Value::object()); }
  bool start_array(size_t) override { return begin(Value::array()); }
  bool end_object() override { return end(); }
  bool end_array() override { return end(); }
  bool key(std::string& name) override {
    if (open_.empty())
      top_ = name;
    else
      name_ = name;
    skipped_ = (open_.empty() && depth_ == 1 && !is_list() && !kept()) ||
               (open_.size() == 1 && is_list() && name == "args" && !wanted(element_));
    return true;
  }
  bool parse_error(size_t at, const std::string&, const nlohmann::detail::exception& e) override {
    problem = str("is no JSON from byte ", at, " on (", e.what(), ")");
    return false;
  }

 private:
  bool is_list() const { return top_ == "traceEvents" || top_ == "entries"; }
  bool kept() const {
    return top_ == "distributedInfo" || top_ == "otherData" || top_ == "pg_config" ||
           top_ == "rank";
  }
  // Elements begin here: inside a list, whose own begin makes no value.
  bool in_list() const { return open_.empty() && is_list() && depth_ == (root_is_list_ ? 1 : 2); }

  bool add(Value value) {
    if (inside_ > 0 || skipped_) {
      skipped_ = inside_ > 0;
      return true;
    }
    if (open_.empty())
      return in_list() ? done(value) : kept() ? (header[top_] = value, true) : true;
    Value& parent = *open_.back();
    if (parent.is_array())
      parent.push_back(std::move(value));
    else
      parent[name_] = std::move(value);
    return true;
  }
  bool begin(Value value) {
    if (++depth_ > 100) return problem = "is nested more than 100 deep", false;
    if (inside_ > 0 || skipped_) return ++inside_, true;
    if (depth_ == 1) {
      root_is_list_ = value.is_array();
      if (root_is_list_) top_ = "traceEvents";
      return true;
    }
    if (open_.empty()) {
      if (is_list() && depth_ == 2 && !root_is_list_) return true;
      Value& place = is_list() ? element_ : header[top_];
      place = std::move(value);
      open_.push_back(&place);
      return true;
    }
    Value& parent = *open_.back();
    if (parent.is_array())
      parent.push_back(std::move(value));
    else
      parent[name_] = std::move(value);
    open_.push_back(parent.is_array() ? &parent.back() : &parent[name_]);
    return true;
  }
  bool end() {
    --depth_;
    if (inside_ > 0) return skipped_ = --inside_ > 0, true;
    if (open_.empty()) return true;
    open_.pop_back();
    return !open_.empty() || !is_list() || done(element_);
  }
  bool done(const Value& value) { return element(top_, value), true; }

  std::string top_, name_;  // the keys of the outermost object, and of the innermost open one
  Value element_;
  std::vector<Value*> open_;
  int depth_ = 0, inside_ = 0;  // of all; of what is skipped
  bool root_is_list_ = false, skipped_ = false;
};

// ---- their fields ------------------------------------------------------------------------------

// [n] of "Input Dims": a tensor's shape, or a list of those. -1: no tensor.
int64_t elements_of(const Value& shape) {
  if (!shape.is_array()) return -1;
  int64_t product = 1, sum = 0;
  for (const Value& part : shape)
    if (part.is_array())
      sum += std::max<int64_t>(0, elements_of(part));
    else if (part.is_number_integer())
      product *= part.get<int64_t>();
  return !shape.empty() && shape[0].is_array() ? sum : product;
}

std::string text(const Value& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  return object.is_object() && found != object.end() && found->is_string()
             ? found->get<std::string>()
             : "";
}
double real(const Value& object, const char* key, double missing = 0) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  return object.is_object() && found != object.end() && found->is_number() ? found->get<double>()
                                                                           : missing;
}
Value part(const Value& object, const char* key) {
  return object.is_object() ? object.value(key, Value()) : Value();
}

struct Span {
  double begin, end;
  int rank = 0;
  std::string name = "";
  bool has(double time) const { return begin <= time && time < end; }
};

bool shards(const std::string& collective) {
  return collective == "all_gather" || collective == "reduce_scatter";
}

struct Timed : SeenCall {
  double time;
};

// ---- the formats -------------------------------------------------------------------------------

class JsonReader {
 public:
  explicit JsonReader(const std::string& path) : path_(path) {}

  static bool wanted(const Value& e) {
    const std::string category = text(e, "cat"), name = text(e, "name");
    return category == "collective" ||
           (category == "cpu_op" && (name.starts_with("c10d::") || name == "record_param_comms")) ||
           (category == "user_annotation" && name.starts_with("gloo:"));
  }

  void element(const std::string& list, const Value& e) {
    if (list == "entries") return recorded(e);
    const std::string category = text(e, "cat"), name = text(e, "name");
    const double begin = real(e, "ts");
    const Span span{begin, begin + real(e, "dur"), int(real(e, "pid")), name};
    if (category == "phase") phases_.push_back(span);
    if (category == "collective" && text(e, "ph") == "X") ours(e, span);
    if (category == "user_annotation" && name.starts_with("ProfilerStep")) steps_.push_back(span);
    if (category == "user_annotation" && name.starts_with("gloo:")) gloo(part(e, "args"));
    if (category != "cpu_op") return;
    if (name.starts_with("_c10d_functional::")) functional_.push_back(span);
    if (name.starts_with("c10d::")) c10d(part(e, "args"), span);
    if (name == "record_param_comms") comms(part(e, "args"), span);
  }

  Recording finish(const Value& header) {
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
  void ours(const Value& e, const Span& span) {
    const Value args = part(e, "args");
    const auto n = int64_t(real(args, "count")), bytes = int64_t(real(args, "bytes"));
    const int64_t size = n > 0 ? bytes / n : 0;
    const char* type = size == 4 ? "f32" : size == 8 ? "f64" : size == 2 ? "16-bit" : "";
    ours_.push_back({{.rank = span.rank,
                      .collective = text(args, "kind"),
                      .elements = n,
                      .dtype = type,
                      .name = text(args, "name")},
                     span.begin});
  }
  // A step ends with its phase "step"; an evaluation belongs to none.
  void finish_ours() {
    all_.kind = "trace of zerolab";
    for (const Timed& call : ours_) {
      SeenCall& seen = all_.calls.emplace_back(call);
      int ended = 0;
      bool trains = false;
      for (const Span& phase : phases_)
        if (phase.rank == call.rank) {
          ended += phase.name == "step" && phase.end <= call.time;
          trains |= phase.has(call.time) &&
                    (phase.name == "forward" || phase.name == "backward" || phase.name == "step");
        }
      seen.step = trains ? ended : -1;
    }
    for (const Span& phase : phases_) all_.steps[phase.rank] += phase.name == "step";
  }

  // PyTorch on CPUs: the types of lists are those of gloo's events, which repeat the calls.
  void gloo(const Value& args) {
    const Value shapes = part(args, "Input Dims"), types = part(args, "Input type");
    if (shapes.is_array() && !shapes.empty() && types.is_array() && !types.empty() &&
        types[0].is_string())
      types_[elements_of(shapes[0])] = our_type(types[0].get<std::string>());
  }
  void c10d(const Value& args, const Span& span) {
    const Value shapes = part(args, "Input Dims"), types = part(args, "Input type");
    Timed call{{.collective = our_name(span.name.substr(6)), .name = span.name}, span.begin};
    // Of the list forms, "allgather_" and "reduce_scatter_", one side is a list of lists, which is
    // not shown: the other is a shard.
    const int64_t first = shapes.is_array() && !shapes.empty() ? elements_of(shapes[0]) : -1,
                  second = first >= 0 && shapes.size() > 1 ? elements_of(shapes[1]) : -1;
    const bool list = first >= 0 && (shapes[0].empty() || (shapes.size() > 1 && shapes[1].empty()));
    call.elements = first;
    if (shards(call.collective) && list && second >= 0) {
      call.elements = shapes[0].empty() ? second : first;
      call.group = -1;
    } else if (shards(call.collective) && second > 0) {
      call.elements = std::max(first, second);
      call.group = int(call.elements / std::max<int64_t>(1, std::min(first, second)));
    }
    if (types.is_array() && !types.empty() && types[0].is_string())
      call.dtype = our_type(types[0].get<std::string>());
    if (call.collective == "barrier") call.elements = 0;
    c10d_.push_back(std::move(call));
  }
  // PyTorch on GPUs. What is no collective has no elements: init, wait.
  void comms(const Value& args, const Span& span) {
    const std::string name = text(args, "Collective name");
    if (name.empty() || name == "wait" || name == "init") return;
    Timed call{{.collective = our_name(name), .dtype = our_type(text(args, "dtype")), .name = name},
               span.begin};
    const double in = real(args, "In msg nelems", -1), out = real(args, "Out msg nelems", -1);
    call.elements = int64_t(shards(call.collective) ? std::max(in, out) : in);
    call.group = int(real(args, "Group size"));
    comms_.push_back(std::move(call));
  }

  void finish_kineto(int rank) {
    all_.kind = "Kineto trace";
    const bool gpu = !comms_.empty();
    require_input(gpu || c10d_.empty() ||
                      std::ranges::any_of(c10d_, [](const auto& c) { return c.elements > 0; }),
                  "'", path_,
                  "' has no \"Input Dims\", so the sizes of its collectives are unknown; "
                  "profile with record_shapes=True");
    std::ranges::sort(steps_, {}, &Span::begin);
    for (const Timed& call : gpu ? comms_ : c10d_) {
      SeenCall& seen = all_.calls.emplace_back(call);
      seen.rank = rank;
      if (seen.group < 0) {
        seen.group = 0;
        seen.elements = all_.ranks > 0 ? seen.elements * all_.ranks : -1;
      }
      if (seen.dtype.empty() && types_.contains(seen.elements)) seen.dtype = types_[seen.elements];
      for (const Span& span : functional_) seen.functional |= span.has(call.time);
      for (size_t i = 0; i < steps_.size(); ++i)
        if (steps_[i].has(call.time)) seen.step = int(i);
    }
    all_.steps[rank] = int(steps_.size());
  }

  // PyTorch's flight recorder, as _dump_nccl_trace_json() writes it.
  void recorded(const Value& e) {
    SeenCall call{.name = text(e, "profiling_name")};
    call.collective = our_name(call.name.substr(call.name.find(':') + 1));
    const Value in = part(e, "input_sizes"), out = part(e, "output_sizes"),
                types = part(e, "input_dtypes"), group = part(e, "process_group");
    if (in.is_array() && !in.empty()) call.elements = elements_of(in);
    if (shards(call.collective) && out.is_array() && !out.empty())
      call.elements = std::max(call.elements, elements_of(out));
    if (types.is_array() && !types.empty() && types[0].is_string())
      call.dtype = our_type(types[0].get<std::string>());
    if (call.name.ends_with("coalesced") && call.elements < 0)
      ++coalesced_;
    else
      entries_.push_back(std::move(call));
    groups_.push_back(group.is_array() && !group.empty() && group[0].is_string()
                          ? group[0].get<std::string>()
                          : "");
  }
  void finish_entries(const Value& groups, int rank) {
    all_.kind = "flight recorder";
    std::map<std::string, int> sizes;
    if (groups.is_object())
      for (const auto& [name, group] : groups.items()) {
        const std::string ranks = text(group, "ranks");
        sizes[name] = ranks.size() < 3 ? 0 : 1 + int(std::ranges::count(ranks, ','));
        all_.ranks = std::max(all_.ranks, sizes[name]);
      }
    for (size_t i = 0; i < entries_.size(); ++i) {
      entries_[i].rank = rank;
      entries_[i].group = sizes[groups_[i]];
    }
    all_.calls = std::move(entries_);
    all_.steps[rank] = 0;
    if (coalesced_ > 0)
      all_.notes.push_back(str(coalesced_, " entries 'coalesced' close groups of the calls before ",
                               "them, and are not counted"));
  }

  const std::string path_;
  Recording all_;
  std::vector<Timed> ours_, c10d_, comms_;
  std::vector<SeenCall> entries_;
  std::vector<std::string> groups_;  // of each entry
  std::vector<Span> phases_, steps_, functional_;
  std::map<int64_t, std::string> types_;  // of gloo's calls, by their elements
  int coalesced_ = 0;
};

}  // namespace

Recording read_json_recording(TextFile& file, const std::string& path) {
  JsonReader reader(path);
  Events events;
  bool any = false;
  events.wanted = JsonReader::wanted;
  events.element = [&](const std::string& list, const Value& e) {
    any = true;
    reader.element(list, e);
  };
  const bool read = Value::sax_parse(file.stream(), &events);
  file.require_complete();
  require_input(read, "'", path, "' ", events.problem);
  require_input(any, "'", path,
                "' is JSON, but neither a trace (\"traceEvents\") nor a flight recorder "
                "(\"entries\")");
  return reader.finish(events.header);
}

}  // namespace zl::cli
