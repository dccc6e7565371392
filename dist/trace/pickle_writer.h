// Writes a value in Python's pickle format, protocol 2, piece by piece: dictionaries, lists, texts
// and whole numbers. https://docs.python.org/3/library/pickletools.html describes the opcodes.
//
// Only opcodes are used that PyTorch's MemoryViz.js reads, too.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace zl {

class PickleWriter {
 public:
  explicit PickleWriter(const std::function<void(std::string_view)>& write);

  // A dictionary holds keys, which are texts, and values in turn.
  void begin_dict() { begin('}'); }
  void begin_list() { begin(']'); }
  void end();  // of the innermost dictionary or list
  // Likewise. Returns a name for it, by which refer() writes it again in a few bytes.
  int64_t end_remembered();
  void refer(int64_t remembered);

  void text(std::string_view text);  // UTF-8; an equal text later refers to the first one
  void number(int64_t number);
  void field(std::string_view key, int64_t value) { text(key), number(value); }
  void field(std::string_view key, std::string_view value) { text(key), text(value); }

  // The value is complete. Nothing may follow.
  void finish();

 private:
  void begin(char kind);
  void close();
  int64_t remember();  // the value that was written last
  void ended_value();  // one more is in the innermost list
  void op(char code) { text_ += code; }
  void little_endian(uint64_t value, int bytes);

  struct Open {
    bool list;
    int64_t values = 0;  // since the last batch
  };
  const std::function<void(std::string_view)>& write_;
  std::string text_;
  std::vector<Open> open_;
  std::unordered_map<std::string, int64_t> texts_;  // remembered
  int64_t remembered_ = 0;
};

}  // namespace zl
