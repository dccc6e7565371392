// Makes the stage of a kind. Apart from variants.cpp, so that code that reads names and properties
// of variants does not need the stages.
#include "stages/variants/variants.h"

namespace zl {

MakeStage make_hsdp, make_zero3_hpz, make_zero3_qwz, make_zero3_qgz;

namespace {

MakeStage* maker(StageKind kind) {
  switch (kind) {
    case StageKind::ddp: return make_ddp;
    case StageKind::zero1: return make_zero1;
    case StageKind::zero2: return make_zero2;
    case StageKind::zero3: return make_zero3;
    case StageKind::hsdp: return make_hsdp;
    case StageKind::zero3_hpz: return make_zero3_hpz;
    case StageKind::zero3_qwz: return make_zero3_qwz;
    case StageKind::zero3_qgz: return make_zero3_qgz;
  }
  return nullptr;
}

}  // namespace

std::unique_ptr<Stage> make_stage(StageKind kind, std::vector<Unit>& units, Communicator& comm,
                                  Memory& memory, const StageOptions& options) {
  require(shards_optimizer(kind) || !options.placement.optimizer, name(kind),
          " keeps its optimizer state on the device");
  std::unique_ptr<Stage> stage =
      maker(kind)(units, comm, memory, with_groups(kind, comm.size(), options));
  stage->start();
  return stage;
}

}  // namespace zl
