// The guide to gdb in tutorials/gdb/README.md works: ranks have names, and the printers show
// tensors and parameters. And a step calls what the page about it lists.

#include <catch2/catch_test_macros.hpp>
#include <regex>

#include "tests/paths.h"
#include "tests/zerolab/command.h"

namespace tutorials {
namespace {

std::string gdb_prints(const std::string& script) {
  if (cli::shell("gdb --version").code != 0) SKIP("there is no gdb");
  const cli::ScratchFolder folder;
  const std::string file =
      cli::write_file(folder / "script", "set environment ASAN_OPTIONS detect_leaks=0\n" + script);
  const cli::Finished gdb =
      cli::shell("gdb -q -nx -batch -x " + file + " " ZEROLAB_TUTORIALS "/shown_in_gdb");
  if (cli::contains(gdb.err, "ptrace: Operation not permitted")) SKIP("gdb is not allowed here");
  return gdb.out + gdb.err;
}

std::string page(const std::string& name) { return cli::read_file(ZEROLAB_SOURCE_DIR "/" + name); }

// As X::y, or as y behind a type that begins its line; in these two classes after two blanks.
bool defines(const std::string& file, const std::string& function) {
  static const std::regex around("(reference|ThisStage|ThreadCommunicator)::");
  const std::string name = std::regex_replace(function, around, "");
  if (cli::contains(name, ":")) return cli::contains(file, name + "(");
  const std::string begin = function.starts_with("Th") ? "\n  " : "\n";
  return std::regex_search(file, std::regex(begin + "\\w[\\w:<>& ]* " + name + "\\("));
}

}  // namespace

TEST_CASE("gdb stops on one rank and shows its tensors", "[tutorials]") {
  const std::string out =
      gdb_prints("source " ZEROLAB_SOURCE_DIR
                 "/tutorials/gdb/zerolab.py\nbreak look if comm.rank_ == 1\n"
                 "run\ninfo threads\nprint half\nprint gone\nprint parameter\n");
  cli::check_says(out,
                  {"\"rank 1\" hit Breakpoint 1", "\"rank 0\"", "\"rank 2\"",
                   "Tensor (2, 6) bf16, 24 B of gradient, holders 1 = {1.5, 1.5, 1.5, 1.5, 1.5, "
                   "1.5, 1.5, 1.5, ...}",
                   "= Tensor, undefined",
                   "Parameter h.0.ln_1.weight, usable = {data = Tensor (3) f32, 12 B of "
                   "parameter, holders 1 = {0, 0.25, 0}, "
                   "grad = Tensor (3) f32, 12 B of gradient, holders 1, on meta}"});
}

TEST_CASE("the guide to gdb prints members and calls no function", "[tutorials]") {
  int prints = 0;
  for (const std::string& line : cli::lines(page("tutorials/gdb/README.md"))) {
    const size_t print = line.find("(gdb) print ");
    if (print == std::string::npos) continue;
    ++prints;
    CHECK_FALSE(cli::contains(line.substr(print + 6), "("));
  }
  CHECK(prints >= 2);
}

// In the page's table, functions follow their file, and a step calls all of them in this order.
TEST_CASE("a step calls the functions that internals.md lists, in their order", "[tutorials]") {
  const std::string internals = page("tutorials/reference/internals.md");
  const size_t begin = internals.find("| leg | "), end = internals.find("\n\n", begin);
  static const std::regex quoted("`([^`]+)`");
  std::string table = internals.substr(begin, end - begin), file, listed, entered;
  std::string script = "break second_step\nrun step\n";
  int files = 0;
  for (std::sregex_iterator at(table.begin(), table.end(), quoted), none; at != none; ++at) {
    const std::string text = (*at)[1];
    if (text.ends_with(".cpp")) {
      file = page(text);
      ++files;
      continue;
    }
    CAPTURE(text);
    CHECK(defines(file, text));
    listed += "calls " + text + "\n";
    const std::string place = cli::contains(text, "::") ? text : "zl::" + text;  // no member
    script += "tbreak " + place + "\ncommands\nsilent\necho calls " + text + "\\n\ncontinue\nend\n";
  }
  CHECK(cli::contains(internals, " names " + std::to_string(files) + " files one after another"));
  const std::string out = gdb_prints(script + "continue\n");
  for (const std::string& line : cli::lines(out))
    if (line.starts_with("calls ")) entered += line + "\n";
  INFO("a build of your own with -O2 or -O3 may inline some of these functions\n" << out);
  CHECK(entered == listed);
}

}  // namespace tutorials
