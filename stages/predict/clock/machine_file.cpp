// Machines as JSON: reading, with one sentence for each mistake, and writing.

#include <cmath>
#include <functional>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <set>

#include "stages/predict/clock/kernel_time.h"
#include "tensor/error.h"
#include "tensor/io/small_file.h"
#include "tensor/printable.h"

namespace zl {
namespace {

using Json = nlohmann::ordered_json;

// What a number counts, and between which bounds it must be. A rate in GB/s or TFLOP/s, or a time
// in microseconds, is outside them.
struct Quantity {
  const char* of;
  double least, most;
};
constexpr Quantity kNumber{"", 0, 1e15}, kSeconds{" of seconds", 0, 1},
    kBytes{" of bytes", 1, 9e18}, kRate{" of bytes per second", 1e6, 1e18},
    kOperations{" of operations per second", 1e6, 1e21};
constexpr Quantity kWork{"", 0, 1e24}, kTime{" of seconds", 1e-12, 1e6};  // of one kernel
constexpr Quantity at_least(double least, Quantity q = kNumber) { return {q.of, least, q.most}; }

const char* name(NodeLink::Kind kind) {
  constexpr const char* names[] = {"nvswitch", "nvlink", "pcie", "memory"};
  return names[size_t(kind)];
}

// One object of the description, which is read or written. Every key must be read, and every key
// that is there be known.
class Section {
 public:
  enum class Missing { refused, keeps, unknown };  // unknown: 0, which may also be written
  // To be written to; to be read from where `where` is not empty.
  Section(Json& json, std::string path, const std::string& where)
      : json_(json), path_(std::move(path)), where_(where), reads_(!where.empty()) {
    require_input(!reads_ || json.is_object(), where_, ": ", path_.empty() ? "the text" : path_,
                  " must be an object");
  }
  // Of what is read; an error names the key's place.
  void require(bool right, const std::string& key, const auto&... text) const {
    require_input(!reads_ || right, where_, ": ", at(key), text...);
  }
  // Called at the end.
  void require_all_known() const {
    std::string list;
    for (const std::string& key : known_) list += (list.empty() ? "" : ", ") + key;
    for (const auto& [key, value] : json_.items())
      require(known_.count(key) != 0, key, " is not a key of a machine; known here are ", list);
  }
  void version(const char* key, int version) {
    if (!reads_) json_[key] = version;
    require(get(key) == version, key, " must be ", version, ", not ", get(key).dump());
  }
  // Whether an optional key is there, or has to be written.
  bool has(const char* key, bool written) {
    known_.insert(key);
    return reads_ ? json_.contains(key) : written;
  }
  void text(const char* key, std::string& value) {
    if (!reads_) return void(json_[key] = value);
    value = text(get(key), at(key));
  }
  void texts(const char* key, std::vector<std::string>& texts) {
    if (!reads_) return void(json_[key] = texts);
    const Json& list = get(key);
    require(list.is_array() && !list.empty(), key,
            " must be a list that says where the numbers come from");
    for (const Json& one : list) texts.push_back(text(one, "a source"));
  }
  void number(const char* key, double& value, Quantity q, Missing missing = Missing::refused) {
    if (!reads_) return void(json_[key] = value);
    if (missing != Missing::refused && !has(key, false)) return;
    const Json& found = get(key);
    if (missing == Missing::unknown && found == 0) return;
    value = found.is_number() ? found.get<double>() : q.least - 1;
    const bool large = value > q.most;
    require(value >= q.least && !large, key, " must be a number", q.of,
            large ? " of at most " : " of at least ", large ? q.most : q.least, ", not ",
            found.dump());
  }
  void share(const char* key, double& value) {
    number(key, value, kNumber, Missing::keeps);
    require(value <= 2, key, " is a share of a rate, so ", value, " is too large");
  }
  void count(const char* key, int& value, int least) {
    if (!reads_) return void(json_[key] = value);
    double n = 0;
    number(key, n, at_least(least));
    require(n == std::floor(n) && n <= 1 << 20, key, " must be a whole number up to 1048576, not ",
            n);
    value = int(n);
  }
  template <class T>
  void one_of(const char* key, T& value, std::initializer_list<T> values) {
    if (!reads_) return void(json_[key] = name(value));
    const std::string text = this->text(get(key), at(key));
    std::string list;
    for (const T& one : values) {
      if (text == name(one)) return void(value = one);
      const bool first = &one == values.begin(), last = &one + 1 == values.end();
      list += str(first ? "" : last ? " or " : ", ", name(one));
    }
    require(false, key, " must be ", list, ", not ", text);
  }
  template <class T>
  void object(const char* key, T& value) {
    Section part(reads_ ? get(key) : json_[key], at(key), where_);
    fields(part, value);
    part.require_all_known();
  }
  // `check`: called after each item that is read. No item if the key is absent.
  template <class T>
  void list(const char* key, std::vector<T>& items, const std::function<void(Section&)>& check) {
    if (!reads_) json_[key] = Json::array();
    if (!has(key, true)) return;
    require(json_[key].is_array(), key, " must be a list");
    const size_t size = reads_ ? json_[key].size() : items.size();
    for (size_t i = 0; i < size; ++i) {
      Section item(json_[key][i], str(at(key), "[", i, "]"), where_);
      fields(item, reads_ ? items.emplace_back() : items[i]);
      if (reads_) check(item);
      item.require_all_known();
    }
  }
  const std::string& where() const { return where_; }

