// Reads TensorBoard's event files, from the documents of their formats: TFRecord frames with
// checksums bit by bit, and the fields of Event and Summary on protobuf's wire.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace zl::test {

struct Scalar {
  double seconds = 0;
  int64_t step = 0;
  std::string version, tag;  // one of them is empty
  float value = 0;
};

// Throws std::runtime_error if a frame is cut off or a checksum is wrong.
std::vector<Scalar> read_event_file(std::string_view bytes);

}  // namespace zl::test
