// Machines as JSON: reading, with one sentence for each mistake, and writing.

#include <cmath>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <set>

#include "stages/predict/clock/kernel_time.h"
#include "tensor/error.h"
#include "tensor/io/json_check.h"
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

constexpr const char* kLinks[] = {"nvswitch", "nvlink", "pcie", "memory"};

// One object of the description. Every key must be read, and every key that is there be known.
class Reader {
 public:
  Reader(const Json& json, std::string path, const std::string& where)
      : json_(json), path_(std::move(path)), where_(where) {
    require_input(json.is_object(), where_, ": ", path_.empty() ? "the text" : path_,
                  " must be an object");
  }
  // Called at the end.
  void require_all_known() const {
    for (const auto& [key, value] : json_.items())
      require_input(known_.count(key) != 0, where_, ": ", at(key),
                    " is not a key of a machine; known here are ", list());
  }
  const Json* find(const char* key) {
    known_.insert(key);
    const auto found = json_.find(key);
    return found == json_.end() ? nullptr : &*found;
  }
  const Json& get(const char* key) {
    const Json* value = find(key);
    require_input(value, where_, ": ", at(key), " is missing");
    return *value;
  }
  std::string text(const char* key) { return text(get(key), at(key)); }
  std::string text(const Json& value, const std::string& name) const {
    require_input(value.is_string() && !value.get<std::string>().empty(), where_, ": ", name,
                  " must be a text, not ", value.dump());
    const auto text = value.get<std::string>();
    require_input(printable(text) == text, where_, ": ", name,
                  " has characters that control a terminal: ", printable(text));
    return text;
  }
  double number(const char* key, Quantity q) { return number(get(key), at(key), q); }
  double number(const char* key, Quantity q, double otherwise) {
    const Json* value = find(key);
    return value ? number(*value, at(key), q) : otherwise;
  }
  // As number(), but 0, which says that it is unknown, is right too.
  double number_if_known(const char* key, Quantity q) {
    const Json* value = find(key);
    return !value || *value == 0 ? 0 : number(*value, at(key), q);
  }
  double number(const Json& value, const std::string& name, Quantity q) const {
    const double number = value.is_number() ? value.get<double>() : q.least - 1;
    require_input(number >= q.least, where_, ": ", name, " must be a number", q.of, " of at least ",
                  q.least, ", not ", value.dump());
    require_input(number <= q.most, where_, ": ", name, " must be a number", q.of, " of at most ",
                  q.most, ", not ", value.dump());
    return number;
  }
  double share(const char* key, double otherwise) {
    const double value = number(key, kNumber, otherwise);
    require_input(value <= 2, where_, ": ", at(key), " is a share of a rate, so ", value,
                  " is too large");
    return value;
  }
  int count(const char* key, int least) {
    const double value = number(key, at_least(least));
    require_input(value == std::floor(value) && value <= 1 << 20, where_, ": ", at(key),
                  " must be a whole number up to 1048576, not ", value);
    return int(value);
  }
  Reader object(const char* key) { return {get(key), at(key), where_}; }
  // Calls `read` with each object of an array; none if the key is absent.
  void each(const char* key, const auto& read) {
    const Json* list = find(key);
    if (!list) return;
    require_input(list->is_array(), where_, ": ", at(key), " must be a list");
    for (size_t i = 0; i < list->size(); ++i) {
      Reader item((*list)[i], str(at(key), "[", i, "]"), where_);
      read(item);
      item.require_all_known();
    }
  }
  std::string at(const std::string& key) const { return path_.empty() ? key : path_ + "." + key; }
  const std::string& where() const { return where_; }

 private:
  std::string list() const {
    std::string text;
    for (const std::string& key : known_) text += (text.empty() ? "" : ", ") + key;
    return text;
  }

  const Json& json_;
  std::string path_;
  const std::string& where_;
  std::set<std::string> known_;
};

std::vector<Efficiency> read_efficiency(Reader& in, const char* key) {
  std::vector<Efficiency> rows;
  in.each(key, [&](Reader& row) {
    rows.push_back({row.number("size", at_least(1, kWork)), row.number("share", at_least(1e-6))});
    require_input(rows.size() == 1 || rows.back().size > rows[rows.size() - 2].size, row.where(),
                  ": ", row.at("size"), " must be larger than in the row before");
    require_input(time_grows(rows), row.where(), ": ", row.at("share"),
                  " grows faster than the size, so larger work would take less time");
  });
  return rows;
}

Dtype read_type(Reader& in) {
  const std::string text = in.text("type");
  for (const Dtype type : {Dtype::f32, Dtype::bf16, Dtype::f16})
    if (text == name(type)) return type;
  throw InputError(str(in.where(), ": ", in.at("type"), " must be f32, bf16 or f16, not ", text));
}

