// What must be saved so that a run goes on with the same bits, under another stage and on other
// ranks? Checkpoints are stages/checkpoint/.
#include <set>

#include "stages/checkpoint/load.h"
#include "stages/checkpoint/save.h"
#include "tensor/io/safetensors.h"
#include "tutorials/13_killed_saves.h"
#include "tutorials/lesson/saved_runs.h"

using namespace zl;
using namespace zl::lesson;
namespace fs = std::filesystem;

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
void same_bytes(Lesson& lesson, const ScratchFolder& scratch, const std::string& checkpoint) {
  std::set<std::string> contents{data_of(checkpoint)};
  int64_t saves = 0;
  for (const StageKind stage : kStages)
    for (const int ranks : {1, lesson.ranks(), other_ranks(lesson.ranks())}) {
      TrainingSpec spec = spec_of(lesson, stage, ranks);
      spec.steps = 0, spec.checkpoint.resume = checkpoint;
      CountedFiles files;
      CheckpointOptions options{.folder = scratch / str("copy-", ++saves), .files = &files};
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

void go_on(Lesson& lesson, const std::string& checkpoint, const Bits& whole) {
  const int M = other_ranks(lesson.ranks());
  lesson.say(str("\nsteps 4 to 6 under zero1 on ", M, M > 1 ? " ranks" : " rank"));
  TrainingSpec spec = spec_of(lesson, StageKind::zero1, M);
  spec.checkpoint.resume = checkpoint;
  const Bits resumed = train(lesson, spec, true);
  const std::vector<double> losses(whole.losses.begin() + kSaved, whole.losses.end());
  lesson.number("window_at_end", resumed.position.next_window, whole.position.next_window,
                "that of the run which never stopped: none is left out or read twice");
  lesson.check("losses of steps 4 to 6 equal those of the run that never stopped, bit for bit",
               resumed.losses == losses);
  lesson.check("so do the weights at the end", resumed.weights == whole.weights);
  spec.checkpoint.resume = "";
  const SafetensorsFile file(checkpoint + "/model.safetensors");
  spec.weights = [&](const Parameter& p) { return file.read_floats(p.name); };
  spec.steps = kSteps - kSaved;
  lesson.check("from the weights alone, without moments and position, it ends elsewhere",
               train(lesson, spec).weights != whole.weights);
}

// The save of step 4, which then removes that of step 3, in processes that are killed.
void kills(Lesson& lesson, const ScratchFolder& scratch, const std::string& saved) {
  const std::string folder = scratch / "killed";
  const auto begin = [&] {
    fs::remove_all(folder), fs::copy(saved, folder, fs::copy_options::recursive);
  };
  TrainingSpec spec = spec_of(lesson, StageKind::zero3, lesson.ranks());
  spec.steps = kSaved + 1;
  spec.checkpoint = {.folder = folder, .save_every = 1, .keep = 1, .resume = folder};
  CountedFiles files;
  spec.checkpoint.files = &files;
  begin(), run_training(spec);
  const int64_t number = lesson.count("--kills"), calls = files.calls();
  int64_t killed = 0, old = 0, before = 0, broken = 0;
  std::string map;
  for (int64_t i = 0; i < number; ++i) {
    const int64_t at = 1 + i * (calls - 1) / (number - 1);
    begin();
    killed += is_killed(spec, at);
    const NewestCheckpoint newest = newest_checkpoint(folder);
    broken += newest.path.empty() || !verify_checkpoint(newest.path).empty();
    map += str(newest.manifest.position.step);
    old += newest.manifest.position.step == kSaved, before += at <= files.first_rename();
  }
  lesson.say(str("\na save of ", calls, " calls on files, killed at ", number,
                 " of them; the newest complete checkpoint is that of step"));
  lesson.say("  " + map);
  lesson.number("killed", killed, number, "so many processes died by SIGKILL while they saved");
  lesson.number("broken", broken, 0, "every one left a complete checkpoint");
  lesson.number("old_left", old, before,
                "kills until the rename, which gives the new one its name");
  begin(), is_killed(spec, files.first_rename());
  const auto temporaries = [&] {
    return std::count_if(fs::directory_iterator(folder), {},
                         [](const auto& entry) { return is_temporary(entry.path().string()); });
  };
  lesson.number("temporary", temporaries(), 1, "what a kill at the rename leaves");
  run_training(spec);
  lesson.number("temporary_later", temporaries(), 0, "the next start of the run removes it");
}

int main(int argc, char** argv) {
  const About about{
      .name = "13_checkpoints",
      .question = "What must be saved so that a run goes on with the same bits on other ranks?",
      .flags = {{"--kills", "K", "processes that are killed while they save", 24, 2, 1000}}};
  return run(argc, argv, about, [](Lesson& lesson) {
    const ScratchFolder scratch;
    TrainingSpec spec = spec_of(lesson, StageKind::zero3, lesson.ranks());
    const Bits whole = train(lesson, spec);
    spec.steps = kSaved;
    CountedFiles files;
    spec.checkpoint = {.folder = scratch / "run", .save_every = kSaved, .files = &files};
    train(lesson, spec);
    const std::string checkpoint = checkpoint_path(spec.checkpoint.folder, kSaved);
    the_folder(lesson, checkpoint, lesson.ranks() * spec.engine.accumulation);
    same_bytes(lesson, scratch, checkpoint);
    go_on(lesson, checkpoint, whole);
    kills(lesson, scratch, spec.checkpoint.folder);
  });
}
