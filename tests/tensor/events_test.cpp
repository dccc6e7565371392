#include "tensor/events.h"

#include <catch2/catch_test_macros.hpp>
#include <string>

#include "tests/tensor/kept_events.h"

namespace {

using namespace zl;

TEST_CASE("events carry the labels of their time and a sequence without gaps", "[tensor]") {
  EventStream events(5);
  const auto kept = test::keep_events(events);
  CHECK((events.rank() == 5 && std::string(events.phase()).empty()));
  events.set_phase("forward");
  events.set_unit("h.0");
  events.append(EventKind::kernel, "gelu", 128, 1400);
  events.set_unit("h.1");
  events.append(EventKind::collective_begin, "all_gather", 0, 64, "h.1 parameter");
  const std::vector<Event>& recent = *kept;
  REQUIRE((recent.size() == 3 && events.appended() == 3));
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

TEST_CASE("labels outlive the text they were made from, and equal texts share one copy",
          "[tensor]") {
  EventStream events;
  const auto kept = test::keep_events(events);
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
  CHECK(kept->at(0).unit == first);
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
