#include "nn/formats/weights.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <map>

#include "nn/formats/llmc.h"
#include "tensor/error.h"
#include "tensor/io/safetensors.h"

namespace zl {

namespace {

constexpr std::string_view kPrefix = "transformer.", kHead = "lm_head.weight",
                           kEmbedding = "wte.weight";

using Entries = std::map<std::string, const SafetensorsEntry*>;  // by name without prefix

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

Entries without_prefix(const SafetensorsFile& file) {
  Entries entries;
  for (const SafetensorsEntry& e : file.entries()) {
    const std::string name = e.name.starts_with(kPrefix) ? e.name.substr(kPrefix.size()) : e.name;
    const bool mask = block_of(name) >= 0 &&
                      (name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias"));
    if (mask) continue;
    const auto [at, added] = entries.emplace(name, &e);
    require_input(added, "'", file.path(), "' has both '", at->second->name, "' and '", e.name,
                  "', which are the same parameter");
  }
  return entries;
}

// The shape of the matrix of this name. Throws if there is none.
const Shape& matrix(const SafetensorsFile& file, const Entries& entries, std::string_view name) {
  const auto found = entries.find(std::string(name));
  require_input(found != entries.end(), "'", file.path(),
                "' is not a GPT-2 checkpoint: it has no tensor '", name,
                "', with or without the prefix '", kPrefix, "'");
  const Shape& shape = found->second->shape;
  require_input(shape.size() == 2, "'", file.path(), "': tensor '", found->second->name,
                "' has shape ", to_string(shape), "; expected a matrix");
  return shape;
}

int64_t heads_of(const SafetensorsFile& file, std::optional<int64_t> given) {
  const auto found = file.metadata().find("n_head");
  if (found == file.metadata().end()) {
    require_input(
        given.has_value(), "'", file.path(),
        "' has no n_head in its metadata, and the number of heads does not follow from its "
        "tensors; give n-head");
    return *given;
  }
  const std::string& text = found->second;
  int64_t heads = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), heads);
  require_input(error == std::errc() && end == text.data() + text.size() && heads > 0, "'",
                file.path(), "': n_head in the metadata is '", text,
                "'; expected a whole number from 1");
  require_input(!given || *given == heads, "'", file.path(), "' has n_head ", heads,
                ", but n-head ", given.value_or(0), " was given");
  return heads;
}

GptConfig config_of(const SafetensorsFile& file, const Entries& entries,
                    std::optional<int64_t> heads) {
  const Shape &wte = matrix(file, entries, kEmbedding), &wpe = matrix(file, entries, "wpe.weight");
  GptConfig config{.layers = 0, .heads = 1, .width = wte[1], .block_size = wpe[0], .vocab = wte[0]};
  for (const auto& [name, entry] : entries) {
    const int64_t block = block_of(name);
    // More blocks than tensors: the name is wrong, rather than most tensors missing.
    require_input(block < int64_t(entries.size()), "'", file.path(), "': tensor '", entry->name,
                  "' belongs to block ", block, ", but there are only ", entries.size(),
                  " tensors");
    config.layers = std::max(config.layers, block + 1);
  }
  require_input(config.layers > 0, "'", file.path(),
                "' has no block: no tensor's name begins with 'h.0.'");
  config.heads = heads_of(file, heads);
  try {
    config.check();
  } catch (const InputError& error) {
    throw InputError(str("'", file.path(), "': ", error.what()));
  }
  return config;
}

// Throws unless the tensors are exactly the parameters of the model, in their shapes.
void check_tensors(const SafetensorsFile& file, const Entries& entries, const GptConfig& config) {
  Gpt model(config);
  std::vector<std::string> missing, unknown;
  Entries rest = entries;
  rest.erase(std::string(kHead));
  for (const Parameter& p : model.parameters())
    if (rest.erase(p.name) == 0) missing.push_back(p.name);
  for (const auto& [name, entry] : rest) unknown.push_back(entry->name);
  require_input(missing.empty(), "'", file.path(), "' lacks ", missing.size(), " of the ",
                model.parameters().size(), " tensors of a GPT-2 with ", config.layers,
                " layers: ", listed(missing));
  require_input(unknown.empty(), "'", file.path(), "' has ", unknown.size(),
                " tensors that a GPT-2 with ", config.layers,
                " layers does not have: ", listed(unknown));
  for (const Parameter& p : model.parameters()) {
    const SafetensorsEntry& e = *entries.at(p.name);
    require_input(e.shape == p.shape, "'", file.path(), "': tensor '", e.name, "' has shape ",
                  to_string(e.shape), "; expected ", to_string(p.shape), " in a GPT-2 of width ",
                  config.width);
  }
  for (const auto& [name, e] : entries)
    require_input(e->dtype == "F32" || e->dtype == "F16" || e->dtype == "BF16", "'", file.path(),
                  "': tensor '", e->name, "' is ", e->dtype, "; expected F32, F16 or BF16");
}

// Throws if the file has an output head that differs from the token embedding: our head is tied.
void check_head(const SafetensorsFile& file, const Entries& entries) {
  const auto found = entries.find(std::string(kHead));
  if (found == entries.end()) return;
  const SafetensorsEntry &head = *found->second, &wte = *entries.at(std::string(kEmbedding));
  require_input(head.shape == wte.shape, "'", file.path(), "': tensor '", head.name, "' has shape ",
                to_string(head.shape), "; expected ", to_string(wte.shape), ", equal to '",
                wte.name, "'");
  std::vector<float> a(1 << 14), b(a.size());
  for (int64_t first = 0; first < wte.numel(); first += int64_t(a.size())) {
    a.resize(size_t(std::min<int64_t>(wte.numel() - first, int64_t(a.size()))));
    b.resize(a.size());
    file.read_floats(head.name, first, a);
    file.read_floats(wte.name, first, b);
    for (size_t i = 0; i < a.size(); ++i) {
      const int64_t at = first + int64_t(i);
      require_input(a[i] == b[i] || std::memcmp(&a[i], &b[i], sizeof(float)) == 0, "'", file.path(),
                    "': '", head.name, "' differs from '", wte.name, "' in row ", at / wte.shape[1],
                    ", column ", at % wte.shape[1], " (", a[i], " and ", b[i],
                    "); only models whose head is tied to the token embedding can be read");
    }
  }
}

class SafetensorsWeights : public GptWeights {
 public:
  SafetensorsWeights(std::unique_ptr<SafetensorsFile> file, Entries entries, GptConfig config)
      : GptWeights(file->path(), config), file_(std::move(file)), entries_(std::move(entries)) {}
  const char* format() const override { return "safetensors"; }
  std::vector<float> load(const std::string& name) const override {
    const auto found = entries_.find(name);
    require(found != entries_.end() && name != kHead, "the model has no parameter '", name, "'");
    return file_->read_floats(found->second->name);
  }

