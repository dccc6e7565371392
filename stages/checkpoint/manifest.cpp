#include "stages/checkpoint/manifest.h"

#include <charconv>
#include <nlohmann/json.hpp>

#include "tensor/error.h"
#include "tensor/io/crc32c.h"
#include "tensor/io/json_check.h"

namespace zl {
namespace {

using Json = nlohmann::ordered_json;
constexpr int kVersion = 1;

uint32_t crc_of(const Json& text) {
  const auto hex = text.get<std::string>();
  uint32_t crc = 0;
  const auto [end, error] = std::from_chars(hex.data(), hex.data() + hex.size(), crc, 16);
  if (error != std::errc() || end != hex.data() + hex.size() || hex.size() != 8)
    throw InputError(str("'", hex, "' is not a checksum"));
  return crc;
}

// The checksum of everything but the checksum itself, in one way of writing it.
std::string own_crc(Json json) {
  json.erase("crc32c");
  const std::string text = json.dump();
  return crc_text(crc32c(std::as_bytes(std::span(text))));
}

Json to_json(const OptimizerConfig& o) {
  Json json{{"kind", o.kind == OptimizerKind::adamw ? "adamw" : "sgd"},
            {"lr", o.lr},
            {"weight_decay", o.weight_decay},
            {"no_weight_decay", o.no_weight_decay}};
  if (o.kind == OptimizerKind::adamw)
    json.update({{"beta1", o.beta1},
                 {"beta2", o.beta2},
                 {"eps", o.eps},
                 {"bias_correction", o.bias_correction},
                 {"decoupled", o.decoupled}});
  else
    json.update({{"momentum", o.momentum}, {"dampening", o.dampening}, {"nesterov", o.nesterov}});
  return json;
}

OptimizerConfig optimizer_of(const Json& json) {
  OptimizerConfig o;
  const auto kind = json.at("kind").get<std::string>();
  require_input(kind == "adamw" || kind == "sgd", "the optimizer '", kind, "' is unknown");
  json.at("lr").get_to(o.lr);
  json.at("weight_decay").get_to(o.weight_decay);
  json.at("no_weight_decay").get_to(o.no_weight_decay);
  if (kind == "adamw") {
    json.at("beta1").get_to(o.beta1);
    json.at("beta2").get_to(o.beta2);
    json.at("eps").get_to(o.eps);
    json.at("bias_correction").get_to(o.bias_correction);
    json.at("decoupled").get_to(o.decoupled);
    return o;
  }
  o.kind = OptimizerKind::sgd;
  json.at("momentum").get_to(o.momentum);
  json.at("dampening").get_to(o.dampening);
  json.at("nesterov").get_to(o.nesterov);
  return o;
}

Json to_json(const std::optional<LossScaler::State>& scaler) {
  if (!scaler) return nullptr;
  return {{"scale", scaler->scale},
          {"steps", scaler->steps},
          {"last_overflow", scaler->last_overflow},
          {"overflows_left", scaler->overflows_left}};
}

std::optional<LossScaler::State> scaler_of(const Json& json) {
  if (json.is_null()) return std::nullopt;
  LossScaler::State state;
  json.at("scale").get_to(state.scale);
  json.at("steps").get_to(state.steps);
  json.at("last_overflow").get_to(state.last_overflow);
  json.at("overflows_left").get_to(state.overflows_left);
  return state;
}

Json to_json(const std::map<std::string, ManifestFile>& files) {
  Json json = Json::object();
  for (const auto& [name, file] : files) {
    Json tensors = Json::object();
    for (const auto& [tensor, crc] : file.tensors) tensors[tensor] = crc_text(crc);
    json[name] = {
        {"bytes", file.bytes}, {"crc32c", crc_text(file.crc)}, {"tensors", std::move(tensors)}};
  }
  return json;
}

std::map<std::string, ManifestFile> files_of(const Json& json) {
  std::map<std::string, ManifestFile> files;
  require_input(json.is_object() && json.contains("model.safetensors"),
                "it names no model.safetensors");
  for (const auto& [name, value] : json.items()) {
    require_input(name.find('/') == std::string::npos, "it names the file ", name,
                  ", which is not in its folder");
    ManifestFile& file = files[name];
    value.at("bytes").get_to(file.bytes);
    file.crc = crc_of(value.at("crc32c"));
    for (const auto& [tensor, crc] : value.at("tensors").items())
      file.tensors[tensor] = crc_of(crc);
  }
  return files;
}

int64_t count_of(const Json& json, const char* key) {
  const Json& value = json.at(key);
  require_input(value.is_number_unsigned() && value.get<uint64_t>() <= uint64_t(1) << 53, key,
                " is ", value.dump(), "; expected a count");
  return value.get<int64_t>();
}

// Assigns one by one: g++ 12 destroys members twice when one of a braced list throws.
Manifest manifest_of(const Json& json) {
  const int version = json.at("zerolab").get<int>();
  require_input(version == kVersion, "it has version ", version,
                ", but this program reads version ", kVersion);
  require_input(json.at("crc32c").get<std::string>() == own_crc(json),
                "it was changed or damaged: its checksum is ", own_crc(json), ", but it says ",
                json.at("crc32c").get<std::string>());
  Manifest m;
  m.position.step = count_of(json, "step");
  m.position.next_window = count_of(json, "next_window");
  json.at("data").get_to(m.position.data);
  m.updates = count_of(json, "updates");
  require_input(m.updates <= m.position.step, "it has ", m.updates, " updates in ", m.position.step,
                " steps");
  m.loss_scaler = scaler_of(json.at("loss_scaler"));
  json.at("seed").get_to(m.seed);
  json.at("model").get_to(m.model);
  m.optimizer = optimizer_of(json.at("optimizer"));
  m.files = files_of(json.at("files"));
  json.at("saved_by").get_to(m.saved_by);
  return m;
}

}  // namespace

int64_t Manifest::bytes() const {
  int64_t sum = 0;
  for (const auto& [name, file] : files) sum += file.bytes;
  return sum;
}

std::string manifest_text(const Manifest& m) {
  Json json{{"zerolab", kVersion},
            {"step", m.position.step},
            {"updates", m.updates},
            {"next_window", m.position.next_window},
            {"loss_scaler", to_json(m.loss_scaler)},
            {"seed", m.seed},
            {"model", m.model},
            {"optimizer", to_json(m.optimizer)},
            {"data", m.position.data},
            {"files", to_json(m.files)},
            {"saved_by", m.saved_by}};
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

namespace {

std::string number(double x) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, x).ptr};
}

}  // namespace

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
