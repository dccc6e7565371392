// The file of DeepSpeed's key tensorboard: scalars that TensorBoard shows.
//
// The file is a row of TFRecord frames: the length as 8 bytes, its checksum, an Event, its checksum
// (https://www.tensorflow.org/tutorials/load_data/tfrecord). The first Event names the version,
// each later one holds a scalar (event.proto and summary.proto of TensorBoard, encoded as in
// https://protobuf.dev/programming-guides/encoding).
#pragma once

#include <string>
#include <string_view>

#include "stages/train/monitor_file.h"

namespace zl {

class TensorboardFile {
 public:
  // Creates "<output_path>/<job_name>/events.out.tfevents.TIME.HOST.PID.NUMBER", as DeepSpeed 0.19
  // does. A repeated run makes another file; TensorBoard shows both. Throws InputError if that
  // fails.
  explicit TensorboardFile(const Monitor& monitor);

  // Appends the scalar "Train/Samples/<value>" at x = samples, as fp32, as MonitorFile::append().
  void add(const std::string& value, int64_t samples, double number);
  const std::string& path() const { return file_.path(); }

 private:
  MonitorFile file_;
};

// The encoded Event of a scalar. `seconds`: since 1970.
std::string scalar_event(double seconds, int64_t step, const std::string& tag, float number);
// The frame of an Event.
std::string tfrecord(std::string_view event);

}  // namespace zl
