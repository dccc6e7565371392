// zerolab launch: ranks as processes, whose output stays whole and which end together. What it
// refuses: texts/refusals.txt.

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/zerolab/command.h"

namespace cli {

using Json = nlohmann::json;
namespace {

// `launch -n N FLAGS sh -c SCRIPT`, in which $DIR is a folder.
Launch ranks(int n, const std::string& script, const std::string& folder = "",
             const std::string& flags = "") {
  Launch launch{.arguments = words("launch -n " + std::to_string(n) + " " + flags + " sh -c"),
                .environment = {{"DIR", folder}},
                .timeout = 30};
  launch.arguments.push_back(script);
  return launch;
}

Words sorted_lines(const std::string& text) {
  auto all = lines(text);
  std::ranges::sort(all);
  return all;
}

// Sends `signal` to the launcher once all of `n` ranks have written "ready".
std::function<void(pid_t, const std::string&)> when_ready(size_t n, int signal) {
  return [n, signal, sent = false](pid_t process, const std::string& err) mutable {
    if (sent || count(err, "ready") < n) return;
    sent = true;
    kill(process, signal);
  };
}

// Whether a process runs; one that has ended and was not waited for does not.
bool runs(const std::string& id) {
  const std::string stat = read_file("/proc/" + id + "/stat");
  const size_t name = stat.rfind(')');
  return name != std::string::npos && stat.substr(name).find(" Z ") != 1;
}

// Whether the `n` processes whose numbers stand in files of `folder` end within seconds.
bool all_end(const ScratchFolder& folder, size_t n) {
  const auto files = files_in(folder.path());
  for (int attempt = 0; attempt < 100; ++attempt, usleep(50'000))
    if (std::ranges::none_of(files, [&](const std::string& file) {
          const auto ids = lines(read_file(folder / file));
          return std::ranges::any_of(ids, runs);
        }))
      return files.size() == n;
  return false;
}

}  // namespace

TEST_CASE("launch gives each process its rank, and all the same port and run name", "[zerolab]") {
  const Finished finished = run(ranks(3,
                                      "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE "
                                      "$MASTER_ADDR $ZEROLAB_PORT $ZEROLAB_RUN_ID >&2"));
  CHECK((finished.code == 0 && finished.out.empty()));
  const auto told = sorted_lines(finished.err);
  REQUIRE(told.size() == 3);
  std::string first_run;
  for (int r = 0; r < 3; ++r) {
    const std::string rank = std::to_string(r),
                      begin = "[rank " + rank + "] " + rank + " 3 " + rank + " 3 127.0.0.1 ";
    CHECK(told[size_t(r)].starts_with(begin));
    std::istringstream rest(told[size_t(r)].substr(begin.size()));
    int port = 0;
    std::string name;
    rest >> port >> name;
    CHECK((port >= 15000 && port <= 32000));
    CHECK(name.size() == 16);
    if (r == 0) first_run = rest.str();
    CHECK(rest.str() == first_run);
  }
  const Finished again = run(ranks(1, "echo $ZEROLAB_RUN_ID"));
  CHECK_FALSE(contains(first_run, again.out.substr(0, 16)));
  Launch in_job = ranks(1, "echo $WORLD_SIZE");  // job scripts set it for other programs
  in_job.environment["WORLD_SIZE"] = "8", in_job.environment["RANK"] = "";
  CHECK(run(in_job).out == "1\n");
}

TEST_CASE("launch --share-gpu gives NCCL in any program a host name each", "[zerolab]") {
  Launch two = ranks(2,
                     "echo $ZEROLAB_SHARE_GPU $NCCL_HOSTID $NCCL_MULTI_RANK_GPU_ENABLE "
                     "$NCCL_SOCKET_IFNAME $NCCL_IB_DISABLE >&2",
                     "", "--share-gpu");
  two.environment["NCCL_SOCKET_IFNAME"] = "eth0";
  CHECK(sorted_lines(run(two).err) ==
        Words{"[rank 0] 1 zerolab-rank-0 1 eth0 1", "[rank 1] 1 zerolab-rank-1 1 eth0 1"});
}

TEST_CASE(
    "launch passes rank 0's stdout through unchanged, and all other output in lines that name the "
    "rank",
    "[zerolab]") {
  const ScratchFolder folder;
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes += char(i);
  write_file(folder / "bytes", bytes);
  const Finished finished =
      run(ranks(2, "cat $DIR/bytes; printf half; [ $RANK = 1 ] || echo to err >&2", folder / ""));
  CHECK(finished.code == 0);
  CHECK(finished.out == bytes + "half");
  CHECK(contains(finished.err, "[rank 0] to err\n"));
  CHECK(contains(finished.err, "[rank 1] " + bytes.substr(0, 11)));  // up to the line feed
  CHECK(contains(finished.err, bytes.substr(14) + "half\n"));  // from behind the carriage return
  // Each state of a progress bar is a line, and the last one is completed.
  CHECK(run(ranks(2, "[ $RANK = 0 ] || printf '\\r10\\r20\\r\\n\\nend'")).err ==
        "[rank 1] 10\n[rank 1] 20\r\n[rank 1] \n[rank 1] end\n");
}

TEST_CASE("launch keeps lines whole, also long ones of ranks that write at the same time",
          "[zerolab]") {
  const Finished finished =
      run(ranks(4, "for i in 1 2 3; do head -c 100000 /dev/zero | tr '\\0' $RANK; echo; done >&2"));
  const auto told = sorted_lines(finished.err);
  REQUIRE(told.size() == 12);
  for (size_t i = 0; i < told.size(); ++i) {
    const std::string rank = std::to_string(i / 3);
    CHECK((told[i] == "[rank " + rank + "] " + std::string(100000, rank[0])));
  }
  const Finished huge =
      run(ranks(2, "[ $RANK = 0 ] || { head -c 3000000 /dev/zero | tr '\\0' x; echo; echo end; }"));
  size_t xs = 0;
  for (const std::string& line : lines(huge.err)) {
    CHECK(line.starts_with("[rank 1] "));
    CHECK(line.size() < 1'200'000);
    xs += size_t(std::ranges::count(line, 'x'));
  }
  CHECK(xs == 3'000'000);
  CHECK(huge.err.ends_with("x\n[rank 1] end\n"));
}

TEST_CASE(
    "on a terminal rank 0's stderr is the terminal and prefixes are dim, unless NO_COLOR is set",
    "[zerolab]") {
  Launch launch = ranks(2, "if [ -t 2 ]; then echo terminal; else echo none; fi >&2");
  launch.terminal = true;
  const std::string coloured = run(launch).err;
  CHECK(contains(coloured, "terminal\r\n"));
  CHECK_FALSE(contains(coloured, "[rank 0]"));
  CHECK(contains(coloured, "\r\x1b[K\x1b[2m[rank 1]\x1b[0m none\r\n"));
  launch.environment["NO_COLOR"] = "1";
  CHECK(contains(run(launch).err, "\r\x1b[K[rank 1] none\r\n"));
}

TEST_CASE("launch gives stdin to rank 0 only, and its own file descriptors to no rank",
          "[zerolab]") {
  const Finished finished = shell(
      "echo hello | \"$ZEROLAB\" launch -n 2 sh -c 'cat; ls /proc/self/fd | wc -l >&2'; ls "
      "/proc/self/fd | wc -l");
  CHECK(finished.out.starts_with("hello\n"));
  const std::string usual = lines(finished.out.substr(6)).at(0);
  CHECK(sorted_lines(finished.err) == Words{"[rank 0] " + usual, "[rank 1] " + usual});
}

TEST_CASE("launch runs zerolab's own commands, whose flags it leaves alone", "[zerolab]") {
  const Finished finished = call("launch -n 2 --grace 9 plan --model tiny --ranks 2 --json");
  CHECK(finished.code == 0);
  CHECK(Json::parse(finished.out)["command"] == "plan");
  CHECK(contains(finished.err, "[rank 1]   \"command\": \"plan\",\n"));
  CHECK(contains(call("launch -n 1 -- plan --help").out, "Usage: zerolab plan"));
  const Finished nested = call("launch -n 2 launch -n 2 true");
  CHECK(nested.code == 2);
  CHECK(contains(nested.err, "this is already one of 2 ranks that zerolab launch started"));
}

TEST_CASE(
    "the exit code is that of the rank that explains the others' end, and the summary tells "
    "all",
    "[zerolab]") {
  const auto check = [](const Launch& launch, int code, std::initializer_list<std::string> said) {
    const Finished finished = run(launch);
    CAPTURE(launch.arguments.back(), finished.err);
    CHECK(finished.code == code);
    CHECK(lines(finished.err).size() <= 2);
    check_says(finished.err, said);
  };
  check(ranks(4, "[ $RANK = 2 ] && exit 3; [ $RANK = 3 ] && exit 0; sleep 0.5; exit 5"), 3,
        {"[launch] rank 2 failed with exit code 3 after ",
         " s; rank 3: exit code 0; ranks 0 1: exit code 5\n"});
  // A rank that a signal kills counts as a failed communication.
  check(ranks(3, "[ $RANK = 2 ] && kill -KILL $$; sleep 0.5"), 4,
        {"[launch] rank 2 was killed by SIGKILL (out of memory? see dmesg)\n",
         "[launch] rank 2 failed with SIGKILL after ", " s; ranks 0 1: exit code 0\n"});
  // Within the grace ranks end with their own error.
  check(
      ranks(2, "[ $RANK = 1 ] && exit 3; sleep 1; echo my own error >&2; exit 4", "", "--grace 20"),
      3, {"[rank 0] my own error\n", "rank 0: exit code 4\n"});
  check(ranks(2, "[ $RANK = 0 ] && exit 4; sleep 0.5; exit 3"), 3,
        {"rank 1 failed with exit code 3"});
}

TEST_CASE(
    "after the grace ranks that do not end are ended, also stopped ones and those that catch "
    "SIGTERM",
    "[zerolab]") {
  const ScratchFolder folder;
  const Finished finished = run(ranks(3,
                                      "echo $$ > $DIR/$RANK; [ $RANK = 0 ] && { sleep 0.5; exit 3; "
                                      "}; [ $RANK = 1 ] && kill -STOP $$;"
                                      "trap 'echo caught' TERM; while :; do sleep 0.1; done",
                                      folder.path(), "--grace 0.2"));
  CHECK(finished.code == 3);
  check_says(finished.err, {"[rank 2] caught\n", "; ranks 1 2: ended by launch\n"});
  CHECK(finished.seconds < 15);
  CHECK(all_end(folder, 3));
}

TEST_CASE("Ctrl-C reaches each rank once, and the end is 130", "[zerolab]") {
  Launch launch = ranks(3,
                        "n=0; trap 'n=$((n+1))' INT; echo ready >&2; while [ $n = 0 ]; do sleep "
                        "0.05; done; sleep 0.3; echo caught $n >&2");
  launch.watch = when_ready(3, SIGINT);
  const Finished finished = run(launch);
  CHECK(finished.code == 130);
  check_says(finished.err, {"[rank 0] caught 1\n", "[rank 1] caught 1\n", "[rank 2] caught 1\n"});
  CHECK_FALSE(contains(finished.err, "[launch]"));
  // The same sent to the launcher's whole group, as a terminal does.
  const Finished group = shell(
      "setsid \"$ZEROLAB\" launch -n 2 sh -c 'n=0; i=0; trap \"n=\\$((n+1))\" INT; while [ $n = 0 "
      "] && [ $i -lt 200 ]; do sleep "
      "0.05; i=$((i+1)); "
      "done; sleep 0.3; echo caught $n >&2' & sleep 1; kill -INT -$!; wait $!; echo $?");
  CHECK(group.out == "130\n");
  check_says(group.err, {"[rank 0] caught 1\n", "[rank 1] caught 1\n"});
}

TEST_CASE("Ctrl-C also ends a rank that is stopped, and one that ignores it", "[zerolab]") {
  for (const char* rank_1 : {"kill -STOP $$; exit 0", "trap \"\" INT; sleep 60 & wait; sleep 60"}) {
    const Finished run = shell(std::string("timeout --preserve-status -s INT 1 $ZEROLAB launch -n "
                                           "2 --grace 1 sh -c 'if [ $RANK = 1 ]; then ") +
                               rank_1 + "; fi; sleep 60'");
    CAPTURE(rank_1, run.err);
    CHECK((run.code == 130 && !run.timed_out));
  }
}

TEST_CASE("a second Ctrl-C kills the ranks at once", "[zerolab]") {
  const ScratchFolder folder;
  Launch launch = ranks(2,
                        "echo $$ > $DIR/$RANK; trap 'echo again >&2' INT; echo ready >&2; while :; "
                        "do sleep 0.05; done",
                        folder.path());
  launch.watch = [first = when_ready(2, SIGINT), sent = false](pid_t process,
                                                               const std::string& err) mutable {
    first(process, err);
    if (sent || !contains(err, "again")) return;
    sent = true;
    kill(process, SIGINT);
  };
  const Finished finished = run(launch);
  CHECK(finished.code == 130);
  CHECK(finished.seconds < 15);
  CHECK(all_end(folder, 2));
}

TEST_CASE("a launcher that is ended or killed takes its ranks along", "[zerolab]") {
  for (const auto& [signal, code] : {std::pair{SIGTERM, 143}, {SIGKILL, 128 + SIGKILL}}) {
    const ScratchFolder folder;
    Launch launch = ranks(3,
                          "echo $$ > $DIR/$RANK; [ $RANK = 1 ] && trap : TERM; echo ready >&2; "
                          "while :; do sleep 0.05; done",
                          folder.path(), "--grace 0.3");
    launch.watch = when_ready(3, signal);
    CHECK(run(launch).code == code);
    CHECK(all_end(folder, 3));
  }
}

TEST_CASE("processes that ranks leave running are killed when the ranks end", "[zerolab]") {
  const ScratchFolder folder;
  const Finished finished =
      run(ranks(2, "sleep 600 & echo $! > $DIR/$RANK; sleep 0.2; exit $RANK", folder.path()));
  CHECK(finished.code == 1);
  CHECK(all_end(folder, 2));
}

TEST_CASE("a reader that goes away does not hold the ranks up", "[zerolab]") {
  const Finished finished = shell(
      "{ \"$ZEROLAB\" launch -n 2 sh -c 'seq 100000 >&2'; echo $? > /dev/stdout; } 2>&1 >/dev/null "
      "| head -1 | cut -c1-6");
  CHECK(finished.out == "[rank \n");
  const Finished slow =
      shell("\"$ZEROLAB\" launch -n 2 sh -c 'seq 100000 >&2' 2>&1 | { sleep 0.5; wc -l; }");
  CHECK(slow.out == "200000\n");
  const ScratchFolder folder;  // one that stops does not hold up a signal
  const Finished stopped = shell("mkfifo " + folder / "err" + "; exec 4<>" + folder / "err" +
                                 "; timeout --preserve-status -k 9 2 \"$ZEROLAB\" launch -n 2 "
                                 "--grace 1 sh -c 'seq 1000000 >&2' "
                                 "2>&4 4>&-; echo $?");
  CHECK(stopped.out == "143\n");
}

}  // namespace cli
