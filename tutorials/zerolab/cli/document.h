// JSON documents as all commands print them, and as text for people. Templates, so that the JSON
// library stays out of headers.
#pragma once

#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "tensor/error.h"
#include "tensor/memory.h"
#include "tutorials/zerolab/cli/number_text.h"
#include "tutorials/zerolab/cli/printable.h"

namespace zl::cli {

// Bytes that are not UTF-8, as file names may have them, become U+FFFD.
template <class Json>
std::string json_text(const Json& document) {
  return document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

template <class Json>
void print_json(const Json& document) {
  std::fputs(json_text(document).c_str(), stdout);
}

// A table of text: the first columns are aligned left, the others right.
class TextTable {
 public:
  void row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  // `first`, and the `text` of each part of `parts`.
  void row(const auto& parts, const auto& text, std::vector<std::string> first = {}) {
    for (const auto& part : parts) first.push_back(text(part));
    row(std::move(first));
  }
  void line() { rows_.push_back({}); }  // an empty line

  std::string text(size_t left = 1) const {
    std::vector<size_t> widths;
    for (const auto& cells : rows_) {
      widths.resize(std::max(widths.size(), cells.size()));
      for (size_t i = 0; i < cells.size(); ++i) widths[i] = std::max(widths[i], columns(cells[i]));
    }
    std::string all;
    for (const auto& cells : rows_) {
      for (size_t i = 0; i < cells.size(); ++i) {
        const std::string pad(widths[i] - columns(cells[i]), ' ');
        all += i < left ? "  " + cells[i] + pad : "  " + pad + cells[i];
      }
      all.erase(all.find_last_not_of(' ') + 1);
      all += "\n";
    }
    return all;
  }

 private:
  // Characters of UTF-8 text, each one column wide.
  static size_t columns(const std::string& text) {
    return size_t(std::ranges::count_if(text, [](char c) { return (c & 0xc0) != 0x80; }));
  }
  std::vector<std::vector<std::string>> rows_;
};

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
    return format("%.1f G%s/s", double(value) * 1e-9,
                  key.ends_with("bytes_per_second") ? "B" : "FLOP");
  if (value.is_number_float()) return digits(value, value < 1e6 ? 7 : 3);
  if (value.is_number() && key.ends_with("bytes")) return human_bytes(value);
  if (!value.is_object()) return value.dump(-1, ' ', false, Json::error_handler_t::replace);
  std::string all;
  for (const auto& [name, part] : value.items())
    if (!part.is_null())
      all += (all.empty() ? "" : ", ") + words_of(name) + " " + text_of(name, part);
  return all;
}

// Objects with the same keys; at least one.
template <class Json>
std::string table_of(const Json& rows) {
  TextTable table;
  table.row(rows[0].items(), [](const auto& cell) { return words_of(cell.key()); });
  for (const Json& row : rows)
    table.row(row.items(), [](const auto& cell) { return text_of(cell.key(), cell.value()); });
  return table.text(rows[0].size());
}

template <class Json>
std::string as_is(const Json& value) {
  return value.is_string() ? value.template get<std::string>() : value.dump();
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
  return giga == 0 ? "-" : digits(giga, 4);
}

template <class Json>
std::string as_percent(const Json& value) {  // "12.5 %", of 0.125
  return digits(100 * double(value), 3) + " %";
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
  table.row(columns, [](const auto& column) { return column.title; });
  for (const Json& row : rows)
    table.row(columns, [&](const auto& column) {
      const Json value = row.value(typename Json::json_pointer(column.at), Json());
      return value.is_null() ? "-" : column.text(value);
    });
  return table.text();
}

// The sum of `key` in the rows of rank 0, or of no rank, that have these values.
template <class Json>
int64_t sum_of(const Json& rows, const std::string& key, const Json& values = Json::object()) {
  int64_t sum = 0;
  for (const Json& row : rows)
    if (row.value("rank", 0) == 0 && std::ranges::all_of(values.items(), [&](const auto& value) {
          return row.at(value.key()) == value.value();
        }))
      sum += row.at(key).template get<int64_t>();
  return sum;
}

// A table with a column for each stage of a document. A stage that ran and did not fit has "-".
template <class Json>
class StageColumns {
 public:
  StageColumns(const Json& stages, const std::string& title, const char* key = "stage")
      : stages_(stages) {
    table_.row(stages, [&](const Json& s) { return s[key].template get<std::string>(); }, {title});
  }
  // `cell` of a stage: a text, or bytes.
  void row(const std::string& title, const auto& cell) {
    table_.row(stages_, [&](const Json& s) { return missing(s) ? "-" : shown(cell(s)); }, {title});
  }
  // `text` of the value at this place, a JSON pointer.
  void row(const std::string& title, const std::string& place, const auto& text) {
    row(title, [&](const Json& s) { return text(s.at(typename Json::json_pointer(place))); });
  }
  // Left out where every stage has 0.
  void row_if_any(const std::string& title, const auto& bytes) {
    if (any(bytes)) row(title, bytes);
  }
  bool any(const auto& is) const {
    return std::ranges::any_of(stages_, [&](const Json& s) { return !missing(s) && is(s); });
  }
  // A row for each use of memory of which a stage has any in this pool.
  void use_rows(const std::string& pool, const std::string& key) {
    for (int i = 0; i < kMemoryUses; ++i)
      row_if_any(str("  ", zl::name(MemoryUse(i))), [&](const Json& s) {
        return sum_of<Json>(s["memory"], key, {{"pool", pool}, {"use", zl::name(MemoryUse(i))}});
      });
  }
  // An empty line, and a title if there is one.
  void heading(const std::string& title = "") {
    table_.line();
    if (!title.empty()) table_.row({title});
  }
  std::string text() const { return table_.text(); }

 private:
  static bool missing(const Json& s) { return !s.contains("memory"); }
  static std::string shown(const std::string& text) { return text; }
  static std::string shown(int64_t bytes) { return human_bytes(bytes); }

  const Json& stages_;
  TextTable table_;
};

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
