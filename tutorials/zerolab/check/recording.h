// The collectives that a run wrote down, in one form, whatever wrote them: Kineto (the profiler of
// PyTorch), PyTorch's flight recorder, NCCL's log, or zerolab's --trace.
#pragma once

#include <cstdint>
#include <istream>
#include <map>
#include <set>
#include <string>
#include <vector>

struct gzFile_s;

namespace zl::cli {

struct SeenCall {
  int rank = -1;           // -1: the file does not say
  int step = -1;           // from 0; -1: outside all steps
  std::string collective;  // ours ("reduce_scatter"), or the file's name where we have none
  int64_t elements = -1;   // [n] of the unsharded side; -1: the file does not say
  std::string dtype;       // ours ("f32"), or the file's; "": the file does not say
  int group = 0;           // how many ranks take part; 0: the file does not say
  double time = 0;
  bool shards() const { return collective == "all_gather" || collective == "reduce_scatter"; }
};

struct Recording {
  std::string kind;  // "Kineto trace"
  std::vector<SeenCall> calls;
  int ranks = 0;                // of the run; 0: the file does not say
  std::map<int, int> steps;     // of each rank in the file, as it marks them; 0: not marked
  std::set<std::string> notes;  // what a reader must know, one sentence each
};

// A file as text, unpacked on the way if it is gzip. Memory does not grow with the file.
class InputText : private std::streambuf {
 public:
  explicit InputText(const std::string& path);  // throws InputError
  ~InputText() override;
  const std::string& path() const { return path_; }
  std::istream& stream() { return stream_; }
  // Throws InputError if the file could not be read to its end, such as a gzip that is cut.
  void require_complete() const;

 private:
  int_type underflow() override;
  const std::string path_;
  gzFile_s* const file_;
  char text_[1 << 16];
  std::istream stream_{this};
};

// Reads a file of any of these formats. Throws InputError with one sentence if it is none, if it is
// damaged, or if it holds no collective.
Recording read_recording(const std::string& path);

// Of one format each.
Recording read_json_recording(InputText& file);
Recording read_nccl_log(std::istream& text);

// Our name of a collective in any of these formats: "all_gather" for "_allgather_base_"; the name
// itself if we have none. And of a type: "f32" for "float" and "Float".
std::string our_name(const std::string& name);
std::string our_type(std::string type);

}  // namespace zl::cli
