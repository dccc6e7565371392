// Times that others measured and published, which the clock is compared with (`zerolab bench
// clock`). The files are collectives.csv and steps.csv; their first lines say what was left out.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "nn/gpt.h"
#include "stages/options.h"
#include "stages/predict/clock/machine.h"

namespace zl {

// What a source says about its machine where it is not the shipped one. 0: nothing.
struct MachineChange {
  double network = 0;           // [B/s] of a node
  double memory_bandwidth = 0;  // [B/s] of a GPU
};
Machine with(Machine machine, const MachineChange& change);

struct PublishedCall {
  std::string machine, system;  // the shipped machine that describes the system
  MachineChange change;
  Collective collective{};
  int ranks = 0, nodes = 1;
  int64_t bytes = 0;  // of the unsharded side
  double seconds = 0;
  std::string source;
};

struct PublishedStep {
  std::string program, machine, model;
  MachineChange change;
  std::string variant;  // what else its source varies; "": nothing
  bool llama = false;   // SwiGLU, grouped queries, an untied head
  int64_t parameters = 0;
  GptConfig shape;  // as printed
  int ranks = 0;
  StageKind stage{};
  int64_t micro_batch = 0, accumulation = 0;
  double recomputed = 0;  // share of the blocks
  int update_ranks = 1;   // ranks of a node that share the update, besides what `stage` shards
  std::string unlike;     // why its program is not what the clock models; "": it is
  double seconds = 0;
  std::string source;
};

// Read a table. `where` names it in messages. Throws InputError that names the line if a column or
// value is missing, wrong or not positive.
std::vector<PublishedCall> read_calls(const std::string& csv, const std::string& where);
std::vector<PublishedStep> read_steps(const std::string& csv, const std::string& where);

// The shipped ones; their texts are compiled in.
const std::vector<PublishedCall>& published_calls();
const std::vector<PublishedStep>& published_steps();
std::vector<std::string> published_tables();  // collectives.csv, steps.csv

}  // namespace zl
