// Which format a file has, and the names that the formats share.

#include "tutorials/zerolab/check/recording.h"

#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <streambuf>

#include "tensor/error.h"

namespace zl::cli {

// zlib reads files that are not gzip as they are.
class InputText::Buffer : public std::streambuf {
 public:
  explicit Buffer(const std::string& path) : file_(gzopen(path.c_str(), "rb")) {
    require_input(file_, "'", path, "' cannot be opened: ", std::strerror(errno));
    gzbuffer(file_, sizeof text_);
  }
  ~Buffer() override { gzclose(file_); }
  std::string problem() const {
    int code = Z_OK;
    const char* text = gzerror(file_, &code);
    return code == Z_OK || code == Z_STREAM_END ? ""
           : code == Z_ERRNO                    ? std::strerror(errno)
                                                : text;
  }

 private:
  int_type underflow() override {
    const int read = gzread(file_, text_, sizeof text_);
    if (read <= 0) return traits_type::eof();
    setg(text_, text_, text_ + read);
    return traits_type::to_int_type(*text_);
  }
  gzFile file_;
  char text_[1 << 16];
};

InputText::InputText(const std::string& path)
    : path_(path),
      buffer_(std::make_unique<Buffer>(path)),
      stream_(std::make_unique<std::istream>(buffer_.get())) {}
InputText::~InputText() = default;

void InputText::require_complete() const {
  const std::string problem = buffer_->problem();
  require_input(problem.empty(), "'", path_, "' cannot be read to its end (", problem,
                "): it is cut or damaged; copy it again");
}

Recording read_recording(const std::string& path) {
  InputText file(path);
  std::istream& text = file.stream();
  const int first = (text >> std::ws).peek();
  file.require_complete();
  require_input(first != EOF, "'", path, "' is empty");
  require_input(
      first != 0x80, "'", path,
      "' is a pickle, which is not read; PyTorch writes the flight recorder as JSON with ",
      "torch._C._distributed_c10d._dump_nccl_trace_json()");
  const bool json = first == '{' || first == '[';
  Recording all = json ? read_json_recording(file, path) : read_nccl_log(text);
  file.require_complete();
  require_input(json || !all.calls.empty(), "'", path,
                "' is neither JSON nor a log of NCCL with lines such as 'NCCL INFO AllReduce: "
                "opCount 0 …'; for those run with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=COLL");
  require_input(!all.calls.empty(), "'", path, "' is a ", all.kind,
                " without a collective: was the run on one rank, or did the profiler stop before?");
  return all;
}

std::string our_name(std::string name) {
  std::erase_if(name, [](char c) { return c == '_'; });
  std::ranges::transform(name, name.begin(), [](char c) { return char(std::tolower(c)); });
  // Longer names first: "allreducecoalesced" begins with "allreduce", "reducescatter" with
  // "reduce".
  constexpr std::pair<const char*, const char*> kNames[] = {{"allgather", "all_gather"},
                                                            {"reducescatter", "reduce_scatter"},
                                                            {"allreduce", "all_reduce"},
                                                            {"broadcast", "broadcast"},
                                                            {"alltoall", "all_to_all"},
                                                            {"barrier", "barrier"},
                                                            {"monitoredbarrier", "barrier"},
                                                            {"send", "send"},
                                                            {"isend", "send"},
                                                            {"recv", "receive"},
                                                            {"irecv", "receive"}};
  for (const auto& [theirs, ours] : kNames)
    if (name.starts_with(theirs)) return ours;
  return name;
}

std::string our_type(const std::string& type) {
  static const std::map<std::string, std::string> names = {
      {"float", "f32"},     {"Float", "f32"},   {"float32", "f32"},   {"c10::BFloat16", "bf16"},
      {"BFloat16", "bf16"}, {"Half", "f16"},    {"c10::Half", "f16"}, {"double", "f64"},
      {"Double", "f64"},    {"int", "i32"},     {"Int", "i32"},       {"long int", "i64"},
      {"long", "i64"},      {"Long", "i64"},    {"Byte", "u8"},       {"unsigned char", "u8"},
      {"TensorList", ""},   {"GenericList", ""}};
  const auto found = names.find(type);
  return found == names.end() ? type : found->second;
}

}  // namespace zl::cli
