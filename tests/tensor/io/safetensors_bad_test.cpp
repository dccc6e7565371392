#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <ctime>

#include "tensor/error.h"
#include "tensor/io/safetensors.h"
#include "tests/tensor/io/safetensors_case.h"

namespace {

using namespace zl;
using namespace zl::test;

struct Bad {
  const char* what;
  std::string bytes;
  const char* message;  // a part of it
};

// One tensor 'a' described by `fields`, before 8 bytes of data.
std::string one(const std::string& fields) {
  return with_header("{\"a\":{" + fields + "}}", std::string(8, '\0'));
}
// The same with a dtype, a shape and offsets; ' is written for " in the first two.
std::string one(std::string dtype, std::string shape, const std::string& offsets) {
  for (std::string* text : {&dtype, &shape}) std::ranges::replace(*text, '\'', '"');
  return one("\"dtype\":" + dtype + ",\"shape\":" + shape + ",\"data_offsets\":" + offsets);
}
std::string two(const std::string& a, const std::string& b, size_t bytes = 8) {
  return with_header(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":)" + a +
                         R"(},"b":{"dtype":"F32","shape":[1],"data_offsets":)" + b + "}}",
                     std::string(bytes, '\0'));
}
std::string repeat(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}
std::string length(uint64_t n) { return std::string(reinterpret_cast<const char*>(&n), 8); }

std::vector<Bad> bad_headers() {
  return {
      {"empty file", "", "has 0 bytes"},
      {"five bytes", "\1\2\3\4\5", "has 5 bytes"},
      {"only a length", length(2), "only 0 follow"},
      {"length beyond the limit", length(100'000'001) + "{}", "the format allows 100000000"},
      {"length of 2^64 - 1", length(~uint64_t(0)) + "{}", "18446744073709551615 bytes"},
      {"length beyond the file", length(100) + "{}", "only 2 follow"},
      {"empty header", length(0), "does not begin with '{'"},
      {"text", "this is a text file, not a tensor", "is a text, not a safetensors file"},
      {"an array", with_header("[]", ""), "does not begin with '{'"},
      {"leading space", with_header(" {}", ""), "does not begin with '{'"},
      {"not JSON", with_header("{hello}", ""), "is not valid JSON: error at byte 2"},
      {"truncated JSON", with_header(R"({"a":{"dtype":"F3)", ""), "is not valid JSON"},
      {"text after the object", with_header("{} x", ""), "is not valid JSON"},
      {"not UTF-8", with_header("{\"\xff\xfe\":{}}", ""), "is not valid JSON"},
      {"a number beyond double", with_header(R"({"a":1e999})", ""),
       "is not valid JSON: a number is out of range"},
      {"100,000 braces", with_header(repeat(R"({"a":)", 100000), ""), "nested deeper"},
      {"100,000 brackets", with_header(R"({"a":)" + repeat("[", 100000), ""), "nested deeper"},
      {"duplicate tensor",
       with_header(R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},)"
                   R"("a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})",
                   ""),
       "\"a\" occurs twice"},
      {"duplicate by escape",
       with_header(R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},)"
                   R"("\u0061":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})",
                   ""),
       "\"a\" occurs twice"},
      {"duplicate field", one(R"("dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8])"),
       "\"dtype\" occurs twice"},
      {"metadata no object", with_header(R"({"__metadata__":"x"})", ""),
       "__metadata__ is not an object of strings"},
      {"metadata no string", with_header(R"({"__metadata__":{"n_head":12}})", ""),
       "__metadata__ is not an object of strings"},
  };
}