 private:
  std::string at(const std::string& key) const { return path_.empty() ? key : path_ + "." + key; }
  Json& get(const char* key) {
    require(has(key, true), key, " is missing");
    return json_[key];
  }
  std::string text(const Json& value, const std::string& name) const {
    require_input(value.is_string() && !value.get<std::string>().empty(), where_, ": ", name,
                  " must be a text, not ", value.dump());
    const auto text = value.get<std::string>();
    require_input(printable(text) == text, where_, ": ", name,
                  " has characters that control a terminal: ", printable(text));
    return text;
  }

  Json& json_;
  std::string path_;
  const std::string& where_;
  const bool reads_;
  std::set<std::string> known_;
};

// ---- the keys of each part ---------------------------------------------------------------------

void fields(Section& io, Efficiency& row) {
  io.number("size", row.size, at_least(1, kWork));
  io.number("share", row.share, at_least(1e-6));
}

void efficiency(Section& io, const char* key, std::vector<Efficiency>& rows) {
  io.list(key, rows, [&](const Section& row) {
    row.require(rows.size() == 1 || rows.back().size > rows[rows.size() - 2].size, "size",
                " must be larger than in the row before");
    row.require(time_grows(rows), "share",
                " grows faster than the size, so larger work would take less time");
  });
}

void fields(Section& io, KernelTimes::Point& point) {
  io.number("operations", point.operations, kWork);
  io.number("bytes", point.bytes, kWork);
  io.number("seconds", point.seconds, kTime);
}

void fields(Section& io, KernelTimes& times) {
  io.text("kernel", times.kernel);
  io.one_of("type", times.type, {Dtype::f32, Dtype::bf16, Dtype::f16});
  io.count("ranks", times.ranks, 1);
  if (io.has("shape", times.shape > 0)) io.count("shape", times.shape, 1);
  io.list("points", times.points, [&](const Section& in) {
    const auto place = [&](const KernelTimes::Point& p) {
      return place_of(times.kernel, p.operations, p.bytes);
    };
    const size_t n = times.points.size();
    require_input(n < 2 || place(times.points[n - 1]) > place(times.points[n - 2]), in.where(),
                  ": the points of ", times.kernel, " must be sorted by size, and its point ", n,
                  " is not");
  });
}

void fields(Section& io, RankMachine& rank) {
  io.one_of("device", rank.device, {DeviceKind::cuda, DeviceKind::cpu});
  io.number("memory_bytes", rank.memory_bytes, kBytes);
  io.number("memory_bandwidth", rank.memory_bandwidth, kRate);
  io.number("f32_flops", rank.f32_flops, kOperations);
  io.number("half_flops", rank.half_flops, kOperations);
  efficiency(io, "matmul", rank.matmul);
  efficiency(io, "memory", rank.memory);
  efficiency(io, "streaming", rank.streaming);
  io.share("attention", rank.attention);
  io.require(rank.attention > 0, "attention", " must be more than 0");
  io.number("vector_rate", rank.vector_rate, kOperations, Section::Missing::unknown);
  io.number("launch_seconds", rank.launch, kSeconds);
  io.list("kernels", rank.kernels, [&](const Section& in) {
    in.require(!rank.kernels.back().points.empty(), "points", " is empty");
  });
}

void fields(Section& io, NodeLink& link) {
  using enum NodeLink::Kind;
  io.one_of("kind", link.kind, {nvswitch, nvlink, pcie, memory});
  io.number("bandwidth", link.bandwidth, kRate);
  io.share("ring", link.ring);
  if (io.has("switch_sums", link.switch_sums > 0)) io.share("switch_sums", link.switch_sums);
  if (link.switch_sums > 0) io.count("switch_sums_from", link.switch_sums_from, 2);
}

void fields(Section& io, Host& host) {
  io.number("link_bandwidth", host.link_bandwidth, kRate);
  io.number("memory_bandwidth", host.memory_bandwidth, kRate);
  io.number("memory_bytes", host.memory_bytes, kBytes, Section::Missing::unknown);
  io.number("disk_bytes", host.disk_bytes, kBytes, Section::Missing::unknown);
  io.number("disk_read", host.disk_read, kRate, Section::Missing::unknown);
  io.number("disk_write", host.disk_write, kRate, Section::Missing::unknown);
}

void fields(Section& io, Network& network) {
  io.text("kind", network.kind);
  io.count("ports", network.ports, 1);
  io.number("bandwidth", network.bandwidth, kRate);
  io.share("sums", network.sums);
  io.share("gathers", network.gathers);
  io.number("hop_seconds", network.hop, kSeconds, Section::Missing::keeps);
  if (io.has("ports_per_rank", true)) io.count("ports_per_rank", network.ports_per_rank, 1);
}

void fields(Section& io, CollectiveRow& row) {
  io.one_of("collective", row.collective,
            {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather,
             Collective::broadcast});
  io.count("ranks", row.ranks, 2);
  io.count("nodes", row.nodes, 1);
  io.number("alpha_seconds", row.terms.alpha, kSeconds);
  io.number("root_seconds", row.terms.root, kSeconds);
  io.number("bus_bandwidth", row.terms.bus, kRate);
}

void fields(Section& io, Machine& m) {
  io.version("schema", 1);
  io.text("name", m.name);
  io.text("title", m.title);
  io.texts("sources", m.sources);
  io.count("ranks_per_node", m.ranks_per_node, 1);
  io.number("contention", m.contention, {"", 1, 10}, Section::Missing::keeps);
  io.object("rank", m.rank);
  io.object("link", m.link);
  if (io.has("host", m.host.link_bandwidth > 0)) io.object("host", m.host);
  if (io.has("network", m.network.ports > 0)) io.object("network", m.network);
  if (io.has("collectives", !m.collectives.empty()))
    io.list("collectives", m.collectives, [&](const Section& in) {
      const CollectiveRow& row = m.collectives.back();
      in.require(row.nodes <= row.ranks, "nodes", " is ", row.nodes, ", more than its ", row.ranks,
                 " ranks");
    });
}

}  // namespace

Machine read_machine(const std::string& text, const std::string& where) {
  require_input(!text.empty(), where, " is empty");
  check_json(text, where, true);
  Json json = Json::parse(text, nullptr, true, true);
  Section in(json, "", where);
  Machine m;
  m.network.ports_per_rank = 0;
  fields(in, m);
  in.require_all_known();
  if (m.network.ports_per_rank == 0)
    m.network.ports_per_rank =
        std::max(1, (m.network.ports + m.ranks_per_node - 1) / m.ranks_per_node);
  return m;
}

std::string machine_json(Machine m) {
  Json json = Json::object();
  const std::string writes;
  Section out(json, "", writes);
  fields(out, m);
  return json.dump(2) + "\n";
}

const std::vector<Machine>& shipped_machines() {
  static const std::vector<Machine> machines = [] {
    std::vector<Machine> all;
    for (const std::string& text : shipped_machine_texts())
      all.push_back(read_machine(text, "a shipped machine"));
    return all;
  }();
  return machines;
}

Machine find_machine(const std::string& name_or_path) {
  std::string known;
  for (const Machine& m : shipped_machines()) {
    if (m.name == name_or_path) return m;
    known += (known.empty() ? "" : ", ") + m.name;
  }
  const bool is_path = name_or_path.find_first_of("/.") != std::string::npos;
  require_input(is_path, "there is no machine '", name_or_path, "'; known are ", known,
                ". A file is given as a path, such as ./machine.json");
  return read_machine(read_small_file(name_or_path, {"machine", 16 << 20}), name_or_path);
}

}  // namespace zl
