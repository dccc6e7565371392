// A resume replaces no results of later steps than those it makes, and names what it changes.
#include <signal.h>

#include <catch2/catch_test_macros.hpp>
#include <filesystem>

#include "tests/zerolab/checkpoint_run.h"

namespace cli {
namespace {

namespace fs = std::filesystem;

const Flags kSaveTwo = {"--save-every", "2"};

// Names and bytes of a folder and its checkpoints; locks and times are not in them.
std::string content(const std::string& folder) {
  std::string all;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file())
      all += entry.path().string() + "\n" + read_file(entry.path().string()) + "\n";
  return all;
}

void check_refused(const std::string& folder, int steps, const Flags& more,
                   const std::string& text) {
  const std::string before = content(folder);
  const Finished finished = train(steps, more);
  CAPTURE(steps, more, finished.err);
  CHECK(finished.code == 2);
  CHECK(contains(finished.err, text));
  CHECK((content(folder) == before));
}

bool notes(const Finished& finished, const std::string& text) {
  return contains(finished.err, "note: " + text);
}

}  // namespace

TEST_CASE("a resume from an older checkpoint keeps metrics, weights and checkpoints of later steps",
          "[zerolab]") {
  const ScratchFolder folder;
  const std::string out = folder / "a", older = out + "/step-00000002";
  REQUIRE(train(4, kSaveTwo + Flags{"--out", out}).code == 0);
  const std::string later = "holds a checkpoint of step 4, but this run begins after step 2";
  check_refused(out, 3, {"--resume", older}, later);
  check_refused(out, 4, {"--resume", older + "/"}, later);
  check_refused(out, 9, {"--resume", older, "--out", out}, later);
  check_refused(out, 9, kSaveTwo + Flags{"--resume", older}, later);
  REQUIRE(train(3, {"--resume", older, "--out", folder / "b"}).code == 0);  // the twin
  CHECK(metrics_of(folder / "b").size() == 1);
  CHECK(metrics_of(out).size() == 4);
}

TEST_CASE("a resume keeps the results of a run that ended after its last checkpoint", "[zerolab]") {
  const ScratchFolder folder;
  const std::string out = folder / "a";
  REQUIRE(train(4, kSaveTwo + Flags{"--out", out}).code == 0);
  REQUIRE(train(8, {"--resume", out}).code == 0);  // steps 5 to 8 are in no checkpoint
  for (const int steps : {3, 4, 6})
    check_refused(out, steps, {"--resume", out},
                  "holds weights (model.safetensors) of step 8, but this run begins after step 4");
  fs::remove(out + "/model.safetensors");  // as if killed before it ended
  for (const int steps : {3, 4, 6})
    check_refused(out, steps, {"--resume", out}, "holds metrics of step 8, but this run");
  REQUIRE(train(8, {"--resume", out}).code == 0);  // makes them again
  CHECK(metrics_of(out).size() == 8);
  REQUIRE(train(9, {"--resume", out}).code == 0);  // and so does a longer run
  REQUIRE(train(9, {"--out", folder / "whole"}).code == 0);
  CHECK((metrics_of(out) == metrics_of(folder / "whole")));
  CHECK(weights_of(out) == weights_of(folder / "whole"));
  const std::string begun = folder / "b";
  fs::create_directory(begun);
  write_file(begun + "/metrics.jsonl", "{\"step\":1,\"loss\":3}\n{\"step\":2,\"loss\":3}\n");
  check_refused(begun, 1, {"--out", begun, "--resume"}, "holds metrics of step 2");
}

TEST_CASE("a run that was killed beyond its newest checkpoint is resumed by the same command",
          "[zerolab]") {
  const ScratchFolder folder;
  const std::string out = folder / "a";
  const Flags flags = {"--save-every", "2", "--out", out};
  REQUIRE(train(2, flags).code == 0);  // leaves weights of step 2
  const Finished killed =
      stopped_at("step 5/", SIGKILL, tiny_run(100'000, flags + Flags{"--resume"}));
  REQUIRE(killed.code == 128 + SIGKILL);
  const int steps = int(metrics_of(out).size()) + 1;
  REQUIRE(steps > 3);
  REQUIRE(train(steps, {"--out", folder / "whole"}).code == 0);
  const Finished resumed = train(steps, flags + Flags{"--resume"});
  INFO(resumed.err);
  CHECK(resumed.code == 0);
  CHECK(weights_of(out) == weights_of(folder / "whole"));
  CHECK((metrics_of(out) == metrics_of(folder / "whole")));
}

TEST_CASE("a resume names each setting of the update that has changed", "[zerolab]") {
  const ScratchFolder folder;
  const std::string out = folder / "a";
  REQUIRE(train(2, kSaveTwo + Flags{"--out", out, "--precision", "bf16"}).code == 0);
  int copies = 0;
  const auto resumed = [&](const Flags& more) {
    return zerolab(tiny_run(
        3, Flags{"--resume", out + "/step-00000002", "--out", folder / std::to_string(copies++)} +
               more));
  };
  const Flags bf16 = {"--precision", "bf16"};
  const std::string saved = "the checkpoint was saved with ";
  const Finished same = resumed(bf16);
  REQUIRE(same.code == 0);
  CHECK_FALSE(contains(same.err, saved));
  CHECK(notes(resumed(bf16 + Flags{"--set", "optimizer.params.lr=0.002"}),
              saved + "learning_rate 0.001; this run goes on with 0.002"));
  CHECK(notes(resumed(bf16 + Flags{"--set", "gradient_clipping=0.5"}),
              saved + "gradient_clipping 0; this run goes on with 0.5"));
  CHECK(notes(resumed(bf16 + Flags{"--set",
                                   "scheduler={\"type\":\"WarmupLR\",\"params\":{\"warmup_max_lr\":"
                                   "0.01,\"warmup_num_steps\":10}}"}),
              saved + "learning_rate 0.001; this run goes on with 0 to 0.01 in 10 steps (log)"));
  CHECK(notes(resumed(bf16 + Flags{"--set", "data_types.grad_accum_dtype=fp32"}),
              saved + "grad_accum_dtype bf16; this run goes on with f32"));
  const Finished fp32 = resumed({"--precision", "fp32"});
  CHECK(notes(fp32, saved + "precision bf16; this run goes on with f32"));
  const Finished fp16 = resumed({"--precision", "fp16"});
  CHECK(notes(fp16, saved + "loss_scale none; this run goes on with dynamic, from 2^16"));
}

TEST_CASE("the weights of a checkpoint win over --init-from, with a note", "[zerolab]") {
  const ScratchFolder folder;
  const std::string out = folder / "a", other = folder / "b";
  REQUIRE(train(1, {"--out", other, "--seed", "7"}).code == 0);
  REQUIRE(train(2, kSaveTwo + Flags{"--out", out}).code == 0);
  const Flags init = {"--init-from", other + "/model.safetensors"};
  const std::string whole = folder / "whole", step = out + "/step-00000002";
  REQUIRE(train(4, {"--resume", step, "--out", whole}).code == 0);
  const auto run = [&](const char* name) {
    Flags flags = {"train",    "--sample", "0",     "--steps",    "4",
                   "--resume", step,       "--out", folder / name};
    return zerolab(flags + init);
  };
  const Finished both = run("both");
  INFO(both.err);
  CHECK(both.code == 0);
  CHECK(notes(both, "the weights are the checkpoint's, not those of --init-from"));
  CHECK(weights_of(folder / "both") == weights_of(whole));
  CHECK(weights_of(other) != weights_of(whole));  // the twin
}

}  // namespace cli
