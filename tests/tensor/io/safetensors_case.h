// Safetensors files for tests: a temporary folder, and files made byte by byte.
#pragma once

#include <algorithm>
#include <fstream>
#include <span>
#include <string>

#include "tensor/error.h"
#include "tensor/io/safetensors.h"
#include "tests/nn/scratch_folder.h"

namespace zl::test {

class Folder : public ScratchFolder {
 public:
  std::string operator/(const std::string& name) const { return path(name); }
  // The number of files in it, including temporary ones.
  int files() const { return int(names().size()); }
};

inline void write_bytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), std::streamsize(bytes.size()));
}
inline std::string read_bytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
// A file with this header and so many bytes of data.
inline std::string with_header(const std::string& header, const std::string& data) {
  const uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + header + data;
}

// A tensor to write, in any order; `read` as that of the library's function.
struct SafetensorsSource {
  std::string name;
  Shape shape;
  std::function<void(int64_t first, std::span<float> out)> read;
};
inline void write_safetensors(const std::string& path, const std::vector<SafetensorsSource>& all,
                              const SafetensorsMetadata& metadata = {}) {
  std::vector<std::pair<std::string, Shape>> shapes;
  for (const SafetensorsSource& s : all) shapes.emplace_back(s.name, s.shape);
  const auto read = [&](const SafetensorsEntry& e, int64_t first, std::span<float> out) {
    std::ranges::find(all, e.name, &SafetensorsSource::name)->read(first, out);
  };
  zl::write_safetensors(path, SafetensorsLayout(shapes, metadata), read);
}

// A source of `values`, which must outlive it.
inline SafetensorsSource safetensors_source(std::string name, Shape shape,
                                            std::span<const float> values) {
  require(numel(shape) == int64_t(values.size()), "tensor '", name, "' of shape ", to_string(shape),
          " got ", values.size(), " values");
  const auto read = [values](int64_t first, std::span<float> out) {
    std::ranges::copy(values.subspan(size_t(first), out.size()), out.begin());
  };
  return {std::move(name), std::move(shape), read};
}

// The parameters of a model as PyTorch's programs save them: names with a prefix, nothing about
// the model. `values_of` gives the values of a name.
template <class Parameters, class ValuesOf>
void write_with_prefix(const std::string& path, const Parameters& parameters,
                       const ValuesOf& values_of) {
  std::vector<std::vector<float>> values;
  std::vector<SafetensorsSource> sources;
  for (const auto& p : parameters) values.push_back(values_of(p.name));
  size_t i = 0;
  for (const auto& p : parameters)
    sources.push_back(safetensors_source("transformer." + p.name, p.shape, values[i++]));
  write_safetensors(path, sources, {{"format", "pt"}});
}

}  // namespace zl::test
