// Text from outside (file names, flag values, messages of other programs) for a terminal.
#pragma once

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "tensor/printable.h"

namespace zl::cli {

// Replaces what could control the terminal or reorder the line: control characters except line
// feed and tab, marks of writing direction such as U+202E, and bytes that are not UTF-8. Each
// becomes `replacement`, or if that is empty its code, such as \u001b.
inline std::string printable(std::string_view text, std::string_view replacement = "") {
  std::string all;
  while (!text.empty()) {
    const std::string_view character =
        text.substr(0, std::max<size_t>(1, first_character(text).bytes));
    const bool kept = character == "\n" || character == "\t";
    const std::string shown = kept ? std::string(character) : zl::printable(character);
    all += shown == character || replacement.empty() ? shown : replacement;
    text.remove_prefix(character.size());
  }
  return all;
}

// The same for a text that must stay on one line, such as a file's name: \n for a line feed.
inline std::string printable_line(std::string_view text) { return zl::printable(text); }

// "./zl" if zl, which says it in ZL_COMMAND, started this program; else "zerolab".
inline std::string called_as() {
  const char* zl = std::getenv("ZL_COMMAND");
  return zl != nullptr && *zl != '\0' ? zl : "zerolab";
}

// The text with commands of zerolab as the user can type them. They begin a line of examples or are
// quoted; launch and train also appear in a sentence without quotes.
inline std::string as_called(std::string text) {
  for (const std::string_view before :
       {"\n  zerolab ", "'zerolab ", "`zerolab ", " zerolab launch ", " zerolab train "})
    for (size_t at = 0; (at = text.find(before, at)) != text.npos; ++at)
      text.replace(text.find('z', at), 7, called_as());
  return text;
}

// A line on stderr.
inline void say(const std::string& sentence, const char* by = "zerolab") {
  std::fprintf(stderr, "%s: %s\n", by, printable(as_called(sentence)).c_str());
}

// As a word of a command for a POSIX shell.
inline std::string shell_word(const std::string& word) {
  const std::string_view plain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./+,:@%=";
  if (!word.empty() && word.find_first_not_of(plain) == word.npos) return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? "'\\''" : std::string(1, c);
  return text + "'";
}

}  // namespace zl::cli
