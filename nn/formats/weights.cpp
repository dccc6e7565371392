#include "nn/formats/weights.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <deque>
#include <filesystem>
#include <map>
#include <set>

#include "nn/formats/hugging_face.h"
#include "nn/formats/llmc.h"
#include "nn/formats/pytorch.h"
#include "tensor/error.h"
#include "tensor/io/file_kind.h"
#include "tensor/io/safetensors.h"

namespace zl {

namespace {

constexpr std::string_view kPrefix = "transformer.", kHead = "lm_head.weight",
                           kEmbedding = "wte.weight";

constexpr const char *kSingle = "model.safetensors", *kIndex = "model.safetensors.index.json";

namespace fs = std::filesystem;

bool is_index(const std::string& path) { return path.ends_with(".json"); }

// The files of a model: one, or the shards of an index.
struct WeightFiles {
  std::string path;  // of the file or the index
  std::deque<SafetensorsFile> files;
};

struct StoredTensor {
  const SafetensorsFile* file;
  const SafetensorsEntry* entry;
};
using Tensors = std::map<std::string, StoredTensor>;  // by name without prefix

// The number in "h.12.ln_1.weight", or -1.
int64_t block_of(const std::string& name) {
  int64_t block = -1;
  if (!name.starts_with("h.")) return -1;
  const auto [end, error] = std::from_chars(name.data() + 2, name.data() + name.size(), block);
  return error == std::errc() && *end == '.' && block >= 0 ? block : -1;
}

// "a, b, c and 5 more"
std::string listed(const std::vector<std::string>& names) {
  std::string text;
  const size_t shown = names.size() > 4 ? 3 : names.size();
  for (size_t i = 0; i < shown; ++i) text += (i ? ", " : "") + names[i];
  return shown < names.size() ? str(text, " and ", names.size() - shown, " more") : text;
}

Tensors without_prefix(const WeightFiles& from) {
  Tensors tensors;
  for (const SafetensorsFile& file : from.files)
    for (const SafetensorsEntry& e : file.entries()) {
      const std::string name = e.name.starts_with(kPrefix) ? e.name.substr(kPrefix.size()) : e.name;
      const bool mask = block_of(name) >= 0 &&
                        (name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias"));
      if (mask) continue;
      const auto [at, added] = tensors.emplace(name, StoredTensor{&file, &e});
      require_input(added, "'", from.path, "' has both '", at->second.entry->name, "' and '",
                    e.name, "', which are the same parameter");
    }
  return tensors;
}

// The shape of the matrix of this name. Throws if there is none.
const Shape& matrix(const WeightFiles& from, const Tensors& tensors, std::string_view name) {
  const auto found = tensors.find(std::string(name));
  require_input(found != tensors.end(), "'", from.path,
                "' is not a GPT-2 checkpoint: it has no tensor '", name,
                "', with or without the prefix '", kPrefix, "'");
  const auto& [file, entry] = found->second;
  require_input(entry->shape.size() == 2, "'", file->path(), "': tensor '", entry->name,
                "' has shape ", to_string(entry->shape), "; expected a matrix");
  return entry->shape;
}

// The config.json that belongs to a file of weights; "" if it has none.
std::string config_beside(const fs::path& weights) {
  const fs::path config = weights.parent_path() / "config.json";
  std::error_code ignored;
  const bool belongs = weights.filename() == kSingle || is_index(weights.string());
  return belongs && fs::exists(config, ignored) ? config.string() : "";
}

int64_t heads_in(const std::string& path, const std::string& text) {
  int64_t heads = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), heads);
  require_input(error == std::errc() && end == text.data() + text.size() && heads > 0, "'", path,
                "': n_head in the metadata is '", text, "'; expected a whole number from 1");
  return heads;
}

// None if nothing states the number of heads. Throws unless all that state it agree.
std::optional<int64_t> heads_of(const WeightFiles& from, std::optional<int64_t> given,
                                const std::string& config, std::optional<int64_t> of_config) {
  std::vector<std::pair<std::string, int64_t>> stated;  // which file, and what
  for (const SafetensorsFile& file : from.files)
    if (const auto found = file.metadata().find("n_head"); found != file.metadata().end())
      stated.emplace_back(file.path(), heads_in(file.path(), found->second));
  if (of_config) stated.emplace_back(config, *of_config);
  if (stated.empty()) return given;
  const auto& [first, heads] = stated.front();
  for (const auto& [other, n] : stated)
    require_input(n == heads, "'", first, "' has n_head ", heads, ", but '", other, "' has n_head ",
                  n);
  require_input(!given || *given == heads, "'", first, "' has n_head ", heads, ", but n-head ",
                given.value_or(0), " was given");
  return heads;
}

GptConfig config_of(const WeightFiles& from, const Tensors& tensors, std::optional<int64_t> heads,
                    bool needs_heads, WeightsInfo& info) {
  const Shape &wte = matrix(from, tensors, kEmbedding), &wpe = matrix(from, tensors, "wpe.weight");
  GptConfig config{.layers = 0, .heads = 1, .width = wte[1], .block_size = wpe[0], .vocab = wte[0]};
  for (const auto& [name, tensor] : tensors) {
    const int64_t block = block_of(name);
    // More blocks than tensors: the name is wrong, rather than most tensors missing.
    require_input(block < int64_t(tensors.size()), "'", tensor.file->path(), "': tensor '",
                  tensor.entry->name, "' belongs to block ", block, ", but there are only ",
                  tensors.size(), " tensors");
    config.layers = std::max(config.layers, block + 1);
  }
  require_input(config.layers > 0, "'", from.path,
                "' has no block: no tensor's name begins with 'h.0.'");
  HuggingFaceConfig file;
  const std::string beside = config_beside(from.path);
  if (!beside.empty()) file = read_hugging_face_config(beside, config);
  heads = heads_of(from, heads, beside, file.heads);
  require_input(heads || !needs_heads, "'", from.path,
                "' has no n_head in its metadata, and the number of heads does not follow from its "
                "tensors; give --n-head");
  info.notes = std::move(file.notes);
  info.knows_heads = heads.has_value();
  config.heads = heads.value_or(1);  // divides every width
  try {
    config.check();
  } catch (const InputError& error) {
    throw InputError(str("'", from.path, "': ", error.what()));
  }
  return config;
}

// Throws unless the tensors are exactly the parameters of the model, in their shapes.
void check_tensors(const WeightFiles& from, const Tensors& tensors, const GptConfig& config) {
  Gpt model(config);
  std::vector<std::string> missing, unknown;
  Tensors rest = tensors;
  rest.erase(std::string(kHead));
  for (const Parameter& p : model.parameters())
    if (rest.erase(p.name) == 0) missing.push_back(p.name);
  for (const auto& [name, tensor] : rest) unknown.push_back(tensor.entry->name);
  require_input(missing.empty(), "'", from.path, "' lacks ", missing.size(), " of the ",
                model.parameters().size(), " tensors of a GPT-2 with ", config.layers,
                " layers: ", listed(missing));
  require_input(unknown.empty(), "'", from.path, "' has ", unknown.size(),
                unknown.size() == 1 ? " tensor" : " tensors", " that a GPT-2 with ", config.layers,
                " layers does not have: ", listed(unknown));
  for (const Parameter& p : model.parameters()) {
    const auto& [file, e] = tensors.at(p.name);
    require_input(e->shape == p.shape, "'", file->path(), "': tensor '", e->name, "' has shape ",
                  to_string(e->shape), "; expected ", to_string(p.shape), " in a GPT-2 of width ",
                  config.width);
  }
  for (const auto& [name, tensor] : tensors) {
    const auto& [file, e] = tensor;
    require_input(e->dtype == "F32" || e->dtype == "F16" || e->dtype == "BF16", "'", file->path(),
                  "': tensor '", e->name, "' is ", e->dtype, "; expected F32, F16 or BF16");
  }
}

// Throws if there is an output head that differs from the token embedding: our head is tied.
void check_head(const WeightFiles& from, const Tensors& tensors) {
  const auto found = tensors.find(std::string(kHead));
  if (found == tensors.end()) return;
  const auto& [head_file, head] = found->second;
  const auto& [wte_file, wte] = tensors.at(std::string(kEmbedding));
  require_input(head->shape == wte->shape, "'", head_file->path(), "': tensor '", head->name,
                "' has shape ", to_string(head->shape), "; expected ", to_string(wte->shape),
                ", equal to '", wte->name, "'");
  std::vector<float> a(1 << 14), b(a.size());
  for (int64_t first = 0; first < wte->numel(); first += int64_t(a.size())) {
    a.resize(size_t(std::min<int64_t>(wte->numel() - first, int64_t(a.size()))));
    b.resize(a.size());
    head_file->read_floats(head->name, first, a);
    wte_file->read_floats(wte->name, first, b);
    for (size_t i = 0; i < a.size(); ++i) {
      const int64_t at = first + int64_t(i);
      require_input(a[i] == b[i] || std::memcmp(&a[i], &b[i], sizeof(float)) == 0, "'", from.path,
                    "': '", head->name, "' differs from '", wte->name, "' in row ",
                    at / wte->shape[1], ", column ", at % wte->shape[1], " (", a[i], " and ", b[i],
                    "); only models whose head is tied to the token embedding can be read");
    }
  }
}

class SafetensorsWeights : public GptWeights {
 public:
  SafetensorsWeights(WeightFiles from, Tensors tensors, GptConfig config, WeightsInfo info)
      : GptWeights(from.path, config, std::move(info)),
        files_(std::move(from.files)),
        tensors_(std::move(tensors)) {}
  const char* format() const override { return "safetensors"; }
  std::vector<std::string> files() const override {
    std::vector<std::string> all{path()};
    if (const std::string config = config_beside(path()); !config.empty()) all.push_back(config);
    for (const SafetensorsFile& file : files_)
      if (file.path() != path()) all.push_back(file.path());
    return all;
  }
  std::vector<float> load(const std::string& name) const override {
    const auto found = tensors_.find(name);
    require(found != tensors_.end() && name != kHead, "the model has no parameter '", name, "'");
    return found->second.file->read_floats(found->second.entry->name);
  }

