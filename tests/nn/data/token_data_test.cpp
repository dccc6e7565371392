// Token files: reading them, and the errors for files that cannot be read.
// Data that are neither a text nor uint16 tokens: what is said of them, and that the likes of them
// which are right stay right.

#include "nn/data/token_data.h"

#include <sys/stat.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "nn/data/corpus.h"
#include "tests/nn/scratch_folder.h"

namespace zl {
namespace {

using Catch::Matchers::EndsWith;

std::vector<int32_t> all_tokens(const TokenData& data, int file = 0) {
  std::vector<int32_t> tokens(size_t(data.file_tokens(file)));
  data.read(file, 0, tokens);
  return tokens;
}

// An llm.c shard with `tokens` in its header, independent of its length.
std::string shard(const std::vector<int>& tokens, int magic = 20240520, int version = 1,
                  int announced = -1) {
  std::vector<int> header(256, 0);
  header[0] = magic, header[1] = version,
  header[2] = announced < 0 ? int(tokens.size()) : announced;
  return bytes_of<int32_t>(header) + bytes_of<uint16_t>(tokens);
}

std::string refusal(const std::string& name) {
  return sentence_of([&] { TokenData::open(name); });
}

}  // namespace

TEST_CASE("the tokens of a text are its bytes, as unsigned numbers", "[nn]") {
  const ScratchFolder folder;
  const TokenData data = TokenData::open(folder.write("a.txt", std::string("Hi\n\0\xff\x80", 6)));
  CHECK(data.tokens() == 6);
  CHECK(data.file_format(0) == std::string("text"));
  CHECK(all_tokens(data) == std::vector<int32_t>{'H', 'i', '\n', 0, 255, 128});
}

TEST_CASE("a .bin file without a header holds little-endian uint16", "[nn]") {
  const ScratchFolder folder;
  const TokenData data =
      TokenData::open(folder.write("a.bin", std::string("\x01\x02\xff\xff\x00\x80", 6)));
  CHECK(data.file_format(0) == std::string("raw tokens"));
  CHECK(all_tokens(data) == std::vector<int32_t>{0x0201, 65535, 32768});
}

TEST_CASE("the same bytes are text or tokens by the end of the name alone", "[nn]") {
  const ScratchFolder folder;
  CHECK(TokenData::open(folder.write("a.bin", "abcd")).tokens() == 2);
  CHECK(TokenData::open(folder.write("a.bin.txt", "abcd")).tokens() == 4);
  CHECK(TokenData::open(folder.write("abin", "abcd")).tokens() == 4);
}

TEST_CASE("an llm.c shard is known by its first int32 and read behind its header", "[nn]") {
  const ScratchFolder folder;
  const std::string name = folder.write("a.bin", shard({7, 50256, 65535}));
  const TokenData data = TokenData::open(name);
  CHECK(data.file_format(0) == std::string("llm.c tokens"));
  CHECK(all_tokens(data) == std::vector<int32_t>{7, 50256, 65535});
  // With any other first int32, the header consists of tokens, too.
  CHECK(TokenData::open(folder.write("b.bin", shard({7, 50256, 65535}, 20240521))).tokens() ==
        512 + 3);
}

TEST_CASE("reading in the middle gives the same tokens as reading everything", "[nn]") {
  const ScratchFolder folder;
  std::vector<int> numbers(5000);  // more than one piece of a read
  for (int i = 0; i < 5000; ++i) numbers[size_t(i)] = (i * 7919) % 65536;
  for (const std::string& name :
       {folder.write("a.bin", bytes_of<uint16_t>(numbers)), folder.write("b.bin", shard(numbers)),
        folder.write("c.txt", bytes_of<uint8_t>(numbers))}) {
    CAPTURE(name);
    const TokenData data = TokenData::open(name);
    const std::vector<int32_t> all = all_tokens(data);
    CHECK(all[4999] == (name.ends_with("txt") ? numbers[4999] % 256 : numbers[4999]));
    for (const int64_t first : {0, 1, 1023, 1024, 2048, 2951}) {
      std::vector<int32_t> part(2049);
      data.read(0, first, part);
      CHECK(part == std::vector<int32_t>(all.begin() + first, all.begin() + first + 2049));
    }
  }
  CHECK_THROWS_AS(
      TokenData::of_text("t", "abc").read(0, 2, std::span(std::vector<int32_t>(2).data(), 2)),
      std::invalid_argument);
}

TEST_CASE("a pattern means all files that match it, in byte order of their names", "[nn]") {
  const ScratchFolder folder;
  for (const char* name : {"b_10.txt", "b_9.txt", "B_1.txt", "a_1.txt", "other.md"})
    folder.write(name, name);
  const TokenData data = TokenData::open(folder.path("*_*.txt"));
  REQUIRE(data.files() == 4);
  // Upper case before lower case and 10 before 9, in every locale.
  const char* expected[] = {"B_1.txt", "a_1.txt", "b_10.txt", "b_9.txt"};
  for (int f = 0; f < 4; ++f) CHECK(data.file_name(f) == folder.path(expected[f]));
  CHECK(data.tokens() == 7 + 7 + 8 + 7);
}

TEST_CASE("a file with a name like a pattern is that file", "[nn]") {
  const ScratchFolder folder;
  folder.write("a1.txt", "xy");
  folder.write("a[1].txt", "z");
  CHECK(TokenData::open(folder.path("a[1].txt")).tokens() == 1);
  std::filesystem::remove(folder.path("a[1].txt"));
  CHECK(TokenData::open(folder.path("a[1].txt")).tokens() == 2);
}

TEST_CASE("each unusable file is refused with a sentence that names it", "[nn]") {
  const ScratchFolder folder;
  check_says(refusal(folder.path("none.txt")), "none.txt': No such file");
  check_says(refusal(folder.path("none*.bin")), "no file matches '");
  check_says(refusal(folder.path("")), "is a directory");
  CHECK_THAT(refusal(folder.write("empty.txt", "")), EndsWith("empty.txt' is empty"));
  CHECK_THAT(refusal(folder.write("empty.bin", "")), EndsWith("empty.bin' is empty"));
  check_says(refusal(folder.write("one.bin", "x")), "has 1 bytes, an odd number");
  check_says(refusal(folder.write("odd.bin", "12345")), "has 5 bytes, an odd number");
  check_says(refusal(folder.path("e*")), "is empty");  // one bad file among those of a pattern
  check_says(refusal(""), "is empty");
  REQUIRE(::mkfifo(folder.path("pipe").c_str(), 0600) == 0);
  check_says(refusal(folder.path("pipe")),
             "is not a regular file");  // and does not wait for a writer
  CHECK(refusal(folder.write("even.bin", "1234")).empty());
  const std::string tar = "a" + std::string(256, '\0') + "ustar" + std::string(250, '\0');
  check_says(refusal(folder.write("tar.bin", tar)),
             "tar.bin' is a tar archive, not uint16 tokens; unpack it first");
}

TEST_CASE("an llm.c shard with a wrong header is refused with both numbers", "[nn]") {
  const ScratchFolder folder;
  const auto refused = [&](const std::string& bytes) {
    return refusal(folder.write("a.bin", bytes));
  };
  check_says(refused(shard({1, 2, 3}, 20240520, 1, 4)),
             "4 tokens by its header and so must have 1032 bytes; it has 1030 (truncated?)");
  check_says(refused(shard({1, 2, 3}, 20240520, 1, 2)), "must have 1028 bytes; it has 1030");
  check_says(refused(shard({1, 2, 3}) + "x"), "it has 1031");
  check_says(refused(shard({1, 2, 3}, 20240520, 2)), "version 2");
  check_says(refused(shard({}, 20240520, 1, 0)), "holds 0 tokens");
  check_says(refused(shard({1, 2, 3}, 20240520, 1, INT32_MAX)), "must have 4294968318 bytes");
  check_says(refused(shard({1, 2, 3}).substr(0, 1023)),
             "has 1023 bytes; the header of an llm.c shard alone has 1024");
  check_says(refused(shard({1, 2, 3}).substr(0, 4)), "has 4 bytes");
  check_says(refused(shard({1, 2, 3}, 20240801, 7)), "Llama 3");
  check_says(refused(shard({1, 2, 3}, 20240326, 3)), "an llm.c model, not uint16 tokens");
  CHECK(refused(shard({1, 2, 3})).empty());
}

TEST_CASE("a file without permission is refused", "[nn]") {
  const ScratchFolder folder;
  ::chmod(folder.write("secret.txt", "abc").c_str(), 0);
  const bool root = ::geteuid() == 0;  // root may read everything, so the test changes its user id
  if (root && ::seteuid(65534) != 0) SKIP("root cannot become another user here");
  const std::string sentence = refusal(folder.path("secret.txt"));
  if (root) REQUIRE(::seteuid(0) == 0);
  check_says(sentence, "Permission denied");
}

TEST_CASE("a file that becomes shorter while it is read is an error, not zeros", "[nn]") {
  const ScratchFolder folder;
  const TokenData data = TokenData::open(folder.write("a.txt", "abcdefgh"));
  std::filesystem::resize_file(folder.path("a.txt"), 3);
  check_says(sentence_of([&] { all_tokens(data); }), "ends at byte 3");
}

TEST_CASE("a token beyond the vocabulary is found with its file and position", "[nn]") {
  const ScratchFolder folder;
  std::vector<int> tokens(70000, 9);  // more than one piece of the scan
  folder.write("1.bin", bytes_of<uint16_t>(tokens));
  tokens[69999] = 100, tokens[65537] = 50;
  folder.write("2.bin", shard(tokens));
  const TokenData data = TokenData::open(folder.path("*.bin"));
  CHECK_NOTHROW(data.require_below(101));
  const auto refused = [&](int64_t vocab) {
    return sentence_of([&] { data.require_below(vocab); });
  };
  check_says(refused(100), "token 100 at position 69999 of '" + folder.path("2.bin"));
  check_says(refused(50), "token 50 at position 65537");
  check_says(refused(9), "token 9 at position 0 of '" + folder.path("1.bin"));
  const TokenPosition largest = data.largest();
  CHECK(
      (largest.token == 100 && largest.position == 69999 && largest.file == folder.path("2.bin")));
}

TEST_CASE("bytes fit a vocabulary of 256, and not always one of 255", "[nn]") {
  const TokenData data = TokenData::of_text("text", "a\xff");
  CHECK_NOTHROW(data.require_below(256));
  check_says(sentence_of([&] { data.require_below(255); }), "token 255 at position 1 of 'text'");
}

TEST_CASE("the corpus that ships is English prose in ASCII", "[nn]") {
  const std::string text(default_corpus());
  CHECK(text.size() > 40000);
  CHECK(text.starts_with("Many hands, one model\n"));
  CHECK(std::all_of(text.begin(), text.end(),
                    [](char c) { return c == '\n' || (c >= ' ' && c <= '~'); }));
  CHECK(TokenData::of_text("the corpus that ships", text).tokens() == int64_t(text.size()));
}

namespace {

using namespace std::string_literals;

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
