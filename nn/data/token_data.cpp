#include "nn/data/token_data.h"

#include <fcntl.h>
#include <glob.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tensor/error.h"
#include "tensor/io/crc32c.h"
#include "tensor/io/file_kind.h"

namespace zl {

namespace {

constexpr int64_t kHeaderBytes = 1024;  // 256 int32
constexpr int32_t kTokensMagic = 20240520;
constexpr int64_t kSample = 65536;  // [B] at the start of a file, which tell what it is

int32_t little_endian_int32(const uint8_t* b) {
  return int32_t(uint32_t(b[0]) | uint32_t(b[1]) << 8 | uint32_t(b[2]) << 16 |
                 uint32_t(b[3]) << 24);
}

// Refuses a text file with zero bytes, or with the mark of UTF-16 at its start.
void refuse_binary(const std::string& name, std::span<const uint8_t> begin) {
  const bool marked = begin.size() >= 2 && ((begin[0] == 0xff && begin[1] == 0xfe) ||
                                            (begin[0] == 0xfe && begin[1] == 0xff));
  const auto zeros = std::ranges::count(begin, 0);
  require_input(!marked && (begin.size() < 64 || zeros * 64 < int64_t(begin.size())), "'", name,
                "' is not a text in UTF-8: ",
                marked ? "it begins with the mark of UTF-16"
                       : str(zeros, " of its first ", begin.size(), " bytes are zero"),
                ". UTF-16 is converted with iconv -f UTF-16 -t UTF-8; tokens need a name that ends "
                "in .bin");
}

// Refuses tokens of 4 or 8 bytes: every second uint16, their high half, is almost zero, and others
// are not.
void refuse_wide_tokens(const std::string& name, std::span<const uint8_t> begin) {
  int largest[2] = {0, 0};  // of those with an even and an odd position
  for (size_t i = 0; i + 1 < begin.size(); i += 2)
    largest[i / 2 % 2] = std::max(largest[i / 2 % 2], begin[i] | begin[i + 1] << 8);
  const bool wide = largest[1] < 16 && largest[0] >= 16;
  require_input(begin.size() < 64 || !wide, "'", name,
                "' seems to hold tokens of 4 or 8 bytes: of ", begin.size() / 2,
                " uint16 at its start every second one is below 16. A .bin file holds "
                "uint16; in Python array.astype(\"uint16\").tofile(\"tokens.bin\") writes them");
}

bool file_exists(const std::string& name) {
  struct stat status;
  return ::stat(name.c_str(), &status) == 0;
}

// The files of `name`: itself if it exists or is not a pattern, else all that match, in byte order.
std::vector<std::string> expand(const std::string& name) {
  if (file_exists(name) || name.find_first_of("*?[") == std::string::npos) return {name};
  glob_t found{};
  const int error = ::glob(name.c_str(), GLOB_NOSORT | GLOB_ERR, nullptr, &found);
  std::vector<std::string> names(found.gl_pathv,
                                 found.gl_pathv + (error == 0 ? found.gl_pathc : 0));
  ::globfree(&found);
  require_input(error != GLOB_ABORTED, "a folder on the way to '", name, "' cannot be read");
  require_input(error == 0 && !names.empty(), "no file matches '", name, "'");
  std::sort(names.begin(), names.end());  // by bytes; glob's own order depends on the locale
  return names;
}

}  // namespace

class TokenData::Descriptor {
 public:
  explicit Descriptor(const std::string& name)
      : fd_(::open(name.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    require_input(fd_ >= 0, "cannot open '", name, "': ", std::strerror(errno),
                  errno == EMFILE ? "; `ulimit -n` raises the limit" : "");
  }
  ~Descriptor() { ::close(fd_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int64_t size(const std::string& name) const {  // [B]
    struct stat status;
    const bool known = ::fstat(fd_, &status) == 0;  // before errno is read below
    require_input(known, "cannot read the size of '", name, "': ", std::strerror(errno));
    require_input(!S_ISDIR(status.st_mode), "'", name,
                  "' is a directory; name a file, or a pattern such as '", name, "/*.bin'");
    require_input(S_ISREG(status.st_mode), "'", name,
                  "' is not a regular file, so the number of its tokens is unknown");
    return status.st_size;
  }
  void read(const std::string& name, int64_t first, std::span<uint8_t> out) const {
    for (size_t done = 0; done < out.size();) {
      const ssize_t n =
          ::pread(fd_, out.data() + done, out.size() - done, off_t(first + int64_t(done)));
      if (n < 0 && errno == EINTR) continue;
      require_input(n >= 0, "cannot read '", name, "': ", std::strerror(errno));
      require_input(n > 0, "'", name, "' ends at byte ", first + int64_t(done),
                    ": it has become shorter since it was opened");
      done += size_t(n);
    }
  }

 private:
  int fd_;
};

TokenData TokenData::open(const std::string& name) {
  require_input(!name.empty(), "the name of the data is empty");
  TokenData data;
  data.name_ = name;
  for (const std::string& one : expand(name)) data.files_.push_back(open_file(one));
  return data;
}

TokenData TokenData::of_text(std::string name, std::string text) {
  require_input(!text.empty(), "'", name, "' is empty");
  const int64_t tokens = int64_t(text.size());
  TokenData data;
  data.name_ = name;
  data.files_.push_back({std::move(name), "text", nullptr,
                         std::make_shared<const std::string>(std::move(text)), 0, 1, tokens});
  return data;
}

TokenData::File TokenData::open_file(const std::string& name) {
  File file{name, "text", std::make_shared<const Descriptor>(name), nullptr, 0, 1, 0};
  const int64_t bytes = file.descriptor->size(name);
  require_input(bytes > 0, "'", name, "' is empty");
  file.tokens = bytes;
  std::vector<uint8_t> begin(size_t(std::min(bytes, kSample)));
  file.descriptor->read(name, 0, begin);
  const FileKind kind = recognise_file({reinterpret_cast<const char*>(begin.data()), begin.size()});
  const bool bin = name.ends_with(".bin");
  if (!kind.is_text || (bin && begin.size() >= 64))  // a few tokens may look like a text
    refuse_other_file(kind, name, bin ? "uint16 tokens" : "a text");
  bin ? describe(file, bytes, begin) : refuse_binary(name, begin);
  return file;
}

// Reads the header of a .bin file.
void TokenData::describe(File& file, int64_t bytes, std::span<const uint8_t> begin) {
  const int32_t magic = bytes >= 4 ? little_endian_int32(begin.data()) : 0;
  file.token_bytes = 2;
  if (magic != kTokensMagic) {
    require_input(bytes % 2 == 0, "'", file.name, "' has ", bytes,
                  " bytes, an odd number; a .bin file holds uint16 tokens of 2 bytes");
    refuse_wide_tokens(file.name, begin);
    file.format = "raw tokens";
    file.tokens = bytes / 2;
    return;
  }
  require_input(bytes >= kHeaderBytes, "'", file.name, "' has ", bytes,
                " bytes; the header of an llm.c shard alone has ", kHeaderBytes);
  const int32_t version = little_endian_int32(&begin[4]), tokens = little_endian_int32(&begin[8]);
  require_input(version == 1, "'", file.name, "' is an llm.c shard of version ", version,
                "; only version 1 (uint16 tokens) is supported");
  require_input(tokens > 0, "'", file.name, "' holds ", tokens, " tokens by its header");
  const int64_t expected = kHeaderBytes + 2 * int64_t(tokens);
  require_input(bytes == expected, "'", file.name, "' holds ", tokens,
                " tokens by its header and so must have ", expected, " bytes; it has ", bytes,
                bytes < expected ? " (truncated?)" : "");
  file.format = "llm.c tokens";
  file.first_byte = kHeaderBytes;
  file.tokens = tokens;
}

const TokenData::File& TokenData::at(int file) const {
  require(file >= 0 && file < files(), "file ", file, " of ", files(), " in '", name_, "'");
  return files_[size_t(file)];
}

int64_t TokenData::tokens() const {
  int64_t n = 0;
  for (const File& file : files_) n += file.tokens;
  return n;
}

void TokenData::read(int file, int64_t first, std::span<int32_t> out) const {
  const File& f = at(file);
  require(first >= 0 && first + int64_t(out.size()) <= f.tokens, "tokens [", first, ", ",
          first + int64_t(out.size()), ") of '", f.name, "', which has ", f.tokens);
  std::array<uint8_t, 2048> bytes;  // on the stack: a training step allocates only from Memory
  for (size_t done = 0; done < out.size();) {
    const size_t n = std::min(out.size() - done, bytes.size() / size_t(f.token_bytes));
    const int64_t position = first + int64_t(done);
    const auto chunk = std::span(bytes).first(n * size_t(f.token_bytes));
    if (f.descriptor)
      f.descriptor->read(f.name, f.first_byte + position * f.token_bytes, chunk);
    else
      std::memcpy(chunk.data(), f.text->data() + position, n);
    if (f.token_bytes == 1)
      for (size_t i = 0; i < n; ++i) out[done + i] = bytes[i];
    else
      for (size_t i = 0; i < n; ++i) out[done + i] = bytes[2 * i] | bytes[2 * i + 1] << 8;
    done += n;
  }
}

TokenPosition TokenData::scan(int32_t bound, bool stop_at_first, const Poll& poll) const {
  TokenPosition found{.token = bound};
  std::vector<int32_t> chunk;
  for (int f = 0; f < files(); ++f) {
    for (int64_t first = 0; first < files_[size_t(f)].tokens; first += int64_t(chunk.size())) {
      chunk.resize(size_t(std::min<int64_t>(files_[size_t(f)].tokens - first, 1 << 16)));
      if (poll) poll();
      read(f, first, chunk);
      if (*std::max_element(chunk.begin(), chunk.end()) <= found.token) continue;
      for (size_t i = 0; i < chunk.size(); ++i) {
        if (chunk[i] <= found.token) continue;
        found = {chunk[i], first + int64_t(i), file_name(f)};
        if (stop_at_first) return found;
      }
    }
  }
  return found;
}

void TokenData::require_below(int64_t vocab, const Poll& poll) const {
  require(vocab > 0, "a vocabulary of ", vocab, " tokens");
  const int64_t widest =
      std::any_of(files_.begin(), files_.end(), [](const File& f) { return f.token_bytes == 2; })
          ? 65536
          : 256;
  if (vocab >= widest) return;  // no token can be larger
  const TokenPosition found = scan(int32_t(vocab - 1), true, poll);
  require_input(found.file.empty(), "token ", found.token, " at position ", found.position, " of '",
                found.file, "' is outside the vocabulary: vocab-size is ", vocab,
                ", so tokens go from 0 to ", vocab - 1);
}

TokenPosition TokenData::largest() const { return scan(-1, false, {}); }

uint32_t TokenData::checksum() const {
  constexpr int64_t kEnds = 65536;  // [n]
  uint32_t crc = 0;
  std::vector<int32_t> tokens;
  for (int f = 0; f < files(); ++f) {
    const int64_t n = file_tokens(f), some = std::min(n, kEnds);
    crc = crc32c(std::as_bytes(std::span(&n, 1)), crc);
    tokens.resize(size_t(some));
    for (const int64_t first : {int64_t(0), n - some}) {
      read(f, first, tokens);
      crc = crc32c(std::as_bytes(std::span(tokens)), crc);
    }
  }
  return crc;
}

}  // namespace zl
