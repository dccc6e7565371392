// What must be saved so that a run goes on with the same bits, under another stage and on other
// ranks? Checkpoints are stages/checkpoint/.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <numeric>
#include <set>

#include "stages/checkpoint/checkpoint_folder.h"
#include "stages/checkpoint/load.h"
#include "stages/checkpoint/save.h"
#include "tensor/error.h"
#include "tensor/io/safetensors.h"
#include "tutorials/lesson/model_m.h"

using namespace zl;
using namespace zl::lesson;
namespace fs = std::filesystem;

constexpr int64_t kSaved = 3, kSteps = 6;  // a checkpoint after step 3 of 6

// A folder in the system's folder for temporary files. It is removed with its last holder.
std::shared_ptr<const fs::path> scratch_folder() {
  std::string path = fs::temp_directory_path() / "zerolab-13-XXXXXX";
  require_input(mkdtemp(path.data()) != nullptr, path, ": cannot be created; set TMPDIR");
  return {new fs::path(path), [](const fs::path* folder) {
            std::error_code ignored;
            fs::remove_all(*folder, ignored);
            delete folder;
          }};
}

int other_ranks(int N) { return N > 1 ? N - 1 : 2; }

// On any of these numbers of ranks a step has as many micro-batches, and its sums do not depend on
// the ranks.
TrainingSpec spec_of(Lesson& lesson, StageKind stage, int ranks) {
  TrainingSpec spec = training_m(lesson, stage);
  spec.ranks = ranks;
  spec.micro_batch = 1;
  spec.engine.reproducible = true;
  spec.engine.accumulation = std::lcm(lesson.ranks(), other_ranks(lesson.ranks())) / ranks;
  spec.steps = kSteps;
  return spec;
}

// All data files of a checkpoint, one after another.
std::string data_of(const std::string& checkpoint) {
  std::string all;
  for (const auto& [name, file] : read_manifest(checkpoint).files) {
    std::ifstream in(checkpoint + "/" + name, std::ios::binary);
    all.append(std::istreambuf_iterator<char>(in), {});
  }
  return all;
}

void the_folder(Lesson& lesson, const std::string& checkpoint, int64_t per_step) {
  lesson.say("what is in " + fs::path(checkpoint).filename().string());
  const Manifest manifest = read_manifest(checkpoint);
  int64_t tensors = 0;
  for (const auto& [name, file] : manifest.files) {
    int64_t bytes = 0;
    const SafetensorsFile open(checkpoint + "/" + name);
    for (const SafetensorsEntry& tensor : open.entries()) bytes += tensor.bytes();
    lesson.say(
        str("  ", name, ": ", file.tensors.size(), " tensors of ", with_commas(bytes), " B"));
    tensors += bytes;
  }
  lesson.say("  checkpoint.json: step, next window, updates, optimizer, seed, checksums");
  lesson.number("tensor_bytes", tensors, 12 * sizes_m(1).parameters(),
                "(4 weight + 4 + 4 moments) x 28,576, without padding");
  lesson.number("next_window", manifest.position.next_window, kSaved * per_step,
                "3 steps x N x A micro-batches of 1 row");
}

// Loads the checkpoint under each stage on each number of ranks, and saves it again.
void same_bytes(Lesson& lesson, const fs::path& scratch, const std::string& checkpoint) {
  std::set<std::string> contents{data_of(checkpoint)};
  int64_t saves = 0;
  for (const StageKind stage : kStages)
    for (const int ranks : {1, lesson.ranks(), other_ranks(lesson.ranks())}) {
      TrainingSpec spec = spec_of(lesson, stage, ranks);
      spec.steps = 0, spec.checkpoint.resume = checkpoint;
      CheckpointOptions options{.folder = scratch / str("copy-", ++saves)};
      fs::create_directory(options.folder);
      run_training(spec, {.at_end = [&](Trainer& rank) {
                     CheckpointSave save({rank.engine(), rank.model(), rank.host()}, options,
                                         rank.position());
                     const CheckpointRecord record = save.commit();
                     if (rank.comm().rank() == 0) contents.insert(data_of(record.folder));
                   }});
    }
  lesson.number("different_saves", int64_t(contents.size()), 1,
                str(saves, " loads and saves, 4 stages x 3 numbers of ranks: the same bytes"));
}

void go_on(Lesson& lesson, const std::string& checkpoint, const RunM& whole) {
  const int M = other_ranks(lesson.ranks());
  lesson.say(str("\nsteps 4 to 6 under zero1 on ", M, M > 1 ? " ranks" : " rank"));
  TrainingSpec spec = spec_of(lesson, StageKind::zero1, M);
  spec.checkpoint.resume = checkpoint;
  const RunM resumed = train_m(lesson, spec, true);
  lesson.number("window_at_end", resumed.position.next_window, whole.position.next_window,
                "that of the run which never stopped: none is left out or read twice");
  lesson.check("losses of steps 4 to 6 equal those of the run that never stopped, bit for bit",
               std::ranges::equal(resumed.steps, std::span(whole.steps).subspan(kSaved), {},
                                  &StepRecord::loss, &StepRecord::loss));
  lesson.check("so do the weights at the end", resumed.weights[0] == whole.weights[0]);
  spec.checkpoint.resume = "";
  const SafetensorsFile file(checkpoint + "/model.safetensors");
  spec.weights = [&](const Parameter& p) { return file.read_floats(p.name); };
  spec.steps = kSteps - kSaved;
  lesson.check("from the weights alone, without moments and position, it ends elsewhere",
               train_m(lesson, spec).weights[0] != whole.weights[0]);
}

int main(int argc, char** argv) {
  const About about{
      .name = "13_checkpoints",
      .question = "What must be saved so that a run goes on with the same bits on other ranks?"};
  return run(argc, argv, about, [](Lesson& lesson) {
    const auto scratch = scratch_folder();
    TrainingSpec spec = spec_of(lesson, StageKind::zero3, lesson.ranks());
    const RunM whole = train_m(lesson, spec);
    spec.steps = kSaved;
    spec.checkpoint = {.folder = *scratch / "run", .save_every = kSaved};
    train_m(lesson, spec);
    const std::string checkpoint = checkpoint_path(spec.checkpoint.folder, kSaved);
    the_folder(lesson, checkpoint, lesson.ranks() * spec.engine.accumulation);
    same_bytes(lesson, *scratch, checkpoint);
    go_on(lesson, checkpoint, whole);
  });
}
