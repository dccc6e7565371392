// Errors of one rank that all ranks throw.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "dist/communicator.h"

namespace zl {

// What `action` throws as a sentence; "" if it throws nothing.
std::string error_of(const std::function<void()>& action);

// Runs `action` on this rank. If it throws an InputError or OutputError on a rank, all ranks throw
// the first rank's. Every rank must call it; other exceptions leave at once.
void on_all_ranks(Communicator& comm, std::string_view name, const std::function<void()>& action);
// The same, and returns what `action` returned on each rank.
std::vector<std::string> results_of_all_ranks(Communicator& comm, std::string_view name,
                                              const std::function<std::string()>& action);

}  // namespace zl
