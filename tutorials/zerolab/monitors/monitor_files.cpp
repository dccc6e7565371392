#include "tutorials/zerolab/monitors/monitor_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tensor/error.h"
#include "tensor/io/crc32c.h"
#include "tensor/io/file_calls.h"

namespace zl::cli {

MonitorFile::MonitorFile(const char* key, const Monitor& monitor, const std::string& name) {
  const auto folder = std::filesystem::path(monitor.output_path) / monitor.job_name;
  std::error_code error;
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  require_input(!error, key, ": the folder ", folder.string(),
                " cannot be created: ", error.message());
  path_ = (folder / name).string();
  // O_NONBLOCK: a pipe without a reader is refused, not waited for.
  const int file =
      open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0666);
  require_input(file >= 0, key, ": ", path_, " cannot be written to: ", std::strerror(errno));
  file_.reset(fdopen(file, "a"));
}

void MonitorFile::append(const std::string& bytes, int64_t samples) {
  const int file = fileno(file_.get());
  const off_t before = lseek(file, 0, SEEK_END);
  const int64_t written = move_all(int64_t(bytes.size()), [&](int64_t done) {
    return write(file, bytes.data() + done, bytes.size() - size_t(done));
  });
  if (written == int64_t(bytes.size())) return;
  const int reason = errno;
  if (before >= 0) (void)!ftruncate(file, before);
  throw OutputError(
      str(path_, " cannot be written after ", samples, " samples: ", std::strerror(reason)));
}

// ---- csv_monitor -----------------------------------------------------------------------------

std::string python_number(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number < 0 ? "-inf" : "inf";
  return nlohmann::json(number).dump();
}

CsvFiles::CsvFiles(const Monitor& monitor, const std::vector<std::string>& values) {
  for (const std::string& value : values)
    files_.push_back({value, {"csv_monitor", monitor, "Train_Samples_" + value + ".csv"}});
}

void CsvFiles::add(const std::string& value, int64_t samples, double number) {
  const auto file = std::ranges::find(files_, value, &File::value);
  require(file != files_.end(), "csv_monitor writes no ", value);
  // Python's csv module ends its lines so.
  const std::string header = file->begun ? "" : "step," + value + "\r\n";
  file->file.append(str(header, samples, ",", python_number(number), "\r\n"), samples);
  file->begun = true;
}

std::vector<std::string> CsvFiles::paths() const {
  std::vector<std::string> all;
  for (const File& file : files_)
    if (file.begun) all.push_back(file.file.path());
  return all;
}

// ---- tensorboard -----------------------------------------------------------------------------

namespace {

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

std::string new_name() {
  static std::atomic<int> files = 0;
  char host[256] = "", name[400];
  (void)gethostname(host, sizeof host - 1);
  std::snprintf(name, sizeof name, "events.out.tfevents.%010lld.%s.%d.%d", (long long)now(),
                *host ? host : "localhost", int(getpid()), files++);
  return name;
}

}  // namespace

std::string tfrecord(std::string_view event) {
  const std::string length = raw(uint64_t(event.size()));
  return length + masked_crc(length) + std::string(event) + masked_crc(event);
}

std::string scalar_event(double seconds, int64_t step, const std::string& tag, float number) {
  const std::string value = field(1, tag) + char(2 * 8 + 5) + raw(number);  // Summary.Value
  return wall_time(seconds) + char(2 * 8 + 0) + as_varint(uint64_t(step)) +
         field(5, field(1, value));
}

TensorboardFile::TensorboardFile(const Monitor& monitor)
    : file_("tensorboard", monitor, new_name()) {
  file_.append(tfrecord(wall_time(now()) + field(3, "brain.Event:2")), 0);
}

void TensorboardFile::add(const std::string& value, int64_t samples, double number) {
  file_.append(tfrecord(scalar_event(now(), samples, "Train/Samples/" + value, float(number))),
               samples);
}

}  // namespace zl::cli
