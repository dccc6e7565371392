// The data of a check of exercise 04, and what the child records.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace zl::exercises {

struct DdpCase {
  uint64_t seed = 0;
  int ranks = 1;
  int64_t bucket_size = 1;     // [n]
  std::vector<int64_t> sizes;  // [n] of each unit
  // [step][micro-batch]: units in the order in which their gradients are ready.
  std::vector<std::vector<std::vector<size_t>>> ready;

  std::string unit_name(size_t unit) const;
  int64_t elements() const;  // [n] of all units
  // What backward adds: a multiple of `ranks`, so that means are exact.
  float gradient(int rank, size_t step, size_t micro_batch, size_t unit, int64_t i) const;
};

DdpCase ddp_case(const std::string& check, uint64_t seed);

// What one rank does, in order. The record has four numbers per event, as "events 0" for rank 0.
struct DdpEvent {
  enum Kind {
    gradient_ready,  // a: unit, b: micro-batch
    backward_done,   // b: micro-batch
    wait,            // the reducer is asked to wait
    update,          // wait has returned
    begin_group,
    end_group,
    all_reduce,  // a: unit, or -1: another tensor; b: elements [n]; c: 1 if it is a mean
    other_call,  // a: Collective; b: elements [n]
    waited       // a: number of the all-reduce, from 0
  };
  Kind kind{};
  int64_t a = 0, b = 0, c = 0;
};
std::vector<double> encode(const std::vector<DdpEvent>& events);
std::vector<DdpEvent> decode_events(const std::vector<double>& numbers);

// Units that are reduced together, and what the reducer was called for when they were.
struct DdpBucket {
  std::vector<size_t> units;
  DdpEvent at;
};
enum class BucketRule {
  right,
  above_size,      // full only when it has more than bucket_size elements
  at_most_size,    // reduced before a unit that does not fit
  bytes,           // bucket_size counts bytes
  never_restarts,  // elements of earlier buckets still count
};
// The buckets of one step by this rule.
std::vector<DdpBucket> ddp_buckets(const DdpCase& c, size_t step, BucketRule rule);

}  // namespace zl::exercises
