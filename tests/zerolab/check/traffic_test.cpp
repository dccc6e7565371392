// Runs of PyTorch 2.15 and DeepSpeed 0.19.8 on gloo, tiny's sizes, two steps of rank 0: each with
// one planted difference, which is named. Files that cannot be used: one sentence each. The name of
// a file ends with its ranks and micro-batches. Of all events those of collectives are left, and a
// few more.

#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/paths.h"
#include "tests/zerolab/command.h"

namespace cli {
namespace {

using Json = nlohmann::json;

const std::string kTraces = ZEROLAB_SOURCE_DIR "/tests/zerolab/check/traces/";
const std::string kTwice = "--set gradient_accumulation_steps=2";
const std::string kSmall =
    " --set zero_optimization.stage3_param_persistence_threshold=100"
    " --set zero_optimization.stage3_max_reuse_distance=0";

std::string check(const std::string& file, const std::string& as, int ranks,
                  const std::string& more = "") {
  return "check traffic " + file + " --as " + as + " --ranks " + std::to_string(ranks) +
         (more.find("--units") == more.npos ? " --model tiny " : " ") + more;
}

// Checks how a command ends, and what it says.
void check_ends(const std::string& line, int code, const std::string& part) {
  const Finished got = call(line);
  CAPTURE(line, got.out, got.err);
  CHECK(got.code == code);
  CHECK(contains(got.out, part));
}

struct Row {
  std::string file, as;
  int ranks;
  std::string more;
  int code;
  std::vector<std::string> says;
};

const Row rows[] = {
    {"ddp-nosync-N2-A2", "torch-ddp", 2, kTwice, 1, {"× 2: gradients are reduced", "no_sync()"}},
    {"ddp-nosync-N2-A2", "torch-ddp", 2, "", 1, {"× 2: gradients are reduced", "no_sync()"}},
    {"ddp-bf16hook-N2-A1", "torch-ddp", 2, "", 1, {"another dtype", "bf16 where f32 is planned"}},
    {"ddp-clip-loss-N2-A1", "torch-ddp", 2, "", 0, {"the loss mean", "the order of buckets"}},
    {"ddp-smallbuckets-N2-A1", "torch-ddp", 2, "", 0, {"4 all-reduces", "in all, planned: 1"}},
    {"ddp-unused-N2-A1", "torch-ddp", 2, "", 0, {"find_unused_parameters"}},
    {"ddp-nosync-N2-A2", "zero2", 2, kTwice, 1, {"all-reduce instead of reduce-scatter"}},
    {"fsdp-N3-A1", "fsdp2", 3, "", 0, {"688 of 35,376 elements are padding", "as planned"}},
    {"fsdp-N3-A1", "zero3", 3, "", 1, {"padding: the first dimension of each parameter"}},
    {"fsdp-clip-loss-N2-A1", "fsdp2", 2, "", 0, {"the gradient norm", "the loss mean"}},
    {"fsdp-keepbwd-N2-A2", "fsdp2", 2, kTwice, 1, {"units not resharded after backward: root"}},
    {"fsdp-synclast-N2-A2", "fsdp2", 2, kTwice, 1, {"with the last of 2 micro-batches only"}},
    {"fsdp-keepbwd-N2-A2", "fsdp2-no-reshard", 2, "", 1, {"× 2: gradients are communicated"}},
    {"fsdp-lastkept-N2-A1", "fsdp2", 2, "", 1, {"one gather is missing for 1 of the 2 units"}},
    {"fsdp-missing-N2-A1", "fsdp2", 2, "", 1, {"a unit is missing: root and h.1"}},
    {"fsdp-rootonly-N2-A1", "fsdp2", 2, "", 1, {"a unit is missing: root, h.0 and h.1"}},
    {"fsdp-noreshard-N2-A1", "fsdp2", 2, "", 1, {"units not resharded: one gather is missing"}},
    {"fsdp-noreshard-N2-A1", "fsdp2-no-reshard", 2, "", 0, {"as planned"}},
    {"fsdp-rootreshard-N2-A1", "fsdp2", 2, "", 1, {"root gathered twice", "9,280 elements"}},
    {"fsdp-splitroot-N2-A1", "fsdp2", 2, "", 1, {"an extra unit: wpe of 1,024 elements"}},
    {"fsdp-untied-N2-A1", "fsdp2", 2, "", 1, {"a second wte.weight"}},
    {"fsdp-bf16-N2-A1", "fsdp2", 2, "", 1, {"all_gather of parameter is bf16 where f32"}},
    {"fsdp-bf16-N2-A1", "fsdp2", 2, "--precision bf16 --set communication_data_type=fp32", 0, {}},
    {"fsdp-object-N2-A1", "fsdp2", 2, "", 0, {"a pickled object"}},
    {"fsdp-hsdp-N4-A1", "hsdp", 4, "", 1, {"padding: "}},
    {"fsdp-hsdp-N4-A1", "deepspeed-3", 4, "", 1, {"not planned: 2 all-reduces of 6,352"}},
    {"fsdp1-N2-A1", "fsdp2", 2, "", 0, {"as planned"}},
    {"zero1-N2-A1", "torch-ddp", 2, "", 1, {"broadcast by their owners (ZeroRedundancyOptimizer)"}},
    {"ds1-bf16-clip-N2-A1", "deepspeed-1", 2, "--precision bf16", 0, {"overflow flags"}},
    {"ds2-N2-A2", "deepspeed-2", 2, kTwice, 0, {"as planned"}},
    {"ds2-N2-A2", "deepspeed-1", 2, kTwice, 1, {"× 2: gradients are reduced"}},
    {"ds3-N3-A1", "deepspeed-3", 3, "", 0, {"the order of buckets"}},
    {"ds3-small-N2-A2", "deepspeed-3", 2, kTwice + kSmall, 0, {"56 all-gathers", "as planned"}},
};

}  // namespace

TEST_CASE("check traffic names what is planted in runs of PyTorch and DeepSpeed",
          "[zerolab][check]") {
  for (const Row& row : rows) {
    const Finished got = call(check(kTraces + row.file + ".json.gz", row.as, row.ranks, row.more));
    CAPTURE(row.file, row.as, row.more, got.out, got.err);
    CHECK(got.code == row.code);
    CHECK(got.out.ends_with(row.code == 0 ? "\nas planned\n" : "\nnot as planned\n"));
    CHECK((row.code == 1) == contains(got.out, "\n  difference  "));
    for (const std::string& part : row.says) CHECK(contains(got.out, part));
    CHECK_FALSE(contains(got.out, "the file holds more steps"));  // it marks them
  }
}

TEST_CASE("NCCL's log, the flight recorder and traces of GPUs hold the same calls",
          "[zerolab][check]") {
  for (const char* file : {"nccl.log", "fr.json", "gpu.json"}) {
    const bool marked = std::string(file) == "gpu.json";
    const std::string line = check(kTraces + file, "fsdp2", 2, marked ? "" : "--steps 2");
    CAPTURE(file);
    const Json json = Json::parse(document(line));
    CHECK(json["steps_compared"] == (std::string(file) == "nccl.log" ? 4 : 2));
    CHECK(json["differences"].size() == 2);
    for (const Json& r : json["traffic_per_step"])
      if (r["planned_calls"] > 0) CHECK(r["elements"] == r["planned_elements"]);
  }
  check_ends(check(kTraces + "nccl.log", "fsdp2", 2), 1,
             "; or the file holds more steps: --steps 2");
  // As torchrun and others write what a rank prints; as editors on Windows write JSON.
  const ScratchFolder folder;
  for (const std::string end : {"] ", "]:"}) {  // torchrun's "[default0]:" touches the host
    std::string log;
    for (const std::string& line : lines(read_file(kTraces + "nccl.log")))
      log += "[12:00:" + std::to_string(log.size()) + end + line + "\n";
    write_file(folder / "f", log);
    check_ends(check(folder / "f", "fsdp2", 2, "--steps 2"), 0, "as planned");
  }
  Json recorder = Json::parse(read_file(kTraces + "fr.json"));
  recorder.erase("pg_config");  // sizes say how many ranks there are
  write_file(folder / "f", "\xEF\xBB\xBF" + recorder.dump());
  check_ends(check(folder / "f", "fsdp2", 2, "--steps 2"), 0, "as planned");
  check_refused(call(check(folder / "f", "fsdp2", 4, "--steps 2")), "of a run of 2 ranks");
}

TEST_CASE("check traffic finds no difference in zerolab's own traces", "[zerolab][check]") {
  const ScratchFolder folder;
  for (const std::string stage : {"ddp", "zero1", "zero2", "zero3", "hsdp"}) {
    const std::string file = folder / (stage + ".json"), ranks = stage == "hsdp" ? "4" : "3";
    const std::string precision = stage == "zero2" ? " --precision bf16" : "";
    (void)document(tiny_run(2, "-q --eval-every 1 --ranks " + ranks + " --stage " + stage +
                                   " --trace " + file + " " + kTwice + precision));
    const Json json =
        Json::parse(document(check(file, stage, std::stoi(ranks), kTwice + precision)));
    CAPTURE(stage, json.dump());
    CHECK((json["ok"] == true && json["differences"].empty()));
  }
  // A run that ends within its last step.
  Json cut = Json::parse(read_file(folder / "zero3.json"));
  Json& events = cut["traceEvents"];
  std::set<int> ranks;
  for (size_t i = events.size(); i-- > 0;)
    if (events[i].value("name", "") == "step" && ranks.insert(int(events[i]["pid"])).second)
      events.erase(i);
  write_file(folder / "cut", cut.dump());
  check_ends(check(folder / "cut", "zero3", 3, kTwice), 0,
             "calls outside the marked steps are not counted");
}

TEST_CASE("files that check traffic cannot use end with one sentence", "[zerolab][check]") {
  const ScratchFolder folder;
  const auto refused = [&](const std::string& text, const std::string& part) {
    write_file(folder / "f", text);
    check_refused(call(check(folder / "f", "fsdp2", 2)), part);
  };
  const std::string trace = kTraces + "fsdp-bf16-N2-A1.json.gz", packed = read_file(trace);
  refused(packed.substr(0, packed.size() / 2), "cannot be read to its end");
  refused("", "is empty");
  refused("\x80\x04", "is a pickle");
  refused("hello\n", "neither JSON nor a log of NCCL");
  refused("{\"a\": 1}", "is JSON, but no trace");
  refused("{\"traceEvents\": [", "is no JSON");
  refused("{\"traceEvents\": [{\"name\": \"x\", \"cat\": \"cpu_op\"}]}", "without a collective");
  refused(R"({"traceEvents": [{"name": "c10d::allreduce_", "cat": "cpu_op", "args": {}}]})",
          "record_shapes=True");
  check_refused(call(check(trace, "fsdp2", 3)), "of a run of 2 ranks, but --ranks says 3");
  check_refused(call(check(trace, "fsdp", 2)), "'fsdp' is none of ddp, zero1");
  check_refused(call(check(folder / "none", "fsdp2", 2)), "cannot be opened");
  write_file(folder / "u", "wte.weight 256x32 float32\n");
  check_refused(call(check(trace, "fsdp2", 2, "--units " + (folder / "u"))), "u:1: ");
}

TEST_CASE("check losses names the first step that differs, and what it looks like",
          "[zerolab][check]") {
  const ScratchFolder folder;
  const auto run = [&](const char* name, double factor, double norm, int late) {
    std::string text;
    for (int step = 1; step <= 4; ++step)
      text += Json{{"step", step},
                   {"loss", factor * (6 - 0.1 * step)},
                   {"grad_norm", norm * (3 - step * 0.1)},
                   {"lr", 1e-3 * std::max(1, step - late)}}
                  .dump() +
              "\n";
    write_file(folder / name, text);
    return folder / name;
  };
  const std::string reference = run("reference", 1, 1, 0);
  const auto says = [&](const std::string& candidate, int code, const std::string& part) {
    check_ends("check losses " + reference + " " + candidate, code, part);
  };
  says(run("same", 1 + 1e-6, 1, 0), 0, "equal but for rounding");
  says(run("sum", 4, 1, 0), 1, "every loss is 4.00 x the reference's: a sum over ranks");
  says(run("norm", 1.01, 0.5, 0), 1, "every gradient is 1/2 of the reference's");
  says(run("late", 1.01, 1, 1), 1, "the learning rate is one step late");
  const std::tuple<const char*, int, const char*> candidates[] = {
      {R"({"log_history": [{"step": 2, "loss": 5.8}, {"step": 4, "loss": 5.0}]})", 1,
       "step 4 diff"},
      {R"({"log_history": [{"step": 1, "loss": 5.9, "grad_norm": Infinity}]})", 1,
       "the gradient of step 1 is not finite"},
      {R"([{"step": 1, "loss": 5.9}, {"step": 2, "loss": 7.0}])", 1, "step 2 differs: loss 7"},
      {"{\"step\": 1, \"loss\": 5.9}\n{\"step\": 2, \"loss\": NaN}\n", 1,
       "step 2 differs: loss nan"},
      {"step,Train/Samples/train_loss\n16,5.9\n32,5.8\n48,5.7\n64,5.6\n", 0, "4 steps compared"},
      {"step,Train/Samples/train_loss\n17,5.9\n33,5.8\n", 0, "2 steps compared"},
      {"step,Train/Samples/train_loss\n16,5.9\n32,5.8\n48,5.7\n32,5.8\n48,5.7\n64,5.6\n", 0,
       "4 steps compared"},                                        // resumed
      {"step,train_loss\n2,5.8\n4,5.6\n", 0, "2 steps compared"},  // no samples: as they are
      {"epoch,step,lr,loss\n0,1,1e-3,5.9\n0,2,2e-3,5.8\n", 0, "2 steps compared"},
      {"step,loss\n2,5.8\n4,5.6\n", 0, "2 steps compared"},
      {"[rank0]: step: 1  loss: 5.9\nstep: 2  loss: 5.8\nstep: 3  loss: 6.7\n", 1,
       "the update of step 2 differs"},
      {"step 2 loss 5.8\nstep 4 loss 5.6\n", 0, "2 steps compared"},
      {"1,5.9\n2,nan\n3,nan\n", 1, "step 2 differs: loss nan"}};
  for (const auto& [text, code, part] : candidates) {
    write_file(folder / "nan", text);  // the last one stays
    says(folder / "nan", code, part);
  }
  write_file(folder / "long", "step 1 loss .59e1\nstep 2 loss 5.8\n" + std::string(300'000, '7'));
  says(folder / "long", 0, "2 steps compared");
  check_ends("check losses " + (folder / "nan") + " " + (folder / "nan"), 1,
             "the reference has no finite loss there: nothing can be compared");
  write_file(folder / "nothing", "hello\n1 2" + std::string(1, 0) + "\n");
  check_refused(call("check losses " + reference + " " + (folder / "nothing")), "has no losses");
  write_file(folder / "no list", R"({"log_history": {"0": {"step": 1, "loss": 5.8}}})");
  check_refused(call("check losses " + reference + " '" + (folder / "no list") + "'"),
                "has no losses");
}

TEST_CASE("golden writes a run that check losses compares, with its tensors", "[zerolab][check]") {
  const ScratchFolder folder;
  const std::string golden = folder / "golden", ds = folder / "ds.json";
  write_file(ds, R"({"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 2}})");
  REQUIRE(call("golden " + golden + " --config " + ds + " --model tiny --ranks 3 --steps 3").code ==
          0);
  CHECK(files_in(golden) ==
        words("golden.json init.safetensors metrics.jsonl model.safetensors tokens.bin"));
  const Json json = Json::parse(read_file(golden + "/golden.json"));
  CHECK((json["ranks"] == 3 && json["stage"] == "zero2" && json["micro_batch"] == 2));
  CHECK((json["losses"].size() == 3 && json["grad_norms"].size() == 3 && json["lr"].size() == 3));
  CHECK((json["hashes"].size() == 28 && json["hashes"]["wte.weight"].is_string()));
  CHECK((json["traffic_per_step"].size() == 4 && !json["memory"].empty()));
  CHECK(call("check losses " + golden + " " + golden).code == 0);
  // The last 85 rows of the embedding are those of the start: the third rank's shard.
  const std::string start = read_file(golden + "/init.safetensors"), mine = folder / "mine";
  std::string model = read_file(golden + "/model.safetensors");
  REQUIRE(start.size() == model.size());
  const size_t head = size_t(uint8_t(model[0])) + 256 * uint8_t(model[1]);
  const Json header = Json::parse(model.substr(8, head));
  const size_t end = 8 + head + header["wte.weight"]["data_offsets"][1].get<size_t>();
  model.replace(end - 85 * 128, 85 * 128, start, end - 85 * 128, 85 * 128);
  std::filesystem::create_directory(mine);
  write_file(mine + "/model.safetensors", model);
  write_file(mine + "/metrics.jsonl", read_file(golden + "/metrics.jsonl"));
  check_ends("check losses " + golden + " " + mine, 1,
             "wte.weight: rows 171 to 255 of 256 never moved");
  // Its names and shapes as units.py writes them are the model, too.
  std::string units;
  for (const auto& [name, tensor] : header.items())
    if (tensor.contains("shape"))
      units += name + " " + tensor["shape"].dump() + " torch.float32 " +
               (name.starts_with("h.") ? name.substr(0, 3) : "root") + "  # one line each\n";
  write_file(folder / "units", units);
  check_ends(check(kTraces + "fsdp-N3-A1.json.gz", "fsdp2", 3, "--units " + (folder / "units")), 0,
             "688 of 35,376 elements are padding\nas planned\n");
  check_refused(call("golden " + golden + " --model tiny --steps 1"), "golden");
  const std::string mixed = folder / "mixed";
  std::filesystem::create_directory(mixed);
  write_file(mixed + "/tokens.bin", "mine");
  check_refused(call("golden " + mixed + " --model tiny --steps 1"), "a new or empty folder");
  CHECK(files_in(mixed) == words("tokens.bin"));
  CHECK(read_file(mixed + "/tokens.bin") == "mine");
  for (const std::string other : {"optimizer.type=SGD", "optimizer.params.bias_correction=false",
                                  "zerolab.no_weight_decay=*bias",
                                  R"(optimizer={"type":"Adam","params":{"adam_w_mode":false}})"})
    check_refused(call("golden " + (folder / "other") + " --model tiny --steps 1 --set " + other),
                  "golden is for AdamW");
}

}  // namespace cli
