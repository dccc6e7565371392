#include "stages/train/csv_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tensor/error.h"

namespace zl {

namespace fs = std::filesystem;

std::string python_number(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number < 0 ? "-inf" : "inf";
  return nlohmann::json(number).dump();
}

CsvFiles::CsvFiles(const CsvMonitor& monitor, const std::vector<std::string>& values) {
  const fs::path folder = fs::path(monitor.output_path) / monitor.job_name;
  std::error_code error;
  if (!folder.empty()) fs::create_directories(folder, error);
  require_input(!error, "csv_monitor: the folder ", folder.string(),
                " cannot be created: ", error.message());
  for (const std::string& value : values) {
    File file{value, (folder / ("Train_Samples_" + value + ".csv")).string()};
    // O_NONBLOCK: a pipe without a reader is refused, not waited for.
    file.descriptor =
        open(file.path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0666);
    const int reason = errno;
    if (file.descriptor < 0)
      for (const File& opened : files_) close(opened.descriptor);
    require_input(file.descriptor >= 0, "csv_monitor: ", file.path,
                  " cannot be written to: ", std::strerror(reason));
    files_.push_back(std::move(file));
  }
}

CsvFiles::~CsvFiles() {
  for (const File& file : files_) close(file.descriptor);
}

void CsvFiles::add(const std::string& value, int64_t samples, double number) {
  const auto file =
      std::find_if(files_.begin(), files_.end(), [&](const File& f) { return f.value == value; });
  require(file != files_.end(), "csv_monitor writes no ", value);
  // Python's csv module ends its lines so.
  const std::string row = (file->begun ? "" : "step," + value + "\r\n") + std::to_string(samples) +
                          "," + python_number(number) + "\r\n";
  file->begun = true;
  for (size_t written = 0; written < row.size();) {
    const ssize_t n = write(file->descriptor, row.data() + written, row.size() - written);
    if (n > 0) written += size_t(n);
    if (n > 0 || (n < 0 && errno == EINTR)) continue;
    throw InputError(
        str(file->path, " cannot be written after ", samples, " samples: ", std::strerror(errno)));
  }
}

}  // namespace zl
