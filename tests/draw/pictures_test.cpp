// The pictures in tutorials/pictures/ are shown by pages and can be read by everyone.

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <regex>
#include <stdexcept>

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

// An element without its children; `text` is directly inside it.
struct Element {
  std::string name, attributes, text;
};

// All elements in the order of their begin tags. Throws std::runtime_error where the text is not
// well-formed XML: tags nest, attributes are quoted and given once, every & begins an entity.
std::vector<Element> parse_xml(const std::string& text) {
  static const std::regex token(
      "<(/?)([A-Za-z][A-Za-z0-9]*)((?:\\s+[A-Za-z][A-Za-z0-9:-]*=(?:\"[^\"<]*\"|'[^'<]*'))*)"
      "\\s*(/?)>|[^<]+"),
      twice("\\s([A-Za-z][A-Za-z0-9:-]*)=.*\\s\\1="), no_entity("&(?!(amp|lt|gt|quot|#[0-9]+);)");
  std::vector<Element> elements;
  std::vector<size_t> open;
  auto at = text.begin();
  const auto require = [&](bool right, const std::string& what) {
    if (!right) throw std::runtime_error(what + " at byte " + std::to_string(at - text.begin()));
  };
  for (std::smatch match; at != text.end(); at = match[0].second) {
    const auto from_here = std::regex_constants::match_continuous;
    require(std::regex_search(at, text.end(), match, token, from_here), "neither tag nor text");
    const std::string all = match[0], name = match[2], attributes = match[3];
    require(!std::regex_search(all, no_entity), "a & that is no entity");
    require(!std::regex_search(attributes, twice), "an attribute is given twice");
    if (name.empty()) {
      require(!open.empty() || all == "\n", "text outside the document");
      if (!open.empty()) elements[open.back()].text += all;
    } else if (match[1].length() > 0) {
      require(!open.empty() && elements[open.back()].name == name, "an unexpected end tag");
      open.pop_back();
    } else {
      require(!open.empty() || elements.empty(), "a second document");
      if (match[4].length() == 0) open.push_back(elements.size());
      elements.push_back({name, attributes, ""});
    }
  }
  require(open.empty() && !elements.empty(), "an element is not closed, or there is none");
  return elements;
}

// What is wrong with one file, or "".
std::string complaint(const std::string& svg) {
  std::vector<Element> all;
  try {
    all = parse_xml(svg);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  if (svg.size() > 40'000) return "it has more than 40,000 bytes";
  if (all[0].name != "svg" || !cli::contains(all[0].attributes, " role=\"img\""))
    return "it is not an image";
  if (all.size() < 3 || all[1].name != "title" || all[1].text.size() < 10) return "it has no title";
  if (all[2].name != "desc" || all[2].text.size() < 80) return "it has no description";
  if (!cli::contains(svg, "prefers-color-scheme: dark")) return "it has no dark scheme";
  for (const Element& element : all)
    if (element.name == "script" || element.name == "image") return "it holds a " + element.name;
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
