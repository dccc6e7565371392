// Help, version, and output that goes nowhere. Mistyped commands and flags: texts/refusals.txt.

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cstdlib>
#include <regex>
#include <utility>

#include "tests/paths.h"
#include "tests/zerolab/command.h"
#include "tutorials/zerolab/cli/removed.h"

namespace cli {

TEST_CASE("help teaches with an example of the command, in lines that fit", "[zerolab]") {
  for (const std::string command : {"train", "config check", "config explain", "model info",
                                    "model import", "model export", "data info"}) {
    const Finished help = call(command + " --help");
    CAPTURE(command, help.out);
    CHECK((help.code == 0 && help.err.empty()));
    CHECK(contains(help.out, "\n  zerolab " + command + " "));
    if (command.starts_with("train") || command.starts_with("config"))
      for (const char* part : {"Examples:", "Exit codes:"}) CHECK(contains(help.out, part));
    for (const std::string& line : lines(help.out)) CHECK(line.size() <= 120);
  }
  check_says(call("launch --help").out, {"Usage: zerolab launch [flags] [PROGRAM]\n"});
}

TEST_CASE("help and advice name zl as the user calls it", "[zerolab]") {
  const auto by_zl = [](const std::string& line) {
    return run({.arguments = words(line), .environment = {{"ZL_COMMAND", "../zl --preset tsan"}}});
  };
  check_says(by_zl("train --help").out,
             {"Usage: ../zl --preset tsan train ", "\n  ../zl --preset tsan train --model tiny",
              "'../zl --preset tsan train --help-all' lists"});
  for (const std::string command : {"train", "launch", "config"})
    CHECK_FALSE(contains(by_zl("train --help-all").out, "zerolab " + command));
  check_refused(by_zl("train --ranks 65"), "; '../zl --preset tsan plan' takes more ranks");
  check_refused(by_zl("launch -n 2"), "such as: ../zl --preset tsan launch -n 2 -- train ");
  check_refused(by_zl("train --backend nccl --ranks 2"),
                "start them with ../zl --preset tsan launch -n 2 -- train");
  check_refused(by_zl("train --stpes 3"), "\nTry '../zl --preset tsan train --help'.\n");
}

TEST_CASE("--help of the three commands is a page, and --help-all has all of it", "[zerolab]") {
  for (const std::string command : {"train", "compare", "plan"}) {
    const std::string help = call(command + " --help").out, all = call(command + " --help-all").out;
    CAPTURE(command, help, all);
    CHECK(lines(help).size() <= 70);
    CHECK(help.ends_with("'zerolab " + command +
                         " --help-all' lists all flags and explains more.\n"));
    check_says(help, {"--ranks N", "--precision TYPE", "--set KEY=VALUE", "Exit codes: 0 "});
    CHECK_FALSE(contains(help, "--threads"));
    check_says(all, {"--threads N", "More examples:", "130 Ctrl-C"});
    for (const std::string& line : lines(help))
      CHECK((line.size() <= 105 && (contains(line, "--help-all") || contains(all, line + "\n"))));
    for (const std::string& line : lines(all)) CHECK(line.size() <= 120);
  }
  check_says(call("compare --help").out,
             {"compare --ranks 3 --precision bf16 --set gradient_accumulation_steps=4\n"});
}

TEST_CASE("the table at the end of CHANGELOG.md is the program's", "[zerolab]") {
  // ZEROLAB_RECORD_TEXTS=1 prints it again.
  const std::string file = ZEROLAB_SOURCE_DIR "/CHANGELOG.md";
  std::string table = "| removed | instead |\n|---|---|\n";
  for (const auto& [removed, instead] : zl::cli::kRemoved) {
    table += "| `" + std::string(removed) + "` | " + std::string(instead) + " |\n";
    check_refused(call(std::string(removed)),
                  "zerolab: '" + std::string(removed) + "' was removed; " + std::string(instead));
  }
  const std::string page = read_file(file), text = page.substr(0, page.find("| removed |")) + table;
  if (std::getenv("ZEROLAB_RECORD_TEXTS")) write_file(file, text);
  CHECK((std::getenv("ZEROLAB_RECORD_TEXTS") || page == text));
}

TEST_CASE("help of train lists every promised flag", "[zerolab]") {
  const std::string help = call("train --help-all").out;
  for (const std::string& flag : words(
           "'--stage STAGE' '--ranks N' '--device WHERE' --tf32 '--backend ' '--config FILE' "
           "'--set KEY=VALUE' '--model NAME' --n-layer --n-head --n-embd --block-size --vocab-size "
           "'--data FILE' '--steps N' '--seed S' '--out DIR' --json '--init-from FILE' --precision "
           "--separate-master '--device-memory SIZE' '--timeout S' --threads '--eval-every N' "
           "--shuffle --quiet '--save-every K' '--keep M' '--resume [DIR]' "
           "'--checkpoint-writes HOW' --new-data '--link-bandwidth RATE' '--link-latency TIME'"))
    check_says(help, {flag});
}

TEST_CASE("the program names its commands, and without one says so with exit code 2", "[zerolab]") {
  const Finished help = call("--help"), nothing = call("");
  CHECK(help.code == 0);
  for (const char* command : {"train", "checkpoint", "config", "doctor", "bench"})
    CHECK(contains(help.out, std::string("\n  ") + command + " "));
  CHECK((nothing.code == 2 && nothing.out.empty()));
  CHECK(nothing.err == help.out);
}

TEST_CASE("bench and exercise are programs beside this one", "[zerolab]") {
  const auto& [name, has] =
      GENERATE(std::pair("bench", "\n  machine "), std::pair("exercise", "\n  check "));
  const std::string word = name, help = call(word + " --help").out;
  CAPTURE(help);
  CHECK(contains(help, has));
  CHECK((call("--help " + word).out == help && call("--help-all").out.size() > 4 * help.size()));
  const ScratchFolder folder;
  const std::string there = "cd " + folder.path() + " && ";
  CHECK(shell(there + "ln -s \"$ZEROLAB\" link && ./link " + word + " --help").out == help);
  check_refused(shell(there + "cp \"$ZEROLAB\" alone && ./alone " + word),
                "/zerolab-" + word + ", which cannot be started: No such file or directory");
}

TEST_CASE("the version is the build's", "[zerolab]") {
  const std::string cmake = read_file(std::string(ZEROLAB_SOURCE_DIR) + "/CMakeLists.txt");
  std::smatch version;
  REQUIRE(std::regex_search(cmake, version, std::regex("project\\(zerolab VERSION ([0-9.]+)")));
  const Finished finished = call("--version");
  CHECK(finished.code == 0);
  CHECK(finished.out.starts_with("zerolab " + version[1].str() + " ("));
}

TEST_CASE("a reader that goes away is no error, output that cannot be written is one",
          "[zerolab]") {
  const Finished help =
      shell("\"$ZEROLAB\" train --help | head -1; \"$ZEROLAB\" doctor 2>&1 | true");
  CHECK((help.code == 0 && help.err.empty()));
  CHECK(lines(help.out).size() == 1);
  const Finished code =
      shell("{ \"$ZEROLAB\" train --model tiny --steps 2 -q; echo $? >&2; } | true");
  CHECK(code.err == "0\n");
  const Finished full = shell("\"$ZEROLAB\" train --help > /dev/full");
  CHECK(full.code == 74);
  CHECK(contains(full.err, "stdout cannot be written to: No space left on device"));
}

TEST_CASE("control characters and marks of direction are escaped in messages", "[zerolab]") {
  const ScratchFolder folder;
  const std::string evil = "\x1b]0;PWN\x07\u202eevil", tiny = "--model tiny --steps 1 --ranks 1 ";
  const std::string file = write_file(folder / (evil + ".txt"), std::string(200, 'x'));
  const std::string config =
      write_file(folder / "i.json", R"({"zerolab":{"data":"\u001b]0;PWN\u0007\u202e"}})");
  for (const std::string& line :
       {"train --model " + evil, "train --" + evil, evil, "train --data " + evil,
        "train --config " + config, "train --sample 0 " + tiny + "--data " + file,
        "train --sample 0 " + tiny + "--out " + (folder / evil),
        "compare " + tiny + "--out " + (folder / ("c" + evil)), "data info " + (folder / "*.txt"),
        "model info " + evil}) {
    const Finished finished = call(line);
    CAPTURE(line);
    const std::string all = finished.out + finished.err;
    CHECK_FALSE(contains(all, "\x1b"));
    CHECK_FALSE(contains(all, "\u202e"));
    CHECK(contains(all, "\\u001b"));
  }
}

TEST_CASE("a system that refuses threads ends a run with 4 and advice", "[zerolab]") {
  // The limit does not apply to root.
  const std::string user =
      shell("id -u").out == "0\n" ? "setpriv --reuid 65534 --clear-groups " : "";
  if (shell("command -v setpriv").code != 0) SKIP("no setpriv to become a user without rights");
  for (const auto& [flags, advice] :
       {std::pair{"--ranks 8", "try fewer ranks"}, {"--ranks 1 --threads 8", "fewer --threads"}}) {
    const Finished finished = shell(
        user + "bash -c 'ulimit -u 5; \"$ZEROLAB\" train --model tiny --steps 1 -q " + flags + "'");
    if (contains(finished.err, "Permission denied")) SKIP("another user cannot run the program");
    check_refused(finished, advice, 4);
    CHECK_FALSE(contains(finished.err, "bug in zerolab"));
  }
}

}  // namespace cli