std::vector<KernelTimes> read_kernels(Reader& in) {
  std::vector<KernelTimes> all;
  in.each("kernels", [&](Reader& row) {
    KernelTimes times{.kernel = row.text("kernel"),
                      .type = read_type(row),
                      .ranks = row.count("ranks", 1),
                      .points = {},
                      .shape = row.find("shape") ? row.count("shape", 1) : 0};
    row.each("points", [&](Reader& point) {
      times.points.push_back({point.number("operations", kWork), point.number("bytes", kWork),
                              point.number("seconds", kTime)});
      const auto place = [&](const KernelTimes::Point& p) {
        return place_of(times.kernel, p.operations, p.bytes);
      };
      const size_t n = times.points.size();
      require_input(n < 2 || place(times.points[n - 1]) > place(times.points[n - 2]), row.where(),
                    ": the points of ", times.kernel, " must be sorted by size, and its point ", n,
                    " is not");
    });
    require_input(!times.points.empty(), row.where(), ": ", row.at("points"), " is empty");
    all.push_back(std::move(times));
  });
  return all;
}

RankMachine read_rank(Reader in) {
  RankMachine rank;
  const std::string device = in.text("device");
  require_input(device == "cuda" || device == "cpu", in.where(), ": ", in.at("device"),
                " must be cuda or cpu, not ", device);
  rank.device = device == "cuda" ? DeviceKind::cuda : DeviceKind::cpu;
  rank.memory_bytes = in.number("memory_bytes", kBytes);
  rank.memory_bandwidth = in.number("memory_bandwidth", kRate);
  rank.f32_flops = in.number("f32_flops", kOperations);
  rank.half_flops = in.number("half_flops", kOperations);
  rank.matmul = read_efficiency(in, "matmul");
  rank.memory = read_efficiency(in, "memory");
  rank.streaming = read_efficiency(in, "streaming");
  rank.attention = in.share("attention", rank.attention);
  require_input(rank.attention > 0, in.where(), ": ", in.at("attention"), " must be more than 0");
  rank.vector_rate = in.number_if_known("vector_rate", kOperations);
  rank.launch = in.number("launch_seconds", kSeconds);
  rank.kernels = read_kernels(in);
  in.require_all_known();
  return rank;
}

NodeLink read_link(Reader in) {
  NodeLink link;
  const std::string kind = in.text("kind");
  const auto found = std::ranges::find(kLinks, kind);
  require_input(found != std::end(kLinks), in.where(), ": ", in.at("kind"),
                " must be nvswitch, nvlink, pcie or memory, not ", kind);
  link.kind = NodeLink::Kind(found - std::begin(kLinks));
  link.bandwidth = in.number("bandwidth", kRate);
  link.ring = in.share("ring", link.ring);
  link.switch_sums = in.share("switch_sums", 0);
  if (link.switch_sums > 0) link.switch_sums_from = in.count("switch_sums_from", 2);
  in.require_all_known();
  return link;
}

Host read_host(Reader in) {
  const Host host{.link_bandwidth = in.number("link_bandwidth", kRate),
                  .memory_bandwidth = in.number("memory_bandwidth", kRate),
                  .memory_bytes = in.number_if_known("memory_bytes", kBytes),
                  .disk_bytes = in.number_if_known("disk_bytes", kBytes),
                  .disk_read = in.number_if_known("disk_read", kRate),
                  .disk_write = in.number_if_known("disk_write", kRate)};
  in.require_all_known();
  return host;
}

Network read_network(Reader in, int ranks_per_node) {
  Network network;
  network.kind = in.text("kind");
  network.ports = in.count("ports", 1);
  network.bandwidth = in.number("bandwidth", kRate);
  network.sums = in.share("sums", network.sums);
  network.gathers = in.share("gathers", network.gathers);
  network.hop = in.number("hop_seconds", kSeconds, network.hop);
  network.ports_per_rank = in.find("ports_per_rank")
                               ? in.count("ports_per_rank", 1)
                               : (network.ports + ranks_per_node - 1) / ranks_per_node;
  in.require_all_known();
  return network;
}

std::vector<CollectiveRow> read_collectives(Reader& in) {
  std::vector<CollectiveRow> rows;
  in.each("collectives", [&](Reader& row) {
    const std::string collective = row.text("collective");
    CollectiveRow read{.ranks = row.count("ranks", 2), .nodes = row.count("nodes", 1)};
    int kind = 0;
    while (kind <= int(Collective::broadcast) && collective != name(Collective(kind))) ++kind;
    require_input(kind <= int(Collective::broadcast), row.where(), ": ", row.at("collective"),
                  " must be all_reduce, reduce_scatter, all_gather or broadcast, not ", collective);
    require_input(read.nodes <= read.ranks, row.where(), ": ", row.at("nodes"), " is ", read.nodes,
                  ", more than its ", read.ranks, " ranks");
    read.collective = Collective(kind);
    read.terms = {row.number("alpha_seconds", kSeconds), row.number("root_seconds", kSeconds),
                  row.number("bus_bandwidth", kRate)};
    rows.push_back(read);
  });
  return rows;
}

