// The pictures in tutorials/pictures/ are what the program draws, and documents show them.

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

// Names whose contents differ, or that only one side has.
std::vector<std::string> differences(const Files& drawn, const Files& kept) {
  Files all = drawn;
  all.insert(kept.begin(), kept.end());
  std::vector<std::string> names;
  for (const auto& [name, content] : all)
    if (!drawn.contains(name) || !kept.contains(name) || drawn.at(name) != kept.at(name))
      names.push_back(name);
  return names;
}

// The page of each picture, from the list that the program prints.
std::map<std::string, std::string> pages() {
  static const std::regex line("([a-z_]+) +.*; for (.*)");
  std::map<std::string, std::string> pages;
  for (const std::string& text : cli::lines(cli::zerolab({"draw"}).out)) {
    std::smatch match;
    REQUIRE(std::regex_match(text, match, line));
    pages[match[1]] = match[2];
  }
  return pages;
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

TEST_CASE("the pictures in the tree are what the program draws, byte for byte", "[draw]") {
  const cli::ScratchFolder folder;
  const cli::Finished finished = cli::zerolab({"draw", "all", "--out", folder / "drawn"});
  INFO(finished.err);
  REQUIRE(finished.code == 0);
  const Files drawn = pictures_in(folder / "drawn"),
              kept = pictures_in(in_tree("tutorials/pictures"));
  CHECK(kept.size() == pages().size());
  INFO("To draw them again: zerolab draw all --out tutorials/pictures --force");
  CHECK(differences(drawn, kept) == std::vector<std::string>{});
}

TEST_CASE("a picture with a changed byte, a missing and an unknown picture are found", "[draw]") {
  const Files drawn{{"a.svg", "<svg/>"}, {"b.svg", "<svg/>"}, {"c.svg", "<svg/>"}};
  CHECK(differences(drawn, drawn).empty());
  const Files kept{{"a.svg", "<svh/>"}, {"c.svg", "<svg/>"}, {"d.svg", "<svg/>"}};
  CHECK(differences(drawn, kept) == std::vector<std::string>{"a.svg", "b.svg", "d.svg"});
}

TEST_CASE("one picture on stdout is the file of that name", "[draw]") {
  const cli::Finished shards = cli::zerolab({"draw", "shards"});
  CHECK(shards.code == 0);
  CHECK(shards.out == cli::read_file(in_tree("tutorials/pictures/shards.svg")));
}

TEST_CASE("each picture is shown by its page, with a text for those who cannot see it", "[draw]") {
  for (const auto& [name, page] : pages()) {
    CAPTURE(name, page);
    CHECK(shows(page, cli::read_file(in_tree(page)), name));
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

TEST_CASE("draw refuses what it cannot do, and replaces a file only with --force", "[draw]") {
  const cli::ScratchFolder folder;
  const cli::Finished unknown = cli::zerolab({"draw", "shard"});
  CHECK(unknown.code == 2);
  CHECK(cli::contains(unknown.err, "did you mean 'shards'?"));
  CHECK(cli::zerolab({"draw", "all"}).code == 2);
  CHECK(cli::zerolab({"draw", "--out", folder / "a.svg"}).code == 2);
  CHECK(cli::zerolab({"draw", "shards", "--force"}).code == 2);
  CHECK(cli::files_in(folder.path()).empty());

  const std::string file = cli::write_file(folder / "a.svg", "mine");
  const cli::Finished refused = cli::zerolab({"draw", "shards", "--out", file});
  CHECK(refused.code == 2);
  CHECK(cli::contains(refused.err, "--force"));
  CHECK(cli::read_file(file) == "mine");
  CHECK(cli::zerolab({"draw", "shards", "--out", file, "--force"}).code == 0);
  CHECK(cli::read_file(file) == cli::read_file(in_tree("tutorials/pictures/shards.svg")));

  cli::write_file(folder / "ring.svg", "mine");
  CHECK(cli::zerolab({"draw", "all", "--out", folder.path()}).code == 2);
  CHECK(cli::files_in(folder.path()) == std::vector<std::string>{"a.svg", "ring.svg"});
}

}  // namespace draw
