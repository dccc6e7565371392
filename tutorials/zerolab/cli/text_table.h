// A table of text: the first columns are aligned left, the others right.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

namespace zl::cli {

class TextTable {
 public:
  void row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  void line() { rows_.push_back({}); }  // an empty line

  std::string text(size_t left = 1) const {
    std::vector<size_t> widths;
    for (const auto& cells : rows_) {
      widths.resize(std::max(widths.size(), cells.size()));
      for (size_t i = 0; i < cells.size(); ++i) widths[i] = std::max(widths[i], columns(cells[i]));
    }
    std::string all;
    for (const auto& cells : rows_) {
      for (size_t i = 0; i < cells.size(); ++i) {
        const std::string pad(widths[i] - columns(cells[i]), ' ');
        all += i < left ? "  " + cells[i] + pad : "  " + pad + cells[i];
      }
      all.erase(all.find_last_not_of(' ') + 1);
      all += "\n";
    }
    return all;
  }

 private:
  // Characters of UTF-8 text, each one column wide.
  static size_t columns(const std::string& text) {
    return size_t(std::ranges::count_if(text, [](char c) { return (c & 0xc0) != 0x80; }));
  }
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace zl::cli
