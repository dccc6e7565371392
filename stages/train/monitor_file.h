// A file of DeepSpeed's csv_monitor or tensorboard. It grows while a run trains.
#pragma once

#include <cstdint>
#include <string>

#include "stages/deepspeed/config.h"

namespace zl {

// "<output_path>/<job_name>", which is created. As in DeepSpeed an empty output_path is the working
// directory. `key` names the monitor in messages. Throws InputError if that fails.
std::string monitor_folder(const Monitor& monitor, const char* key);

class MonitorFile {
 public:
  // Creates the file or continues it. Throws InputError if it cannot be written to.
  MonitorFile(const char* key, std::string path);
  MonitorFile(MonitorFile&& other) noexcept;
  MonitorFile& operator=(MonitorFile&&) = delete;
  ~MonitorFile();

  // The bytes are in the file when this returns. If the disk is full, the file ends with the bytes
  // before, and OutputError says how many `samples` the run had trained.
  void append(const std::string& bytes, int64_t samples);
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  int file_ = -1;
};

}  // namespace zl
