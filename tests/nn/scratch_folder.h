// A folder for the files of one test, and the message of an error.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tensor/error.h"

namespace zl {

// Removed with everything in it at the end of the test.
class ScratchFolder {
 public:
  explicit ScratchFolder(
      const std::filesystem::path& parent = std::filesystem::temp_directory_path()) {
    static std::atomic<int> number{0};
    folder_ = parent / str("zerolab-test-", ::getpid(), "-", number++);
    std::filesystem::create_directories(folder_);
  }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::string write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path(name), std::ios::binary) << bytes;
    return path(name);
  }
  std::string read(const std::string& name) const {
    std::ifstream file(path(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  // The names in it, sorted.
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& entry : std::filesystem::directory_iterator(folder_))
      all.push_back(entry.path().filename().string());
    std::sort(all.begin(), all.end());
    return all;
  }

 private:
  std::filesystem::path folder_;
};

// Numbers as little-endian bytes.
template <class T, class List>
std::string bytes_of(const List& numbers) {
  std::string bytes;
  for (const auto number : numbers) {
    const T value = T(number);
    bytes.append(reinterpret_cast<const char*>(&value), sizeof(T));
  }
  return bytes;
}

// The text of the Error that `action` throws; "" if it throws none. Other exceptions pass.
template <class Error = InputError, class Action>
std::string sentence_of(const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// The sentence has this part.
inline void check_says(const std::string& sentence, const std::string& part) {
  CAPTURE(sentence, part);
  CHECK(sentence.find(part) != std::string::npos);
}

}  // namespace zl
