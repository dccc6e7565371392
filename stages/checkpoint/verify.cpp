#include "stages/checkpoint/verify.h"

#include <algorithm>
#include <filesystem>

#include "stages/checkpoint/checkpoint_folder.h"
#include "tensor/io/crc32c.h"

namespace zl {
namespace fs = std::filesystem;
namespace {

constexpr int64_t kChunk = 1 << 20;  // [B]

using Read = std::function<void(int64_t bytes)>;

void verify_file(const std::string& path, const ManifestFile& expected, const Read& read,
                 std::vector<std::string>& problems) {
  const SafetensorsFile file(path);
  const size_t before = problems.size(), begin = file.header().size();
  uint32_t whole = crc32c(std::as_bytes(std::span(file.header())));
  read(int64_t(begin));
  for (const SafetensorsEntry& entry : file.entries()) {
    const uint32_t crc = read_tensor(file, entry, [&](int64_t, std::span<const std::byte> chunk) {
      read(int64_t(chunk.size()));
    });
    whole = crc32c_join(whole, crc, entry.bytes());
    const std::string problem = damage(file, entry, expected, crc);
    if (!problem.empty()) problems.push_back(problem);
  }
  for (const auto& [name, crc] : expected.tensors)
    if (!file.find(name))
      problems.push_back(str(path, ": has no tensor '", name, "', which checkpoint.json lists"));
  if (crc_text(whole) != expected.crc32c && problems.size() == before)
    problems.push_back(str(path, ": the header (bytes 0 to ", begin, ") was changed or damaged"));
}

}  // namespace

uint32_t read_tensor(const SafetensorsFile& file, const SafetensorsEntry& entry,
                     const std::function<void(int64_t, std::span<const std::byte>)>& take) {
  std::vector<std::byte> chunk;
  uint32_t crc = 0;
  for (int64_t at = 0; at < entry.bytes(); at += kChunk) {
    chunk.resize(size_t(std::min(kChunk, entry.bytes() - at)));
    file.read_bytes(entry.name, at, chunk);
    crc = crc32c(chunk, crc);
    take(at, chunk);
  }
  return crc;
}

std::string damage(const SafetensorsFile& file, const SafetensorsEntry& entry,
                   const ManifestFile& expected, uint32_t crc) {
  const auto saved = expected.tensors.find(entry.name);
  const std::string says = saved == expected.tensors.end() ? "nothing" : saved->second;
  const int64_t data = int64_t(file.header().size());
  return says == crc_text(crc)
             ? ""
             : str(file.path(), ": tensor '", entry.name, "' (bytes ", data + entry.begin, " to ",
                   data + entry.end, ") was changed or damaged: its checksum is ", crc_text(crc),
                   ", but checkpoint.json says ", says);
}

std::vector<std::string> verify_checkpoint(const std::string& checkpoint,
                                           const std::function<void(int64_t, int64_t)>& progress) {
  std::vector<std::string> problems;
  Manifest manifest;
  try {
    manifest = read_manifest(checkpoint);
  } catch (const InputError& error) {
    return {error.what()};
  }
  int64_t done = 0;
  const auto read = [&](int64_t bytes) {
    done += bytes;
    if (progress) progress(done, manifest.bytes());
  };
  for (const auto& [name, file] : manifest.files) try {
      verify_file((fs::path(checkpoint) / name).string(), file, read, problems);
    } catch (const InputError& error) {
      problems.push_back(error.what());
    }
  return problems;
}

}  // namespace zl
