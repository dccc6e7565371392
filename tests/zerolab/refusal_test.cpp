// Runs that cannot work are refused before any time is spent: one sentence, exit code 2, nothing on
// stdout.

#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <filesystem>

#include "tests/zerolab/process.h"

namespace cli {
namespace {

// What every refusal has in common; `part` is what this one must say.
void check_refused(const std::vector<std::string>& flags, const std::string& part, int code = 2) {
  std::vector<std::string> arguments = {"train", "--model", "tiny", "--steps", "2"};
  if (flags.size() > 0 && flags[0] == "bare") arguments = {"train"};
  for (const std::string& flag : flags)
    if (flag != "bare") arguments.push_back(flag);
  const Finished finished = zerolab(arguments);
  CAPTURE(flags, finished.err);
  CHECK(finished.code == code);
  CHECK(finished.out.empty());
  CHECK(finished.err.starts_with("zerolab: "));
  CHECK(contains(finished.err, part));
  CHECK(lines(finished.err).size() <= 2);
  CHECK_FALSE(contains(finished.err, "lease"));  // nor please
  CHECK_FALSE(contains(finished.err, "ailed to"));
}

// Little-endian uint16 tokens.
std::string tokens(const std::vector<int>& values) {
  std::string bytes;
  for (const int v : values) bytes += {char(v & 255), char(v >> 8)};
  return bytes;
}

}  // namespace

TEST_CASE("a value that a flag does not take is refused with what it takes", "[zerolab]") {
  check_refused({"bare", "--steps", "0"}, "--steps: '0' is too small; it must be at least 1");
  check_refused({"bare", "--steps", "-5"},
                "--steps: '-5' is not a count; write a whole number such as 100, 5e8 or 500M");
  check_refused({"bare", "--steps", "1e400"}, "--steps: '1e400' is more than 9223372036854775807");
  check_refused({"--seed", "-1"}, "--seed: '-1' is not a count");
  check_refused({"--ranks", "0"}, "--ranks: '0' is too small");
  check_refused({"--ranks", "65"}, "--ranks: '65' is too large; it must be at most 64");
  check_refused({"--stage", "zero4"},
                "--stage: 'zero4' is none of ddp, zero1, zero2, zero3, hsdp, ");
  check_refused({"--device-memory", "64M"}, "--device-memory: '64M' has no known unit");
  check_refused(
      {"--link-bandwidth", "100"},
      "--link-bandwidth: '100' is not a rate; write a number and a unit, such as 100MB/s");
  check_refused({"--link-latency", "50"},
                "--link-latency: '50' is not a time; write a number and a unit, such as 50us");
  check_refused({"--timeout", "soon"}, "--timeout: 'soon' is not a number from 0 up");
  check_refused({"bare", "--model", "smal"},
                "--model: 'smal' is none of tiny, small, gpt2, gpt2-medium, gpt2-large, gpt2-xl; "
                "did you mean 'small'?");
  check_refused({"--color", "red"}, "--color: 'red' is none of auto, always, never");
  check_refused({"--set", "gradient_clipping"}, "--set: 'gradient_clipping' is not KEY=VALUE");
  check_refused({"--out", ""}, "--out: the name is empty");
}

TEST_CASE("what this build does not have is refused with what to use instead", "[zerolab]") {
  check_refused({"--device", "cuda"}, "; use --device cpu, which runs the same stages, or ");
  check_refused({"--device", "gpu"}, "--device: 'gpu' is none of auto, cpu, cuda");
  check_refused({"--tf32"}, "--tf32 is a way in which GPUs multiply");
  check_refused({"--device", "meta"}, "--device: meta holds no data and cannot train");
  check_refused({"--backend", "nccl"}, "; use --backend threads, which runs the same stages");
  check_refused({"--precision", "bf61"}, "--precision: 'bf61' is none of fp32, bf16, fp16");
}

TEST_CASE("out of memory advises a higher stage only where there is one", "[zerolab]") {
  const auto advice = [](const char* stage) {
    return zerolab({"train", "--model", "tiny", "--steps", "1", "-q", "--stage", stage,
                    "--device-memory", "100KiB"})
        .err;
  };
  CHECK(contains(advice("zero1"), "A higher ZeRO stage keeps less on each rank."));
  CHECK_FALSE(contains(advice("zero3"), "higher ZeRO stage"));
  CHECK(contains(advice("zero3"), "With more ranks each keeps a smaller shard."));
}

TEST_CASE("control characters and marks of direction are escaped in messages", "[zerolab]") {
  const ScratchFolder folder;
  const std::string evil = "\x1b]0;PWN\x07\u202eevil";
  const std::string file = write_file(folder / (evil + ".txt"), std::string(200, 'x'));
  const std::string config =
      write_file(folder / "i.json", R"({"zerolab":{"data":"\u001b]0;PWN\u0007\u202e"}})");
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"train", "--model", evil},
        {"train", "--" + evil},
        {evil},
        {"train", "--data", evil},
        {"train", "--config", config},
        {"train", "--model", "tiny", "--steps", "1", "--sample", "0", "--data", file},
        {"train", "--model", "tiny", "--steps", "1", "--sample", "0", "--out", folder / evil},
        {"compare", "--model", "tiny", "--steps", "1", "--ranks", "1", "--out",
         folder / ("c" + evil)},
        {"data", "info", folder / "*.txt"},
        {"data", "synth", folder / ("s" + evil), "--tokens", "9"},
        {"model", "info", evil}}) {
    const Finished finished = zerolab(arguments);
    CAPTURE(arguments);
    const std::string all = finished.out + finished.err;
    CHECK_FALSE(contains(all, "\x1b"));
    CHECK_FALSE(contains(all, "\u202e"));
    CHECK(contains(all, "\\u001b"));
  }
  CHECK(contains(zerolab({"train", "--model", "caf\xc3\xa9"}).err, "caf\xc3\xa9"));  // text stays
}

