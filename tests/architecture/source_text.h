#pragma once
// Our files as text, for the architecture tests. Every check takes a File, so that a test
// can also give it a bad one.

#include <set>
#include <string>
#include <vector>

namespace architecture {

struct File {
  std::string path;  // relative to the source root, with '/'
  std::string text;
};

// All .h, .cpp, .cu and .cuh files of the source folders, in order of their paths.
std::vector<File> source_files();
// All files below these folders of the source tree, or with these ends of their names only.
std::vector<File> files_below(const std::vector<std::string>& folders,
                              const std::set<std::string>& extensions = {});
// One file of the source tree.
std::string read_source(const std::string& path);

bool is_test(const File& file);  // below tests/
bool is_header(const File& file);

// The folder of a file: "dist/nccl" for "dist/nccl/api.h".
std::string folder_of(const std::string& path);

// Lines without their ends. A last line without an end counts too.
std::vector<std::string> split_lines(const std::string& text);

// The text with the contents of comments, strings and characters replaced by spaces. Offsets and
// line numbers stay the same.
std::string code_only(const std::string& text);

// The opposite: only the contents of comments, all else replaced by spaces.
std::string comments_only(const std::string& text);

// For each line, whether a raw string begins, continues or ends in it.
std::vector<bool> raw_string_lines(const std::string& text);

// "path:line: rule"
std::string finding(const File& file, int line, const std::string& rule);

// The findings of one check in all source files, one per line; "" if there are none.
std::string findings_of(std::vector<std::string> (*check)(const File&));

// One finding per line, or "" if there are none. For the message of a test.
std::string joined(const std::vector<std::string>& findings);

// A TEST_CASE of a source file.
struct TestCase {
  int line;          // from 1
  std::string name;  // literals that follow each other are one name
  std::string tags;  // "[nn][slow]"
};

// All cases of the file, templates included, in order.
std::vector<TestCase> test_cases(const File& file);

struct Function {
  std::string name;
  int line = 0;   // where its declaration starts, from 1
  int lines = 0;  // to its closing brace; 0 if it is only declared
  int parameters = 0;
};

// The functions that are declared or defined in namespaces and classes, without a compiler: by the
// rough reader of C++ in function_scan.cpp. Macros that look like functions count too (TEST_CASE);
// lambdas belong to the function around them.
std::vector<Function> functions(const std::string& text);

}  // namespace architecture