 private:
  std::deque<SafetensorsFile> files_;
  Tensors tensors_;  // point into files_
};

WeightsInfo info_of(const WeightFiles& from, const Tensors& tensors) {
  WeightsInfo info;
  for (const SafetensorsFile& file : from.files) {
    info.metadata.insert(file.metadata().begin(), file.metadata().end());
    info.bytes += int64_t(fs::file_size(file.path()));
  }
  std::set<std::string> types;
  for (const auto& [name, tensor] : tensors) types.insert(tensor.entry->dtype);
  info.types = listed({types.begin(), types.end()});
  return info;
}

// The checkpoints step-00000100 and so on in a folder, by their steps.
std::map<int64_t, std::string> checkpoints_in(const std::string& folder) {
  std::map<int64_t, std::string> checkpoints;
  std::error_code error, ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    int64_t step = 0;
    if (!name.starts_with("step-") || !entry.is_directory(ignored)) continue;
    const auto [end, wrong] = std::from_chars(name.data() + 5, name.data() + name.size(), step);
    if (wrong == std::errc() && end == name.data() + name.size())
      checkpoints[step] = entry.path().string();
  }
  require_input(!error, "'", folder, "' cannot be read: ", error.message());
  return checkpoints;
}

// The file of weights in a folder.
std::string weights_in(const std::string& folder) {
  std::error_code ignored;
  for (const char* name : {kSingle, kIndex})
    if (const fs::path path = fs::path(folder) / name; fs::exists(path, ignored))
      return path.string();
  const auto checkpoints = checkpoints_in(folder);
  require_input(checkpoints.empty(), "'", folder, "' has ", checkpoints.size(),
                " checkpoints and no ", kSingle, "; name one of them, such as '",
                checkpoints.empty() ? "" : checkpoints.rbegin()->second, "'");
  refuse_deepspeed_checkpoint(folder);
  refuse_pytorch_file((fs::path(folder) / "pytorch_model.bin").string());
  throw InputError(str("'", folder, "' has neither ", kSingle, " nor ", kIndex));
}

}  // namespace

