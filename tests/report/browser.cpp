#include "tests/report/browser.h"

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/paths.h"
#include "tests/zerolab/process.h"

namespace report_page {
namespace {

void replace_all(std::string& text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != text.npos; at += to.size())
    text.replace(at, from.size(), to);
}

std::string test_file(const std::string& name) {
  return cli::read_file(ZEROLAB_SOURCE_DIR "/tests/report/" + name);
}

// The page with inside.js before all its scripts.
std::string watched(std::string html) {
  const std::string head = "<head>";
  const size_t at = html.find(head);
  if (at == html.npos) throw std::runtime_error("the page has no head");
  return html.insert(at + head.size(), "<script>" + test_file("inside.js") + "</script>");
}

std::string harness(const std::vector<PageAtWidth>& pages) {
  nlohmann::json list = nlohmann::json::array();
  for (const PageAtWidth& page : pages)
    list.push_back({{"name", page.name}, {"text", watched(page.html)}, {"width", page.width}});
  std::string json = list.dump();
  replace_all(json, "<", "\\u003c");
  return "<!DOCTYPE html><meta charset='utf-8'><body><pre id='findings'></pre>"
         "<script type='application/json' id='pages'>" +
         json + "</script><script type='module'>" + test_file("harness.js") + "</script>";
}

// Runs the browser on a file, with a new profile.
std::string run_browser(const std::string& options, const std::string& path) {
  const cli::ScratchFolder profile;
  const cli::Finished run =
      cli::shell("timeout 500 '" + browser() +
                     "' --headless=new --no-sandbox --disable-gpu --hide-scrollbars --no-first-run "
                     "--disable-background-networking --disable-dev-shm-usage --user-data-dir='" +
                     profile.path() + "' " + options + " 'file://" + path + "' 2>/dev/null",
                 510);
  if (run.code != 0) throw std::runtime_error("the browser ended with " + std::to_string(run.code));
  return run.out;
}

}  // namespace

std::string browser() {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path ? path : "");
  for (std::string folder; std::getline(folders, folder, ':');)
    for (const char* name : {"chromium", "chromium-browser", "google-chrome"})
      if (std::filesystem::exists(folder + "/" + name)) return folder + "/" + name;
  return "";
}

Checked check_in_browser(const std::vector<PageAtWidth>& pages) {
  const cli::ScratchFolder folder;
  const std::string path = cli::write_file(folder / "harness.html", harness(pages));
  std::string dom =
      run_browser("--window-size=1400,1000 --virtual-time-budget=3600000 --dump-dom", path);
  const std::string open = "<pre id=\"findings\">";
  const size_t from = dom.find(open);
  if (from == dom.npos) return {};
  dom = dom.substr(from + open.size(), dom.find("</pre>", from) - from - open.size());
  for (const auto& [code, sign] : {std::pair{"&lt;", "<"}, {"&gt;", ">"}, {"&amp;", "&"}})
    replace_all(dom, code, sign);
  Checked checked;
  for (const std::string& line : cli::lines(dom))
    if (line.starts_with("counted "))
      checked.counted = line.substr(8);
    else
      checked.findings.push_back(line);
  return checked;
}

}  // namespace report_page
