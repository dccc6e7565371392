// A small model, values for its parameters that encode name and position, and safetensors files
// made by hand.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "nn/formats/weights.h"
#include "tensor/random.h"
#include "tests/nn/scratch_folder.h"

namespace zl {

inline const GptConfig kSmallModel{
    .layers = 2, .heads = 2, .width = 4, .block_size = 3, .vocab = 5};

inline Shape shape_of(const GptConfig& config, const std::string& name) {
  Gpt model(config);
  for (const Parameter& p : model.parameters())
    if (p.name == name) return p.shape;
  throw std::invalid_argument("no parameter " + name);
}

// Any bits, also those of NaN and infinity: loading must return the stored bits.
inline std::vector<float> random_bits(const GptConfig& config, const std::string& name) {
  std::vector<float> values(size_t(numel(shape_of(config, name))));
  const PhiloxStream random{1, fnv1a(name)};
  for (size_t i = 0; i < values.size(); ++i) {
    const uint32_t bits = random.block(i)[0];
    std::memcpy(&values[i], &bits, 4);
  }
  return values;
}

// Small integers, which bf16 and fp16 represent exactly.
inline std::vector<float> whole_numbers(const GptConfig& config, const std::string& name) {
  std::vector<float> values(size_t(numel(shape_of(config, name))));
  for (size_t i = 0; i < values.size(); ++i) values[i] = float((fnv1a(name) + 7 * i) % 201) - 100;
  return values;
}

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// One tensor of a file made by hand.
struct HandTensor {
  std::string name, dtype;
  Shape shape;
  std::string bytes;
};

inline std::string safetensors_bytes(const std::vector<HandTensor>& tensors,
                                     const std::string& metadata = "{\"n_head\":\"2\"}") {
  std::string header = "{\"__metadata__\":" + metadata, data;
  for (const HandTensor& t : tensors) {
    std::string shape;
    for (size_t i = 0; i < t.shape.size(); ++i)
      shape += (i ? "," : "") + std::to_string(t.shape[i]);
    header += str(",\"", t.name, "\":{\"dtype\":\"", t.dtype, "\",\"shape\":[", shape,
                  "],\"data_offsets\":[", data.size(), ",", data.size() + t.bytes.size(), "]}");
    data += t.bytes;
  }
  header += "}";
  while (header.size() % 8) header += " ";
  return bytes_of<uint64_t>(std::vector<size_t>{header.size()}) + header + data;
}

// The tensors of kSmallModel as T, with `prefix` before each name.
template <class T>
std::vector<HandTensor> hand_tensors(const std::string& dtype, const std::string& prefix = "") {
  std::vector<HandTensor> tensors;
  Gpt model(kSmallModel);
  for (const Parameter& p : model.parameters())
    tensors.push_back(
        {prefix + p.name, dtype, p.shape, bytes_of<T>(whole_numbers(kSmallModel, p.name))});
  return tensors;
}

inline HandTensor& find(std::vector<HandTensor>& tensors, const std::string& name) {
  for (HandTensor& t : tensors)
    if (t.name == name) return t;
  throw std::invalid_argument("no tensor " + name);
}

}  // namespace zl
