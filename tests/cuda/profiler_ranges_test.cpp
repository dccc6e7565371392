// The NVTX ranges of a rank's event stream, as tests/cuda/on_cpu records them.
#include <catch2/catch_test_macros.hpp>

#include "tests/cuda/on_cpu/nvtx3/nvToolsExt.h"
#include "tests/device.h"

using namespace zl;

TEST_CASE("phases, units and collectives are ranges, each until the next of its kind",
          "[cuda][host]") {
  cuda_on_cpu::ranges = {};
  const auto open = [] {
    std::vector<std::string> names;
    for (const auto& [id, name] : cuda_on_cpu::ranges.open) names.push_back(name);
    return names;
  };
  {
    EventStream events(2);
    cuda_on_cpu::annotate_for_profilers(events);
    events.set_phase("forward");
    events.set_unit("h.0");
    events.append(EventKind::unit, "before_forward");
    events.append(EventKind::collective_begin, "all_gather", 0, 0, "h.0 parameter");
    CHECK(open() == std::vector<std::string>{"rank 2: forward", "rank 2: h.0 before_forward",
                                             "rank 2: all_gather h.0 parameter"});
    events.append(EventKind::collective_end, "all_gather");
    events.append(EventKind::kernel, "matmul");
    events.append(EventKind::unit, "after_forward");
    CHECK(open() == std::vector<std::string>{"rank 2: forward", "rank 2: h.0 after_forward"});
    events.set_phase("backward");
    CHECK(open() == std::vector<std::string>{"rank 2: backward"});
  }
  CHECK(open().empty());
  CHECK(cuda_on_cpu::ranges.begun.size() == 5);
}
