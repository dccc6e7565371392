// The files that DeepSpeed's keys csv_monitor and tensorboard ask for; they grow while a run
// trains. A value is "lr", "train_loss", …; samples are counted from the start of the run.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "stages/deepspeed/config.h"

namespace zl::cli {

// A file in the folder "<output_path>/<job_name>", which is created. As in DeepSpeed an empty
// output_path is the working directory.
class MonitorFile {
 public:
  // Creates the file or continues it. `key` names the monitor in messages. Throws InputError if the
  // file cannot be written to.
  MonitorFile(const char* key, const Monitor& monitor, const std::string& name);

  // The bytes are in the file when this returns. If the disk is full, the file ends with the bytes
  // before, and OutputError says how many `samples` the run had trained.
  void append(const std::string& bytes, int64_t samples);
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_{nullptr, std::fclose};
};

// As DeepSpeed 0.19 writes them: one file per value, such as "Train_Samples_lr.csv". A row is the
// number of samples, and the value.
class CsvFiles {
 public:
  // Makes the files of `values`. As in DeepSpeed a repeated run appends to them, with another
  // header. Throws as MonitorFile.
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

// Scalars that TensorBoard shows. The file is a row of TFRecord frames: the length as 8 bytes, its
// checksum, an Event, its checksum (https://www.tensorflow.org/tutorials/load_data/tfrecord). The
// first Event names the version, each later one holds a scalar (event.proto and summary.proto of
// TensorBoard, encoded as in https://protobuf.dev/programming-guides/encoding).
class TensorboardFile {
 public:
  // Creates "events.out.tfevents.TIME.HOST.PID.NUMBER", as DeepSpeed 0.19 does. A repeated run
  // makes another file; TensorBoard shows both. Throws as MonitorFile.
  explicit TensorboardFile(const Monitor& monitor);

  // Appends the scalar "Train/Samples/<value>" as fp32, as MonitorFile::append().
  void add(const std::string& value, int64_t samples, double number);
  const std::string& path() const { return file_.path(); }

 private:
  MonitorFile file_;
};

// A number as Python prints it: the shortest that reads back as the same double ("0.001", "1e-05",
// "1.0", "nan").
std::string python_number(double number);
// The encoded Event of a scalar. `seconds`: since 1970.
std::string scalar_event(double seconds, int64_t step, const std::string& tag, float number);
// The frame of an Event.
std::string tfrecord(std::string_view event);

}  // namespace zl::cli
