#include "stages/train/tensorboard_file.h"

#include <unistd.h>

#include <atomic>
#include <bit>
#include <chrono>
#include <cstdio>
#include <filesystem>

#include "tensor/error.h"
#include "tensor/io/crc32c.h"

namespace zl {
namespace {

// The types of a field on the wire.
enum Wire { varint = 0, bits64 = 1, bytes = 2, bits32 = 5 };

std::string little_endian(uint64_t value, size_t size) {
  std::string text;
  for (size_t i = 0; i < size; ++i) text += char(value >> (8 * i));
  return text;
}

// Seven bits per byte, the lowest first; all bytes but the last have their highest bit set.
std::string as_varint(uint64_t value) {
  std::string text;
  for (; value >= 0x80; value >>= 7) text += char(value | 0x80);
  return text + char(value);
}

std::string field(uint64_t number, Wire wire) { return as_varint(number << 3 | wire); }
std::string field(uint64_t number, std::string_view content) {
  return field(number, bytes) + as_varint(content.size()) + std::string(content);
}

std::string masked_crc(std::string_view text) {
  const uint32_t crc = crc32c(std::as_bytes(std::span(text)));
  return little_endian(uint32_t(std::rotr(crc, 15) + 0xa282ead8u), 4);
}

// Event::wall_time.
std::string wall_time(double seconds) {
  return field(1, bits64) + little_endian(std::bit_cast<uint64_t>(seconds), 8);
}

double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string path_in(const std::string& folder) {
  static std::atomic<int> files = 0;
  char host[256] = "localhost", name[400];
  if (gethostname(host, sizeof host) != 0) std::snprintf(host, sizeof host, "localhost");
  host[sizeof host - 1] = 0;
  std::snprintf(name, sizeof name, "events.out.tfevents.%010lld.%s.%d.%d", (long long)now(), host,
                int(getpid()), files++);
  return (std::filesystem::path(folder) / name).string();
}

}  // namespace

std::string tfrecord(std::string_view event) {
  const std::string length = little_endian(event.size(), 8);
  return length + masked_crc(length) + std::string(event) + masked_crc(event);
}

std::string scalar_event(double seconds, int64_t step, const std::string& tag, float number) {
  const std::string value =  // Summary.Value: tag = 1, simple_value = 2
      field(1, tag) + field(2, bits32) + little_endian(std::bit_cast<uint32_t>(number), 4);
  const std::string summary = field(1, value);
  return wall_time(seconds) + field(2, varint) + as_varint(uint64_t(step)) + field(5, summary);
}

TensorboardFile::TensorboardFile(const Monitor& monitor)
    : file_("tensorboard", path_in(monitor_folder(monitor, "tensorboard"))) {
  file_.append(tfrecord(wall_time(now()) + field(3, "brain.Event:2")), 0);
}

void TensorboardFile::add(const std::string& value, int64_t samples, double number) {
  file_.append(tfrecord(scalar_event(now(), samples, "Train/Samples/" + value, float(number))),
               samples);
}

}  // namespace zl
