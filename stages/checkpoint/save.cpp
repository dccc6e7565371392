#include "stages/checkpoint/save.h"

#include <fcntl.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <set>
#include <utility>

#include "dist/trace/host_id.h"
#include "dist/wire.h"
#include "stages/checkpoint/agreement.h"
#include "stages/checkpoint/checkpoint_folder.h"
#include "stages/checkpoint/piece_checksums.h"
#include "stages/checkpoint/writer.h"
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
  std::vector<Tensor> buffers;
  const auto on_disk = [&](const UnitState& u) {
    return std::ranges::any_of(files, [&](const StateFile& file) {
      return shard_of(stage, u, file).memory().pool() == Pool::disk;
    });
  };
  if (writes != CheckpointWrites::snapshot) {
    if (!host_reads || std::ranges::any_of(stage.units(), on_disk))
      buffers.push_back(Tensor::empty(host, MemoryUse::workspace, {kCheckpointChunk}));
    return buffers;
  }
  // One block, so that each save takes the pages of the one before: parts that are placed anew
  // touch other pages of the pool's segments, and the process grows beyond what is counted.
  std::vector<Tensor> shards;
  int64_t n = 0, at = 0;
  for (const UnitState& u : stage.units())
    for (const StateFile& file : files) {
      shards.push_back(shard_of(stage, u, file));
      n += shards.back().numel();
    }
  const Tensor all = Tensor::empty(host, MemoryUse::workspace, {n});
  for (const Tensor& shard : shards) {
    buffers.push_back(all.slice(std::exchange(at, at + shard.numel()), shard.shape()));
    kernel::copy(shard, buffers.back());
  }
  return buffers;
}

// The writer of a rank. After an error it does nothing more: the ranks exchange errors at the
// commit.
class CheckpointSave::RankWriter {
 public:
  RankWriter(Stage& stage, const std::function<std::unique_ptr<PieceWriter>()>& open)
      : stage_(stage) {
    attempt([&] { pieces_ = open(); });
  }

  void write(const std::vector<StatePiece>& pieces) {
    attempt([&] {
      for (const StatePiece& piece : pieces)
        checksums_.push_back(checksum_of(stage_, piece, pieces_->write(piece)));
    });
  }
  void finish() {
    attempt([&] { pieces_->finish(); });
    done_ = true;
  }
  // All of it; in the save's thread `device` reads the device's memory.
  void run(const std::vector<StatePiece>& pieces, Backend* device) {
    attempt([&] {
      if (device != nullptr) pieces_->read_through(*device);
    });
    write(pieces);
    finish();
  }

  bool done() const { return done_; }
  // Both only after the end.
  const std::string& error() const { return error_; }
  const std::vector<PieceChecksum>& checksums() const { return checksums_; }

 private:
  void attempt(const std::function<void()>& action) {
    if (error_.empty()) error_ = error_of(action);
  }

  Stage& stage_;
  std::unique_ptr<PieceWriter> pieces_;
  std::vector<PieceChecksum> checksums_;
  std::string error_;
  std::atomic<bool> done_ = false;
};

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
  on_all_ranks_or_remove("checkpoint begins", [&] {
    if (comm_.rank() == 0) begin_folder();
  });
  const bool rank0_writes = agree_on_folder();
  const CheckpointWrites writes = rank0_writes ? CheckpointWrites::wait : options.writes;
  buffers_ =
      save_buffers(stage_, files_, run.host, writes, stage_.memory().backend().host_addressable());
  stage_.memory().backend().synchronize();  // the last update and the copies are complete
  snapshot_ = writes == CheckpointWrites::snapshot;
  const bool chunk = !snapshot_ && !buffers_.empty();
  if (!rank0_writes || comm_.rank() == 0)
    writer_ = std::make_unique<RankWriter>(stage_, [&] {
      return std::make_unique<PieceWriter>(*options_.files, temporary_, files_,
                                           chunk ? buffers_[0] : Tensor());
    });
  if (rank0_writes)
    broadcast_to_rank0();
  else if (writes == CheckpointWrites::wait)
    writer_->run(shard_pieces(), nullptr);
  else
    thread_ = std::thread([writer = writer_.get(), pieces = shard_pieces(), device = run.device] {
      writer->run(pieces, device);
    });
  stall_ = seconds_since(begin_);
}

CheckpointSave::~CheckpointSave() { remove_temporary(); }

void CheckpointSave::remove_temporary() {
  if (thread_.joinable()) thread_.join();
  writer_.reset();  // closes the files
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
  temporary_ = str(folder_, ".tmp-", ::getpid(), "-", nonce);
  if (calls.mkdir(temporary_) != 0) {
    const int reason = errno;
    throw OutputError(
        str(std::exchange(temporary_, ""), ": cannot be created: ", std::strerror(reason)));
  }
  for (const StateFile& state : files_) {
    WrittenFile file(calls, (fs::path(temporary_) / state.name).string(),
                     O_WRONLY | O_CREAT | O_EXCL);
    file.reserve(state.layout.bytes());
    file.write(std::as_bytes(std::span(state.layout.header())), 0);
    file.close();
  }
}