Json parsed(const std::string& text, const std::string& where) {
  require_input(!text.empty(), where, " is empty");
  check_json(text, where, {.comments = true});
  return Json::parse(text, nullptr, true, true);
}

Json efficiency_json(const std::vector<Efficiency>& rows) {
  Json list = Json::array();
  for (const Efficiency& row : rows) list.push_back({{"size", row.size}, {"share", row.share}});
  return list;
}

Json kernels_json(const std::vector<KernelTimes>& all) {
  Json list = Json::array();
  for (const KernelTimes& times : all) {
    Json points = Json::array();
    for (const KernelTimes::Point& p : times.points)
      points.push_back({{"operations", p.operations}, {"bytes", p.bytes}, {"seconds", p.seconds}});
    Json row{{"kernel", times.kernel}, {"type", name(times.type)}, {"ranks", times.ranks}};
    if (times.shape > 0) row["shape"] = times.shape;
    row["points"] = points;
    list.push_back(row);
  }
  return list;
}

Json rank_json(const RankMachine& rank) {
  return {{"device", name(rank.device)},
          {"memory_bytes", rank.memory_bytes},
          {"memory_bandwidth", rank.memory_bandwidth},
          {"f32_flops", rank.f32_flops},
          {"half_flops", rank.half_flops},
          {"matmul", efficiency_json(rank.matmul)},
          {"memory", efficiency_json(rank.memory)},
          {"streaming", efficiency_json(rank.streaming)},
          {"attention", rank.attention},
          {"vector_rate", rank.vector_rate},
          {"launch_seconds", rank.launch},
          {"kernels", kernels_json(rank.kernels)}};
}

}  // namespace

Machine read_machine(const std::string& text, const std::string& where) {
  const Json json = parsed(text, where);
  Reader in(json, "", where);
  Machine m;
  require_input(in.get("schema") == 1, where, ": schema must be 1, not ", in.get("schema").dump());
  m.name = in.text("name");
  m.title = in.text("title");
  const Json& sources = in.get("sources");
  require_input(sources.is_array() && !sources.empty(), where,
                ": sources must be a list that says where the numbers come from");
  for (const Json& source : sources) m.sources.push_back(in.text(source, "a source"));
  m.ranks_per_node = in.count("ranks_per_node", 1);
  m.contention = in.number("contention", {"", 1, 10}, m.contention);
  m.rank = read_rank(in.object("rank"));
  m.link = read_link(in.object("link"));
  if (in.find("host")) m.host = read_host(in.object("host"));
  if (in.find("network")) m.network = read_network(in.object("network"), m.ranks_per_node);
  m.collectives = read_collectives(in);
  in.require_all_known();
  return m;
}

std::string machine_json(const Machine& m) {
  Json link{
      {"kind", kLinks[int(m.link.kind)]}, {"bandwidth", m.link.bandwidth}, {"ring", m.link.ring}};
  if (m.link.switch_sums > 0)
    link.update(
        {{"switch_sums", m.link.switch_sums}, {"switch_sums_from", m.link.switch_sums_from}});
  Json json{{"schema", 1},
            {"name", m.name},
            {"title", m.title},
            {"sources", m.sources},
            {"ranks_per_node", m.ranks_per_node},
            {"contention", m.contention},
            {"rank", rank_json(m.rank)},
            {"link", link}};
  if (m.host.link_bandwidth > 0)
    json["host"] = {
        {"link_bandwidth", m.host.link_bandwidth}, {"memory_bandwidth", m.host.memory_bandwidth},
        {"memory_bytes", m.host.memory_bytes},     {"disk_bytes", m.host.disk_bytes},
        {"disk_read", m.host.disk_read},           {"disk_write", m.host.disk_write}};
  if (m.network.ports > 0)
    json["network"] = {{"kind", m.network.kind},
                       {"ports", m.network.ports},
                       {"bandwidth", m.network.bandwidth},
                       {"sums", m.network.sums},
                       {"gathers", m.network.gathers},
                       {"hop_seconds", m.network.hop},
                       {"ports_per_rank", m.network.ports_per_rank}};
  for (const CollectiveRow& row : m.collectives)
    json["collectives"].push_back({{"collective", name(row.collective)},
                                   {"ranks", row.ranks},
                                   {"nodes", row.nodes},
                                   {"alpha_seconds", row.terms.alpha},
                                   {"root_seconds", row.terms.root},
                                   {"bus_bandwidth", row.terms.bus}});
  return json.dump(2) + "\n";
}

}  // namespace zl
