#include "tutorials/zerolab/monitors/monitor_files.h"

#include <unistd.h>

#include <atomic>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tensor/error.h"
#include "tensor/io/crc32c.h"

namespace zl::cli {
namespace {

namespace fs = std::filesystem;

// The bytes, or none of them.
void append(const std::string& path, const std::string& bytes, int64_t samples) {
  std::error_code error;
  if (fs::is_fifo(path, error)) throw OutputError(path + " is a pipe, not a file");
  const auto before = fs::file_size(path, error);
  std::ofstream file(path, std::ios::binary | std::ios::app);
  file << bytes;
  file.close();  // what does not fit is tried again until then
  if (file) return;
  const int reason = errno;
  if (!error) fs::resize_file(path, before, error);
  throw OutputError(
      str(path, " cannot be written after ", samples, " samples: ", std::strerror(reason)));
}

template <class T>
std::string raw(T value) {  // little-endian, as all machines of ours
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

// Seven bits per byte, the lowest first; all bytes but the last have their highest bit set.
std::string as_varint(uint64_t value) {
  std::string text;
  for (; value >= 0x80; value >>= 7) text += char(value | 0x80);
  return text + char(value);
}

// A field begins with 8 * its number + its type: 0 varint, 1 64 bits, 2 length and bytes, 5 32
// bits.
std::string field(int number, const std::string& content) {
  return char(number * 8 + 2) + as_varint(content.size()) + content;
}
std::string wall_time(double seconds) { return char(1 * 8 + 1) + raw(seconds); }

std::string masked_crc(std::string_view text) {
  return raw(uint32_t(std::rotr(crc32c(std::as_bytes(std::span(text))), 15) + 0xa282ead8u));
}

double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string event_file_name() {
  static std::atomic<int> files = 0;
  char host[256] = "";
  (void)gethostname(host, sizeof host - 1);
  return str("events.out.tfevents.", int64_t(now()), ".", *host ? host : "localhost", ".", getpid(),
             ".", files++);
}

}  // namespace

std::string python_number(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number < 0 ? "-inf" : "inf";
  return nlohmann::json(number).dump();
}

std::string tfrecord(std::string_view event) {
  const std::string length = raw(uint64_t(event.size()));
  return length + masked_crc(length) + std::string(event) + masked_crc(event);
}

std::string scalar_event(double seconds, int64_t step, const std::string& tag, float number) {
  const std::string value = field(1, tag) + char(2 * 8 + 5) + raw(number);  // Summary.Value
  return wall_time(seconds) + char(2 * 8 + 0) + as_varint(uint64_t(step)) +
         field(5, field(1, value));
}

MonitorFiles::MonitorFiles(const std::string& key, const Monitor& monitor)
    : csv_(key == "csv_monitor"), folder_(fs::path(monitor.output_path) / monitor.job_name) {
  std::error_code error;
  if (!folder_.empty()) fs::create_directories(folder_, error);
  require_input(!error, key, ": the folder ", folder_.string(),
                " cannot be created: ", error.message());
  require_input(folder_.empty() || access(folder_.c_str(), W_OK | X_OK) == 0, key, ": the folder ",
                folder_.string(), " cannot be written to: ", std::strerror(errno));
}

void MonitorFiles::add(const std::string& value, int64_t samples, double number) {
  std::string &path = paths_[csv_ ? value : ""], bytes;
  const bool begins = path.empty();
  if (begins)
    path = (folder_ / (csv_ ? "Train_Samples_" + value + ".csv" : event_file_name())).string();
  if (csv_)  // Python's csv module ends its lines so
    bytes =
        str(begins ? "step," + value + "\r\n" : "", samples, ",", python_number(number), "\r\n");
  else
    bytes = (begins ? tfrecord(wall_time(now()) + field(3, "brain.Event:2")) : "") +
            tfrecord(scalar_event(now(), samples, "Train/Samples/" + value, float(number)));
  append(path, bytes, samples);
}

std::vector<std::string> MonitorFiles::paths() const {
  std::vector<std::string> all;
  for (const auto& [value, path] : paths_) all.push_back(path);
  return all;
}

}  // namespace zl::cli
