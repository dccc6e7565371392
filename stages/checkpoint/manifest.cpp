#include "stages/checkpoint/manifest.h"

#include <charconv>
#include <nlohmann/json.hpp>

#include "tensor/error.h"
#include "tensor/io/crc32c.h"
#include "tensor/io/small_file.h"

namespace zl {

constexpr OptimizerKind kUnknown = OptimizerKind(-1);  // any other name
NLOHMANN_JSON_SERIALIZE_ENUM(OptimizerKind, {{kUnknown, nullptr},
                                             {OptimizerKind::adamw, "adamw"},
                                             {OptimizerKind::sgd, "sgd"}});
// A key that a checkpoint lacks has its default: older ones have only those of their kind.
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(OptimizerConfig, kind, lr, weight_decay,
                                                no_weight_decay, beta1, beta2, eps, bias_correction,
                                                decoupled, momentum, dampening, nesterov);
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(LossScaler::State, scale, steps, last_overflow, overflows_left);
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ManifestFile, bytes, crc32c, tensors);
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RunPosition, step, next_window, data);
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Manifest, updates, seed, model, optimizer, files, saved_by);

namespace {

using Json = nlohmann::ordered_json;
constexpr int kVersion = 1;

// The checksum of everything but the checksum itself, in one way of writing it.
std::string own_crc(Json json) {
  json.erase("crc32c");
  const std::string text = json.dump();
  return crc_text(crc32c(std::as_bytes(std::span(text))));
}

// A value whose members are sorted, which the functions above need.
using Sorted = nlohmann::json;

Manifest manifest_of(const Json& json) {
  const int version = json.at("zerolab").get<int>();
  require_input(version == kVersion, "it has version ", version,
                ", but this program reads version ", kVersion);
  require_input(json.at("crc32c").get<std::string>() == own_crc(json),
                "it was changed or damaged: its checksum is ", own_crc(json), ", but it says ",
                json.at("crc32c").get<std::string>());
  for (const char* key : {"step", "next_window", "updates"})
    require_input(json.at(key).is_number_unsigned() && json.at(key) <= uint64_t(1) << 53, key,
                  " is ", json.at(key).dump(), "; expected a count");
  const Sorted sorted(json);
  auto m = sorted.get<Manifest>();
  sorted.get_to(m.position);
  require_input(m.updates <= m.position.step, "it has ", m.updates, " updates in ", m.position.step,
                " steps");
  if (const Sorted& scaler = sorted.at("loss_scaler"); !scaler.is_null())
    m.loss_scaler = scaler.get<LossScaler::State>();
  require_input(m.optimizer.kind != kUnknown, "the optimizer '",
                json.at("optimizer").at("kind").get<std::string>(), "' is unknown");
  require_input(m.files.contains("model.safetensors"), "it names no model.safetensors");
  for (const auto& [name, file] : m.files)
    require_input(name.find('/') == std::string::npos, "it names the file ", name,
                  ", which is not in its folder");
  return m;
}

std::string number(double x) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, x).ptr};
}

}  // namespace

int64_t Manifest::bytes() const {
  int64_t sum = 0;
  for (const auto& [name, file] : files) sum += file.bytes;
  return sum;
}

std::string manifest_text(const Manifest& m) {
  Json json{{"zerolab", kVersion},
            {"loss_scaler", m.loss_scaler ? Sorted(*m.loss_scaler) : Sorted()}};
  json.update(Json(Sorted(m.position)));
  json.update(Json(Sorted(m)));
  json["crc32c"] = own_crc(json);
  return json.dump(2) + "\n";
}

Manifest parse_manifest(const std::string& path, const std::string& text) {
  check_json(text, path);
  try {
    return manifest_of(Json::parse(text));
  } catch (const InputError& error) {
    throw InputError(str(path, ": ", error.what()));
  } catch (const Json::exception& error) {
    const std::string_view what = error.what();  // "[json.exception.type_error.302] type must be …"
    throw InputError(str(path, ": not the manifest of a checkpoint, or damaged: ",
                         what.substr(what.find("] ") + 2)));
  }
}

std::string describe(const OptimizerConfig& o) {
  std::string text =
      o.kind == OptimizerKind::adamw
          ? str(o.decoupled ? "AdamW" : "Adam with L2 decay", ", betas ", o.beta1, " ", o.beta2,
                ", eps ", o.eps, o.bias_correction ? "" : ", no bias correction")
          : str("SGD, momentum ", o.momentum, ", dampening ", o.dampening,
                o.nesterov ? ", Nesterov" : "");
  text += str(", decay ", o.weight_decay);
  for (const std::string& glob : o.no_weight_decay)
    text += str(&glob == &o.no_weight_decay[0] ? " except " : " ", glob);
  return text;
}

std::string describe(const ScheduleConfig& s, double lr, const char* warmup) {
  if (s.kind == ScheduleKind::constant) return number(lr);
  const bool cosine = s.kind == ScheduleKind::warmup_cosine;
  const std::string text = str(number(cosine ? lr * s.warmup_min_ratio : s.warmup_min_lr), " to ",
                               number(cosine ? lr : s.warmup_max_lr), " in ", s.warmup_num_steps,
                               " steps (", warmup, ")");
  if (s.kind == ScheduleKind::warmup) return text;
  return str(text, cosine ? ", by cosine to " : ", to ", number(cosine ? lr * s.cos_min_ratio : 0),
             " at step ", s.total_num_steps);
}

std::map<std::string, std::string> update_settings(const Options& o) {
  const LossScaleConfig& scale = o.loss_scale;
  const char* warmup = o.schedule.warmup_type == WarmupType::log ? "log" : "linear";
  return {{"learning_rate", describe(o.schedule, o.optimizer.lr, warmup)},
          {"gradient_clipping", number(o.gradient_clipping)},
          {"precision", name(o.precision)},
          {"grad_accum_dtype", name(o.grad_accum_dtype.value_or(o.precision))},
          {"loss_scale",
           scale.static_scale > 0 ? number(scale.static_scale)
           : o.precision != Dtype::f16
               ? "none"
               : str("dynamic, from 2^", scale.initial_scale_power, ", window ", scale.window,
                     ", hysteresis ", scale.hysteresis, ", at least ", number(scale.min_scale))}};
}

}  // namespace zl
