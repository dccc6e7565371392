// The subcommands of 'zerolab bench', and what they share. Each makes one JSON document of its
// results, and makes the text for people from that document. Json is nlohmann::ordered_json, which
// headers do not include.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "tensor/memory.h"
#include "tutorials/zerolab/cli/flags.h"
#include "tutorials/zerolab/cli/json_output.h"
#include "tutorials/zerolab/cli/number_text.h"
#include "tutorials/zerolab/cli/text_table.h"
#include "tutorials/zerolab/commands/command.h"
#include "tutorials/zerolab/run/device_choice.h"

namespace zl::cli {

void add_bench_comm(CLI::App& bench, Invocation& invocation);
void add_bench_kernels(CLI::App& bench, Invocation& invocation);
void add_bench_machine(CLI::App& bench, Invocation& invocation);
void add_bench_step(CLI::App& bench, Invocation& invocation);

// A flag whose value is a count from `least` to `most`.
struct CountFlag {
  const char *flag, *type, *help;
  int64_t& into;
  int64_t least, most;
};
void add_counts(Flags& flags, const std::vector<CountFlag>& counts);

// ---- how values become text --------------------------------------------------------------------

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

// ---- documents ---------------------------------------------------------------------------------

// The beginning of a document: the command, and where it measures.
template <class Json>
Json document(const char* command, const DeviceChoice& device, int schema = 1) {
  return {{"schema", schema},
          {"command", command},
          {"ok", true},
          {"device", device.reference ? "reference" : name(device.kind)},
          {"device_name", device.name()},
          {"tf32", device.tf32},
          {"threads", device.threads}};
}

// Prints the document, or the text that `text` makes of it.
template <class Json>
void print_results(const Json& results, bool as_json, std::string (*text)(const Json&)) {
  std::fputs((as_json ? json_text(results) : text(results)).c_str(), stdout);
}

struct TimedStep;
// The kernels of training steps beside the limits of the device, `copy` [B/s] and `peak` [FLOP/s],
// as JSON text: one row for each kernel and size, the longest first. And the table of such rows.
std::string kernel_rows(const std::vector<TimedStep>& steps, const char* precision, double copy,
                        double peak);
std::string kernel_table(const std::string& rows);

}  // namespace zl::cli
