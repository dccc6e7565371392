#include "stages/train/csv_files.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tensor/error.h"

namespace zl {

std::string python_number(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number < 0 ? "-inf" : "inf";
  return nlohmann::json(number).dump();
}

CsvFiles::CsvFiles(const Monitor& monitor, const std::vector<std::string>& values) {
  const std::filesystem::path folder = monitor_folder(monitor, "csv_monitor");
  for (const std::string& value : values) {
    MonitorFile file("csv_monitor", (folder / ("Train_Samples_" + value + ".csv")).string());
    files_.push_back({.value = value, .file = std::move(file)});
  }
}

void CsvFiles::add(const std::string& value, int64_t samples, double number) {
  const auto file = std::ranges::find(files_, value, &File::value);
  require(file != files_.end(), "csv_monitor writes no ", value);
  // Python's csv module ends its lines so.
  const std::string header = file->begun ? "" : "step," + value + "\r\n";
  file->file.append(header + std::to_string(samples) + "," + python_number(number) + "\r\n",
                    samples);
  file->begun = true;
}

std::vector<std::string> CsvFiles::paths() const {
  std::vector<std::string> all;
  for (const File& file : files_)
    if (file.begun) all.push_back(file.file.path());
  return all;
}

}  // namespace zl
