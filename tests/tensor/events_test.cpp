#include "tensor/events.h"

#include <catch2/catch_test_macros.hpp>
#include <string>

namespace {

using namespace zl;

TEST_CASE("events carry the labels of their time and a sequence without gaps", "[tensor]") {
  EventStream events(5);
  CHECK((events.rank() == 5 && events.recent().empty() && std::string(events.phase()).empty()));
  events.set_phase("forward");
  events.set_unit("h.0");
  events.append(EventKind::kernel, "gelu", 128, 1400);
  events.set_unit("h.1");
  events.append(EventKind::collective_begin, "all_gather", 0, 64, "h.1 parameter");
  const std::vector<Event> recent = events.recent();
  REQUIRE(recent.size() == 3);
  for (size_t i = 0; i < 3; ++i)
    CHECK((recent[i].sequence == int64_t(i) && std::string(recent[i].phase) == "forward"));
  CHECK((recent[0].kind == EventKind::phase && std::string(recent[0].what) == "forward" &&
         std::string(recent[0].unit).empty()));
  CHECK(
      (std::string(recent[1].unit) == "h.0" && recent[1].bytes == 128 && recent[1].count == 1400));
  CHECK((std::string(recent[2].unit) == "h.1" && std::string(recent[2].detail) == "h.1 parameter"));
  CHECK((recent[0].nanoseconds <= recent[1].nanoseconds &&
         recent[1].nanoseconds <= recent[2].nanoseconds));
}

TEST_CASE("the stream keeps the last events, oldest first, and listeners see all", "[tensor]") {
  for (int64_t capacity : {0, 1, 3, 4}) {
    EventStream events(0, capacity);
    int64_t heard = 0, sum = 0;
    events.listen([&](const Event& e) { ++heard, sum += e.sequence; });
    for (int i = 0; i < 10; ++i) events.append(EventKind::kernel, "add", i);
    const std::vector<Event> recent = events.recent();
    const int64_t kept = std::max<int64_t>(capacity, 1);
    REQUIRE(int64_t(recent.size()) == kept);
    for (int64_t i = 0; i < kept; ++i)
      CHECK((recent[size_t(i)].sequence == 10 - kept + i &&
             recent[size_t(i)].bytes == 10 - kept + i));
    CHECK((heard == 10 && sum == 45 && events.appended() == 10));
  }
}

TEST_CASE("labels outlive the text they were made from, and equal texts share one copy",
          "[tensor]") {
  EventStream events;
  const char* first = nullptr;
  {
    const std::string text = "a unit with a name that is longer than a small string buffer";
    first = events.keep(text);
    CHECK(first != text.c_str());
    events.set_unit(text);
    events.append(EventKind::unit, "before_forward");
  }
  for (int i = 0; i < 1000; ++i) events.keep("unit " + std::to_string(i));  // copies must not move
  CHECK(events.keep("a unit with a name that is longer than a small string buffer") == first);
  CHECK(events.recent()[0].unit == first);
  CHECK(std::string(first).ends_with("string buffer"));
  CHECK(events.keep("another") != first);
}

TEST_CASE("every kind of event has a different name", "[tensor]") {
  std::string before;
  for (int kind = 0; kind <= int(EventKind::collective_end); ++kind) {
    const std::string text = name(EventKind(kind));
    CHECK((text != "?" && text != before));
    before = text;
  }
}

}  // namespace
