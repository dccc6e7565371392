#include "tensor/io/safetensors.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "tensor/dtype.h"
#include "tensor/error.h"
#include "tensor/io/file_calls.h"
#include "tensor/io/file_kind.h"
#include "tensor/io/small_file.h"

namespace zl {
namespace {

static_assert(std::endian::native == std::endian::little,
              "safetensors files are little-endian, and this code does not swap bytes");

using nlohmann::json;

constexpr int64_t kLargestHeader = 100'000'000;  // [B], the limit of the format
constexpr int64_t kChunk = 1 << 16;  // [n] elements that are converted or written at a time
const char* const kMetadata = "__metadata__";

// Bits of an element; 0 for a type that is not in the format.
int64_t bits_of(const std::string& dtype) {
  static const std::map<std::string, int64_t> bits = {
      {"F4", 4},   {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"BOOL", 8},    {"U8", 8},
      {"I8", 8},   {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"I16", 16},
      {"U16", 16}, {"F16", 16},    {"BF16", 16},   {"I32", 32},    {"U32", 32},
      {"F32", 32}, {"I64", 64},    {"U64", 64},    {"F64", 64},    {"C64", 64}};
  const auto found = bits.find(dtype);
  return found == bits.end() ? 0 : found->second;
}

std::vector<int64_t> parse_counts(const std::string& what, const json& entry, const char* key) {
  const auto list = entry.find(key);
  require_input(list != entry.end() && list->is_array(), what, " has no array ", key);
  for (const json& n : *list)
    if (!n.is_number_unsigned() || n.get<uint64_t>() > uint64_t(INT64_MAX))
      throw InputError(str(what, ": ", key, " holds ", n.is_structured() ? n.type_name() : n.dump(),
                           "; expected whole numbers from 0 to ", INT64_MAX));
  return list->get<std::vector<int64_t>>();
}

SafetensorsEntry parse_entry(const std::string& path, const std::string& name, const json& value) {
  const std::string what = str(path, ": tensor '", name, "'");
  require_input(value.is_object(), what, " is described by ", value.type_name(),
                "; expected an object");
  const json dtype = value.value("dtype", json());
  require_input(dtype.is_string() && bits_of(dtype.get<std::string>()), what,
                " has the unknown dtype ", dtype.dump());
  const std::vector<int64_t> offsets = parse_counts(what, value, "data_offsets");
  require_input(offsets.size() == 2, what, ": data_offsets are ", offsets.size(),
                " numbers; expected [begin, end]");
  SafetensorsEntry entry{.name = name,
                         .dtype = dtype.get<std::string>(),
                         .shape = parse_counts(what, value, "shape"),
                         .begin = offsets[0],
                         .end = offsets[1]};
  int64_t bits = bits_of(entry.dtype);
  for (const int64_t d : entry.shape)
    // Not require_input: it would print the shape for each dimension, and a hostile file may have
    // millions.
    if (__builtin_mul_overflow(bits, d, &bits))
      throw InputError(str(what, ": shape ", to_string(entry.shape), " of ", entry.dtype,
                           " has more bytes than can be counted"));
  require_input(bits % 8 == 0 && entry.bytes() == bits / 8, what, ": shape ",
                to_string(entry.shape), " of ", entry.dtype, " takes ", bits / 8,
                " bytes, but data_offsets span ", entry.bytes());
  return entry;
}

SafetensorsMetadata parse_metadata(const std::string& path, const json& value) try {
  return value.get<SafetensorsMetadata>();
} catch (const json::exception&) {
  throw InputError(str(path, ": ", kMetadata, " is not an object of strings"));
}

// Throws unless the tensors cover each of the `size` bytes of data exactly once.
void check_cover(const std::string& path, std::vector<SafetensorsEntry> entries, int64_t size) {
  std::ranges::sort(entries, {},
                    [](const SafetensorsEntry& e) { return std::pair(e.begin, e.end); });
  int64_t covered = 0;
  std::string before = "the data begin";
  for (const SafetensorsEntry& e : entries) {
    require_input(e.begin == covered, path, ": tensor '", e.name, "' begins at byte ", e.begin,
                  " of the data; expected ", covered, ", where ", before);
    covered = e.end;
    before = str("tensor '", e.name, "' ends");
  }
  require_input(covered == size, path, ": the tensors end at byte ", covered,
                " of the data, but the file has ", size, " bytes of them");
}

std::string system_error() { return std::strerror(errno); }

template <class T>
void widen(const std::vector<std::byte>& bytes, std::span<float> out) {
  for (size_t i = 0; i < out.size(); ++i) {
    T value;
    std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
    out[i] = float(value);
  }
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::string& path) : path_(path) {
  struct stat status;
  // Opening a folder or a pipe would succeed, but reading it would fail obscurely or wait for ever.
  const bool known = stat(path.c_str(), &status) == 0;  // before system_error() reads errno
  require_input(known, path, ": cannot be opened: ", system_error());
  require_input(S_ISREG(status.st_mode), path, ": is not a regular file");
  refuse_other_file(recognise_file_at(path), path, kSafetensors);
  const int64_t size = status.st_size;
  require_input(size >= 8, path, ": has ", size,
                " bytes; a safetensors file begins with 8 bytes for the length of its header");
  file_.reset(std::fopen(path.c_str(), "rbe"));
  require_input(file_ != nullptr, path, ": cannot be opened: ", system_error());
  uint64_t length = 0;
  read_at(0, std::as_writable_bytes(std::span(&length, 1)));
  require_input(length <= uint64_t(kLargestHeader), path, ": the header has ", length,
                " bytes; the format allows ", kLargestHeader);
  require_input(int64_t(length) <= size - 8, path, ": the header has ", length, " bytes, but only ",
                size - 8, " follow its length");
  header_.resize(8 + length);
  read_at(0, std::as_writable_bytes(std::span(header_)));
  const auto text = std::string_view(header_).substr(8);
  require_input(text.starts_with('{'), path,
                ": the header does not begin with '{'; is this a safetensors file?");

  check_json(text, path + ": the header");
  const json header = json::parse(text);
  for (const auto& [name, value] : header.items()) {
    if (name == kMetadata)
      metadata_ = parse_metadata(path, value);
    else
      entries_.push_back(parse_entry(path, name, value));
  }
  check_cover(path, entries_, size - int64_t(header_.size()));
}

const SafetensorsEntry* SafetensorsLayout::find(const std::string& name) const {
  const auto found = std::ranges::lower_bound(entries_, name, {}, &SafetensorsEntry::name);
  return found != entries_.end() && found->name == name ? &*found : nullptr;
}

const SafetensorsEntry& SafetensorsFile::entry(const std::string& name) const {
  const SafetensorsEntry* found = find(name);
  require_input(found, path_, ": has no tensor '", name, "' among its ", entries_.size());
  return *found;
}

void SafetensorsFile::read_at(int64_t position, std::span<std::byte> out) const {
  const int64_t read = move_all(int64_t(out.size()), [&](int64_t done) {
    return pread(fileno(file_.get()), out.data() + done, out.size() - size_t(done),
                 position + done);
  });
  if (read == int64_t(out.size())) return;
  require_input(errno == 0, path_, ": cannot be read at byte ", position + read, ": ",
                system_error());
  throw InputError(
      str(path_, ": ends at byte ", position + read, "; it became shorter while it was read"));
}

void SafetensorsFile::read_bytes(const std::string& name, int64_t first,
                                 std::span<std::byte> out) const {
  const SafetensorsEntry& e = entry(name);
  require(first >= 0 && first <= e.bytes() && int64_t(out.size()) <= e.bytes() - first, "bytes [",
          first, ", +", out.size(), ") lie outside tensor '", name, "' of ", e.bytes(), " bytes");
  read_at(position(e) + first, out);
}

void SafetensorsFile::read_floats(const std::string& name, int64_t first,
                                  std::span<float> out) const {
  const SafetensorsEntry& e = entry(name);
  const auto convert = e.dtype == "F32"    ? widen<float>
                       : e.dtype == "F16"  ? widen<f16>
                       : e.dtype == "BF16" ? widen<bf16>
                       : e.dtype == "F64"  ? widen<double>
                                           : nullptr;
  require_input(convert, path_, ": tensor '", name, "' is ", e.dtype,
                "; expected F32, F16, BF16 or F64");
  require(first >= 0 && first <= e.numel() && int64_t(out.size()) <= e.numel() - first,
          "elements [", first, ", +", out.size(), ") lie outside tensor '", name, "' of ",
          e.numel(), " elements");
  const int64_t size = bits_of(e.dtype) / 8;
  std::vector<std::byte> bytes;
  while (!out.empty()) {
    const auto part = out.first(std::min(out.size(), size_t(kChunk)));
    bytes.resize(part.size() * size_t(size));
    read_at(position(e) + first * size, bytes);
    convert(bytes, part);
    first += int64_t(part.size());
    out = out.subspan(part.size());
  }
}

std::vector<float> SafetensorsFile::read_floats(const std::string& name) const {
  std::vector<float> values(size_t(entry(name).numel()));
  read_floats(name, 0, values);
  return values;
}

// ---- writing ---------------------------------------------------------------------------------

SafetensorsLayout::SafetensorsLayout(std::vector<std::pair<std::string, Shape>> tensors,
                                     const SafetensorsMetadata& metadata)
    : metadata_(metadata) {
  std::ranges::sort(tensors);
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header[kMetadata] = metadata;
  int64_t end = 0;
  for (auto& [name, shape] : tensors) {
    require(name != kMetadata, "safetensors: no tensor can have the name ", kMetadata);
    require(entries_.empty() || entries_.back().name != name,
            "safetensors: two tensors have the name '", name, "'");
    const int64_t begin = std::exchange(end, end + 4 * numel(shape));
    header[name] = {{"dtype", "F32"}, {"shape", shape}, {"data_offsets", {begin, end}}};
    entries_.push_back({std::move(name), "F32", std::move(shape), begin, end});
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const nlohmann::json::exception& error) {
    throw std::invalid_argument(
        str("safetensors: names and metadata must be UTF-8: ", error.what()));
  }
  // Padded with spaces, so that the data begin at a multiple of 8 bytes.
  text.resize(size_t(round_up(int64_t(text.size()), 8)), ' ');
  const uint64_t length = text.size();
  header_.assign(reinterpret_cast<const char*>(&length), sizeof length);
  header_ += text;
}

void write_safetensors(
    const std::string& path, const SafetensorsLayout& layout,
    const std::function<void(const SafetensorsEntry&, int64_t first, std::span<float> out)>& read) {
  PendingFile file(path);
  file.write(layout.header().data(), layout.header().size());
  std::vector<float> values;
  int64_t end = 0;
  for (const SafetensorsEntry& e : layout.entries()) {
    require(e.dtype == "F32" && e.begin == std::exchange(end, e.end), e.name, ": no F32, or a gap");
    for (int64_t first = 0, n = e.numel(); first < n; first += kChunk) {
      values.resize(size_t(std::min(kChunk, n - first)));
      read(e, first, values);
      file.write(values.data(), values.size() * sizeof(float));
    }
  }
  file.commit();
}

}  // namespace zl
