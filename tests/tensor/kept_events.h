// The events of a stream, as tests read them.
#pragma once

#include <memory>
#include <vector>

#include "tensor/events.h"

namespace zl::test {

// All events from now on. Their texts live as long as the stream.
inline std::shared_ptr<const std::vector<Event>> keep_events(EventStream& events) {
  const auto kept = std::make_shared<std::vector<Event>>();
  events.listen([kept](const Event& e) { kept->push_back(e); });
  return kept;
}

}  // namespace zl::test
