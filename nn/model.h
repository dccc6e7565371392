// What a model must offer to be trained, compared and planned under every stage.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "nn/unit.h"

namespace zl {

// One micro-batch of one rank, as the model sees it.
struct Batch {
  Tensor inputs, targets;  // (B, …) each, i32
};

class Model {
 public:
  Model() = default;
  virtual ~Model() = default;
  Model(const Model&) = delete;  // units and tapes hold addresses of parameters
  Model& operator=(const Model&) = delete;

  virtual std::string name() const = 0;
  // What a file of its weights says beside names and shapes of the parameters. Models that differ
  // in it cannot load each other's weights.
  virtual std::map<std::string, std::string> metadata() const { return {}; }

  // Root first; units[i].index is i. Each parameter is in exactly one unit, and is used only while
  // that unit runs. The list and the parameters live as long as the model.
  virtual std::vector<Unit>& units() = 0;

  // The mean loss (1) f32 over the micro-batch. Root's run_unit() encloses the whole pass; every
  // other unit computes inside its own run_unit(). A null tape: evaluation.
  virtual Var loss(Tape* tape, UnitObserver& observer, const Batch& batch) = 0;
};

// Throws std::invalid_argument, which names unit and parameter, unless the model can be trained and
// saved: units[i].index is i; names of units, and of parameters over all units, are different texts
// in UTF-8; each parameter is in one unit, has at least one element, and finite initial values.
// Every stage and every run of a model calls it before anything else.
void check_units(const std::vector<Unit>& units);

}  // namespace zl
