// Sizes of a GPT by name: two of ours, and those of the published GPT-2.
#pragma once

#include <string>
#include <vector>

#include "nn/gpt.h"

namespace zl {

// "tiny", "small", "gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl". Throws InputError with the list
// otherwise.
GptConfig named_gpt(const std::string& name);
std::vector<std::string> gpt_names();

}  // namespace zl
