#include "dist/processes/control_messages.h"

#include <bit>

#include "dist/run_ranks.h"

namespace zl {
namespace {

bool known(const Call& call) {
  return call.kind >= Collective::all_reduce && call.kind <= Collective::receive &&
         call.dtype >= Dtype::f32 && call.dtype <= Dtype::u8 && call.peer >= -1 &&
         call.peer < kMostRanks && call.group.number >= 0 &&
         (call.group.number == 0 || call.peer < std::popcount(call.group.ranks));
}

}  // namespace

std::string encode(const FlightRecorder& flight, int64_t most) {
  const std::vector<FlightRecord> records = flight.recent(most);
  const int64_t now = steady_nanoseconds();
  WireWriter wire;
  wire.put(flight.calls()).put(uint64_t(records.size()));
  for (const FlightRecord& record : records) {
    FlightRecord sent = record;  // without its texts, which follow
    sent.call.name = sent.call.group.label = {};
    sent.phase = sent.unit = nullptr;
    sent.began = now - record.began, sent.changed = now - record.changed;
    wire.put(sent).text(record.call.name).text(record.call.group.label);
    wire.text(record.phase).text(record.unit);
  }
  return wire.take();
}

void decode(const std::string& bytes, EventStream& texts, FlightRecorder& flight) {
  WireReader wire(bytes);
  const int64_t now = steady_nanoseconds(), calls = wire.get<int64_t>();
  const auto count = wire.get<uint64_t>();
  if (calls < flight.calls() || count > uint64_t(kAllRecords) || count > uint64_t(calls))
    throw CommunicationError("a message holds an impossible number of calls");
  std::vector<FlightRecord> records;
  const auto text = [&] {
    const std::string text = wire.text();
    return std::string_view(texts.keep(text), text.size());
  };
  for (uint64_t left = count; left > 0; --left) {
    auto record = wire.get<FlightRecord>();
    record.call.name = text(), record.call.group.label = text();
    record.phase = text().data(), record.unit = text().data();
    record.began = now - record.began, record.changed = now - record.changed;
    if (!known(record.call)) throw CommunicationError("a message holds an unknown call");
    records.push_back(record);
  }
  flight.update(records, calls);
}

}  // namespace zl
