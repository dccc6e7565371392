#include <algorithm>
#include <nlohmann/json.hpp>

#include "tensor/error.h"
#include "tensor/io/pending_file.h"
#include "tensor/io/safetensors.h"

namespace zl {
namespace {

constexpr int64_t kChunk = 1 << 16;  // [n] elements read and written at a time

// The header, padded with spaces so that the data begin at a multiple of 8 bytes.
std::string header_text(const std::vector<SafetensorsSource>& tensors,
                        const SafetensorsMetadata& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  int64_t begin = 0;
  for (const SafetensorsSource& t : tensors) {
    const int64_t end = begin + 4 * numel(t.shape);
    header[t.name] = {{"dtype", "F32"}, {"shape", t.shape}, {"data_offsets", {begin, end}}};
    begin = end;
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const nlohmann::json::exception& error) {
    throw std::invalid_argument(
        str("write_safetensors: names and metadata must be UTF-8: ", error.what()));
  }
  text.resize(size_t(round_up(int64_t(text.size()), 8)), ' ');
  return text;
}

}  // namespace

SafetensorsSource safetensors_source(std::string name, Shape shape, std::span<const float> values) {
  require(numel(shape) == int64_t(values.size()), "tensor '", name, "' of shape ", to_string(shape),
          " got ", values.size(), " values");
  const auto read = [values](int64_t first, std::span<float> out) {
    std::ranges::copy(values.subspan(size_t(first), out.size()), out.begin());
  };
  return {std::move(name), std::move(shape), read};
}

void write_safetensors(const std::string& path, std::vector<SafetensorsSource> tensors,
                       const SafetensorsMetadata& metadata) {
  std::ranges::sort(tensors, {}, &SafetensorsSource::name);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto& [name, shape, read] = tensors[i];
    require(name != "__metadata__", "write_safetensors: no tensor can have the name __metadata__");
    require(i == 0 || tensors[i - 1].name != name, "write_safetensors: two tensors have the name '",
            name, "'");
    require(std::ranges::none_of(shape, [](int64_t d) { return d < 0; }), "write_safetensors: '",
            name, "' has shape ", to_string(shape));
    require(read != nullptr, "write_safetensors: '", name, "' has no values");
  }
  const std::string header = header_text(tensors, metadata);
  const uint64_t length = header.size();

  PendingFile file(path);
  file.write(&length, sizeof length);
  file.write(header.data(), header.size());
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
