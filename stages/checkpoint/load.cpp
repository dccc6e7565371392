#include "stages/checkpoint/load.h"

#include <algorithm>
#include <deque>
#include <filesystem>
#include <iterator>
#include <map>
#include <ranges>
#include <set>

#include "stages/checkpoint/checkpoint_folder.h"
#include "stages/checkpoint/state_pieces.h"
#include "tensor/io/crc32c.h"
#include "tensor/kernels.h"

namespace zl {
namespace fs = std::filesystem;
namespace {

constexpr int64_t kChunk = 1 << 20;  // [B] that are read at a time

std::string text_of(const std::map<std::string, std::string>& values) {
  std::string text;
  for (const auto& [key, value] : values)
    text += (text.empty() ? "" : ", ") + (key == "name" ? value : key + " " + value);
  return text;
}

// Throws if the checkpoint is one of another model, optimizer or data set.
void require_same_run(const std::string& folder, const Manifest& m, const Engine& engine,
                      const Model& model, const CheckpointOptions& options,
                      const std::string& data) {
  std::map<std::string, std::string> this_model = model.metadata();
  this_model["name"] = model.name();
  require_input(m.model == this_model, folder, ": it was trained on the model '", text_of(m.model),
                "', but this run trains '", text_of(this_model),
                "'; repeat the flags of the model, such as --model, at a resume");
  const OptimizerConfig& now = engine.options().optimizer;
  require_input(m.optimizer.kind == now.kind, folder, ": it was trained with the optimizer '",
                describe(m.optimizer), "', but this run has '", describe(now), "'");
  require_input(options.new_data || m.position.data == data, folder, ": its data were '",
                m.position.data, "', but this run reads '", data,
                "'; use the same data, --eval-every and --shuffle, or --new-data");
}

// Settings that may change at a resume, in sentences.
std::vector<std::string> changed_settings(const Manifest& m, Engine& engine) {
  std::vector<std::string> notes;
  const Options& now = engine.options();
  const auto compare = [&](const std::string& key, const auto& saved, const auto& value) {
    if (saved != value)
      notes.push_back(
          str("the checkpoint was saved with ", key, saved, "; this run goes on with ", value));
  };
  compare("", describe(m.optimizer), describe(now.optimizer));
  for (const auto& [key, value] : update_settings(now))
    if (m.saved_by.contains(key)) compare(key + " ", m.saved_by.at(key), value);
  std::string was, is;
  for (const auto& [key, value] : {std::pair<std::string, std::string>{"stage", name(now.stage)},
                                   {"ranks", str(engine.stage().comm().size())},
                                   {"accumulation", str(now.accumulation)}}) {
    const auto saved = m.saved_by.find(key);
    was +=
        str(was.empty() ? "" : ", ", key, " ", saved == m.saved_by.end() ? value : saved->second);
    is += str(is.empty() ? "" : ", ", key, " ", value);
  }
  compare("", was, is);
  if (m.seed != now.seed)
    compare("seed ", str(m.seed), str(now.seed, ", which changes no weights"));
  return notes;
}

// Throws unless the file has the tensors of the layout.
void compare(const SafetensorsFile& file, const SafetensorsLayout& layout) {
  const auto &theirs = file.entries(), &ours = layout.entries();
  const auto [saved, wanted] = std::mismatch(
      theirs.begin(), theirs.end(), ours.begin(), ours.end(),
      [](const auto& a, const auto& b) { return a.name == b.name && a.shape == b.shape; });
  const auto text = [](auto entry, const auto& of) {
    return entry == of.end() ? "no more" : str("'", entry->name, "' ", to_string(entry->shape));
  };
  require_input(saved == theirs.end() && wanted == ours.end(), file.path(), ": has tensor ",
                text(saved, theirs), " where this model has ", text(wanted, ours),
                "; the file has ", theirs.size(), " tensors, the model ", ours.size(),
                "; repeat the flags of the model at a resume; 'zerolab checkpoint verify' finds "
                "out whether the file is damaged");
  require_input(file.header() == layout.header(), file.path(), ": its header (bytes 0 to ",
                layout.header().size(),
                ") is not the one that was saved: it was changed or damaged");
}

// The open files of a checkpoint, as far as they are this model's and optimizer's.
std::deque<SafetensorsFile> open_files(const std::string& folder,
                                       const std::vector<StateFile>& states, const Manifest& m) {
  std::string needed, saved;
  std::set<std::string> names;
  for (const StateFile& state : states) names.insert(state.name);
  for (const std::string& name : names) needed += " " + name;
  for (const auto& [name, file] : m.files) saved += " " + name;
  require_input(needed == saved, folder, ": has the files", saved, ", but this run needs", needed,
                "; it was saved with ", describe(m.optimizer));
  std::deque<SafetensorsFile> files;
  for (const StateFile& state : states)
    compare(files.emplace_back((fs::path(folder) / state.name).string()), state.layout);
  return files;
}

// Reads the checkpoint, and fills all that this rank keeps.
void read_state(Stage& stage, const std::vector<StateFile>& states, const std::string& folder,
                const Manifest& m) {
  const std::deque<SafetensorsFile> files = open_files(folder, states, m);
  std::multimap<std::pair<size_t, std::string>, StatePiece> kept;
  stage.wait_for_parameters();
  for (const StatePiece& piece : state_pieces(stage, states, StatePart::kept))
    kept.emplace(std::pair(piece.file, piece.parameter->name), piece);
  for (size_t f = 0; f < files.size(); ++f) {
    const auto fill = [&](const SafetensorsEntry& entry, int64_t at, const auto& bytes) {
      const std::span chunk(reinterpret_cast<const float*>(bytes.data()), bytes.size() / 4);
      const int64_t begin = at / 4, end = begin + int64_t(chunk.size());  // [n]
      const auto [first, last] = kept.equal_range({f, entry.name});
      for (const auto& [key, piece] : std::ranges::subrange(first, last)) {
        const int64_t from = std::max(begin, piece.first),
                      n = std::min(end, piece.first + piece.values.numel()) - from;
        if (n > 0)
          kernel::upload_floats(chunk.subspan(size_t(from - begin), size_t(n)),
                                piece.values.slice(from - piece.first, {n}));
      }
    };
    const auto problems = read_and_verify(files[f], m.files.at(states[f].name), fill);
    if (!problems.empty())
      throw InputError(
          str(problems[0], "; rename this checkpoint, and --resume takes the one before it"));
  }
}

// What rank 0 has found; the other ranks get its path and read it themselves.
NewestCheckpoint choose(Communicator& comm, const std::string& resume) {
  NewestCheckpoint newest;
  newest.path = on_all_ranks(comm, "checkpoint chosen", [&] {
    if (comm.rank() == 0) newest = newest_checkpoint(resume);
    require_input(!newest.path.empty() || newest.rejected.empty(), "no checkpoint in ", resume,
                  " is complete: ", newest.rejected.empty() ? "" : newest.rejected.front(),
                  "; remove it to start over");
    return newest.path;
  })[0];
  return newest;
}

}  // namespace

std::optional<LoadedCheckpoint> load_checkpoint(Engine& engine, const Model& model,
                                                const CheckpointOptions& options,
                                                const std::string& data) {
  if (options.resume.empty()) return std::nullopt;
  Stage& stage = engine.stage();
  NewestCheckpoint newest = choose(stage.comm(), options.resume);
  if (newest.path.empty()) return std::nullopt;
  Manifest& m = newest.manifest;
  on_all_ranks(stage.comm(), "checkpoint read", [&] {
    if (stage.comm().rank() != 0) m = read_manifest(newest.path);
    require_same_run(newest.path, m, engine, model, options, data);
    read_state(stage, state_files(stage, model), newest.path, m);
    return std::string();
  });

  LoadedCheckpoint loaded{.folder = newest.path, .position = m.position, .notes = {}};
  for (const std::string& rejected : newest.rejected)
    loaded.notes.push_back("a newer checkpoint is not complete: " + rejected);
  std::ranges::copy(changed_settings(m, engine), std::back_inserter(loaded.notes));
  if (m.position.data != data) loaded.position.next_window = 0;
  Engine::State state = engine.state();
  state.updates = m.updates;
  const bool is_static = engine.options().loss_scale.static_scale > 0;
  if (state.scaler && m.loss_scaler && !is_static) state.scaler = m.loss_scaler;
  engine.restore(state);
  for (UnitState& u : stage.units()) u.optimizer->set_steps(m.updates);
  return loaded;
}

// ---- checksums ----------------------------------------------------------------------------------

std::vector<std::string> read_and_verify(const SafetensorsFile& file, const ManifestFile& expected,
                                         const TakeChunk& take) {
  std::vector<std::string> problems;
  std::vector<std::byte> chunk;
  uint32_t whole = crc32c(std::as_bytes(std::span(file.header())));
  for (const SafetensorsEntry& entry : file.entries()) {
    uint32_t crc = 0;
    for (int64_t at = 0; at < entry.bytes(); at += kChunk) {
      chunk.resize(size_t(std::min(kChunk, entry.bytes() - at)));
      file.read_bytes(entry.name, at, chunk);
      crc = crc32c(chunk, crc);
      take(entry, at, chunk);
    }
    whole = crc32c_join(whole, crc, entry.bytes());
    const auto saved = expected.tensors.find(entry.name);
    const std::string says = saved == expected.tensors.end() ? "nothing" : saved->second;
    if (says != crc_text(crc))
      problems.push_back(str(file.path(), ": tensor '", entry.name, "' (bytes ",
                             file.position(entry), " to ", file.position(entry) + entry.bytes(),
                             ") was changed or damaged: its checksum is ", crc_text(crc),
                             ", but checkpoint.json says ", says));
  }
  for (const auto& [name, crc] : expected.tensors)
    if (!file.find(name))
      problems.push_back(
          str(file.path(), ": has no tensor '", name, "', which checkpoint.json lists"));
  if (crc_text(whole) != expected.crc32c && problems.empty())
    problems.push_back(str(file.path(), ": the header (bytes 0 to ", file.header().size(),
                           ") was changed or damaged"));
  return problems;
}

std::vector<std::string> verify_checkpoint(const std::string& checkpoint,
                                           const std::function<void(int64_t, int64_t)>& progress) {
  std::vector<std::string> problems;
  Manifest manifest;
  const std::string broken = error_of([&] { manifest = read_manifest(checkpoint); });
  if (!broken.empty()) return {broken};
  int64_t done = 0;
  const auto read = [&](size_t bytes) {
    done += int64_t(bytes);
    if (progress) progress(done, manifest.bytes());
  };
  for (const auto& [name, expected] : manifest.files) try {
      const SafetensorsFile file((fs::path(checkpoint) / name).string());
      read(file.header().size());
      const auto found = read_and_verify(
          file, expected, [&](const auto&, int64_t, const auto& chunk) { read(chunk.size()); });
      problems.insert(problems.end(), found.begin(), found.end());
    } catch (const InputError& error) {
      problems.push_back(error.what());
    }
  return problems;
}

}  // namespace zl
