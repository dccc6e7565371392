// The files that DeepSpeed's keys csv_monitor and tensorboard ask for, in the folder
// "<output_path>/<job_name>", which is created; as in DeepSpeed an empty output_path is the working
// directory. They grow while a run trains. A value is "lr", "train_loss", …; samples are counted
// from the start of the run.
//
// Constructors throw InputError if a file cannot be written to. The bytes of add() are in the file
// when it returns. If the disk is full, the file ends with the bytes before, and OutputError says
// how many samples the run had trained.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "stages/deepspeed/config.h"

namespace zl::cli {

// As DeepSpeed 0.19 writes them: one file per value, such as "Train_Samples_lr.csv". A row is the
// number of samples, and the value.
class CsvFiles {
 public:
  // Makes the files of `values`. As in DeepSpeed a repeated run appends to them, with another
  // header.
  CsvFiles(const Monitor& monitor, const std::vector<std::string>& values);

  void add(const std::string& value, int64_t samples, double number);
  std::vector<std::string> paths() const;  // of those that have a row of this run

 private:
  std::map<std::string, std::string> paths_;  // by value
  std::vector<std::string> begun_;            // have their header
};

// Scalars that TensorBoard shows. The file is a row of TFRecord frames: the length as 8 bytes, its
// checksum, an Event, its checksum (https://www.tensorflow.org/tutorials/load_data/tfrecord). The
// first Event names the version, each later one holds a scalar (event.proto and summary.proto of
// TensorBoard, encoded as in https://protobuf.dev/programming-guides/encoding).
class TensorboardFile {
 public:
  // Creates "events.out.tfevents.TIME.HOST.PID.NUMBER", as DeepSpeed 0.19 does. A repeated run
  // makes another file; TensorBoard shows both.
  explicit TensorboardFile(const Monitor& monitor);

  // Appends the scalar "Train/Samples/<value>" as fp32.
  void add(const std::string& value, int64_t samples, double number);
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// A number as Python prints it: the shortest that reads back as the same double ("0.001", "1e-05",
// "1.0", "nan").
std::string python_number(double number);
// The encoded Event of a scalar. `seconds`: since 1970.
std::string scalar_event(double seconds, int64_t step, const std::string& tag, float number);
// The frame of an Event.
std::string tfrecord(std::string_view event);

}  // namespace zl::cli
