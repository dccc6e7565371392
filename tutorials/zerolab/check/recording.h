// The collectives that a run wrote down, in one form, whatever wrote them: Kineto (the profiler of
// PyTorch), PyTorch's flight recorder, NCCL's log, or zerolab's --trace.
#pragma once

#include <cstdint>
#include <istream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

struct gzFile_s;

namespace zl::cli {

struct SeenCall {
  std::string collective;  // ours ("reduce_scatter"), or the file's name where we have none
  std::string dtype;       // ours ("f32"), or the file's; "": the file does not say
  int64_t elements;        // [n] of the unsharded side; -1: the file does not say
  int64_t out = -1;        // [n] of what comes out, as the file says it
  int group = 0;           // how many ranks take part; 0: the file does not say
  int rank = -1;           // -1: the file does not say
  double time = 0;
  int step = -1;        // from 0; -1: outside all steps
  int64_t padding = 0;  // [n] that a comparison has taken away from the elements
};

struct Recording {
  std::string kind;  // "Kineto trace"
  std::vector<SeenCall> calls;
  int ranks = 0;                // of the run; 0: the file does not say
  std::map<int, int> steps;     // of each rank in the file, as it marks them; 0: not marked
  std::set<std::string> notes;  // what a reader must know, one sentence each
};

// A file as text, unpacked on the way if it is gzip. Memory does not grow with the file. Reading
// throws InputError if the file cannot be read to its end, such as a gzip that is cut.
class InputText : private std::streambuf, public std::istream {
 public:
  explicit InputText(const std::string& path);  // throws InputError
  // How the rest of the file begins, without taking it; "": at its end.
  std::string_view ahead();

 private:
  std::streambuf::int_type underflow() override;
  const std::string path_;
  const std::unique_ptr<gzFile_s, int (*)(gzFile_s*)> file_;
  char text_[1 << 16];
};

// Reads a file of any of these formats. Throws InputError with one sentence if it is none, if it is
// damaged, or if it holds no collective.
Recording read_recording(const std::string& path);

// Whether a text is JSON, perhaps behind a byte order mark. A line of a log may begin with "[0]".
bool is_json(std::string_view text);

std::string our_type(std::string type);  // "f32" for "float" and "torch.float32"

}  // namespace zl::cli
