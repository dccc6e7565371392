#include "stages/checkpoint/verify.h"

#include <algorithm>
#include <filesystem>

#include "stages/checkpoint/agreement.h"
#include "stages/checkpoint/checkpoint_folder.h"
#include "tensor/io/crc32c.h"

namespace zl {
namespace fs = std::filesystem;
namespace {

constexpr int64_t kChunk = 1 << 20;  // [B]

}  // namespace

std::vector<std::string> read_and_verify(const SafetensorsFile& file, const ManifestFile& expected,
                                         const TakeChunk& take) {
  std::vector<std::string> problems;
  std::vector<std::byte> chunk;
  uint32_t whole = crc32c(std::as_bytes(std::span(file.header())));
  for (const SafetensorsEntry& entry : file.entries()) {
    uint32_t crc = 0;
    for (int64_t at = 0; at < entry.bytes(); at += kChunk) {
      chunk.resize(size_t(std::min(kChunk, entry.bytes() - at)));
      file.read_bytes(entry.name, at, chunk);
      crc = crc32c(chunk, crc);
      take(entry, at, chunk);
    }
    whole = crc32c_join(whole, crc, entry.bytes());
    const auto saved = expected.tensors.find(entry.name);
    const std::string says = saved == expected.tensors.end() ? "nothing" : saved->second;
    if (says != crc_text(crc))
      problems.push_back(str(file.path(), ": tensor '", entry.name, "' (bytes ",
                             file.position(entry), " to ", file.position(entry) + entry.bytes(),
                             ") was changed or damaged: its checksum is ", crc_text(crc),
                             ", but checkpoint.json says ", says));
  }
  for (const auto& [name, crc] : expected.tensors)
    if (!file.find(name))
      problems.push_back(
          str(file.path(), ": has no tensor '", name, "', which checkpoint.json lists"));
  if (crc_text(whole) != expected.crc32c && problems.empty())
    problems.push_back(str(file.path(), ": the header (bytes 0 to ", file.header().size(),
                           ") was changed or damaged"));
  return problems;
}

std::vector<std::string> verify_checkpoint(const std::string& checkpoint,
                                           const std::function<void(int64_t, int64_t)>& progress) {
  std::vector<std::string> problems;
  Manifest manifest;
  const std::string broken = error_of([&] { manifest = read_manifest(checkpoint); });
  if (!broken.empty()) return {broken};
  int64_t done = 0;
  const auto read = [&](size_t bytes) {
    done += int64_t(bytes);
    if (progress) progress(done, manifest.bytes());
  };
  for (const auto& [name, expected] : manifest.files) try {
      const SafetensorsFile file((fs::path(checkpoint) / name).string());
      read(file.header().size());
      const auto found = read_and_verify(
          file, expected, [&](const auto&, int64_t, const auto& chunk) { read(chunk.size()); });
      problems.insert(problems.end(), found.begin(), found.end());
    } catch (const InputError& error) {
      problems.push_back(error.what());
    }
  return problems;
}

}  // namespace zl
