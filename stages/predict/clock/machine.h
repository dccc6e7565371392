// A description of a machine, from which the clock takes its times. Files of this form are in
// stages/predict/machines/; `zerolab bench machine --save` writes one of this machine.
//
// Times are in seconds, rates in bytes or operations per second. A multiply-add is two operations.
#pragma once

#include <string>
#include <vector>

#include "dist/call.h"
#include "tensor/backend.h"
#include "tensor/dtype.h"

namespace zl {

// The share of a peak rate that work of `size` operations or bytes reaches.
struct Efficiency {
  double size = 0, share = 1;
  bool operator==(const Efficiency&) const = default;
};

// One kernel on one rank, measured at several sizes.
struct KernelTimes {
  struct Point {
    double operations = 0, bytes = 0, seconds = 0;
  };
  std::string kernel;  // as its event is called
  Dtype type = Dtype::f32;
  int ranks = 1;              // so many ranks of the node computed at the same time
  std::vector<Point> points;  // sorted by place_of() of kernel_time.h
  int shape = 0;              // shape_of() of kernel_time.h; 0: it does not matter
};

// One GPU, or one rank on a CPU.
struct RankMachine {
  DeviceKind device = DeviceKind::cuda;
  double memory_bytes = 0;               // [B]
  double memory_bandwidth = 0;           // [B/s]
  double f32_flops = 0, half_flops = 0;  // [1/s] peak of matmuls in fp32, and in bf16 or fp16
  std::vector<Efficiency> matmul;        // by operations, from the smallest
  std::vector<Efficiency> memory;        // by bytes, from the smallest
  std::vector<Efficiency> streaming;     // likewise, of kernels that stream (kernel_time.h)
  double attention = 0.5;                // share of the peak that attention reaches
  double vector_rate = 0;                // [1/s] ordinary instructions: 128 lanes of each core of
                                         // the GPU (SM), times its clock; 0: unknown
  double launch = 0;                     // [s] the host's time to launch one kernel
  std::vector<KernelTimes> kernels;      // where they are measured, the shares are not used
};

// How the ranks of a node reach each other, and the host.
struct NodeLink {
  enum class Kind { nvswitch, nvlink, pcie, memory };
  Kind kind = Kind::nvswitch;
  double bandwidth = 0;      // [B/s] of a rank, in one direction
  double ring = 0.8;         // share of it that a ring reaches
  double switch_sums = 0;    // share that sums in the switch (NVLS) reach; 0: it has none
  int switch_sums_from = 0;  // ranks
};

// What the ranks of a node share with offloaded state.
struct Host {
  double link_bandwidth = 0;             // [B/s] between one rank and host memory, in one direction
  double memory_bandwidth = 0;           // [B/s] of the node's memory
  double memory_bytes = 0;               // [B] of the node; 0: unknown
  double disk_bytes = 0;                 // [B] of the node's local disk; 0: unknown
  double disk_read = 0, disk_write = 0;  // [B/s] of the node; 0: it has no local disk
};

// What a node sends and receives.
struct Network {
  std::string kind;                    // "InfiniBand", "RoCE", "EFA", "Ethernet"
  int ports = 0;                       // of a node; 0: the machine is one node
  double bandwidth = 0;                // [B/s] of a port, in one direction
  double sums = 0.96, gathers = 0.96;  // share of it that all-reduce and the other calls reach
  double hop = 8e-6;                   // [s] of one message
  // Of a node's ports, those that one rank uses: a node of few ranks has idle ports. The default is
  // the rank's part of a full node's.
  int ports_per_rank = 1;
};

// t = alpha + root * sqrt(S) + S * factor / bus, for S bytes of the unsharded side and the factor
// of nccl-tests (sent_bytes_times_n of dist/call.h). The second term is for pipelines
// that fill, and grows no more from 128 MiB on.
struct CollectiveTerms {
  double alpha = 0;  // [s]
  double root = 0;   // [s/sqrt(B)]
  double bus = 0;    // [B/s]
};
// Measured, and fitted.
struct CollectiveRow {
  Collective collective{};
  int ranks = 0, nodes = 1;
  CollectiveTerms terms;
};

struct Machine {
  std::string name, title;
  std::vector<std::string> sources;
  int ranks_per_node = 1;
  // Whether so many ranks are several nodes, all of them full.
  bool fills_nodes(int ranks) const {
    return ranks > ranks_per_node && ranks % ranks_per_node == 0;
  }
  RankMachine rank;
  NodeLink link;
  Host host;
  Network network;
  // A kernel takes so many times as long while a call is in flight.
  double contention = 1.1;
  std::vector<CollectiveRow> collectives;
};

// Throws InputError with one sentence that begins with `where` if the text is no such description.
Machine read_machine(const std::string& text, const std::string& where);
std::string machine_json(Machine machine);

// Those that are shipped, by name; their texts are compiled in.
const std::vector<Machine>& shipped_machines();
std::vector<std::string> shipped_machine_texts();
// A shipped machine, or the description in a file: a name with '/' or '.' is a path. Throws
// InputError that lists the names.
Machine find_machine(const std::string& name_or_path);

}  // namespace zl
