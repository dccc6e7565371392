// Reading and writing safetensors files: a length, a JSON header that names the tensors, then their
// bytes without gaps. Format: https://github.com/huggingface/safetensors, section "Format".
//
// Such files come from strangers, so the reader checks the complete header before it reads a
// tensor. An invalid file ends in InputError, which names the file, the tensor and the numbers.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
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

// An open file. Several threads may read it at the same time.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);
  ~SafetensorsFile();
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  const std::string& path() const { return path_; }
  const std::vector<SafetensorsEntry>& entries() const { return entries_; }  // by name, bytewise
  const SafetensorsMetadata& metadata() const { return metadata_; }
  const std::string& header() const { return header_; }         // all bytes before the data
  const SafetensorsEntry* find(const std::string& name) const;  // null if there is none

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
  int file_ = -1;
  std::string header_;
  std::vector<SafetensorsEntry> entries_;
  SafetensorsMetadata metadata_;
};

// Where everything is in a file of F32 tensors. The same tensors always give the same bytes.
class SafetensorsLayout {
 public:
  struct Item {
    std::string name;
    Shape shape;
    int64_t at = 0;  // [B] from the start of the file
    int64_t bytes() const { return 4 * numel(shape); }
  };
  // The file has the tensors in byte order of their names. Throws std::invalid_argument for names
  // that occur twice or are not UTF-8.
  explicit SafetensorsLayout(std::vector<std::pair<std::string, Shape>> tensors,
                             const SafetensorsMetadata& metadata = {});

  const std::string& header() const { return header_; }  // all bytes before the first tensor
  const std::vector<Item>& items() const { return items_; }
  const Item& item(const std::string& name) const;  // throws std::invalid_argument
  int64_t bytes() const { return bytes_; }          // [B] of the whole file

 private:
  std::string header_;
  std::vector<Item> items_;
  int64_t bytes_ = 0;
};

// One F32 tensor to write. `read` fills `out` with the elements from `first` on. It is called with
// consecutive ranges, so writing a model needs no second copy in memory.
struct SafetensorsSource {
  std::string name;
  Shape shape;
  std::function<void(int64_t first, std::span<float> out)> read;
};

// Writes a file through PendingFile: `path` is at every time the old file or the complete new one.
// Throws InputError if the file cannot be written, what `read` throws, and std::invalid_argument
// for names that occur twice or are not UTF-8.
void write_safetensors(const std::string& path, std::vector<SafetensorsSource> tensors,
                       const SafetensorsMetadata& metadata = {});

}  // namespace zl
