// null in places where DeepSpeed 0.19.8 does not take it: zerolab takes the key as absent, and says
// what DeepSpeed does. In the blocks that pydantic checks null is an error like any other value of
// a wrong type, and is not found here.

#include "stages/deepspeed/config_reader.h"
#include "tensor/error.h"

namespace zl {
namespace {

constexpr char kMapping[] = "TypeError: argument after ** must be a mapping, not NoneType";
constexpr char kGet[] = "AttributeError: 'NoneType' object has no attribute 'get'";
constexpr char kKeysOf[] = "AttributeError: 'NoneType' object has no attribute 'keys'";
constexpr char kDictionary[] = "ValidationError: Input should be a valid dictionary";

struct Row {
  const char *key, *deepspeed;
};

constexpr Row kRows[] = {
    {"gradient_clipping",
     "TypeError: '>' not supported between instances of 'NoneType' and 'float'"},
    {"gradient_predivide_factor",
     "TypeError: unsupported operand type(s) for /; in stages 2 and 3 AssertionError"},
    {"gradient_allreduce_op",
     "ValueError: Invalid gradient_allreduce_op. Supported operations: ['mean', 'sum']. Got: None"},
    {"wall_clock_breakdown", "TypeError: unsupported operand type(s) for |: 'NoneType' and 'bool'"},
    {"optimizer", kKeysOf},
    {"scheduler", kKeysOf},
    {"fp16", kMapping},
    {"zero_optimization", kMapping},
    {"comms_logger", kMapping},
    {"hybrid_engine", kMapping},
    {"compile", kMapping},
    {"tensor_parallel", kMapping},
    {"weight_quantization", kMapping},
    {"csv_monitor", kDictionary},
    {"tensorboard", kDictionary},
    {"wandb", kDictionary},
    {"comet", kDictionary},
    {"torch_autocast", kGet},
    {"data_types", kGet},
    {"data_efficiency", kGet},
    {"flops_profiler", kGet},
    {"autotuning", kGet},
    {"checkpoint", kGet},
    {"activation_checkpointing", kGet},
    {"pipeline", "AttributeError: 'NoneType' object has no attribute 'items'"},
    {"timers", "TypeError: argument of type 'NoneType' is not iterable"},
};

bool is_null(const JsonValue* value) {
  return value != nullptr && value->kind == JsonValue::Kind::null;
}

void warn(const JsonValue& value, const std::string& key, const std::string& deepspeed,
          ConfigFindings& findings) {
  findings.add(
      ConfigFinding::Severity::warning, value, key,
      "is null: zerolab takes it as absent, " + deepspeed + "; leave it out or give a value");
}

// DeepSpeed hands them on as they are, null instead of the default.
void find_null_parameters(const JsonValue& root, const std::string& block,
                          ConfigFindings& findings) {
  const JsonValue* object = root.find(block);
  const JsonValue* params = object == nullptr ? nullptr : object->find("params");
  if (params == nullptr) return;
  for (const JsonMember& member : params->members) {
    if (!is_null(&member.value) || member.key == "total_num_steps")
      continue;  // that one has a finding of its own
    warn(member.value, block + ".params." + member.key,
         "DeepSpeed hands None to the " + block + ", which ends with an error or takes it as false",
         findings);
  }
}

}  // namespace

void find_nulls(const JsonValue& root, ConfigFindings& findings) {
  for (const Row& row : kRows) {
    const JsonValue* value = root.find(row.key);
    if (is_null(value))
      warn(*value, row.key, str("DeepSpeed ends (", row.deepspeed, ")"), findings);
  }
  const JsonValue* older = root.find("bfloat16");
  const JsonValue* newer = root.find("bf16");
  if (is_null(older) && (newer == nullptr || is_null(newer)))
    warn(*older, "bfloat16", str("DeepSpeed ends (", kMapping, ")"), findings);
  find_null_parameters(root, "optimizer", findings);
  find_null_parameters(root, "scheduler", findings);
}

}  // namespace zl
