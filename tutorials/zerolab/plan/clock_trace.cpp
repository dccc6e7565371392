// The predicted step in Chrome's trace format: a process for each stage, a thread for each lane.

#include <nlohmann/json.hpp>

#include "tutorials/zerolab/plan/clock_section.h"

namespace zl::cli {

std::string clock_trace(const std::vector<StageClock>& clocks, const Machine& machine) {
  using Json = nlohmann::ordered_json;
  Json events = Json::array();
  for (size_t stage = 0; stage < clocks.size(); ++stage) {
    const auto pid = int(stage);
    events.push_back({{"name", "process_name"},
                      {"ph", "M"},
                      {"pid", pid},
                      {"args", {{"name", str(name(clocks[stage].stage), " on ", machine.name)}}}});
    std::vector<std::string> lanes;
    for (const ClockSpan& span : clocks[stage].as_configured.spans) {
      auto lane = std::ranges::find(lanes, span.lane);
      if (lane == lanes.end()) {
        lane = lanes.insert(lane, span.lane);
        events.push_back({{"name", "thread_name"},
                          {"ph", "M"},
                          {"pid", pid},
                          {"tid", int(lane - lanes.begin())},
                          {"args", {{"name", span.lane}}}});
      }
      events.push_back({{"name", span.what},
                        {"ph", "X"},
                        {"pid", pid},
                        {"tid", int(lane - lanes.begin())},
                        {"ts", 1e6 * span.begin},
                        {"dur", 1e6 * (span.end - span.begin)},
                        {"args", {{"unit", span.unit}}}});
    }
  }
  return Json({{"displayTimeUnit", "ms"}, {"traceEvents", events}}).dump() + "\n";
}

}  // namespace zl::cli
