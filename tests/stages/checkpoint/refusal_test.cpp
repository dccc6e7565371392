// A checkpoint that does not belong to a run is refused, with both values in the message. An error
// that one rank finds is thrown by all ranks, which then go on together.

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "dist/run_ranks.h"
#include "stages/checkpoint/checkpoint_folder.h"
#include "tensor/error.h"
#include "tests/stages/checkpoint/checkpoint_run.h"
#include "tests/stages/odd_model.h"

using namespace zl;
using namespace zl::test;

namespace {

// A run that has ended, whose checkpoints a test loads or changes.
struct SavedRun {
  SavedRun(StageKind stage, int ranks) : spec(checkpoint_spec(folder, stage, ranks)) {
    run_training(spec);
  }
  ScratchFolder scratch;
  std::string folder = scratch.path("run");
  GptTrainingSpec spec;
};

struct Resumed {
  std::string error;               // "": none
  std::vector<std::string> notes;  // of the loaded checkpoint
  RunPosition position;
};

Resumed resume(TrainingSpec spec, const std::string& from) {
  spec.checkpoint.resume = from;
  spec.checkpoint.save_every = 0;
  Resumed resumed;
  resumed.error = sentence_of([&] {
    run_training(spec, {.resumed = [&](const LoadedCheckpoint& loaded) {
                   resumed.notes = loaded.notes;
                   resumed.position = loaded.position;
                 }});
  });
  return resumed;
}

bool has(const std::string& text, const std::string& part) {
  INFO(text);
  CHECK(text.find(part) != std::string::npos);
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a checkpoint of another model or optimizer is refused", "[stages]") {
  const SavedRun run(StageKind::zero2, 2);
  const std::string& folder = run.folder;
  GptTrainingSpec other = checkpoint_spec("", StageKind::zero2, 2);
  CHECK(resume(other, folder).error.empty());
  struct Row {
    GptConfig model;
    const char* said;
  };
  const Row rows[] = {
      {{.layers = 2, .heads = 3, .width = 18, .block_size = 7, .vocab = 131},
       "model.safetensors: has tensor 'h.0.attn.c_attn.bias' (45) where this model has "
       "'h.0.attn.c_attn.bias' (54)"},
      {{.layers = 3, .heads = 3, .width = 15, .block_size = 7, .vocab = 131},
       "where this model has 'h.2.attn.c_attn.bias' (45); the file has 28 tensors, the model 40; "
       "repeat the flags of the model"},
      {{.layers = 1, .heads = 3, .width = 15, .block_size = 7, .vocab = 131},
       "has tensor 'h.1.attn.c_attn.bias' (45) where this model has 'ln_f.bias' (15)"},
      // Heads, which no shape shows.
      {{.layers = 2, .heads = 5, .width = 15, .block_size = 7, .vocab = 131},
       "it was trained on the model 'format pt, n_head 3, gpt', but this run trains 'format pt, "
       "n_head 5, gpt'; repeat the flags of the model, such as --model, at a resume"}};
  for (const Row& row : rows) {
    other.make_model = gpt_spec(row.model).make_model;
    has(resume(other, folder).error, row.said);
  }
  other.make_model = [] { return std::make_unique<OddModel>(OddModelOptions{.vocab = 131}); };
  has(resume(other, folder).error, "but this run trains 'odd'");
  other.make_model = run.spec.make_model;
  other.engine.optimizer.kind = OptimizerKind::sgd;
  const std::string error = resume(other, folder).error;
  has(error, "it was trained with the optimizer 'AdamW, betas 0.9 0.999, eps 1e-08, decay 0.1'");
  has(error, "but this run has 'SGD, momentum 0, dampening 0, decay 0.1'");
}

TEST_CASE("a checkpoint of other data, or of another order, is refused without --new-data",
          "[stages]") {
  const SavedRun run(StageKind::zero2, 2);
  const std::string& folder = run.folder;
  GptTrainingSpec other = checkpoint_spec("", StageKind::zero2, 2);
  SECTION("other data") {
    const Windows data(TokenData::of_text("b", std::string(300, 'x')), 7);
    other.data = &data;
    const std::string error = resume(other, folder).error;
    has(error, "its data were '3000 tokens in 1 file (CRC-32C ");
    has(error, "but this run reads '300 tokens in 1 file (CRC-32C ");
    has(error, "--new-data");
    other.checkpoint.new_data = true;
    const Resumed resumed = resume(other, folder);
    CHECK(resumed.error.empty());
    CHECK(resumed.position.step == 3);
    CHECK(resumed.position.next_window == 0);
  }
  SECTION("the same data in another order") {
    const Windows data(checkpoint_text().data(), 7, {.shuffle_seed = 5});
    other.data = &data;
    has(resume(other, folder).error, "shuffled with seed 5");
  }
}

TEST_CASE("a momentum that appears or goes is refused", "[stages]") {
  const ScratchFolder scratch;
  GptTrainingSpec spec = checkpoint_spec(scratch.path("run"), StageKind::zero1, 2);
  spec.engine.optimizer.kind = OptimizerKind::sgd;
  spec.engine.optimizer.momentum = 0.9;
  run_training(spec);
  spec.engine.optimizer.momentum = 0;
  has(resume(spec, scratch.path("run")).error,
      "has the files model.safetensors momentum_buffer.safetensors, but this run needs "
      "model.safetensors; it was saved with SGD, momentum 0.9");
  spec.checkpoint.folder = scratch.path("without");
  run_training(spec);
  spec.engine.optimizer.momentum = 0.9;
  has(resume(spec, scratch.path("without")).error,
      "has the files model.safetensors, but this run needs model.safetensors "
      "momentum_buffer.safetensors");
}

TEST_CASE("what may change at a resume is said", "[stages]") {
  const SavedRun run(StageKind::zero1, 2);
  CHECK(resume(run.spec, run.folder).notes.empty());
  GptTrainingSpec other = run.spec;
  other.engine.optimizer.beta2 = 0.95;
  other.engine.seed = 7;
  other.engine.precision = Dtype::f16;
  const std::vector<std::string> notes = resume(other, run.folder).notes;
  REQUIRE(notes.size() == 5);
  has(notes[0],
      "saved with AdamW, betas 0.9 0.999, eps 1e-08, decay 0.1; this run goes on with "
      "AdamW, betas 0.9 0.95");
  has(notes[1], "saved with grad_accum_dtype f32; this run goes on with f16");
  has(notes[2], "saved with loss_scale none; this run goes on with dynamic, from 2^17");
  has(notes[3], "saved with precision f32; this run goes on with f16");
  has(notes[4], "saved with seed 1337; this run goes on with 7, which changes no weights");
}

TEST_CASE("another stage, number of ranks or accumulation is said at a resume, in one note",
          "[stages]") {
  const SavedRun run(StageKind::zero3, 3);
  GptTrainingSpec other = checkpoint_spec("", StageKind::ddp, 2);
  other.engine.accumulation = 2;
  CHECK(resume(other, run.folder).notes ==
        std::vector<std::string>{
            "the checkpoint was saved with stage zero3, ranks 3, accumulation 1; this run goes on "
            "with stage ddp, ranks 2, accumulation 2"});
}

TEST_CASE("a static loss scale stays that of this run", "[stages]") {
  const ScratchFolder scratch;
  GptTrainingSpec spec = checkpoint_spec(scratch.path("run"), StageKind::zero1, 2);
  spec.engine.precision = Dtype::f16;
  run_training(spec);
  spec.engine.loss_scale.static_scale = 64;
  spec.checkpoint.resume = scratch.path("run");
  spec.steps = 5;
  has(resume(spec, scratch.path("run")).notes.at(0), "this run goes on with 64");
  for (const StepRecord& step : run_training(spec).steps) CHECK(step.loss_scale == 64);
}

TEST_CASE("a file is no folder of checkpoints", "[stages]") {
  const ScratchFolder scratch;
  scratch.write("latest", "step-00000001\n");
  const GptTrainingSpec spec = checkpoint_spec("", StageKind::ddp, 1);
  has(resume(spec, scratch.path("latest")).error, "cannot be read as a folder of checkpoints");
}

TEST_CASE("a broken newest checkpoint is passed over and named; a broken only one is an error",
          "[stages]") {
  const SavedRun run(StageKind::ddp, 1);
  const auto& [scratch, folder, spec] = run;
  std::filesystem::resize_file(checkpoint_path(folder, 3) + "/exp_avg.safetensors", 100);
  const Resumed resumed = resume(spec, folder);
  CHECK(resumed.position.step == 2);
  REQUIRE(resumed.notes.size() == 1);
  has(resumed.notes[0],
      "step-00000003/exp_avg.safetensors: has 100 bytes, but checkpoint.json says");
  has(resume(spec, checkpoint_path(folder, 3)).error, "has 100 bytes");
  for (const int64_t step : {1, 2}) std::filesystem::remove_all(checkpoint_path(folder, step));
  has(resume(spec, folder).error, "no checkpoint in");
  // Without any checkpoint the run begins at its start.
  CHECK(resume(spec, scratch.path("nothing")).error.empty());
}

TEST_CASE("a checkpoint that was renamed to another step is refused", "[stages]") {
  const SavedRun run(StageKind::ddp, 1);
  const std::string& folder = run.folder;
  std::filesystem::rename(checkpoint_path(folder, 3), checkpoint_path(folder, 4));
  const Resumed resumed = resume(checkpoint_spec("", StageKind::ddp, 1), folder);
  CHECK(resumed.position.step == 2);
  has(resumed.notes.at(0), "is of step 3, but the folder is named step-00000004");
}

TEST_CASE("an own model with tied, unused and repeated parts saves and resumes", "[stages]") {
  const ScratchFolder scratch;
  const auto spec_of = [&](const char* folder, StageKind stage) {
    TrainingSpec spec = checkpoint_spec(scratch.path(folder), stage, 3);
    spec.make_model = [] {
      return std::make_unique<OddModel>(OddModelOptions{
          .vocab = 131, .block_twice = true, .unused_parameter = true, .unused_unit = true});
    };
    spec.steps = 4;
    return spec;
  };
  const Bits whole = train_bits(spec_of("whole", StageKind::zero3));
  TrainingSpec part = spec_of("part", StageKind::zero3);
  part.steps = 2;
  run_training(part);
  TrainingSpec rest = spec_of("part", StageKind::zero1);
  rest.checkpoint.resume = rest.checkpoint.folder;
  CHECK(train_bits(rest).weights == whole.weights);
  CHECK(data_files(checkpoint_path(scratch.path("part"), 4)) ==
        data_files(checkpoint_path(scratch.path("whole"), 4)));
  CHECK(data_files(checkpoint_path(scratch.path("part"), 2)) !=
        data_files(checkpoint_path(scratch.path("whole"), 4)));
}

TEST_CASE("a manifest with a valid checksum and a wrong field is refused, not half read",
          "[stages]") {
  const SavedRun run(StageKind::ddp, 1);
  const auto& [scratch, folder, spec] = run;
  const std::string path = checkpoint_path(folder, 3) + "/checkpoint.json", text = read_file(path);
  struct Change {
    const char *from, *to, *said;
  };
  for (const Change& c :
       {Change{"\"seed\": 1337", "\"seed\": \"x\"", "type must be number"},
        Change{"\"updates\": 3", "\"updates\": -1", "updates is -1; expected a count"},
        Change{"\"updates\": 3", "\"updates\": 4", "it has 4 updates in 3 steps"},
        Change{"\"next_window\": 6", "\"next_window\": -4", "next_window is -4"},
        Change{"\"exp_avg.safetensors\"", "\"../exp_avg.safetensors\"", "not in its folder"},
        Change{"\"files\": {", "\"nothing\": {", "key 'files' not found"},
        Change{"\"adamw\"", "\"lion\"", "the optimizer 'lion' is unknown"},
        Change{"\"kind\": \"adamw\",", "", "key 'kind' not found"},
        Change{"\"momentum\": 0.0,\n    \"nesterov\": false,", "", ""}}) {  // the twin: as of old
    std::string changed = text;
    const size_t at = changed.find(c.from);
    REQUIRE(at != std::string::npos);
    changed.replace(at, std::string(c.from).size(), c.to);
    // The program itself says which checksum the changed text has.
    const std::string sentence = sentence_of([&] { parse_manifest("m", changed); });
    const size_t is = sentence.find("its checksum is ");
    REQUIRE(is != std::string::npos);
    const size_t crc = changed.rfind("\"crc32c\": \"") + 11;
    changed.replace(crc, 8, sentence.substr(is + 16, 8));
    const std::string said = sentence_of([&] { parse_manifest("m", changed); });
    CHECK((c.said[0] == 0 ? said.empty() : has(said, c.said)));
  }
}

namespace {

using Texts = std::vector<std::string>;

// What each of three ranks has caught, of which `rank` throws; -1: none does.
template <class Error>
Texts caught(int rank) {
  Texts texts(3);
  run_ranks(3,
            [&](Communicator& comm) {
              try {
                on_all_ranks(comm, "agreement", [&] {
                  if (comm.rank() == rank) throw Error("the disk is full");
                  return std::string();
                });
              } catch (const Error& error) {
                texts[size_t(comm.rank())] = error.what();
              }
              comm.barrier({"after the error", Purpose::check}).wait();
            },
            {.timeout = std::chrono::seconds(5)});
  return texts;
}

}  // namespace

TEST_CASE("an error of one rank is thrown by all ranks, with its kind and its words", "[stages]") {
  const int rank = GENERATE(0, 1, 2);
  CHECK(caught<OutputError>(rank) == Texts(3, "the disk is full"));
  CHECK(caught<InputError>(rank) == Texts(3, "the disk is full"));
  CHECK(caught<OutputError>(-1) == Texts(3));  // the twin
}
