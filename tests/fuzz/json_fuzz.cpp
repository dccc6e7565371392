// Any bytes as a configuration file and as one --set give a Config with its findings or an
// InputError. A crash, a hang or another exception ends the fuzzer.

#include <cstdlib>
#include <string_view>

#include "stages/deepspeed/config.h"
#include "stages/deepspeed/json_text.h"
#include "tensor/error.h"
#include "tests/fuzz/memory_file.h"

namespace {

// An accepted configuration has values in range wherever training divides or allocates by them.
void judge(const zl::LoadedConfig& loaded) {
  for (const zl::ConfigFinding& finding : loaded.findings)
    if (to_string(finding).find('\n') != std::string::npos) std::abort();  // one line each
  const zl::Config& c = loaded.config;
  if (loaded.ok() &&
      (c.micro_batch < 1 || c.accumulation < 1 || c.steps < 1 || c.gradient_clipping < 0))
    std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  const std::string text(reinterpret_cast<const char*>(bytes), size);
  const zl::test::MemoryFile file(bytes, size);
  for (const zl::ConfigSource& source : {zl::ConfigSource{.file = file.path(), .ranks = 4},
                                         zl::ConfigSource{.sets = {text}, .ranks = 4}}) {
    try {
      judge(zl::load_config(source));
    } catch (const zl::InputError&) {
    }
  }
  try {
    zl::Places places;
    if (zl::describe(zl::plain_json(text, "x.json", places)).empty()) std::abort();
  } catch (const zl::InputError& error) {
    if (!std::string_view(error.what()).starts_with("x.json")) std::abort();
  }
  return 0;
}
