#include "tests/stages/checkpoint/checkpoint_run.h"

#include <filesystem>
#include <fstream>
#include <iterator>

#include "stages/checkpoint/checkpoint_folder.h"
#include "stages/checkpoint/save.h"

namespace zl::test {
namespace fs = std::filesystem;

FileCalls& quick_files() {
  static QuickFiles files;
  return files;
}

Windows text_in_windows(int64_t tokens) {
  std::string text;
  for (int i = 0; i < 3000; ++i) text += char('a' + i * i % 23);
  return Windows(TokenData::of_text("text", text), tokens);
}
const Windows& checkpoint_text() {
  static const Windows windows = text_in_windows(7);
  return windows;
}

GptTrainingSpec checkpoint_spec(const std::string& folder, StageKind stage, int ranks) {
  GptTrainingSpec spec =
      gpt_spec({.layers = 2, .heads = 3, .width = 15, .block_size = 7, .vocab = 131});
  spec.engine.stage = stage;
  spec.engine.gradient_clipping = 1;
  spec.engine.optimizer.weight_decay = 0.1;
  spec.engine.schedule = {
      .kind = ScheduleKind::warmup, .warmup_max_lr = 0.01, .warmup_num_steps = 5};
  // In f16 some steps overflow, so the state of the scaler matters.
  spec.engine.loss_scale = {.initial_scale_power = 17, .window = 3, .hysteresis = 1};
  spec.micro_batch = 2;
  spec.steps = 3;
  spec.ranks = ranks;
  spec.data = &checkpoint_text();
  spec.checkpoint.folder = folder;
  spec.checkpoint.save_every = 1;
  spec.checkpoint.keep = 1000;
  spec.checkpoint.files = &quick_files();
  return spec;
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

DataFiles data_files(const std::string& checkpoint) {
  DataFiles files;
  for (const fs::directory_entry& entry : fs::directory_iterator(checkpoint))
    if (entry.path().extension() == ".safetensors")
      files[entry.path().filename().string()] = read_file(entry.path().string());
  return files;
}

Bits train_bits(const TrainingSpec& spec, TrainingCallbacks callbacks, TrainingResult* result) {
  Bits bits;
  callbacks.at_end = [&](Trainer& trainer) {
    auto weights = collect_weights(trainer);
    if (trainer.comm().rank() == 0) bits.weights = std::move(weights);
  };
  TrainingResult done = run_training(spec, callbacks);
  for (const StepRecord& step : done.steps) {
    bits.losses.push_back(step.loss);
    bits.norms.push_back(step.grad_norm);
    bits.skipped.push_back(step.skipped);
  }
  if (result) *result = std::move(done);
  return bits;
}

std::string trained(const ScratchFolder& scratch, TrainingSpec spec) {
  spec.checkpoint.folder = scratch.path(str(name(spec.engine.stage), "-", spec.ranks));
  fs::remove_all(spec.checkpoint.folder);
  run_training(spec);
  return checkpoint_path(spec.checkpoint.folder, spec.steps);
}

std::string load_and_save(TrainingSpec spec, const std::string& checkpoint,
                          const std::string& folder) {
  spec.steps = 0;
  spec.checkpoint.resume = checkpoint;
  spec.checkpoint.save_every = 0;
  fs::create_directories(folder);
  std::string saved;
  run_training(spec, {.at_end = [&](Trainer& trainer) {
                 CheckpointOptions options = spec.checkpoint;
                 options.folder = folder;
                 CheckpointSave save({trainer.engine(), trainer.model(), trainer.host(), {}},
                                     options, trainer.position());
                 const CheckpointRecord record = save.commit();
                 if (trainer.comm().rank() == 0) saved = record.folder;
               }});
  return saved;
}

}  // namespace zl::test
