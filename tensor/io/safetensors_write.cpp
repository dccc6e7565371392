#include <algorithm>
#include <nlohmann/json.hpp>

#include "tensor/error.h"
#include "tensor/io/pending_file.h"
#include "tensor/io/safetensors.h"

namespace zl {
namespace {

constexpr int64_t kChunk = 1 << 16;  // [n] elements read and written at a time

// The description of the tensors, padded with spaces so that the data begin at a multiple of 8
// bytes.
std::string header_text(const std::vector<SafetensorsLayout::Item>& items,
                        const SafetensorsMetadata& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  int64_t begin = 0;
  for (const SafetensorsLayout::Item& t : items) {
    const int64_t end = begin + t.bytes();
    header[t.name] = {{"dtype", "F32"}, {"shape", t.shape}, {"data_offsets", {begin, end}}};
    begin = end;
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const nlohmann::json::exception& error) {
    throw std::invalid_argument(
        str("safetensors: names and metadata must be UTF-8: ", error.what()));
  }
  text.resize(size_t(round_up(int64_t(text.size()), 8)), ' ');
  return text;
}

}  // namespace

SafetensorsLayout::SafetensorsLayout(std::vector<std::pair<std::string, Shape>> tensors,
                                     const SafetensorsMetadata& metadata) {
  std::ranges::sort(tensors);
  for (auto& [name, shape] : tensors) {
    require(name != "__metadata__", "safetensors: no tensor can have the name __metadata__");
    require(items_.empty() || items_.back().name != name,
            "safetensors: two tensors have the name '", name, "'");
    require(std::ranges::none_of(shape, [](int64_t d) { return d < 0; }), "safetensors: '", name,
            "' has shape ", to_string(shape));
    items_.push_back({std::move(name), std::move(shape)});
  }
  const std::string text = header_text(items_, metadata);
  const uint64_t length = text.size();
  header_.assign(reinterpret_cast<const char*>(&length), sizeof length);
  header_ += text;
  bytes_ = int64_t(header_.size());
  for (Item& item : items_) {
    item.at = bytes_;
    bytes_ += item.bytes();
  }
}

const SafetensorsLayout::Item& SafetensorsLayout::item(const std::string& name) const {
  const auto found = std::ranges::lower_bound(items_, name, {}, &Item::name);
  require(found != items_.end() && found->name == name, "safetensors: there is no tensor '", name,
          "'");
  return *found;
}

void write_safetensors(const std::string& path, std::vector<SafetensorsSource> tensors,
                       const SafetensorsMetadata& metadata) {
  std::ranges::sort(tensors, {}, &SafetensorsSource::name);
  std::vector<std::pair<std::string, Shape>> shapes;
  for (const SafetensorsSource& t : tensors) {
    require(t.read != nullptr, "write_safetensors: '", t.name, "' has no values");
    shapes.emplace_back(t.name, t.shape);
  }
  const SafetensorsLayout layout(std::move(shapes), metadata);

  PendingFile file(path);
  file.write(layout.header().data(), layout.header().size());
  std::vector<float> values;
  for (const SafetensorsSource& t : tensors) {
    const int64_t n = numel(t.shape);
    for (int64_t first = 0; first < n; first += kChunk) {
      values.resize(size_t(std::min(kChunk, n - first)));
      t.read(first, values);
      file.write(values.data(), values.size() * sizeof(float));
    }
  }
  file.commit();
}

}  // namespace zl
