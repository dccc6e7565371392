// JSON documents as text for people. Templates, so that the JSON library stays out of headers.
#pragma once

#include <algorithm>
#include <cstdio>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "tensor/memory.h"
#include "tutorials/zerolab/cli/json_output.h"
#include "tutorials/zerolab/cli/number_text.h"
#include "tutorials/zerolab/cli/printable.h"
#include "tutorials/zerolab/cli/text_table.h"

namespace zl::cli {

// "next_window" → "next window"; the value has the unit of "copy_bytes_per_second": "copy".
inline std::string words_of(std::string key) {
  for (const std::string unit : {"_per_second", "_bytes"})
    if (key.ends_with(unit)) key.resize(key.size() - unit.size());
  std::ranges::replace(key, '_', ' ');
  return printable_line(key);
}

// The value of `key` on one line: bytes and rates have units, of an object nulls are left out.
template <class Json>
std::string text_of(const std::string& key, const Json& value) {
  if (value.is_null()) return "-";
  if (value.is_boolean()) return value ? "yes" : "no";
  if (value.is_string()) return printable_line(value.template get<std::string>());
  if (value.is_number() && key.ends_with("_per_second"))
    return format("%.1f G%s/s", double(value) * 1e-9, key.ends_with("bytes_per_second") ? "B" : "");
  if (value.is_number_float()) return digits(value, value < 1e6 ? 7 : 3);
  if (value.is_number() && key.ends_with("bytes")) return human_bytes(value);
  if (!value.is_object()) return value.dump(-1, ' ', false, Json::error_handler_t::replace);
  std::string all;
  for (const auto& [name, part] : value.items())
    if (!part.is_null())
      all += (all.empty() ? "" : ", ") + words_of(name) + " " + text_of(name, part);
  return all;
}

// Objects with the same keys.
template <class Json>
std::string table_of(const Json& rows) {
  TextTable table;
  if (rows.empty()) return "";
  std::vector<std::string> cells;
  for (const auto& [key, value] : rows[0].items()) cells.push_back(words_of(key));
  table.row(cells);
  for (const Json& row : rows) {
    cells.clear();
    for (const auto& [key, value] : row.items()) cells.push_back(text_of(key, value));
    table.row(cells);
  }
  return table.text(cells.size());
}

template <class Json>
std::string as_is(const Json& value) {
  return value.is_string() ? value.template get<std::string>() : value.dump();
}

template <class Json>
std::string as_yes(const Json& value) {
  return value ? "yes" : "no";
}

template <class Json>
std::string as_seconds(const Json& value) {  // "81 µs", "2.5 ms", "1.2 s"
  const double s = value;
  return s < 1e-3 ? digits(1e6 * s, 3) + " µs"
         : s < 1  ? milliseconds(s) + " ms"
                  : digits(s, 3) + " s";
}

template <class Json>
std::string as_giga(const Json& value) {  // "103.5", of 1.035e11
  const double giga = double(value) / 1e9;
  return giga == 0 ? "-" : giga < 1e3 ? digits(giga, 4) : format("%.0f", giga);
}

template <class Json>
std::string as_percent(const Json& value) {  // "12.5 %", of 0.125
  const double percent = 100 * double(value);
  return (percent < 999 ? digits(percent, 3) : format("%.0f", percent)) + " %";
}

template <class Json>
std::string as_ratio(const Json& value) {  // "× 1.02"
  return "× " + digits(value, 3);
}

template <class Json>
std::string as_bytes(const Json& value) {  // "1.50 MiB"
  return human_bytes(int64_t(value));
}

// One column of a table: `at` is the JSON pointer of its value in each row.
template <class Json>
struct Column {
  std::string title;
  const char* at;
  std::string (*text)(const Json& value);
};

// Where a row has no value, or null, the table has "-". Without rows there is no table.
template <class Json>
std::string table_text(const Json& rows, const std::vector<Column<Json>>& columns) {
  if (rows.empty()) return "";
  TextTable table;
  std::vector<std::string> cells;
  for (const auto& column : columns) cells.push_back(column.title);
  table.row(std::exchange(cells, {}));
  for (const Json& row : rows) {
    for (const auto& column : columns) {
      const Json value = row.value(typename Json::json_pointer(column.at), Json());
      cells.push_back(value.is_null() ? "-" : column.text(value));
    }
    table.row(std::exchange(cells, {}));
  }
  return table.text();
}

// A table with a column for each stage of a document.
template <class Json>
class StageColumns {
 public:
  StageColumns(const Json& stages, const std::string& title) : stages_(stages) {
    row(title, "/stage", [](const Json& s) { return text_of("", s); });
  }
  // `text` of the value at this place (a JSON pointer) of each stage.
  void row(const std::string& title, const std::string& place, const auto& text) {
    std::vector<std::string> cells = {title};
    for (const Json& stage : stages_)
      cells.push_back(text(stage.at(typename Json::json_pointer(place))));
    table_.row(cells);
  }
  std::string text() const { return table_.text(); }

 private:
  const Json& stages_;
  TextTable table_;
};

// The objects with these keys only; null where one is missing.
template <class Json>
Json with_keys(const Json& rows, std::initializer_list<const char*> keys) {
  Json all = Json::array();
  for (const Json& row : rows) {
    Json& part = all.emplace_back();
    for (const char* key : keys) part[key] = row.value(key, Json());
  }
  return all;
}

// As it is, or for people: a line for each key, a table for each list of objects; `schema`,
// `command` and `ok` are left out.
template <class Json>
void print_document(const Json& document, bool as_json) {
  if (as_json) return print_json(document);
  int widest = 0;
  for (const auto& [key, value] : document.items()) widest = std::max(widest, int(key.size()));
  for (const auto& [key, value] : document.items()) {
    if (key == "schema" || key == "command" || key == "ok") continue;
    std::string what = words_of(key);
    if (value.is_array() && !value.empty() && value[0].is_object()) {
      std::printf("%s\n%s", what.c_str(), table_of(value).c_str());
      continue;
    }
    for (const Json& line : value.is_array() ? value : Json::array({value})) {
      std::printf("%-*s  %s\n", widest, what.c_str(), text_of(key, line).c_str());
      what.clear();
    }
  }
}

}  // namespace zl::cli
