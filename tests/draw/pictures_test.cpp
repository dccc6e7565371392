// The pictures in tutorials/pictures/ are shown by pages and can be read by everyone.

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <regex>

#include "tests/paths.h"
#include "tests/zerolab/process.h"

namespace draw {
namespace {

std::string in_tree(const std::string& path) {
  return std::string(ZEROLAB_SOURCE_DIR) + "/" + path;
}

std::string picture(const std::string& name) {
  return cli::read_file(in_tree("tutorials/pictures/" + name + ".svg"));
}

std::vector<std::string> pictures() {
  std::vector<std::string> names;
  for (const std::string& file : cli::files_in(in_tree("tutorials/pictures")))
    if (file.ends_with(".svg")) names.push_back(file.substr(0, file.size() - 4));
  return names;
}

// Whether a page shows the picture, with a text of some length for those who cannot see it.
bool shows(const std::string& page, const std::string& text, const std::string& name) {
  const std::string path = std::filesystem::path("tutorials/pictures/" + name + ".svg")
                               .lexically_relative(std::filesystem::path(page).parent_path());
  return std::regex_search(text, std::regex("!\\[[^\\]]{40,}\\]\\(" + path + "\\)"));
}

// What is wrong with one file, or "". Well-formed: tags nest, attributes are quoted and given once,
// every & begins an entity.
std::string complaint(const std::string& svg) {
  static const std::regex token(
      "<(/?)([A-Za-z][A-Za-z0-9]*)((?:\\s+[A-Za-z][A-Za-z0-9:-]*=(?:\"[^\"<]*\"|'[^'<]*'))*)"
      "\\s*(/?)>|[^<]+"),
      twice("\\s([A-Za-z][A-Za-z0-9:-]*)=.*\\s\\1="), no_entity("&(?!(amp|lt|gt|quot|#[0-9]+);)"),
      head(
          "^<svg[^>]* "
          "role=\"img\"[^>]*>\\s*<title[^>]*>[^<]{10,}</title>\\s*<desc[^>]*>[^<]{80,}</desc>"),
      foreign("<(script|image)\\b");
  std::vector<std::string> open;
  std::smatch match;
  for (auto at = svg.begin(); at != svg.end(); at = match[0].second) {
    const auto from_here = std::regex_constants::match_continuous;
    if (!std::regex_search(at, svg.end(), match, token, from_here)) return "neither tag nor text";
    const std::string all = match[0], name = match[2], attributes = match[3];
    if (std::regex_search(all, no_entity) || std::regex_search(attributes, twice))
      return "not well-formed: " + all;
    if (open.empty() && at != svg.begin() && all != "\n") return "more than one document";
    if (match[1].length() > 0 && (open.empty() || open.back() != name))
      return "an unexpected " + all;
    if (match[1].length() > 0)
      open.pop_back();
    else if (!name.empty() && match[4].length() == 0)
      open.push_back(name);
  }
  if (!open.empty()) return "an element is not closed: " + open.back();
  if (svg.size() > 40'000) return "it has more than 40,000 bytes";
  if (!std::regex_search(svg, head)) return "it is no image with a title and a description";
  if (!cli::contains(svg, "prefers-color-scheme: dark")) return "it has no dark scheme";
  if (std::regex_search(svg, match, foreign)) return "it holds a " + match[1].str();
  static const std::regex size("font(-size)?: ([0-9]+)px"), x("<text[^>]* x=\"([^\"]*)\"");
  for (std::sregex_iterator it(svg.begin(), svg.end(), size), end; it != end; ++it)
    if (std::stoi((*it)[2]) < 12) return "text of " + it->str();
  for (std::sregex_iterator it(svg.begin(), svg.end(), x), end; it != end; ++it)
    if (std::stod((*it)[1]) < 0 || std::stod((*it)[1]) > 760) return "text outside: " + it->str();
  return "";
}

}  // namespace

TEST_CASE("each picture is shown by a page, with a text for those who cannot see it", "[draw]") {
  std::vector<std::string> pages{"README.md"};
  for (const std::string folder : {"tutorials/", "tutorials/reference/"})
    for (const std::string& name : cli::files_in(in_tree(folder)))
      if (name.ends_with(".md") && name.find('/') == std::string::npos)
        pages.push_back(folder + name);
  for (const std::string& name : pictures()) {
    CAPTURE(name);
    CHECK(std::ranges::any_of(pages, [&](const std::string& page) {
      return shows(page, cli::read_file(in_tree(page)), name);
    }));
  }
  const std::string alt(40, 'a');
  CHECK(shows("tutorials/a.md", "![" + alt + "](pictures/b.svg)", "b"));
  CHECK(shows("README.md", "![" + alt + "](tutorials/pictures/b.svg)", "b"));
  CHECK_FALSE(shows("tutorials/a.md", "[" + alt + "](pictures/b.svg)", "b"));
  CHECK_FALSE(shows("tutorials/a.md", "![a](pictures/b.svg)", "b"));
  CHECK_FALSE(shows("README.md", "![" + alt + "](pictures/b.svg)", "b"));
}

TEST_CASE("each picture is well-formed XML with a title, a description and a dark scheme",
          "[draw]") {
  for (const std::string& name : pictures()) {
    CAPTURE(name);
    CHECK(complaint(picture(name)) == "");
  }
  const std::string good = picture("shards");
  for (const std::string change :
       {"</svg>|", "</desc>|", "</text>|</rect>", "role=\"img\"|role=img", "role=\"img\"|",
        "<title id=\"title\">|<title id=\"title\" id=\"title\">", " one | a & b ",
        "font: 13px|font: 11px", "prefers-color-scheme: dark|print", "<style>|<script/><style>",
        "x=\"16\"|x=\"961\""}) {
    const size_t bar = change.find('|'), at = good.find(change.substr(0, bar));
    CAPTURE(change);
    REQUIRE(at != std::string::npos);
    CHECK(complaint(good.substr(0, at) + change.substr(bar + 1) + good.substr(at + bar)) != "");
  }
}

}  // namespace draw