std::vector<Bad> bad_tensors() {
  return {
      {"tensor no object", with_header(R"({"a":3})", ""), "expected an object"},
      {"no dtype", one(R"("shape":[2],"data_offsets":[0,8])"), "'a' has the unknown dtype null"},
      {"no shape", one(R"("dtype":"F32","data_offsets":[0,8])"), "'a' has no array shape"},
      {"no offsets", one(R"("dtype":"F32","shape":[2],"offsets":[0,8])"),
       "'a' has no array data_offsets"},
      {"unknown dtype", one("'F31'", "[2]", "[0,8]"), "unknown dtype \"F31\""},
      {"dtype no string", one("32", "[2]", "[0,8]"), "unknown dtype 32"},
      {"shape no array", one("'F32'", "2", "[0,8]"), "has no array shape"},
      {"negative dimension", one("'F32'", "[-2]", "[0,8]"), "shape holds -2"},
      {"two negative dimensions", one("'F32'", "[-1,-2]", "[0,8]"), "shape holds -1"},
      {"an array of arrays", one("'F32'", "[[7,7]]", "[0,8]"), "shape holds array; expected"},
      {"fraction", one("'F32'", "[2.0]", "[0,8]"), "shape holds 2.0"},
      {"dimension as text", one("'F32'", "['2']", "[0,8]"), "shape holds \"2\""},
      {"dimension of 2^63", one("'F32'", "[9223372036854775808]", "[0,8]"),
       "shape holds 9223372036854775808"},
      {"overflow in shape", one("'F32'", "[4294967296,4294967296,2]", "[0,8]"),
       "more bytes than can be counted"},
      {"overflow to the right size", one("'F32'", "[4611686018427387905,2]", "[0,8]"),
       "more bytes than can be counted"},
      {"overflow before a zero", one("'F32'", "[4294967296,4294967296,0]", "[0,0]"),
       "more bytes than can be counted"},
      {"a million dimensions", one("'F32'", "[" + repeat("1,", 1000000) + "3]", "[0,8]"),
       "takes 12 bytes"},
      {"one offset", one("'F32'", "[2]", "[8]"), "expected [begin, end]"},
      {"negative offset", one("'F32'", "[2]", "[-8,0]"), "data_offsets holds -8"},
      {"end before begin", one("'F32'", "[2]", "[8,0]"), "but data_offsets span -8"},
      {"size and shape differ", one("'F32'", "[3]", "[0,8]"),
       "takes 12 bytes, but data_offsets span 8"},
      {"size and dtype differ", one("'F64'", "[2]", "[0,8]"), "takes 16 bytes"},
      {"half a byte", one("'F4'", "[17]", "[0,8]"), "takes 8 bytes"},
      {"beyond the end", one("'F32'", "[4]", "[0,16]"),
       "the tensors end at byte 16 of the data, but the file has 8"},
      {"truncated data", two("[0,4]", "[4,8]", 7), "end at byte 8 of the data, but the file has 7"},
      {"surplus data", two("[0,4]", "[4,8]", 9), "end at byte 8 of the data, but the file has 9"},
      {"data without tensors", with_header("{}", "x"),
       "end at byte 0 of the data, but the file has 1"},
  };
}

// Offsets that do not cover the data once.
std::vector<Bad> bad_covers() {
  return {
      {"overlap", two("[0,4]", "[2,6]"),
       "'b' begins at byte 2 of the data; expected 4, where tensor 'a' ends"},
      {"same bytes twice", two("[0,4]", "[0,4]", 4), "begins at byte 0 of the data; expected 4"},
      {"hole", two("[0,4]", "[6,10]", 10), "begins at byte 6 of the data; expected 4"},
      {"hole at the start", two("[2,6]", "[6,10]", 10),
       "begins at byte 2 of the data; expected 0, where the data begin"},
  };
}

void check_all(const std::vector<Bad>& files) {
  const Folder folder;
  for (const Bad& bad : files) {
    CAPTURE(bad.what);
    const std::string path = folder / "bad.safetensors";
    write_bytes(path, bad.bytes);
    const std::clock_t start = std::clock();  // of the processor: the machine may be busy
    const std::string message = sentence_of([&] { SafetensorsFile file(path); });
    CHECK((message.starts_with(path + ": ") || message.starts_with("'" + path + "' is ")));
    CHECK(message.find(bad.message) != std::string::npos);
    if (message.find(bad.message) == std::string::npos) UNSCOPED_INFO(message.substr(0, 300));
    CHECK(std::clock() - start < 10 * CLOCKS_PER_SEC);
  }
}

TEST_CASE("a broken header is refused with the file and the reason", "[tensor]") {
  check_all(bad_headers());
}

TEST_CASE("a tensor that is wrong or does not fit is refused with the file and the reason",
          "[tensor]") {
  check_all(bad_tensors());
  check_all(bad_covers());
}

TEST_CASE("something that is not a file is refused, and a missing file is named", "[tensor]") {
  const Folder folder;
  CHECK_THROWS_AS(SafetensorsFile(folder / ""), InputError);
  CHECK_THROWS_AS(SafetensorsFile("/dev/zero"), InputError);
  CHECK(sentence_of([&] { SafetensorsFile file(folder / "missing"); }) ==
        (folder / "missing") + ": cannot be opened: No such file or directory");
}

TEST_CASE("the same files without their fault are read", "[tensor]") {
  const Folder folder;
  const std::string path = folder / "good.safetensors";
  for (const std::string& bytes :
       {with_header("{}", ""), with_header("{}      ", ""), one("'F32'", "[2]", "[0,8]"),
        one("'F4'", "[16]", "[0,8]"), two("[0,4]", "[4,8]"), two("[4,8]", "[0,4]"),
        one(R"("dtype":"F32","shape":[2,1],"data_offsets":[0,8],)"
            R"("comment":"as the format's own reader")")}) {
    write_bytes(path, bytes);
    CHECK_NOTHROW(SafetensorsFile(path));
  }
}

}  // namespace
