// The files that DeepSpeed's keys csv_monitor and tensorboard ask for, in the folder
// "<output_path>/<job_name>", which is created; as in DeepSpeed an empty output_path is the working
// directory. They grow while a run trains. A value is "lr", "train_loss", …; samples are counted
// from the start of the run.
//
// csv_monitor, as DeepSpeed 0.19 writes it: one file per value, such as "Train_Samples_lr.csv". A
// row is the number of samples, and the value. A repeated run appends, with another header.
//
// tensorboard: one file, "events.out.tfevents.TIME.HOST.PID.NUMBER"; a repeated run makes another.
// It is a row of TFRecord frames: the length as 8 bytes, its checksum, an Event, its checksum
// (https://www.tensorflow.org/tutorials/load_data/tfrecord). The first Event names the version,
// each later one holds a scalar of fp32, "Train/Samples/<value>" (event.proto and summary.proto of
// TensorBoard, encoded as in https://protobuf.dev/programming-guides/encoding).
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "stages/deepspeed/config.h"

namespace zl::cli {

class MonitorFiles {
 public:
  // `key`: csv_monitor or tensorboard. Makes the folder. Throws InputError if it cannot be written
  // to.
  MonitorFiles(const std::string& key, const Monitor& monitor);

  // The bytes are in the file when it returns. If the disk is full, the file ends with the bytes
  // before, and OutputError says how many samples the run had trained.
  void add(const std::string& value, int64_t samples, double number);
  std::vector<std::string> paths() const;  // of the files, which have values of this run

 private:
  bool csv_;
  std::filesystem::path folder_;
  std::map<std::string, std::string> paths_;  // by value; of tensorboard ""
};

// A number as Python prints it: the shortest that reads back as the same double ("0.001", "1e-05",
// "1.0", "nan").
std::string python_number(double number);
// The encoded Event of a scalar. `seconds`: since 1970.
std::string scalar_event(double seconds, int64_t step, const std::string& tag, float number);
// The frame of an Event.
std::string tfrecord(std::string_view event);

}  // namespace zl::cli
