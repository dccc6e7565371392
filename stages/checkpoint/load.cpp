#include "stages/checkpoint/load.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <tuple>

#include "dist/wire.h"
#include "stages/checkpoint/agreement.h"
#include "stages/checkpoint/checkpoint_folder.h"
#include "stages/checkpoint/piece_checksums.h"
#include "stages/checkpoint/writer.h"
#include "tensor/io/crc32c.h"
#include "tensor/kernels.h"

namespace zl {
namespace fs = std::filesystem;
namespace {

std::string text_of(const std::map<std::string, std::string>& values) {
  std::string text;
  for (const auto& [key, value] : values)
    text += (text.empty() ? "" : ", ") + (key == "name" ? value : key + " " + value);
  return text;
}

// Throws if the checkpoint is one of another model, optimizer or data set.
void require_same_run(const Manifest& m, const Engine& engine, const Model& model,
                      const CheckpointOptions& options, const std::string& data) {
  std::map<std::string, std::string> this_model = model.metadata();
  this_model["name"] = model.name();
  require_input(m.model == this_model, "it was trained on the model '", text_of(m.model),
                "', but this run trains '", text_of(this_model), "'");
  const OptimizerConfig& now = engine.options().optimizer;
  require_input(m.optimizer.kind == now.kind, "it was trained with the optimizer '",
                describe(m.optimizer), "', but this run has '", describe(now), "'");
  require_input(options.new_data || m.position.data == data, "its data were '", m.position.data,
                "', but this run reads '", data,
                "'; use the same data and order, or begin other data with --new-data");
}

// Settings that may change at a resume, in sentences.
std::vector<std::string> changed_settings(const Manifest& m, const Engine& engine) {
  std::vector<std::string> notes;
  const Options& now = engine.options();
  if (describe(m.optimizer) != describe(now.optimizer))
    notes.push_back(str("the checkpoint was saved with ", describe(m.optimizer),
                        "; this run goes on with ", describe(now.optimizer)));
  for (const auto& [key, value] : update_settings(now))
    if (const auto saved = m.saved_by.find(key);
        saved != m.saved_by.end() && saved->second != value)
      notes.push_back(str("the checkpoint was saved with ", key, " ", saved->second,
                          "; this run goes on with ", value));
  if (m.seed != now.seed)
    notes.push_back(str("the checkpoint was saved with seed ", m.seed, "; this run has seed ",
                        now.seed, ", which changes no weights"));
  return notes;
}

// The open files of a checkpoint, after their headers have been compared with the model's.
class StateReader {
 public:
  StateReader(const std::string& folder, const std::vector<StateFile>& states, const Manifest& m)
      : states_(states) {
    for (const StateFile& state : states) {
      const std::string path = (fs::path(folder) / state.name).string();
      require_input(m.files.contains(state.name), folder, ": has no ", state.name,
                    ", which this run's optimizer needs; it was saved with ",
                    describe(m.optimizer));
      files_.push_back(std::make_unique<SafetensorsFile>(path));
      compare(*files_.back(), state.layout);
    }
    for (const auto& [name, file] : m.files)
      require_input(std::ranges::find(states, name, &StateFile::name) != states.end(), folder,
                    ": has ", name,
                    ", which this run's optimizer has no place for; it was saved with ",
                    describe(m.optimizer));
  }

  // Fills the piece's tensor. Returns the CRC-32C of its bytes.
  uint32_t read(const StatePiece& piece) {
    const SafetensorsFile& file = *files_[piece.file];
    const int64_t n = piece.values.numel();
    uint32_t crc = 0;
    for (int64_t at = 0; at < n; at += kCheckpointChunk) {
      chunk_.resize(size_t(std::min(kCheckpointChunk, n - at)));
      const auto bytes = std::as_writable_bytes(std::span(chunk_));
      file.read_bytes(piece.parameter->name, 4 * (piece.first + at), bytes);
      crc = crc32c(bytes, crc);
      kernel::upload_floats(chunk_, piece.values.slice(at, {int64_t(chunk_.size())}));
    }
    return crc;
  }

  // "…/exp_avg.safetensors: tensor 'h.0.ln_1.bias' (bytes 4096 to 8192)".
  std::string place(size_t file, const std::string& tensor) const {
    const auto& item = states_[file].layout.item(tensor);
    return str(files_[file]->path(), ": tensor '", tensor, "' (bytes ", item.at, " to ",
               item.at + item.bytes(), ")");
  }

 private:
  static void compare(const SafetensorsFile& file, const SafetensorsLayout& layout) {
    int64_t saved = 0, here = 0;  // [n]
    for (const SafetensorsEntry& entry : file.entries()) saved += entry.numel();
    for (const auto& item : layout.items()) here += numel(item.shape);
    const std::string sizes =
        str("the file has ", file.entries().size(), " tensors with ", saved,
            " elements, the model ", layout.items().size(), " with ", here,
            "; 'zerolab checkpoint verify' finds out whether the file is damaged");
    for (const auto& item : layout.items()) {
      const SafetensorsEntry* entry = file.find(item.name);
      require_input(entry != nullptr, file.path(), ": has no tensor '", item.name,
                    "', but this model has a parameter of this name; ", sizes);
      require_input(entry->shape == item.shape, file.path(), ": tensor '", item.name,
                    "' has shape ", in_words(entry->shape), ", but this model's parameter has ",
                    in_words(item.shape));
      require_input(entry->dtype == "F32", file.path(), ": tensor '", item.name, "' is ",
                    entry->dtype, "; checkpoints hold F32");
    }
    std::string header(layout.header().size(), ' ');
    std::ifstream(file.path(), std::ios::binary).read(header.data(), int64_t(header.size()));
    for (const SafetensorsEntry& entry : file.entries())
      require_input(std::ranges::binary_search(layout.items(), entry.name, {},
                                               &SafetensorsLayout::Item::name),
                    file.path(), ": has a tensor '", entry.name, "' of shape ",
                    in_words(entry.shape), ", but this model has no parameter of this name; ",
                    sizes);
    require_input(header == layout.header(), file.path(), ": its header (bytes 0 to ",
                  header.size(), ") is not the one that was saved: it was changed or damaged");
  }

