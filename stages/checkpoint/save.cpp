#include "stages/checkpoint/save.h"

#include <fcntl.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <utility>

#include "dist/processes/wire.h"
#include "stages/checkpoint/agreement.h"
#include "stages/checkpoint/checkpoint_folder.h"
#include "tensor/io/crc32c.h"
#include "tensor/io/pending_file.h"
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
  switch (writes) {
    case CheckpointWrites::wait: return "wait";
    case CheckpointWrites::still: return "still";
    case CheckpointWrites::snapshot: return "snapshot";
  }
  return "?";
}

std::vector<Tensor> save_buffers(Stage& stage, const std::vector<StateFile>& files, Memory& host,
                                 CheckpointWrites writes, bool host_reads) {
  const std::vector<Tensor> shards = local_shards(stage, files);
  const auto on_disk = [](const Tensor& t) { return t.memory().pool() == Pool::disk; };
  std::vector<Tensor> buffers;
  if (writes != CheckpointWrites::snapshot) {
    if (!host_reads || std::ranges::any_of(shards, on_disk))
      buffers.push_back(Tensor::empty(host, MemoryUse::workspace, {kCheckpointChunk}));
    return buffers;
  }
  // One block, so that each save takes the pages of the one before: parts that are placed anew
  // touch other pages of the pool's segments, and the process grows beyond what is counted.
  int64_t n = 0, at = 0;
  for (const Tensor& shard : shards) n += shard.numel();
  const Tensor all = Tensor::empty(host, MemoryUse::workspace, {n});
  for (const Tensor& shard : shards) {
    buffers.push_back(all.slice(std::exchange(at, at + shard.numel()), shard.shape()));
    kernel::copy(shard, buffers.back());
  }
  return buffers;
}

CheckpointSave::CheckpointSave(const SavedRun& run, const CheckpointOptions& options,
                               Manifest manifest)
    : comm_(run.engine.stage().comm()),
      stage_(run.engine.stage()),
      options_(options),
      begin_(std::chrono::steady_clock::now()),
      manifest_(std::move(manifest)),
      files_(state_files(stage_, run.model)),
      folder_(checkpoint_path(options.folder, manifest_.position.step)) {}

// It delegates, so that the destructor removes the folder if something throws below.
CheckpointSave::CheckpointSave(const SavedRun& run, const CheckpointOptions& options,
                               const RunPosition& position)
    : CheckpointSave(run, options, manifest_of(run, position)) {
  stage_.memory().events().set_phase("checkpoint");
  // The host of rank 0 may have the disk that the others reach by NFS.
  const std::vector<std::string> begun = results_or_remove("checkpoint begins", [&] {
    if (comm_.rank() == 0) begin_folder();
    return (options_.one_by_one || on_nfs(options_.folder) ? "1" : "0") + temporary_;
  });
  temporary_ = begun[0].substr(1);
  const bool one_by_one =
      std::ranges::any_of(begun, [](const std::string& of_rank) { return of_rank[0] == '1'; });
  const CheckpointWrites writes = one_by_one ? CheckpointWrites::wait : options.writes;
  buffers_ =
      save_buffers(stage_, files_, run.host, writes, stage_.memory().backend().host_addressable());
  stage_.memory().backend().synchronize();  // the last update and the copies are complete
  snapshot_ = writes == CheckpointWrites::snapshot;
  const bool waits = writes == CheckpointWrites::wait;
  writing_ = std::async(
      waits ? std::launch::deferred : std::launch::async,
      [this, pieces = shard_pieces(), device = run.device] { return write(pieces, device); });
  if (waits && !one_by_one) writing_.wait();
  for (int r = 0; one_by_one && r < comm_.size(); ++r) {
    if (r == comm_.rank()) writing_.wait();
    comm_.all_gather_object("", "checkpoint written by one");
  }
  stall_ = seconds_since(begin_);
}

CheckpointSave::~CheckpointSave() { remove_temporary(); }

void CheckpointSave::remove_temporary() {
  const bool begun = writing_.valid() &&
                     writing_.wait_for(std::chrono::seconds(0)) != std::future_status::deferred;
  if (begun) writing_.wait();  // one that waits for its turn never begins
  if (comm_.rank() != 0 || temporary_.empty()) return;
  (void)error_of([&] { remove_path(*options_.files, temporary_); });  // or the next run does
  temporary_.clear();
}

// Rank 0: the folder with files of their final sizes, so that a full disk shows before any rank
// writes.
void CheckpointSave::begin_folder() {
  FileCalls& calls = *options_.files;
  if (fs::exists(folder_))
    throw OutputError(str(folder_, ": exists already, and no checkpoint is overwritten"));
  const auto nonce = std::chrono::system_clock::now().time_since_epoch().count();
  const std::string name = str(folder_, ".tmp-", ::getpid(), "-", nonce);
  if (calls.mkdir(name) != 0)
    throw OutputError(str(name, ": cannot be created: ", std::strerror(errno)));
  temporary_ = name;
  for (const StateFile& state : files_) {
    WrittenFile file(calls, (fs::path(temporary_) / state.name).string(),
                     O_WRONLY | O_CREAT | O_EXCL);
    file.reserve(state.layout.bytes());
    file.write(std::as_bytes(std::span(state.layout.header())), 0);
    file.close();
  }
}

