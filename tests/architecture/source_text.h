#pragma once
// What the house tests read: our source files as text. Every checker takes a File, so that it can
// also be shown a bad one.

#include <string>
#include <vector>

namespace architecture {

struct File {
  std::string path;  // relative to the source root, with '/'
  std::string text;
};

// All .h, .cpp, .cu and .cuh files of the source folders, in order of their paths.
std::vector<File> source_files();

// Lines without their ends. A last line that is not ended counts too.
std::vector<std::string> split_lines(const std::string& text);

// The text with the insides of comments, strings and characters replaced by spaces. Offsets and
// lines stay as they are.
std::string code_only(const std::string& text);

// "path:line: rule"
std::string finding(const File& file, int line, const std::string& rule);

bool is_header(const File& file);

// One finding per line, or "" if there are none. For the message of a test.
std::string joined(const std::vector<std::string>& findings);

}  // namespace architecture