  const std::vector<StateFile>& states_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::vector<float> chunk_;
};

// The checksums of what a rank has read: of the pieces of its shard, and of other ranks' pieces.
struct ReadPieces {
  std::vector<PieceChecksum> own, others;
};

// Throws on all ranks if bytes that one of them read are not those that were saved.
void require_checksums(Stage& stage, const std::vector<StateFile>& states, const Manifest& m,
                       const StateReader& reader, const ReadPieces& read) {
  std::vector<std::vector<PieceChecksum>> of_ranks;
  std::map<std::tuple<uint32_t, int32_t, int64_t>, uint32_t> of_owners;
  for (const auto& bytes : stage.comm().all_gather_object(encode(read.own), "checkpoint read")) {
    of_ranks.push_back(decode_checksums(bytes));
    for (const PieceChecksum& p : of_ranks.back())
      of_owners[{p.file, p.parameter, p.first}] = p.crc;
  }
  const auto joined = join_checksums(stage, states, of_ranks);
  on_all_ranks(stage.comm(), "checkpoint verified", [&] {
    for (size_t f = 0; f < states.size(); ++f) {
      const auto& expected = m.files.at(states[f].name).tensors;
      for (const auto& [tensor, crc] : joined[f]) {
        const auto at = expected.find(tensor);
        require_input(at != expected.end() && at->second == crc, reader.place(f, tensor),
                      " has the checksum ", crc_text(crc), ", but checkpoint.json says ",
                      at == expected.end() ? "nothing" : crc_text(at->second),
                      ": it was changed or damaged; rename this checkpoint, and --resume takes the "
                      "one before it");
      }
    }
    for (const PieceChecksum& p : read.others)
      require_input(of_owners.at({p.file, p.parameter, p.first}) == p.crc,
                    reader.place(p.file, stage.parameters()[size_t(p.parameter)]->name),
                    ": two ranks read different bytes; do all hosts see the same folder?");
  });
}

// What rank 0 has found, for all ranks.
struct Choice {
  std::string folder, manifest;
  std::vector<std::string> rejected;
};

Choice choose(Communicator& comm, const std::string& resume) {
  Choice choice;
  on_all_ranks(comm, "checkpoint found", [&] {
    if (comm.rank() != 0) return;
    const NewestCheckpoint newest = newest_checkpoint(resume);
    require_input(!newest.path.empty() || newest.rejected.empty(), "no checkpoint in ", resume,
                  " is complete: ", newest.rejected.empty() ? "" : newest.rejected.front(),
                  "; remove it to start over");
    choice.folder = newest.path;
    if (!newest.path.empty()) choice.manifest = manifest_text(newest.manifest);
    choice.rejected = newest.rejected;
  });
  WireWriter mine;
  mine.text(choice.folder).text(choice.manifest);
  for (const std::string& rejected : choice.rejected) mine.text(rejected);
  const auto all = comm.all_gather_object(mine.take(), "checkpoint chosen");
  WireReader first(all[0]);
  choice.folder = first.text();
  choice.manifest = first.text();
  choice.rejected.clear();
  while (!first.at_end()) choice.rejected.push_back(first.text());
  return choice;
}

}  // namespace

std::optional<LoadedCheckpoint> load_checkpoint(Engine& engine, const Model& model,
                                                const CheckpointOptions& options,
                                                const std::string& data) {
  if (options.resume.empty()) return std::nullopt;
  Stage& stage = engine.stage();
  const Choice choice = choose(stage.comm(), options.resume);
  if (choice.folder.empty()) return std::nullopt;
  const Manifest m = parse_manifest(choice.folder, choice.manifest);
  const std::vector<StateFile> states = state_files(stage, model);
  std::optional<StateReader> reader;
  ReadPieces read;
  on_all_ranks(stage.comm(), "checkpoint read", [&] {
    try {
      require_same_run(m, engine, model, options, data);
    } catch (const InputError& e) {
      throw InputError(str(choice.folder, ": ", e.what()));
    }
    reader.emplace(choice.folder, states, m);
    for (const StatePiece& piece : kept_pieces(stage, states)) {
      const uint32_t crc = reader->read(piece);
      (piece.own ? read.own : read.others).push_back(checksum_of(stage, piece, crc));
    }
  });
  require_checksums(stage, states, m, *reader, read);

  LoadedCheckpoint loaded{.folder = choice.folder, .position = m.position, .notes = {}};
  for (const std::string& rejected : choice.rejected)
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

}  // namespace zl
