#include "tutorials/zerolab/report/page/report_check.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tensor/error.h"

namespace zl::cli {
namespace {

using Json = nlohmann::ordered_json;

// An integer of at least `least` and below `end`.
bool in(const Json& json, int64_t least, size_t end) {
  return json.is_number_integer() && json.get<int64_t>() >= least &&
         json.get<int64_t>() < int64_t(end);
}
bool integer(const Json& json) { return json.is_number_integer(); }
bool text(const Json& json) { return json.is_string(); }
bool row(const Json& json) { return json.is_object(); }

bool all(const Json& json, auto is) { return std::ranges::all_of(json, is); }
bool list(const Json& json, auto is) { return json.is_array() && all(json, is); }
bool table(const Json& json, auto is) { return json.is_object() && all(json, is); }
bool tuple(const Json& json, size_t size) { return json.is_array() && json.size() == size; }

class Check {
 public:
  explicit Check(const std::string& path) : path_(path) {}

  void require(bool good, const auto&... what) const {
    require_input(good, "'", path_, "' is damaged: ", what...,
                  "; run the command with --out again");
  }
  const Json& member(const Json& object, const char* key, const std::string& of) const {
    require(object.contains(key), of.empty() ? "it" : of, " has no \"", key, "\"");
    return object[key];
  }
  void has(const Json& object, const char* key, const std::string& of, auto is,
           const char* what) const {
    require(is(member(object, key, of)), "\"", key, "\"", of.empty() ? "" : " of ", of, " is not ",
            what);
  }

 private:
  const std::string& path_;
};

struct Shape {
  size_t events, units, series;
};

void check_rank(const Check& check, const Json& rank, const Shape& s, const std::string& of) {
  check.require(row(rank), of, " is not an object");
  check.has(rank, "rank", of, integer, "an integer");
  check.has(
      rank, "ns", of, [&](const Json& j) { return tuple(j, s.events) && all(j, integer); },
      "one time for each event");
  const auto lists = [&](const char* key, const char* what, auto is) {
    check.has(
        rank, key, of, [&](const Json& j) { return list(j, is); }, what);
  };
  lists("cells", "a list of [event, unit, letters]", [&](const Json& c) {
    return tuple(c, 3) && in(c[0], 0, s.events) && in(c[1], 0, s.units) && text(c[2]);
  });
  lists("memory", "a list of [event, series, bytes]", [&](const Json& m) {
    return tuple(m, 3) && in(m[0], 0, s.events) && in(m[1], 0, s.series) && integer(m[2]);
  });
  lists("peaks", "a list of [event, bytes of each series]", [&](const Json& p) {
    return tuple(p, 2) && in(p[0], 0, s.events) && tuple(p[1], s.series) && all(p[1], integer);
  });
  lists("calls", "a list of [begin, end, wait, met, moved]", [&](const Json& c) {
    return tuple(c, 5) && in(c[0], -1, s.events) && in(c[1], -1, s.events) && all(c, integer);
  });
}

void check_recording(const Check& check, const Json& recording, const std::string& of) {
  check.require(row(recording), of, " is not an object");
  check.has(recording, "stage", of, text, "a text");
  check.has(recording, "step", of, integer, "an integer");
  check.has(recording, "ranks", of, integer, "an integer");
  check.has(
      recording, "timed", of, [](const Json& j) { return j.is_boolean(); }, "true or false");
  const auto unit = [](const Json& u) {
    return row(u) && text(u.value("name", Json())) && integer(u.value("elements", Json())) &&
           integer(u.value("shard", Json()));
  };
  check.has(
      recording, "units", of, [&](const Json& j) { return list(j, unit); },
      "a list of units with name, elements and shard");
  const auto texts = [](const Json& j) { return list(j, text); };
  check.has(recording, "series", of, texts, "a list of texts");
  check.has(recording, "texts", of, texts, "a list of texts");
  const size_t count = recording["texts"].size();
  const auto event = [&](const Json& e) {
    return tuple(e, 8) && all(e, integer) && in(e[0], 0, 4) &&
           std::all_of(e.begin() + 1, e.begin() + 6,
                       [&](const Json& index) { return in(index, 0, count); });
  };
  check.has(
      recording, "events", of, [&](const Json& j) { return list(j, event); },
      "a list of 8 integers each, of which five are indices of texts");
  const Shape shape{recording["events"].size(), recording["units"].size(),
                    recording["series"].size()};
  check.has(
      recording, "rank", of, [](const Json& j) { return j.is_array(); }, "a list");
  for (size_t i = 0; i < recording["rank"].size(); ++i)
    check_rank(check, recording["rank"][i], shape, str("rank ", i, " of ", of));
}

void check_rows(const Check& check, const Json& rows, const std::string& of) {
  check.require(rows.is_array(), of, " is not a list");
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::string line = str("row ", i + 1, of.empty() ? "" : " of ", of);
    check.require(row(rows[i]), line, " is not an object");
    check.has(rows[i], "step", line, integer, "an integer");
    for (const auto& [key, value] : rows[i].items())
      check.require(value.is_number() || value.is_null() || value.is_boolean(), "\"", key, "\" of ",
                    line, " is not a number");
  }
}

// Null, or an object with these integers and texts.
void check_failure(const Check& check, const Json& failure) {
  if (failure.is_null()) return;
  check.require(row(failure), "\"failure\" is not an object");
  check.has(failure, "message", "failure", text, "a text");
  check.has(failure, "after_step", "failure", integer, "an integer");
}

}  // namespace

void require_rows(const std::string& rows_json, const std::string& path) {
  check_rows(Check(path), Json::parse(rows_json), "");
}

void require_report(const std::string& report_json, const std::string& path) {
  const Json report = Json::parse(report_json);
  const Check check(path);
  const auto list_or_null = [](const Json& j) { return j.is_null() || list(j, row); };
  check.has(report, "kind", "", text, "a text");
  check.has(report, "about", "", row, "an object");
  for (const char* key : {"command", "version", "compiler", "device", "date", "settings"})
    check.has(report["about"], key, "about", text, "a text");
  check.has(report["about"], "cores", "about", integer, "an integer");
  const Json& document = check.member(report, "document", "");
  check.require(document.is_null() || row(document), "\"document\" is not an object");
  for (const char* key : {"stages", "memory", "communication", "checkpoints"})
    check.require(document.is_null() || list_or_null(document.value(key, Json())), "\"", key,
                  "\" of document is not a list of objects");
  check_failure(check, check.member(report, "failure", ""));
  check.has(report, "steps_asked", "", integer, "an integer");
  const auto counts = [](const Json& j) { return table(j, integer); };
  for (const char* key : {"steps_made", "nonfinite_losses"})
    check.require(counts(report.value(key, Json::object())), "\"", key,
                  "\" is not a number for each stage");
  check.has(report, "metrics", "", row, "an object");
  for (const auto& [stage, rows] : report["metrics"].items())
    check_rows(check, rows, "the metrics of " + stage);
  check.has(
      report, "sampled", "", [](const Json& j) { return list(j, text); }, "a list of texts");
  check.has(
      report, "recordings", "", [](const Json& j) { return j.is_array(); }, "a list");
  for (size_t i = 0; i < report["recordings"].size(); ++i)
    check_recording(check, report["recordings"][i], str("recording ", i));
}

}  // namespace zl::cli
