#include "tensor/io/file_kind.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "tensor/error.h"

namespace zl {
namespace {

using std::literals::operator""sv;

constexpr char kUnpack[] = "unpack it first",
               kNumbers[] =
                   "tokens are read as uint16 without a header, from a name that ends in "
                   ".bin: in Python array.astype(\"uint16\").tofile(\"tokens.bin\")",
               kText[] = "write the text in it into a text file",
               kWeights[] =
                   "it holds weights: only safetensors and llm.c's format are read, with "
                   "--init-from";

struct Signature {
  std::string_view bytes;
  FileKind kind;
  size_t at = 0;
};

// Neither uint16 tokens nor a text begin with one of these by chance.
constexpr Signature kSignatures[] = {
    {"\0\0\0\0{\""sv, {kSafetensors, kWeights}, 4},  // behind a length below 4 GiB
    {"\x1f\x8b\x08"sv, {"a gzip archive", kUnpack}},
    {"\x28\xb5\x2f\xfd"sv, {"a zstd archive", kUnpack}},
    {"\xfd\x37zXZ\0"sv, {"an xz archive", kUnpack}},
    {"BZh91AY&SY"sv, {"a bzip2 archive", kUnpack}},
    {"PK\3\4"sv, {"a zip archive", kUnpack}},
    {"ustar"sv, {"a tar archive", kUnpack}, 257},
    {"PAR1\x15"sv, {"a Parquet file", kText}},
    {"ARROW1\0\0"sv, {"an Arrow file", kText}},
    {"\x93NUMPY"sv, {"a NumPy array", kNumbers}},
    {"\x89HDF\r\n\x1a\n"sv, {"an HDF5 file", kNumbers}},
    {"\x89PNG\r\n\x1a\n"sv, {"a PNG image", kText}},
    {"\xff\xd8\xff"sv, {"a JPEG image", kText}},
    {"GGUF\3\0\0\0"sv, {"a GGUF file", kWeights}},
    {"%PDF-"sv, {"a PDF", kText}},
    {"\xc6\xd7\x34\1"sv, {kLlmcModel, kWeights}},
    {"\xa1\xd9\x34\1"sv, {"a file of Llama 3 tokens", "use the GPT-2 tokenizer"}},
    {"version https://git-lfs"sv, {"a pointer of Git LFS", "fetch the file with git lfs pull"}},
};

bool is_in(char byte, std::string_view set) { return set.find(byte) != set.npos; }

// Of protocol 2 to 5, and one of the operations that an object begins with.
bool is_pickle(std::string_view head) {
  return head.size() > 2 && head[0] == '\x80' && head[1] >= 2 && head[1] <= 5 &&
         is_in(head[2], "\x95\x8a\x8c]}()cKMJXGN");
}

// No control characters, and most are ASCII.
bool is_text(std::string_view head) {
  const auto ascii = std::ranges::count_if(head, [](char c) { return c > 0; });
  const bool control = std::ranges::any_of(
      head, [](char c) { return (c >= 0 && c < 32 && !is_in(c, "\t\n\f\r")) || c == 127; });
  return !head.empty() && !control && size_t(ascii) * 4 >= head.size() * 3;
}

}  // namespace

FileKind recognise_file(std::string_view head) {
  head = head.substr(0, kFirstBytes);
  for (const Signature& s : kSignatures)
    if (head.substr(std::min(s.at, head.size())).starts_with(s.bytes)) return s.kind;
  if (is_pickle(head)) return {"a pickle of Python", kNumbers};
  if (is_text(head))
    return {"a text", "is it the right file, and complete? A hub's link to it has /resolve/", true};
  return {};
}

FileKind recognise_file_at(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return {};  // a pipe would wait
  std::string head(kFirstBytes, '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(head.data(), std::streamsize(head.size()));
  return recognise_file(std::string_view(head).substr(0, size_t(file.gcount())));
}

void refuse_other_file(const FileKind& kind, const std::string& path, std::string_view wanted) {
  require_input(kind.is.empty() || kind.is == wanted, "'", path, "' is ", kind.is, ", not ", wanted,
                "; ", kind.cure);
}

}  // namespace zl
