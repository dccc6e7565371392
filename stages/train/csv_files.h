// The files of csv_monitor as DeepSpeed 0.19 writes them: one per value, such as
// "<output_path>/<job_name>/Train_Samples_lr.csv". A row is the number of samples so far, and the
// value.
#pragma once

#include <string>
#include <vector>

#include "stages/train/monitor_file.h"

namespace zl {

class CsvFiles {
 public:
  // Creates the folder, and in it a file for each of `values` ("lr", "train_loss", …). As in
  // DeepSpeed a repeated run appends to the files, with another header. Throws InputError if a file
  // cannot be written.
  CsvFiles(const Monitor& monitor, const std::vector<std::string>& values);

  // Appends a row, as MonitorFile::append().
  void add(const std::string& value, int64_t samples, double number);
  std::vector<std::string> paths() const;

 private:
  struct File {
    std::string value;
    MonitorFile file;
    bool begun = false;  // has its header
  };
  std::vector<File> files_;
};

// A number as Python prints it: the shortest that reads back as the same double ("0.001", "1e-05",
// "1.0", "nan").
std::string python_number(double number);

}  // namespace zl
