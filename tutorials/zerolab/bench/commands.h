// The subcommands of 'zerolab bench', and what they share. Each makes one JSON document of its
// results, and makes the text for people from that document. Json is nlohmann::ordered_json, which
// headers do not include.
#pragma once

#include <cstdio>
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