std::unique_ptr<GptWeights> open_safetensors_weights(const std::string& path,
                                                     std::optional<int64_t> heads,
                                                     bool needs_heads) {
  WeightFiles from{.path = path};
  if (is_index(path))
    from.files = open_shards(path);
  else
    from.files.emplace_back(path);
  const Tensors tensors = without_prefix(from);
  WeightsInfo info = info_of(from, tensors);
  const GptConfig config = config_of(from, tensors, heads, needs_heads, info);
  check_tensors(from, tensors, config);
  check_head(from, tensors);
  return std::make_unique<SafetensorsWeights>(std::move(from), tensors, config, std::move(info));
}

std::unique_ptr<GptWeights> open_weights(const std::string& path, std::optional<int64_t> heads,
                                         bool needs_heads) {
  std::error_code ignored;
  const std::string file = fs::is_directory(path, ignored) ? weights_in(path) : path;
  refuse_pytorch_file(file);
  const std::string_view is = recognise_file_at(file).is;
  return is == kLlmcModel || (file.ends_with(".bin") && is != kSafetensors)
             ? open_llmc_weights(file, heads)
             : open_safetensors_weights(file, heads, needs_heads);
}

void save_safetensors_weights(const std::string& path, const GptConfig& config,
                              const ParameterValues& values) {
  Gpt model(config);
  std::vector<std::pair<std::string, Shape>> shapes;
  for (const Parameter& p : model.parameters()) shapes.emplace_back(p.name, p.shape);
  const SafetensorsLayout layout(shapes, {{"format", "pt"}, {"n_head", str(config.heads)}});
  std::vector<float> current;  // the parameter that is being written
  write_safetensors(path, layout,
                    [&](const SafetensorsEntry& p, int64_t first, std::span<float> out) {
                      if (first == 0) current = values(p.name);
                      require(int64_t(current.size()) == p.numel(), "parameter '", p.name, "' has ",
                              p.numel(), " values, but ", current.size(), " were given");
                      std::copy_n(current.begin() + first, out.size(), out.begin());
                    });
}

}  // namespace zl
