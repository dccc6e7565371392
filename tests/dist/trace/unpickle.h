// Reads a pickle of dictionaries, lists, texts and whole numbers, from the documentation of the
// opcodes in Python's pickletools.
#pragma once

#include <string>

namespace zl::test {

// The value as JSON. Throws std::runtime_error for an opcode that PyTorch's MemoryViz.js does not
// know, and for what is cut off.
std::string unpickled_json(const std::string& pickle);

}  // namespace zl::test
