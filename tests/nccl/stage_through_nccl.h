// A run of a stage through the fake.
#pragma once

#include "tests/nccl/fake/fake_ranks.h"
#include "tests/stages/stage_run.h"

namespace zl::test {

// Throws if NCCL was misused.
inline StageRun through_nccl(StageRunSpec spec, const FakeOptions& how = {},
                             int64_t* network = nullptr) {
  spec.backends = [&](int) { return fake_backends(how.place()); };
  StageRun run;
  const FakeUse use = with_fake(how, [&](const RunRanks& start) {
    spec.run = start;
    run = run_stage(spec);
  });
  if (!use.misuse.empty()) throw std::logic_error(use.misuse);
  if (network) *network = use.network;
  return run;
}

}  // namespace zl::test
