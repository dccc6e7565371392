// The subcommands of 'zerolab bench', and what they share. Each makes one JSON document of its
// results, and prints it as JSON or as text. Json is nlohmann::ordered_json, which headers do not
// include.
#pragma once

#include <string>
#include <vector>

#include "tutorials/zerolab/cli/document.h"
#include "tutorials/zerolab/cli/flags.h"
#include "tutorials/zerolab/commands/command.h"
#include "tutorials/zerolab/run/device_choice.h"

namespace zl::cli {

void add_bench_comm(CLI::App& bench, Invocation& invocation);
void add_bench_kernels(CLI::App& bench, Invocation& invocation);
void add_bench_machine(CLI::App& bench, Invocation& invocation);
void add_bench_step(CLI::App& bench, Invocation& invocation);

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

// The document as JSON; or its values, and a table of its list `rows`.
template <class Json>
void print_results(const Json& document, bool as_json, const char* rows,
                   const std::vector<Column<Json>>& columns) {
  if (as_json) return print_json(document);
  Json values;
  for (const auto& [key, value] : document.items())
    if (!value.is_array() && !value.is_null()) values[key] = value;
  print_document(values, false);
  std::printf("\n%s", table_text(document.at(rows), columns).c_str());
}

}  // namespace zl::cli
