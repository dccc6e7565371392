// Reading a whole checkpoint and comparing it with its checksums.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace zl {

// What is wrong with a checkpoint, one sentence each, naming file, tensor and range; empty:
// nothing. `progress` is called with the bytes read and the bytes of all files [B]; it may throw.
std::vector<std::string> verify_checkpoint(
    const std::string& checkpoint, const std::function<void(int64_t, int64_t)>& progress = {});

}  // namespace zl
