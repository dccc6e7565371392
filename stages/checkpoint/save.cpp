#include "stages/checkpoint/save.h"

#include <fcntl.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <filesystem>
#include <map>
#include <utility>

#include "dist/processes/wire.h"
#include "stages/checkpoint/checkpoint_folder.h"
#include "tensor/io/crc32c.h"
#include "tensor/io/file_calls.h"
#include "tensor/kernels.h"

namespace zl {
namespace fs = std::filesystem;
namespace {

constexpr long kNfsMagic = 0x6969;  // statfs(2)

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

bool on_nfs(const std::string& folder) {
  struct statfs status;
  return ::statfs(folder.c_str(), &status) == 0 && long(status.f_type) == kNfsMagic;
}

Manifest manifest_of(const SavedRun& run, const RunPosition& position) {
  const Options& engine = run.engine.options();
  const Engine::State state = run.engine.state();
  Manifest manifest{.position = position,
                    .updates = state.updates,
                    .loss_scaler = state.scaler,
                    .seed = engine.seed,
                    .model = run.model.metadata(),
                    .optimizer = engine.optimizer,
                    .files = {},
                    .saved_by = update_settings(engine)};
  manifest.saved_by.insert({{"stage", name(engine.stage)},
                            {"ranks", str(run.engine.stage().comm().size())},
                            {"accumulation", str(engine.accumulation)},
                            {"micro_batch", str(position.micro_batch)}});
  manifest.model["name"] = run.model.name();
  return manifest;
}

}  // namespace

const char* name(CheckpointWrites writes) {
  constexpr const char* names[] = {"wait", "still", "snapshot"};
  return names[size_t(writes)];
}

std::vector<Tensor> save_buffers(Stage& stage, const std::vector<StateFile>& files, Memory& host,
                                 CheckpointWrites writes, bool host_reads) {
  const auto on_disk = [](const StatePiece& p) { return p.values.memory().pool() == Pool::disk; };
  int64_t n = 0;
  if (writes == CheckpointWrites::snapshot) {
    for (const UnitState& u : stage.units()) n += int64_t(files.size()) * u.partition.shard();
  } else {
    const auto pieces = state_pieces(stage, files, StatePart::shard);
    if (host_reads && std::ranges::none_of(pieces, on_disk)) return {};
    n = kCheckpointChunk;
  }
  // One block, so that each save takes the pages of the one before: parts that are placed anew
  // touch other pages of the pool's segments, and the process grows beyond what is counted.
  return {Tensor::empty(host, MemoryUse::workspace, {n})};
}

CheckpointSave::TemporaryFolder::~TemporaryFolder() {
  if (!path.empty()) (void)error_of([&] { remove_path(calls, path); });  // or the next run does
}

CheckpointSave::CheckpointSave(const SavedRun& run, const CheckpointOptions& options,
                               const RunPosition& position)
    : comm_(run.engine.stage().comm()),
      options_(options),
      begin_(std::chrono::steady_clock::now()),
      manifest_(manifest_of(run, position)),
      files_(state_files(run.engine.stage(), run.model)),
      folder_(checkpoint_path(options.folder, position.step)),
      temporary_{*options.files} {
  Stage& stage = run.engine.stage();
  stage.memory().events().set_phase("checkpoint");
  // The host of rank 0 may have the disk that the others reach by NFS.
  const std::vector<std::string> begun = on_ranks("checkpoint begins", [&] {
    if (comm_.rank() == 0) begin_folder();
    return (options_.one_by_one || on_nfs(options_.folder) ? "1" : "0") + temporary_.path;
  });
  temporary_.path = begun[0].substr(1);
  const bool one_by_one =
      std::ranges::any_of(begun, [](const std::string& of_rank) { return of_rank[0] == '1'; });
  const CheckpointWrites writes = one_by_one ? CheckpointWrites::wait : options.writes;
  const bool waits = writes == CheckpointWrites::wait;
  writing_ = std::async(waits ? std::launch::deferred : std::launch::async,
                        [this, mine = pieces(stage, run.host, writes), device = run.device] {
                          return write(mine, device);
                        });
  if (waits && !one_by_one) writing_.wait();
  for (int r = 0; one_by_one && r < comm_.size(); ++r) {
    if (r == comm_.rank()) writing_.wait();
    comm_.all_gather_object("", "checkpoint written by one");
  }
  stall_ = seconds_since(begin_);
}

// Rank 0: the folder that all ranks write into.
void CheckpointSave::begin_folder() {
  if (fs::exists(folder_))
    throw OutputError(str(folder_, ": exists already, and no checkpoint is overwritten"));
  const std::string path = temporary_beside(folder_);
  if (options_.files->mkdir(path) != 0)
    throw OutputError(str(path, ": cannot be created: ", std::strerror(errno)));
  temporary_.path = path;
}

// An error of a rank is thrown by all ranks.
std::vector<std::string> CheckpointSave::on_ranks(std::string_view name,
                                                  const std::function<std::string()>& action) {
  return on_all_ranks(comm_, name, [&] {
    try {
      return action();
    } catch (const std::exception& error) {
      throw OutputError(
          str("the checkpoint of step ", manifest_.position.step,
              renamed_ ? " is written, but may be lost with the power: " : " was not saved: ",
              comm_.size() > 1 ? str("rank ", comm_.rank(), ": ") : "", error.what()));
    }
  });
}

// What this rank writes: its shard or a copy of it. Of several replicas, the first one writes.
std::vector<StatePiece> CheckpointSave::pieces(Stage& stage, Memory& host,
                                               CheckpointWrites writes) {
  Backend& device = stage.memory().backend();
  buffers_ = save_buffers(stage, files_, host, writes, device.host_addressable());
  std::vector<StatePiece> all;
  if (comm_.rank() < stage.shard_group().size())
    all = state_pieces(stage, files_, StatePart::shard);
  int64_t at = 0;  // [n]
  for (StatePiece& piece : all) {
    if (writes != CheckpointWrites::snapshot) break;
    const Tensor copy = buffers_[0].slice(at, piece.values.shape());
    kernel::copy(std::exchange(piece.values, copy), copy);
    at += copy.numel();
  }
  device.synchronize();  // the last update and the copies are complete
  return all;
}

// Rank 0 writes the headers too. `device`, if it is not null, reads values on the device instead of
// their own backend. Returns file, tensor, bytes and CRC-32C of each piece.
std::string CheckpointSave::write(const std::vector<StatePiece>& pieces, Backend* device) {
  std::deque<WrittenFile> open;
  for (const StateFile& file : files_) {
    open.emplace_back(*options_.files, str(temporary_.path, "/", file.name), O_WRONLY | O_CREAT);
    if (comm_.rank() == 0) open.back().write(std::as_bytes(std::span(file.layout.header())), 0);
  }
  std::string written;
  for (const auto& [file, parameter, first, values] : pieces) {
    const SafetensorsLayout& layout = files_[file].layout;
    const int64_t to = layout.position(*layout.find(parameter->name)) + 4 * first;
    uint32_t crc = 0;
    for (int64_t at = 0, n = values.numel(); at < n; at += kCheckpointChunk) {
      const Tensor chunk = values.slice(at, {std::min(kCheckpointChunk, n - at)});
      Backend& backend = chunk.backend();
      const bool reads = backend.host_addressable();
      const Tensor here = reads ? chunk : buffers_[0].slice(0, chunk.shape());
      if (!reads)
        (device && chunk.memory().pool() == Pool::device ? *device : backend)
            .download(chunk, here.address());
      const auto bytes = std::as_bytes(here.data<float>());
      crc = crc32c(bytes, crc);
      open[file].write(bytes, to + 4 * at);
    }
    written += to_bytes(file, parameter->name, values.bytes(), crc);
  }
  for (WrittenFile& file : open) file.sync(), file.close();
  return written;
}

bool CheckpointSave::written() const {
  return writing_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

CheckpointRecord CheckpointSave::commit() {
  const double trained = seconds_since(begin_) - stall_;  // [s] while files were being written
  const auto written = on_ranks("checkpoint written", [&] {
    std::string pieces = writing_.get();
    // Before rank 0 can hear of it: from then on no other rank takes files from the folder.
    if (comm_.rank() != 0) temporary_.path.clear();
    return pieces;
  });
  const std::string problem = on_ranks("checkpoint complete", [&]() -> std::string {
    if (comm_.rank() != 0) return "";
    describe_files(written);
    name_folder();
    return error_of([&] {  // only now that the new one is durable
      PendingFile latest((fs::path(options_.folder) / "latest").string(), *options_.files);
      const std::string name = fs::path(folder_).filename().string() + "\n";
      latest.write(name.data(), name.size());
      latest.commit();
      remove_old_checkpoints(options_, manifest_.position.step);
    });
  })[0];
  buffers_.clear();
  const double seconds = seconds_since(begin_);
  return {.folder = folder_,
          .step = manifest_.position.step,
          .bytes = manifest_.bytes(),
          .seconds = seconds,
          .stall = seconds - trained,
          .problem = problem};
}

// Rank 0: sizes and checksums for the manifest. The ranks hold the parts of a tensor in order.
void CheckpointSave::describe_files(const std::vector<std::string>& of_ranks) {
  std::map<std::pair<size_t, std::string>, uint32_t> tensors;  // 0: of no elements
  for (const std::string& of_rank : of_ranks)
    for (WireReader pieces(of_rank); !pieces.at_end();) {
      const auto file = pieces.get<size_t>();
      uint32_t& crc = tensors[{file, pieces.get<std::string>()}];
      const auto bytes = pieces.get<int64_t>();
      crc = crc32c_join(crc, pieces.get<uint32_t>(), bytes);
    }
  for (size_t f = 0; f < files_.size(); ++f) {
    const SafetensorsLayout& layout = files_[f].layout;
    ManifestFile& file = manifest_.files[files_[f].name];
    file.bytes = int64_t(layout.header().size());
    uint32_t whole = crc32c(std::as_bytes(std::span(layout.header())));
    for (const SafetensorsEntry& entry : layout.entries()) {
      const uint32_t crc = tensors[{f, entry.name}];
      file.tensors[entry.name] = crc_text(crc);
      file.bytes += entry.bytes();
      whole = crc32c_join(whole, crc, entry.bytes());
    }
    file.crc32c = crc_text(whole);
  }
}

// Rank 0: the folder gets its name when all of it is durable.
void CheckpointSave::name_folder() {
  FileCalls& calls = *options_.files;
  const std::string text = manifest_text(manifest_);
  WrittenFile file(calls, temporary_.path + "/checkpoint.json", O_WRONLY | O_CREAT | O_EXCL);
  file.write(std::as_bytes(std::span(text)), 0);
  file.sync();
  file.close();
  sync_folder(calls, temporary_.path);
  rename_path(calls, temporary_.path, folder_);
  temporary_.path.clear();
  renamed_ = true;
  sync_folder(calls, options_.folder);
}

}  // namespace zl