// All ranks learn the folder. Returns whether rank 0 writes for all.
bool CheckpointSave::agree_on_folder() {
  WireWriter mine;
  mine.put(options_.rank0_writes).put(on_nfs(options_.folder)).text(boot_id()).text(host_name());
  mine.text(temporary_);
  std::set<std::string> hosts;
  bool asked = false, shared = false;
  for (const std::string& bytes : comm_.all_gather_object(mine.take(), "checkpoint folder")) {
    WireReader theirs(bytes);
    asked |= theirs.get<bool>();
    shared |= theirs.get<bool>();
    const std::string boot = theirs.text(), host = theirs.text();
    hosts.insert(boot.empty() ? host : boot);
    const std::string temporary = theirs.text();
    if (!temporary.empty()) temporary_ = temporary;  // rank 0's
  }
  return asked || (shared && hosts.size() > 1);
}

// After an error of a rank, all ranks throw it, and no temporary folder is left.
void CheckpointSave::on_all_ranks_or_remove(std::string_view name,
                                            const std::function<void()>& action) {
  try {
    on_all_ranks(comm_, name, [&] {
      const std::string error = error_of(action);
      if (!error.empty())
        throw OutputError(
            str("the checkpoint of step ", manifest_.position.step,
                renamed_ ? " is written, but may be lost with the power: " : " was not saved: ",
                comm_.size() > 1 ? str("rank ", comm_.rank(), ": ") : "", error));
    });
  } catch (const OutputError&) {
    remove_temporary();
    throw;
  }
}

// What this rank writes, from its shards or from their copies.
std::vector<StatePiece> CheckpointSave::shard_pieces() {
  std::vector<StatePiece> all;
  size_t copy = 0;
  if (!saves_shards(stage_)) return all;
  for (const UnitState& u : stage_.units())
    for (size_t f = 0; f < files_.size(); ++f) {
      const Tensor values = snapshot_ ? buffers_[copy++] : shard_of(stage_, u, files_[f]);
      std::ranges::move(pieces_of(u, f, comm_.rank(), values), std::back_inserter(all));
    }
  return all;
}

// Unit by unit every rank broadcasts its shard, which only rank 0 keeps: NCCL has no other way to
// bring it there. So a rank holds one shard at a time.
void CheckpointSave::broadcast_to_rank0() {
  if (!saves_shards(stage_)) return;
  Communicator& group = stage_.shard_group();
  for (const UnitState& u : stage_.units())
    for (size_t f = 0; f < files_.size(); ++f) {
      const Tensor shard = shard_of(stage_, u, files_[f]);
      if (shard.numel() == 0) continue;
      if (writer_) writer_->write(pieces_of(u, f, 0, shard));
      const std::string text = u.name() + " " + files_[f].name;
      const bool offloaded = &shard.memory() != &stage_.memory();
      for (int r = 1; r < group.size(); ++r) {
        const bool mine = r == group.rank();
        const Tensor sent =
            mine && !offloaded
                ? shard
                : Tensor::empty(stage_.memory(), MemoryUse::communication, shard.shape());
        if (mine && offloaded) kernel::copy(shard, sent);
        group.broadcast(sent, r, {text, Purpose::checkpoint}).wait();
        if (writer_) writer_->write(pieces_of(u, f, r, sent));
      }
    }
  if (writer_) writer_->finish();
}

bool CheckpointSave::written() const { return !writer_ || writer_->done(); }

CheckpointRecord CheckpointSave::commit() {
  const auto waits = std::chrono::steady_clock::now();
  if (thread_.joinable()) thread_.join();
  on_all_ranks_or_remove("checkpoint written", [&] {
    if (writer_ && !writer_->error().empty()) throw OutputError(writer_->error());
  });
  const auto checksums =
      comm_.all_gather_object(writer_ ? encode(writer_->checksums()) : "", "checkpoint checksums");
  std::string problem;
  on_all_ranks_or_remove("checkpoint complete", [&] {
    if (comm_.rank() != 0) return;
    describe_files(checksums);
    finish_folder();
    problem = error_of([&] { point_and_remove_older(); });
  });
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
  std::vector<std::vector<PieceChecksum>> of_ranks;
  for (const std::string& bytes : checksums) of_ranks.push_back(decode_checksums(bytes));
  const auto tensors = join_checksums(stage_, files_, of_ranks);
  for (size_t f = 0; f < files_.size(); ++f) {
    const SafetensorsLayout& layout = files_[f].layout;
    ManifestFile& file = manifest_.files[files_[f].name];
    file.bytes = layout.bytes();
    file.tensors = tensors[f];
    file.crc = crc32c(std::as_bytes(std::span(layout.header())));
    for (const SafetensorsLayout::Item& item : layout.items())
      file.crc = crc32c_join(file.crc, file.tensors[item.name], item.bytes());
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
  if (calls.rename(temporary_, folder_) != 0)
    throw OutputError(
        str(temporary_, ": cannot be renamed to ", folder_, ": ", std::strerror(errno)));
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
