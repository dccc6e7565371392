#include "stages/checkpoint/verify.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>

#include "stages/checkpoint/checkpoint_folder.h"
#include "tensor/io/crc32c.h"
#include "tensor/io/safetensors.h"

namespace zl {
namespace fs = std::filesystem;
namespace {

constexpr int64_t kChunk = 1 << 20;  // [B]

using Read = std::function<void(int64_t bytes)>;

uint32_t checksum(const SafetensorsFile& file, const SafetensorsEntry& entry, const Read& read) {
  std::vector<std::byte> chunk;
  uint32_t crc = 0;
  for (int64_t at = 0; at < entry.bytes(); at += kChunk) {
    chunk.resize(size_t(std::min(kChunk, entry.bytes() - at)));
    file.read_bytes(entry.name, at, chunk);
    crc = crc32c(chunk, crc);
    read(int64_t(chunk.size()));
  }
  return crc;
}

void verify_file(const std::string& path, const ManifestFile& expected, const Read& read,
                 std::vector<std::string>& problems) {
  const SafetensorsFile file(path);
  int64_t data = 0;
  for (const SafetensorsEntry& entry : file.entries()) data += entry.bytes();
  const int64_t begin = expected.bytes - data;  // [B] of the header
  std::string header(size_t(begin), ' ');
  std::ifstream(path, std::ios::binary).read(header.data(), begin);
  read(begin);
  uint32_t whole = crc32c(std::as_bytes(std::span(header)));
  const size_t before = problems.size();

  std::set<std::string> missing;
  for (const auto& [name, crc] : expected.tensors) missing.insert(name);
  for (const SafetensorsEntry& entry : file.entries()) {
    const uint32_t crc = checksum(file, entry, read);
    whole = crc32c_join(whole, crc, entry.bytes());
    if (missing.erase(entry.name) == 0)
      problems.push_back(str(path, ": has a tensor '", entry.name,
                             "' that is not in "
                             "checkpoint.json"));
    else if (crc != expected.tensors.at(entry.name))
      problems.push_back(
          str(path, ": tensor '", entry.name, "' (bytes ", begin + entry.begin, " to ",
              begin + entry.end, ") was changed or damaged: its checksum is ", crc_text(crc),
              ", but checkpoint.json says ", crc_text(expected.tensors.at(entry.name))));
  }
  for (const std::string& name : missing)
    problems.push_back(str(path, ": has no tensor '", name, "', which checkpoint.json lists"));
  if (whole != expected.crc && problems.size() == before)
    problems.push_back(str(path, ": the header (bytes 0 to ", begin, ") was changed or damaged"));
}

}  // namespace

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
