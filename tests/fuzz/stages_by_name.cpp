// The stages that configurations name, as their files declare them, without anything that runs.
#include "stages/stage_file.h"

namespace zl {

std::vector<StageFile> library_stages() {
  constexpr Part full = Part::full, shard = Part::shard;
  const auto of_zero3 = [](const char* name, VariantGroups groups) {
    return StageFile{.name = name,
                     .parameter = shard,
                     .gradient = shard,
                     .optimizer = shard,
                     .parent = "zero3",
                     .groups = groups};
  };
  const auto of_four = [](const char* name, Part parameter, Part gradient, Part optimizer) {
    return StageFile{
        .name = name, .parameter = parameter, .gradient = gradient, .optimizer = optimizer};
  };
  return {of_four("ddp", full, full, full),           of_four("zero1", full, full, shard),
          of_four("zero2", full, shard, shard),       of_four("zero3", shard, shard, shard),
          of_zero3("hsdp", VariantGroups::replicas),  of_zero3("zero3_hpz", VariantGroups::nodes),
          of_zero3("zero3_qwz", VariantGroups::none), of_zero3("zero3_qgz", VariantGroups::nodes)};
}

}  // namespace zl
