#include "dist/processes/control_messages.h"

#include <bit>

#include "dist/run_ranks.h"

namespace zl {
namespace {

Call get_call(WireReader& wire, EventStream& texts) {
  Call call;
  call.kind = wire.get<Collective>();
  call.dtype = wire.get<Dtype>();
  call.reduction = wire.get<Reduction>();
  call.peer = wire.get<int>();
  call.count = wire.get<int64_t>();
  call.sequence = wire.get<int64_t>();
  call.has_deadline = wire.get<bool>();
  call.group.number = wire.get<int>();
  call.group.ranks = wire.get<uint64_t>();
  const std::string text = wire.text();
  call.name = {texts.keep(text), text.size()};
  const std::string label = wire.text();
  call.group.label = {texts.keep(label), label.size()};
  const bool known = call.kind >= Collective::all_reduce && call.kind <= Collective::receive &&
                     call.dtype >= Dtype::f32 && call.dtype <= Dtype::u8 && call.peer >= -1 &&
                     call.peer < kMostRanks && call.group.number >= 0 &&
                     (call.group.number == 0 || call.peer < std::popcount(call.group.ranks));
  if (!known) throw CommunicationError("a message holds an unknown call");
  return call;
}

}  // namespace

std::string encode(const FlightRecorder& flight, int64_t most) {
  const std::vector<FlightRecord> records = flight.recent(most);
  const int64_t now = steady_nanoseconds();
  WireWriter wire;
  wire.put(flight.calls()).put(uint64_t(records.size()));
  for (const FlightRecord& record : records) {
    const Call& call = record.call;
    wire.put(call.kind).put(call.dtype).put(call.reduction).put(call.peer).put(call.count);
    wire.put(call.sequence).put(call.has_deadline).put(call.group.number);
    wire.put(call.group.ranks).text(call.name).text(call.group.label);
    wire.text(record.phase).text(record.unit);
    wire.put(record.state).put(now - record.began).put(now - record.changed);
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
  for (uint64_t left = count; left > 0; --left) {
    FlightRecord record{.call = get_call(wire, texts)};
    record.phase = texts.keep(wire.text());
    record.unit = texts.keep(wire.text());
    record.state = wire.get<CallState>();
    record.began = now - wire.get<int64_t>();
    record.changed = now - wire.get<int64_t>();
    records.push_back(record);
  }
  flight.update(records, calls);
}

}  // namespace zl
