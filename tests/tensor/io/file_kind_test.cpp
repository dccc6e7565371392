// Files by their first bytes. The expected names are those of file(1) and of the formats' own
// specifications; the bytes were written by the programs themselves.

#include "tensor/io/file_kind.h"

#include <sys/stat.h>

#include <catch2/catch_test_macros.hpp>

#include "tests/nn/scratch_folder.h"

namespace zl {
namespace {

using namespace std::string_literals;

struct File {
  std::string is, bytes;
};

// printf a | gzip -c, zstd -c, xz -c, bzip2 -c; numpy.save; pickle.dumps with protocols 2
// to 5; pyarrow's write_table; tar -c; h5py; git lfs pointer; and others as their formats say.
const std::vector<File>& files() {
  static const std::vector<File> all = {
      {"a gzip archive", "\x1f\x8b\x08\0\0\0\0\0\0\3K\4\0C\xbe\xb7\xe8\1\0\0\0"s},
      {"a zstd archive", "\x28\xb5\x2f\xfd\x04\x58\x09\0\0\x61"s},
      {"an xz archive", "\xfd\x37\x7a\x58\x5a\0\0\4\xe6\xd6\xb4\x46"s},
      {"a bzip2 archive", "BZh91AY&SY\x19\x93\x9b\x6b"s},
      {"a zip archive", "PK\3\4\x14\0\0\0\x08\0"s},
      {"a tar archive", "a" + std::string(99, '\0') + "0000644" + std::string(150, '\0') + "ustar"},
      {"an HDF5 file", "\x89HDF\r\n\x1a\n\0\0\0\0\0\x08\x08\0"s},
      {"a PNG image", "\x89PNG\r\n\x1a\n\0\0\0\rIHDR"s},
      {"a JPEG image", "\xff\xd8\xff\xe0\0\x10JFIF\0"s},
      {"a Parquet file", "PAR1\x15\4\x15\x10"s},
      {"an Arrow file", "ARROW1\0\0\xff\xff\xff\xff"s},
      {"a NumPy array", "\x93NUMPY\1\0v\0{'descr': '<i8'"s},
      {"a pickle of Python", "\x80\2]q\0(K\1K\2e."s},
      {"a pickle of Python", "\x80\4\x95\x0b\0\0\0\0\0\0\0]\x94(K\1K\2e."s},
      {"a pickle of Python", "\x80\2\x8a\nl\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."s},  // torch 1.5
      {"a GGUF file", "GGUF\3\0\0\0\x94\0\0\0"s},
      {"a PDF", "%PDF-1.7\n"s},
      {"an llm.c model", "\xc6\xd7\x34\1\3\0\0\0"s},
      {"a safetensors file", "\x40\0\0\0\0\0\0\0{\"a\":{\"dtype\""s},
      {"a pointer of Git LFS",
       "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 548118077\n"s},
      {"a text", "\n<!DOCTYPE HTML>\n<head>"s},
      {"a text", "Entry not found"s},
      {"a text", "{\"error\": \"Repository not found\"}\n"s},
      {"a text", "na\xc3\xafve prose\n"s},
  };
  return all;
}

}  // namespace

TEST_CASE("files are known by their first bytes", "[tensor]") {
  for (const File& file : files()) {
    CAPTURE(file.is);
    CHECK(recognise_file(file.bytes).is == file.is);
    if (recognise_file(file.bytes).is_text) continue;
    CHECK(recognise_file(file.bytes + std::string(1000, '\1')).is == file.is);
  }
}

TEST_CASE("tokens, and words that formats begin with, are no such file", "[tensor]") {
  for (const std::string& bytes :
       {""s, "\0"s, "\1\0\2\0\3\0"s, "\x1f\x8b\x09\0"s, "\x80\2\1\0"s, "\xff\xff\xff\xff"s})
    CHECK(recognise_file(bytes).is.empty());
  for (const char* text : {"PAR1 is a magic number.", "GGUF holds weights.", "ARROW1 and others",
                           "BZh is bzip2.", "PK is a name.", "GIF is an image.", "<htm"})
    CHECK(recognise_file(text).is == "a text");
  // The length of a header may have the first bytes of another format.
  for (const std::string& length :
       {"\x1f\x8b\x08\0\0\0\0\0"s, "\x80\4\1\0\0\0\0\0"s, "PK\3\4\0\0\0\0"s})
    CHECK(recognise_file(length + "{\"wte.weight\":").is == kSafetensors);
}

TEST_CASE("a path that cannot be read, or is no file, is of no kind", "[tensor]") {
  const ScratchFolder folder;
  CHECK(recognise_file_at(folder.path("none")).is.empty());
  CHECK(recognise_file_at(folder.path("")).is.empty());
  REQUIRE(::mkfifo(folder.path("pipe").c_str(), 0600) == 0);
  CHECK(recognise_file_at(folder.path("pipe")).is.empty());  // and does not wait for a writer
  CHECK(recognise_file_at(folder.write("a", "%PDF-1.4")).is == "a PDF");
}

TEST_CASE("what a file is, what was wanted and the cure make one sentence", "[tensor]") {
  CHECK(sentence_of([] { refuse_other_file(recognise_file("%PDF-1.4"), "a", "a text"); }) ==
        "'a' is a PDF, not a text; write the text in it into a text file");
  CHECK(sentence_of([] { refuse_other_file(recognise_file("words"), "a", "a text"); }).empty());
  CHECK(sentence_of([] { refuse_other_file({}, "a", "a text"); }).empty());
}

}  // namespace zl
