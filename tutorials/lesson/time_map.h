// When a rank has the whole of each unit: rows are units, columns the events of units in forward
// and backward.
#pragma once

#include <string>
#include <vector>

#include "dist/communicator.h"
#include "stages/stage.h"

namespace zl::lesson {

class TimeMap {
 public:
  // From now on listens to this rank. Must outlive the run, as must all of these.
  void watch(Communicator& comm, const Stage& stage, const std::vector<Unit>& units);

  // "root   ###..." and so on below a line of phases: '#' whole, '.' own shard or nothing.
  std::vector<std::string> parameters() const { return rows(&Column::parameters); }
  std::vector<std::string> gradients() const { return rows(&Column::gradients); }
  // The most units that were whole at one event.
  int64_t most_parameters() const;

 private:
  struct Column {
    bool backward;
    std::string parameters, gradients;  // one letter per unit
  };
  std::vector<std::string> rows(std::string Column::*what) const;

  std::vector<std::string> names_;
  std::vector<Column> columns_;
};

}  // namespace zl::lesson
