// Help, version, and messages about mistyped commands.

#include <catch2/catch_test_macros.hpp>
#include <regex>

#include "tests/zerolab/process.h"

namespace cli {

TEST_CASE("help lists every promised flag, examples and exit codes", "[zerolab]") {
  const Finished help = zerolab({"train", "--help"});
  CHECK(help.code == 0);
  CHECK(help.err.empty());
  for (const char* flag : {"--stage STAGE",
                           "--ranks N",
                           "--device WHERE",
                           "--tf32",
                           "--backend ",
                           "--config FILE",
                           "--set KEY=VALUE",
                           "--model NAME",
                           "--n-layer",
                           "--n-head",
                           "--n-embd",
                           "--block-size",
                           "--vocab-size",
                           "--data FILE",
                           "--steps N",
                           "--seed S",
                           "--out DIR",
                           "--json",
                           "--init-from FILE",
                           "--precision",
                           "--separate-master",
                           "--device-memory SIZE",
                           "--timeout S",
                           "--threads",
                           "--eval-every N",
                           "--shuffle",
                           "--color",
                           "--quiet",
                           "--save-every K",
                           "--keep M",
                           "--resume [DIR]",
                           "--checkpoint-writes HOW",
                           "--new-data",
                           "--link-bandwidth RATE",
                           "--link-latency TIME",
                           "Examples:",
                           "Exit codes:"}) {
    CAPTURE(flag);
    CHECK(contains(help.out, flag));
  }
  for (const std::string& line : lines(help.out)) {
    CAPTURE(line);
    CHECK(line.size() <= 120);
  }
}

TEST_CASE("the program names its commands, and without one says so with exit code 2", "[zerolab]") {
  const Finished help = zerolab({"--help"}), nothing = zerolab({});
  CHECK(help.code == 0);
  for (const char* command : {"train", "checkpoint", "config", "doctor"})
    CHECK(contains(help.out, std::string("\n  ") + command + " "));
  CHECK(nothing.code == 2);
  CHECK(nothing.out.empty());
  CHECK(nothing.err == help.out);
}

TEST_CASE("the version is the build's", "[zerolab]") {
  const std::string cmake = read_file(std::string(ZEROLAB_SOURCE_DIR) + "/CMakeLists.txt");
  std::smatch version;
  REQUIRE(std::regex_search(cmake, version, std::regex("project\\(zerolab VERSION ([0-9.]+)")));
  const Finished finished = zerolab({"--version"});
  CHECK(finished.code == 0);
  CHECK(finished.out.starts_with("zerolab " + version[1].str() + " ("));
}

TEST_CASE("a mistyped command or flag is answered with the nearest one and with --help",
          "[zerolab]") {
  struct Row {
    std::vector<std::string> arguments;
    std::string err;
  };
  const Row table[] = {
      {{"trian"},
       "zerolab: there is no command 'trian'; did you mean 'train'?\nTry 'zerolab --help'.\n"},
      {{"xyzzy"}, "zerolab: there is no command 'xyzzy'\nTry 'zerolab --help'.\n"},
      {{"--stpes"}, "zerolab: zerolab has no flag '--stpes'\nTry 'zerolab --help'.\n"},
      {{"train", "--stpes", "5"},
       "zerolab: train has no flag '--stpes'; did you mean '--steps'?\nTry 'zerolab train "
       "--help'.\n"},
      {{"train", "--stpes=5"},
       "zerolab: train has no flag '--stpes'; did you mean '--steps'?\nTry 'zerolab train "
       "--help'.\n"},
      {{"train", "-x"}, "zerolab: train has no flag '-x'\nTry 'zerolab train --help'.\n"},
      {{"train", "notes.txt"},
       "zerolab: train takes no argument 'notes.txt'\nTry 'zerolab train --help'.\n"},
      {{"train", "--set", "a=1", "b=2"},
       "zerolab: train takes no argument 'b=2'\nTry 'zerolab train --help'.\n"},
      {{"train", "--steps"}, "zerolab: --steps needs a value\nTry 'zerolab train --help'.\n"},
      {{"train", "--steps", "--json"},
       "zerolab: --steps needs a value, but '--json' follows\nTry 'zerolab train --help'.\n"},
      {{"train", "--json=1"}, "zerolab: --json takes no value\nTry 'zerolab train --help'.\n"},
      {{"train", "--steps", "5", "--steps", "6"},
       "zerolab: --steps is given twice: 5 and 6\nTry 'zerolab train --help'.\n"}};
  for (const Row& row : table) {
    const Finished finished = zerolab(row.arguments);
    CHECK(finished.code == 2);
    CHECK(finished.err == row.err);
    CHECK(finished.out.empty());
  }
}

TEST_CASE("a reader that goes away is no error", "[zerolab]") {
  const Finished help =
      shell("\"$ZEROLAB\" train --help | head -1; \"$ZEROLAB\" doctor 2>&1 | true");
  CHECK(help.code == 0);
  CHECK(lines(help.out).size() == 1);
  CHECK(help.err.empty());
  const Finished code =
      shell("{ \"$ZEROLAB\" train --model tiny --steps 2 -q; echo $? >&2; } | true");
  CHECK(code.err == "0\n");
}

TEST_CASE("output that cannot be written is an error", "[zerolab]") {
  const Finished full = shell("\"$ZEROLAB\" train --help > /dev/full");
  CHECK(full.code == 74);
  CHECK(contains(full.err, "stdout cannot be written to: No space left on device"));
}

}  // namespace cli
