// The groups of ranks that some variants have: nodes or replicas of consecutive ranks.
#pragma once

#include <memory>

#include "dist/communicator.h"
#include "stages/stage_file.h"

namespace zl {

// The options with the groups of options.stage on so many ranks, and 0 where it has none. Where
// they ask for no size, an even number of more than 2 ranks is two nodes, or two replicas. Throws
// InputError unless they divide the ranks and agree.
Options with_groups(Options options, int ranks);

class Groups {
 public:
  // As with_groups() says. All ranks make them together.
  Groups(Communicator& comm, const Options& options);
  Communicator& intra() { return *intra_; }  // the ranks of this rank's group
  Communicator& inter() { return *inter_; }  // those that have its place in the other groups

 private:
  std::unique_ptr<Communicator> intra_, inter_;
};

}  // namespace zl