// After an error of a rank, all ranks throw it, and no temporary folder is left.
std::vector<std::string> CheckpointSave::results_or_remove(
    std::string_view name, const std::function<std::string()>& action) {
  try {
    return results_of_all_ranks(comm_, name, [&] {
      std::string result;
      const std::string error = error_of([&] { result = action(); });
      if (!error.empty())
        throw OutputError(
            str("the checkpoint of step ", manifest_.position.step,
                renamed_ ? " is written, but may be lost with the power: " : " was not saved: ",
                comm_.size() > 1 ? str("rank ", comm_.rank(), ": ") : "", error));
      return result;
    });
  } catch (const OutputError&) {
    remove_temporary();
    throw;
  }
}

// What this rank writes, from its shards or from their copies.
std::vector<StatePiece> CheckpointSave::shard_pieces() {
  std::vector<StatePiece> all;
  if (!saves_shards(stage_)) return all;
  const std::vector<Tensor> shards = snapshot_ ? buffers_ : local_shards(stage_, files_);
  auto shard = shards.begin();
  for (const UnitState& u : stage_.units())
    for (size_t f = 0; f < files_.size(); ++f)
      std::ranges::move(pieces_of(u, f, comm_.rank(), *shard++), std::back_inserter(all));
  return all;
}

std::string CheckpointSave::write(const std::vector<StatePiece>& pieces, Backend* device) {
  std::vector<WrittenFile> open;
  for (const StateFile& file : files_)
    open.emplace_back(*options_.files, (fs::path(temporary_) / file.name).string(), O_WRONLY);
  WireWriter checksums;
  for (const StatePiece& piece : pieces)
    checksums.put(write_piece(open[piece.file], piece, device));
  for (WrittenFile& file : open) file.sync(), file.close();
  return checksums.take();
}

// Returns the CRC-32C. `device`, if it is not null, reads values on the device instead of their
// own backend.
uint32_t CheckpointSave::write_piece(WrittenFile& file, const StatePiece& piece, Backend* device) {
  int64_t to = files_[piece.file].layout.item(piece.parameter->name).at + 4 * piece.first;
  uint32_t crc = 0;
  for (int64_t at = 0, n = piece.values.numel(); at < n; at += kCheckpointChunk) {
    const Tensor chunk = piece.values.slice(at, {std::min(kCheckpointChunk, n - at)});
    Backend& backend = chunk.backend();
    const bool reads = backend.host_addressable();
    const Tensor here = reads ? chunk : buffers_[0].slice(0, chunk.shape());
    if (!reads)
      (device && chunk.memory().pool() == Pool::device ? *device : backend)
          .download(chunk, here.address());
    const auto bytes = std::as_bytes(here.data<float>());
    crc = crc32c(bytes, crc);
    file.write(bytes, to);
    to += chunk.bytes();
  }
  return crc;
}

bool CheckpointSave::written() const {
  return writing_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

CheckpointRecord CheckpointSave::commit() {
  const auto waits = std::chrono::steady_clock::now();
  const auto checksums = results_or_remove("checkpoint written", [&] { return writing_.get(); });
  const std::string problem = results_or_remove("checkpoint complete", [&]() -> std::string {
    if (comm_.rank() != 0) return "";
    describe_files(checksums);
    finish_folder();
    return error_of([&] { point_and_remove_older(); });
  })[0];
  buffers_.clear();
  return {.folder = folder_,
          .step = manifest_.position.step,
          .bytes = manifest_.bytes(),
          .seconds = seconds_since(begin_),
          .stall = stall_ + seconds_since(waits),
          .problem = problem};
}

// Rank 0: sizes and checksums for the manifest.
void CheckpointSave::describe_files(const std::vector<std::string>& checksums) {
  const auto tensors = tensor_checksums(stage_, files_, checksums);
  for (size_t f = 0; f < files_.size(); ++f) {
    const SafetensorsLayout& layout = files_[f].layout;
    ManifestFile& file = manifest_.files[files_[f].name];
    file.bytes = layout.bytes();
    uint32_t whole = crc32c(std::as_bytes(std::span(layout.header())));
    for (const SafetensorsLayout::Item& item : layout.items()) {
      const uint32_t crc = tensors[f].at(item.name);
      file.tensors[item.name] = crc_text(crc);
      whole = crc32c_join(whole, crc, item.bytes());
    }
    file.crc32c = crc_text(whole);
  }
}

// Rank 0: the folder gets its name when all of it is durable.
void CheckpointSave::finish_folder() {
  FileCalls& calls = *options_.files;
  const std::string text = manifest_text(manifest_);
  WrittenFile file(calls, (fs::path(temporary_) / "checkpoint.json").string(),
                   O_WRONLY | O_CREAT | O_EXCL);
  file.write(std::as_bytes(std::span(text)), 0);
  file.sync();
  file.close();
  sync_folder(calls, temporary_);
  rename_path(calls, temporary_, folder_);
  temporary_.clear();
  renamed_ = true;
  sync_folder(calls, options_.folder);
}

// Only now that the new one is durable.
void CheckpointSave::point_and_remove_older() {
  FileCalls& calls = *options_.files;
  PendingFile latest((fs::path(options_.folder) / "latest").string(), calls);
  const std::string name = fs::path(folder_).filename().string() + "\n";
  latest.write(name.data(), name.size());
  latest.commit();
  remove_old_checkpoints(options_, manifest_.position.step);
}

}  // namespace zl