 private:
  std::unique_ptr<SafetensorsFile> file_;
  Entries entries_;  // point into file_
};

}  // namespace

std::unique_ptr<GptWeights> open_safetensors_weights(const std::string& path,
                                                     std::optional<int64_t> heads) {
  auto file = std::make_unique<SafetensorsFile>(path);
  Entries entries = without_prefix(*file);
  const GptConfig config = config_of(*file, entries, heads);
  check_tensors(*file, entries, config);
  check_head(*file, entries);
  return std::make_unique<SafetensorsWeights>(std::move(file), std::move(entries), config);
}

std::unique_ptr<GptWeights> open_weights(const std::string& path, std::optional<int64_t> heads) {
  return path.ends_with(".bin") ? open_llmc_weights(path, heads)
                                : open_safetensors_weights(path, heads);
}

void save_safetensors_weights(const std::string& path, const GptConfig& config,
                              const ParameterValues& values) {
  Gpt model(config);
  std::vector<SafetensorsSource> sources;
  std::vector<float> current;  // the parameter that is being written
  for (const Parameter& p : model.parameters())
    sources.push_back(
        {p.name, p.shape, [&current, &values, &p](int64_t first, std::span<float> out) {
           if (first == 0) current = values(p.name);
           require(int64_t(current.size()) == p.numel(), "parameter '", p.name, "' has ", p.numel(),
                   " values, but ", current.size(), " were given");
           std::copy_n(current.begin() + first, out.size(), out.begin());
         }});
  write_safetensors(path, std::move(sources), {{"format", "pt"}, {"n_head", str(config.heads)}});
}

}  // namespace zl
