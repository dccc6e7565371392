// Tokens to train on: text, whose bytes are the tokens, or token files as nanoGPT and llm.c write
// them.
//
// A name that ends in .bin holds tokens: llm.c's shard if its first int32 is 20240520 (256 int32 of
// header, then uint16), else raw little-endian uint16. Any other file is text. A pattern such as
// 'fineweb_*.bin' means all files that match it, in byte order of their names. Files stay on disk:
// tokens are read when they are asked for.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace zl {

// A token and where it stands. Positions count from 0 within their file.
struct TokenPosition {
  int32_t token = -1;
  int64_t position = 0;
  std::string file;
};

// Immutable and cheap to copy; ranks may read from one at the same time.
class TokenData {
 public:
  // `name`: a file, or a pattern for glob(3). Throws InputError, naming the file, for one that is
  // missing, empty, unreadable, no regular file, truncated, longer than its header says, or of odd
  // size.
  static TokenData open(const std::string& name);
  // A text that is not a file, under the name that errors give it.
  static TokenData of_text(std::string name, std::string text);

  const std::string& name() const { return name_; }
  int files() const { return int(files_.size()); }
  const std::string& file_name(int file) const { return at(file).name; }
  const char* file_format(int file) const {
    return at(file).format;
  }  // "text", "llm.c tokens", "raw tokens"
  int64_t file_tokens(int file) const { return at(file).tokens; }  // [n]
  int64_t tokens() const;                                          // [n] of all files

  // Tokens [first, first + out.size()) of a file. Throws InputError if the file has become shorter
  // since open().
  void read(int file, int64_t first, std::span<int32_t> out) const;

  // Throws InputError with file and position of the first token that a vocabulary of `vocab` does
  // not have.
  void require_below(int64_t vocab) const;
  // The largest token, where it first stands. Reads everything.
  TokenPosition largest() const;

 private:
  class Descriptor;  // an open file
  struct File {
    std::string name;
    const char* format;
    std::shared_ptr<const Descriptor> descriptor;  // null: the tokens are the bytes of `text`
    std::shared_ptr<const std::string> text;
    int64_t first_byte;   // where the tokens begin
    int64_t token_bytes;  // 1 or 2
    int64_t tokens;
  };
  static File open_file(const std::string& name);
  static void describe(File& file, int64_t bytes);
  const File& at(int file) const;
  // The first token above `bound` with the largest value, or of all such the first if
  // `stop_at_first`.
  TokenPosition scan(int32_t bound, bool stop_at_first) const;

  std::string name_;
  std::vector<File> files_;
};

}  // namespace zl
