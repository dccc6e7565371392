// The configuration file that zerolab config init writes.
#pragma once

#include <string>

#include "stages/stage.h"
#include "tensor/dtype.h"

namespace zl::cli {

struct TemplateOptions {
  StageKind stage = StageKind::zero2;
  Dtype precision = Dtype::f32;
  bool offload = false;  // of the optimizer; not in ddp
};

// JSON with comments, each key with what it says and what else it may say.
std::string config_template(const TemplateOptions& options);

}  // namespace zl::cli
