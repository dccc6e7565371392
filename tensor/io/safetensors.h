// Reading and writing safetensors files: a length, a JSON header that names the tensors, then their
// bytes without gaps. Format: https://github.com/huggingface/safetensors, section "Format".
//
// Such files come from strangers, so the reader checks the complete header before it reads a
// tensor. An invalid file ends in InputError, which names the file, the numbers, and the tensor
// where it is one that is wrong.
#pragma once

#include <cstddef>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tensor/shape.h"

namespace zl {

using SafetensorsMetadata = std::map<std::string, std::string>;

// One tensor of a file.
struct SafetensorsEntry {
  std::string name;
  std::string dtype;  // as the format spells it: "F32", "BF16", "I64", …
  Shape shape;
  int64_t begin = 0, end = 0;  // [B] from the start of the data
  int64_t numel() const { return zl::numel(shape); }
  int64_t bytes() const { return end - begin; }
};

// Where everything is in a file.
class SafetensorsLayout {
 public:
  // Of a file that has F32 tensors in byte order of their names: the same tensors always give the
  // same bytes. Throws std::invalid_argument for names that occur twice or are not UTF-8.
  explicit SafetensorsLayout(std::vector<std::pair<std::string, Shape>> tensors,
                             const SafetensorsMetadata& metadata = {});

  const std::vector<SafetensorsEntry>& entries() const { return entries_; }  // by name, bytewise
  const SafetensorsMetadata& metadata() const { return metadata_; }
  const std::string& header() const { return header_; }         // all bytes before the data
  const SafetensorsEntry* find(const std::string& name) const;  // null if there is none
  // [B] from the start of the file to the first byte of a tensor.
  int64_t position(const SafetensorsEntry& e) const { return int64_t(header_.size()) + e.begin; }

 protected:
  SafetensorsLayout() = default;

  std::string header_;
  std::vector<SafetensorsEntry> entries_;
  SafetensorsMetadata metadata_;
};

// An open file. Several threads may read it at the same time.
class SafetensorsFile : public SafetensorsLayout {
 public:
  explicit SafetensorsFile(const std::string& path);

  const std::string& path() const { return path_; }

  // Reads elements [first, first + out.size()) of a tensor of F32, F16, BF16 or F64; F64 is
  // rounded. Throws InputError if the tensor is missing or of another type, std::invalid_argument
  // if the range is outside the tensor.
  void read_floats(const std::string& name, int64_t first, std::span<float> out) const;
  std::vector<float> read_floats(const std::string& name) const;
  // Reads bytes [first, first + out.size()) of a tensor of any type.
  void read_bytes(const std::string& name, int64_t first, std::span<std::byte> out) const;

 private:
  const SafetensorsEntry& entry(const std::string& name) const;
  void read_at(int64_t position, std::span<std::byte> out) const;

  std::string path_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_{nullptr, std::fclose};
};

// Writes a file of F32 tensors in the order of the layout, through PendingFile: `path` is at every
// time the old file or the complete new one.
// `read` fills `out` with the elements of a tensor from `first` on. It is called with consecutive
// ranges, so writing a model needs no second copy in memory. Throws OutputError if the file cannot
// be written, std::invalid_argument for a layout of another order or type, and what `read` throws.
void write_safetensors(
    const std::string& path, const SafetensorsLayout& layout,
    const std::function<void(const SafetensorsEntry&, int64_t first, std::span<float> out)>& read);

}  // namespace zl
