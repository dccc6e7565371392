#include "dist/processes/control_messages.h"

#include <algorithm>
#include <sstream>
#include <tuple>

#include "tensor/error.h"
#include "tensor/printable.h"

namespace zl {
namespace {

// "'seed=8', and rank 0 with 'seed=7'": the first line in which two texts differ.
std::string first_difference(const std::string& ours, const std::string& theirs) {
  std::istringstream a(ours), b(theirs);
  for (;;) {
    std::string one = "nothing", other = "nothing";
    const bool any = bool(std::getline(a, one)) | bool(std::getline(b, other));
    if (!any || one != other)
      return str("'", printable(other), "', and rank 0 with '", printable(one), "'");
  }
}

}  // namespace

std::string refusal_text(const RankStarts& came, const RankStart& one) {
  const LaunchedRank &place = one.place, &rank_0 = came.at(0).place;
  if (place.size != rank_0.size)
    return str("rank ", place.rank, " was started as one of ", place.size,
               " ranks, and rank 0 as one of ", rank_0.size, "; give all the same WORLD_SIZE");
  if (place.rank < 1 || place.rank >= place.size)
    return str("a process says that it is rank ", place.rank, " of ", place.size);
  if (came.contains(place.rank))
    return str("two processes say that they are rank ", place.rank,
               "; does each get its own RANK?");
  if (one.options.settings != came.at(0).options.settings)
    return str("rank ", place.rank, " was started with ",
               first_difference(came.at(0).options.settings, one.options.settings),
               "; start all ranks with the same settings and files");
  const auto gpu = [](const RankStart& of) {
    return std::tie(of.host, of.machine, of.options.gpu);
  };
  for (const auto& [rank, other] : came)
    if (!one.options.gpu.empty() && gpu(one) == gpu(other))
      return str("ranks ", std::min(rank, place.rank), " and ", std::max(rank, place.rank),
                 " both use GPU ", printable(one.options.gpu), " of ", printable(one.host),
                 ": NCCL needs one GPU per rank; start no more ranks than there are GPUs, let them "
                 "be threads (--backend threads), or test NCCL with zerolab launch --share-gpu");
  return "";
}

std::string waited_text(const RankStart& one) {
  return str("rank ", one.place.rank, " waited ",
             human_time(std::chrono::nanoseconds(one.timeout).count()));
}

std::string missing_text(const RankStarts& came, bool other_version) {
  const RankStart& rank_0 = came.at(0);
  const int others = rank_0.place.size - 1;
  uint64_t missing = 0;
  for (int r = 1; r <= others; ++r) missing |= uint64_t(!came.contains(r)) << r;
  return str(
      waited_text(rank_0), " at port ", rank_0.place.port, " for ", others,
      others == 1 ? " other rank; missing: " : " other ranks; missing: ", ranks_text(missing),
      other_version ? " (a zerolab of another version connected: rebuild it on all machines)" : "",
      ". Were all started, with the same WORLD_SIZE, and can they reach ", rank_0.place.address,
      "? A slow start needs a larger --timeout");
}

std::string died_text(int rank) {
  return str("rank ", rank,
             " has died: its process ended without notice (killed, out of memory, or by its own "
             "exit())");
}

std::string silent_text(int rank, int64_t silence) {
  return str("rank ", rank, " has given no sign of life for ", human_time(silence),
             ": its process is stopped, or its machine or the network is gone");
}

std::string encode(const RankStart& start) {
  return to_bytes(start.place.rank, start.place.size, start.place.run, start.options.settings,
                  start.options.gpu, start.host, start.machine);
}

RankStart decode_start(const std::string& bytes) {
  RankStart start;
  WireReader(bytes).read(start.place.rank, start.place.size, start.place.run,
                         start.options.settings, start.options.gpu, start.host, start.machine);
  return start;
}

std::string encode(const RunFailure& failure) {
  return to_bytes(failure.why, failure.detail, failure.report);
}

RunFailure decode_failure(WireReader& wire) {
  RunFailure failure;
  wire.read(failure.why, failure.detail, failure.report);
  return failure;
}

std::string detail_of(const std::exception& error) {
  const auto* memory = dynamic_cast<const OutOfMemory*>(&error);
  return memory ? to_bytes(memory->what(), memory->rank, memory->pool, memory->phase, memory->unit,
                           memory->asked)
                : "";
}

void throw_failure(const RunFailure& failure) {
  if (failure.why.empty()) return;
  if (failure.detail.empty()) throw CommunicationError(failure.why);
  if (failure.detail == kInputFailure) throw InputError(failure.why);
  WireReader wire(failure.detail);  // braces read from left to right
  throw OutOfMemory{wire.get<std::string>(), wire.get<int>(),         wire.get<Pool>(),
                    wire.get<std::string>(), wire.get<std::string>(), wire.get<int64_t>()};
}

std::string encode(const FlightRecorder& flight, int64_t most) {
  const std::vector<FlightRecord> records = flight.recent(most);
  const int64_t now = steady_nanoseconds();
  std::string bytes = to_bytes(flight.calls(), uint64_t(records.size()));
  for (const FlightRecord& record : records) {
    FlightRecord sent = record;  // its pointers say nothing to another process; texts follow
    sent.began = now - record.began, sent.changed = now - record.changed;
    bytes += to_bytes(sent, record.call.name, record.call.group.label, record.phase, record.unit);
  }
  return bytes;
}

void decode(const std::string& bytes, EventStream& texts, FlightRecorder& flight) {
  WireReader wire(bytes);
  const int64_t now = steady_nanoseconds(), calls = wire.get<int64_t>();
  const auto count = wire.get<uint64_t>();
  if (calls < flight.calls() || count > uint64_t(kAllRecords) || count > uint64_t(calls))
    throw CommunicationError("a message holds an impossible number of calls");
  std::vector<FlightRecord> records;
  const auto text = [&] {
    const auto text = wire.get<std::string>();
    return std::string_view(texts.keep(text), text.size());
  };
  for (uint64_t left = count; left > 0; --left) {
    auto record = wire.get<FlightRecord>();
    const auto within = [](auto value, auto last) { return unsigned(value) <= unsigned(last); };
    const Call& call = record.call;
    if (!within(call.kind, Collective::receive) || !within(call.dtype, Dtype::u8) ||
        !within(call.reduction, Reduction::mean) || !within(record.state, CallState::failed))
      throw CommunicationError("a message holds an impossible call");
    record.call.name = text(), record.call.group.label = text();
    record.phase = text().data(), record.unit = text().data();
    record.began = now - record.began, record.changed = now - record.changed;
    records.push_back(record);
  }
  flight.update(records, calls);
}

}  // namespace zl
