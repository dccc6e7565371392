// Training tokens: text, whose bytes are the tokens, or token files of nanoGPT and llm.c.
//
// A file whose name ends in .bin contains tokens. If its first int32 is 20240520, it is a shard of
// llm.c (256 int32 of header, then uint16), else raw little-endian uint16. Any other file is text.
// A pattern such as 'fineweb_*.bin' means all files that match, in byte order of their names.
// Tokens are read from disk when they are needed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace zl {

// A token and its position, which counts from 0 in its file.
struct TokenPosition {
  int32_t token = -1;
  int64_t position = 0;
  std::string file;
};

// Called now and then while much is read or computed; it may throw, for example at Ctrl-C.
using Poll = std::function<void()>;

// Immutable and cheap to copy; ranks may read from one at the same time.
class TokenData {
 public:
  // name: a file, or a pattern for glob(3). Throws InputError, naming the file, if one is missing,
  // empty, unreadable, not a regular file, truncated, longer than its header says, of odd size, or
  // neither a text nor uint16 tokens by its first bytes.
  static TokenData open(const std::string& name);
  // A text that is not a file. Errors call it `name`.
  static TokenData of_text(std::string name, std::string text);

  const std::string& name() const { return name_; }
  int files() const { return int(files_.size()); }
  const std::string& file_name(int file) const { return at(file).name; }
  // "text", "llm.c tokens" or "raw tokens"
  const char* file_format(int file) const { return at(file).format; }
  int64_t file_tokens(int file) const { return at(file).tokens; }  // [n]
  int64_t tokens() const;                                          // [n] of all files

  // Reads tokens [first, first + out.size()) of a file. Throws InputError if the file has become
  // shorter since open().
  void read(int file, int64_t first, std::span<int32_t> out) const;

  // Throws InputError with file and position of the first token that is not below `vocab`.
  void require_below(int64_t vocab, const Poll& poll = {}) const;
  // CRC-32C of each file's number of tokens and of its first and last 65,536 tokens, as int32.
  // Reads no more than these.
  uint32_t checksum() const;
  // The largest token and its first position. Reads all tokens.
  TokenPosition largest() const;

 private:
  class Descriptor;  // an open file
  struct File {
    std::string name;
    const char* format;
    std::shared_ptr<const Descriptor> descriptor;  // null: the tokens are the bytes of `text`
    std::shared_ptr<const std::string> text;
    int64_t first_byte;   // [B] the offset of the tokens
    int64_t token_bytes;  // 1 or 2
    int64_t tokens;       // [n]
  };
  static File open_file(const std::string& name);
  static void describe(File& file, int64_t bytes, std::span<const uint8_t> begin);
  const File& at(int file) const;
  // The largest token above `bound`, at its first position; or, if `stop_at_first`, the first token
  // above `bound`.
  TokenPosition scan(int32_t bound, bool stop_at_first, const Poll& poll) const;

  std::string name_;
  std::vector<File> files_;
};

}  // namespace zl
