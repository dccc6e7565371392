// The collectives that a run wrote down, in one form, whatever wrote them: Kineto (the profiler of
// PyTorch), PyTorch's flight recorder, NCCL's log, or zerolab's --trace.
#pragma once

#include <cstdint>
#include <istream>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace zl::cli {

struct SeenCall {
  int rank = 0;
  int step = -1;            // from 0; -1: outside all steps
  std::string collective;   // ours ("reduce_scatter"), or the file's name where we have none
  int64_t elements = -1;    // [n] of the unsharded side; -1: the file does not say
  std::string dtype;        // ours ("f32"), or the file's; "": the file does not say
  std::string name;         // as the file calls it
  int group = 0;            // how many ranks take part; 0: the file does not say
  bool functional = false;  // of a DTensor, such as the norm that clip_grad_norm_ makes
};

struct Recording {
  std::string kind;  // "Kineto trace"
  std::vector<SeenCall> calls;
  int ranks = 0;                   // of the run; 0: the file does not say
  std::map<int, int> steps;        // of each rank in the file, as it marks them; 0: not marked
  std::vector<std::string> notes;  // what a reader must know, one sentence each
};

// A file as text, unpacked on the way if it is gzip. Memory does not grow with the file.
class InputText {
 public:
  explicit InputText(const std::string& path);  // throws InputError
  ~InputText();
  std::istream& stream() { return *stream_; }
  // Throws InputError if the file could not be read to its end, such as a gzip that is cut.
  void require_complete() const;

 private:
  class Buffer;
  const std::string path_;
  std::unique_ptr<Buffer> buffer_;
  std::unique_ptr<std::istream> stream_;
};

// Reads a file of any of these formats. Throws InputError with one sentence if it is none, if it is
// damaged, or if it holds no collective.
Recording read_recording(const std::string& path);

// Of one format each.
Recording read_json_recording(InputText& file, const std::string& path);
Recording read_nccl_log(std::istream& text);

// Our name of a collective in any of these formats: "all_gather" for "_allgather_base_"; the name
// itself if we have none. And of a type: "f32" for "float" and "Float".
std::string our_name(std::string name);
std::string our_type(const std::string& type);

}  // namespace zl::cli
