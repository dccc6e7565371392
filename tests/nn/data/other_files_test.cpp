// Data that are neither a text nor uint16 tokens: what is said of them, and that the likes of them
// which are right stay right.

#include <catch2/catch_test_macros.hpp>

#include "nn/data/token_data.h"
#include "tests/nn/scratch_folder.h"

namespace zl {
namespace {

using namespace std::string_literals;

std::string refusal(const std::string& name) {
  return sentence_of([&] { TokenData::open(name); });
}

// Tokens of GPT-2 and of Llama 3, as numpy's default_rng would spread them.
std::vector<int64_t> tokens(int64_t vocab, int n = 200) {
  std::vector<int64_t> all;
  for (int64_t i = 1; i <= n; ++i) all.push_back(i * 7'919'003 % vocab);
  return all;
}

const std::string kProse = "It was the best of times, it was the worst of times, it was the age";

std::string utf16(const std::string& text, bool big) {
  std::string wide;
  for (const char c : text) wide += big ? std::string{'\0', c} : std::string{c, '\0'};
  return wide;
}

}  // namespace

TEST_CASE("data in another format are refused with what they are, as text and as tokens", "[nn]") {
  const ScratchFolder folder;
  // All kinds that are known: tests/tensor/io/file_kind_test.cpp.
  for (const auto& [is, bytes] : {std::pair{"a gzip archive", "\x1f\x8b\x08\0\0\0\0\0\0\3K\4"s},
                                  {"a PDF", "%PDF-1.7\n%\xe2\xe3\xcf\xd3\n"s},
                                  {"a safetensors file", "\x40\0\0\0\0\0\0\0{\"a\":{}"s}})
    for (const char* name : {"a.txt", "a.bin"}) {
      CAPTURE(is, name);
      const std::string path = folder.write(name, bytes);
      check_says(refusal(path), str("'", path, "' is ", is));
      check_says(refusal(path + "*"), is);  // one of a pattern
    }
}

TEST_CASE("tokens of 4 and 8 bytes in a .bin file are refused, uint16 tokens are not", "[nn]") {
  const ScratchFolder folder;
  for (const int64_t vocab : {65, 256, 50257, 128256, 262144}) {
    CAPTURE(vocab);
    check_says(refusal(folder.write("a.bin", bytes_of<uint32_t>(tokens(vocab)))),
               "seems to hold tokens of 4 or 8 bytes");
    check_says(refusal(folder.write("a.bin", bytes_of<int64_t>(tokens(vocab)))),
               "seems to hold tokens of 4 or 8 bytes");
  }
  folder.write("b.bin", bytes_of<uint16_t>(tokens(50257)));
  check_says(refusal(folder.path("*.bin")), "a.bin' seems to hold");
  for (const int64_t vocab : {2, 12, 65, 256, 50257, 65536})
    CHECK(refusal(folder.write("a.bin", bytes_of<uint16_t>(tokens(vocab)))).empty());
}

TEST_CASE("a text in UTF-16 and one with zero bytes are refused, other encodings are bytes",
          "[nn]") {
  const ScratchFolder folder;
  for (const bool big : {false, true}) {
    check_says(refusal(folder.write("a.txt", (big ? "\xfe\xff"s : "\xff\xfe"s) + utf16("Hi", big))),
               "it begins with the mark of UTF-16");
    check_says(refusal(folder.write("a.txt", utf16(kProse, big))),
               str(kProse.size(), " of its first ", 2 * kProse.size(), " bytes are zero"));
  }
  check_says(refusal(folder.write("tokens.dat", bytes_of<uint16_t>(tokens(300)))),
             "tokens need a name that ends in .bin");
  check_says(refusal(folder.write("prose.bin", kProse + "s")), "is a text, not uint16 tokens");
  for (const std::string& text :
       {kProse, "\xef\xbb\xbf" + kProse, "caf\xe9 " + kProse, kProse + "\0"s, "\xd0\x94\xd0\xb0"s,
        "PK is a name"s, "%PD"s, "<html><body>" + kProse, "{\"text\": \"" + kProse + "\"}"})
    CHECK(refusal(folder.write("a.txt", text)).empty());
}

}  // namespace zl
