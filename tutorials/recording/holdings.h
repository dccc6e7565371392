// What a rank holds of each unit under a stage.
#pragma once

#include "stages/stage.h"
#include "tutorials/recording/recording.h"

namespace zl::recording {

// A row per unit with three letters: parameter, gradient, optimizer state. The view's legend
// explains them. Listens to `events` from now on; all arguments must live as long as the view.
View holdings(const Stage& stage, const std::vector<Unit>& units, EventStream& events);

// The same from now on, between two steps, with the function that is to be called with each event.
std::pair<View, std::function<void(const Event&)>> followed_holdings(
    const Stage& stage, const std::vector<Unit>& units);

enum class Held { parameter, gradient };

// When rank 0 holds the full tensor of each unit: '#' full, '.' a shard or nothing. A row per unit
// below a line of phases, a column per event of a unit in forward and backward. In all lines '|' is
// where a phase begins.
std::vector<std::string> unit_map(const Recording& recording, Held what);

// Which calls of rank 0 are in flight: 'G' for the gradient of a unit, 'P' for its parameters, '.'
// none. A row per unit below a line of phases, a column per event of a unit.
std::vector<std::string> in_flight_map(const Recording& recording);

// The most units of a map that are full, or in flight, at one event.
int64_t most_at_once(const std::vector<std::string>& map);

}  // namespace zl::recording