TEST_CASE("a system that refuses threads ends a run with 4 and advice", "[zerolab]") {
  // The limit does not apply to root.
  const std::string user = geteuid() == 0 ? "setpriv --reuid 65534 --clear-groups " : "";
  if (shell("command -v setpriv").code != 0) SKIP("no setpriv to become a user without rights");
  const Finished finished =
      shell(user + "bash -c 'ulimit -u 5; \"$ZEROLAB\" train --model tiny --steps 1 -q --ranks 8'");
  if (contains(finished.err, "Permission denied")) SKIP("another user cannot run the program");
  CAPTURE(finished.err);
  CHECK(finished.code == 4);
  CHECK(contains(finished.err, "try fewer ranks"));
  CHECK_FALSE(contains(finished.err, "bug in zerolab"));
  const Finished compute = shell(user +
                                 "bash -c 'ulimit -u 5; \"$ZEROLAB\" train --model tiny --steps 1 "
                                 "-q --ranks 1 --threads 8'");
  CAPTURE(compute.err);
  CHECK(compute.code == 4);
  CHECK(contains(compute.err, "fewer --threads"));
}

TEST_CASE("flags that contradict each other are refused", "[zerolab]") {
  check_refused({"--eval-every", "3"}, "--eval-every 3 is more than 2 steps");
  check_refused({"--sample", "0", "--prompt", "a"}, "--sample 0 writes nothing");
  check_refused({"--top-k", "257"}, "--top-k 257 is more than the vocabulary of 256");
  check_refused({"--n-head", "5"}, "5");
  check_refused({"--n-embd", "33"}, "33");
}

TEST_CASE("data that are missing, too short or outside the vocabulary are refused by name",
          "[zerolab]") {
  const ScratchFolder folder;
  check_refused({"--data", folder / "none.txt"}, folder / "none.txt");
  check_refused({"--data", folder / "*.none"}, folder / "*.none");
  check_refused({"--data", write_file(folder / "empty.txt", "")}, folder / "empty.txt");
  check_refused({"--data", write_file(folder / "short.txt", "abc")}, "32");
  check_refused({"--data", write_file(folder / "odd.bin", "abc")}, folder / "odd.bin");
  std::vector<int> ids(200, 7);
  ids[123] = 300;
  check_refused({"--data", write_file(folder / "ids.bin", tokens(ids))},
                "token 300 at position 123");
  check_refused(
      {"--data", write_file(folder / "text.txt", std::string(100, 'x')), "--vocab-size", "100"},
      "token 120 at position 0");
  check_refused({"--data", write_file(folder / "good.bin", tokens(std::vector<int>(200, 7))),
                 "--prompt", "x"},
                "--prompt is text");
}

TEST_CASE("a config file that is missing or no JSON object is refused", "[zerolab]") {
  const ScratchFolder folder;
  check_refused({"--config", folder / "none.json"}, folder / "none.json");
  check_refused({"--config", write_file(folder / "list.json", "[1]")}, folder / "list.json");
  check_refused({"--config", write_file(folder / "half.json", "{\"a\": ")}, folder / "half.json");
}

TEST_CASE("an --out that cannot be written to, or that holds a run, is refused before training",
          "[zerolab]") {
  const ScratchFolder folder;
  const std::string file = write_file(folder / "file", "x");
  check_refused({"--out", file}, "--out " + file + " is a file");
  check_refused({"--out", file + "/below"},
                "--out " + file + "/below cannot be created: Not a directory");
  for (const char* name : {"metrics.jsonl", "model.safetensors"}) {
    const std::string run = folder / (std::string("run-") + name);
    std::filesystem::create_directory(run);
    write_file(run + "/" + name, "old");
    check_refused({"--out", run}, "--out " + run + " already holds a run (" + name + ")");
    CHECK(read_file(run + "/" + name) == "old");
    CHECK(files_in(run).size() == 1);
  }
}

TEST_CASE(
    "a run that does not fit the device memory ends with 3, says who held what, and leaves no file",
    "[zerolab]") {
  const ScratchFolder folder;
  const Finished finished = zerolab({"train", "--model", "tiny", "--steps", "2", "--ranks", "2",
                                     "-q", "--device-memory", "300KiB", "--out", folder / "run"});
  CHECK(finished.code == 3);
  CHECK(finished.out.empty());
  CHECK(contains(finished.err, "zerolab: "));
  CHECK(contains(finished.err, "parameter"));
  CHECK_FALSE(std::filesystem::exists(folder / "run"));
}

}  // namespace cli
