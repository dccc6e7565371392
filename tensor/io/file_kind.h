// What a file is, by its first bytes: for files that are not what was asked for.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace zl {

inline constexpr size_t kFirstBytes = 512;  // [B] that recognise_file() looks at

struct FileKind {
  std::string_view is = {};  // "a gzip archive"; empty: nothing that is known
  const char* cure = "";     // "unpack it first"
  bool is_text = false;      // a text, which may be wanted
};
inline constexpr std::string_view kSafetensors = "a safetensors file",
                                  kLlmcModel = "an llm.c model";

FileKind recognise_file(std::string_view first_bytes);
FileKind recognise_file_at(const std::string& path);  // empty if it is not a readable file

// Throws InputError, such as "'a.txt' is a gzip archive, not a text; unpack it first", if the kind
// is known and is not the one that is wanted.
void refuse_other_file(const FileKind& kind, const std::string& path, std::string_view wanted);

}  // namespace zl
