// The pictures in tutorials/pictures/ are shown by pages, and can be read by everyone.

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <map>
#include <regex>

#include "tests/draw/svg_text.h"
#include "tests/zerolab/process.h"

namespace draw {
namespace {

using Files = std::map<std::string, std::string>;  // content by name

std::string in_tree(const std::string& path) {
  return std::string(ZEROLAB_SOURCE_DIR) + "/" + path;
}

Files pictures_in(const std::string& folder) {
  Files files;
  for (const std::string& name : cli::files_in(folder))
    if (name.ends_with(".svg")) files[name] = cli::read_file(folder + "/" + name);
  return files;
}

// The paths of the pages that may show one.
std::vector<std::string> pages() {
  std::vector<std::string> paths{"README.md"};
  for (const std::string folder : {"tutorials/", "tutorials/reference/"})
    for (const std::string& name : cli::files_in(in_tree(folder)))
      if (name.ends_with(".md") && name.find('/') == std::string::npos)
        paths.push_back(folder + name);
  return paths;
}

// Whether the page shows the picture, with a text of some length for those who cannot see it.
bool shows(const std::string& page, const std::string& text, const std::string& name) {
  const std::string path = std::filesystem::path("tutorials/pictures/" + name + ".svg")
                               .lexically_relative(std::filesystem::path(page).parent_path());
  return std::regex_search(text, std::regex("!\\[[^\\]]{40,}\\]\\(" + path + "\\)"));
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
  if (all[0].name != "svg" || all[0].value("role") != "img") return "it is not an image";
  if (all.size() < 3 || all[1].name != "title" || all[1].text.size() < 10) return "it has no title";
  if (all[2].name != "desc" || all[2].text.size() < 80) return "it has no description";
  if (svg.find("prefers-color-scheme: dark") == std::string::npos) return "it has no dark scheme";
  for (const Element& element : all) {
    if (element.name == "script" || element.name == "image") return "it holds a " + element.name;
    if (element.name != "text" || element.value("x").empty()) continue;
    if (element.number("x") < 0 || element.number("x") > 760)
      return "text outside: " + element.text;
  }
  static const std::regex size("font(-size)?: ([0-9]+)px");
  for (std::sregex_iterator it(svg.begin(), svg.end(), size), end; it != end; ++it)
    if (std::stoi((*it)[2]) < 12) return "text of " + it->str();
  return "";
}

}  // namespace

TEST_CASE("each picture is shown by a page, with a text for those who cannot see it", "[draw]") {
  for (const auto& [file, svg] : pictures_in(in_tree("tutorials/pictures"))) {
    CAPTURE(file);
    CHECK(std::ranges::any_of(pages(), [&](const std::string& page) {
      return shows(page, cli::read_file(in_tree(page)), file.substr(0, file.size() - 4));
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
  for (const auto& [name, svg] : pictures_in(in_tree("tutorials/pictures"))) {
    CAPTURE(name);
    CHECK(complaint(svg) == "");
  }
}

TEST_CASE("a picture that is not well-formed or lacks what readers need is found", "[draw]") {
  const std::string good = cli::read_file(in_tree("tutorials/pictures/shards.svg"));
  REQUIRE(complaint(good) == "");
  const auto changed = [&](const std::string& from, const std::string& to) {
    const size_t at = good.find(from);
    REQUIRE(at != std::string::npos);
    return complaint(good.substr(0, at) + to + good.substr(at + from.size()));
  };
  CHECK(changed("</svg>", "") != "");
  CHECK(changed("</desc>", "") != "");
  CHECK(changed("</text>", "</rect>") != "");
  CHECK(changed("role=\"img\"", "role=img") != "");
  CHECK(changed("role=\"img\"", "") != "");
  CHECK(changed("<title id=\"title\">", "<title id=\"title\" id=\"title\">") != "");
  CHECK(changed(" one ", " a & b ") != "");
  CHECK(changed("font: 13px", "font: 11px") != "");
  CHECK(changed("prefers-color-scheme: dark", "print") != "");
  CHECK(changed("<style>", "<script/><style>") != "");
  CHECK(changed("x=\"16\"", "x=\"961\"") != "");
}

}  // namespace draw
