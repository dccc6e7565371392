// The groups of ranks that some variants have: nodes or replicas of consecutive ranks.
#pragma once

#include <memory>
#include <vector>

#include "dist/communicator.h"

namespace zl {

class Groups {
 public:
  // Groups of `size` ranks, which divides the ranks of `comm`. All ranks make them together.
  Groups(Communicator& comm, int size) {
    std::vector<int> group, place;
    for (int r = 0; r < comm.size(); ++r) group.push_back(r / size), place.push_back(r % size);
    intra_ = comm.split(group, "intra");
    inter_ = comm.split(place, "inter");
  }
  Communicator& intra() { return *intra_; }  // the ranks of this rank's group
  Communicator& inter() { return *inter_; }  // those that have its place in the other groups

 private:
  std::unique_ptr<Communicator> intra_, inter_;
};

}  // namespace zl
