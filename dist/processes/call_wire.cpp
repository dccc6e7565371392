#include "dist/processes/call_wire.h"

#include "dist/threads/rendezvous.h"

namespace zl {
namespace {

constexpr int64_t kRecords = 64;  // enough to find where two ranks parted

bool is_dtype(Dtype dtype) {
  switch (dtype) {
    case Dtype::f32:
    case Dtype::bf16:
    case Dtype::f16:
    case Dtype::f64:
    case Dtype::i32: return true;
  }
  return false;
}

void put(WireWriter& wire, const Call& call) {
  wire.put(call.kind)
      .put(call.dtype)
      .put(call.reduction)
      .put(call.peer)
      .put(call.count)
      .put(call.sequence)
      .put(call.patient);
  wire.text(call.name);
}

Call get(WireReader& wire, EventStream& events) {
  Call call;
  call.kind = wire.get<Collective>();
  call.dtype = wire.get<Dtype>();
  call.reduction = wire.get<Reduction>();
  call.peer = wire.get<int>();
  call.count = wire.get<int64_t>();
  call.sequence = wire.get<int64_t>();
  call.patient = wire.get<bool>();
  const bool known = call.kind >= Collective::all_reduce && call.kind <= Collective::receive &&
                     is_dtype(call.dtype) && call.peer >= -1 && call.peer < kMostRanks;
  if (!known) throw CommunicationError("a call that there is not");
  const std::string text = wire.text();
  call.name = {events.keep(text), text.size()};
  return call;
}

}  // namespace

void put_call(WireWriter& wire, const Call& call, const EventStream& events) {
  put(wire, call);
  wire.text(events.phase()).text(events.unit());
}

Call get_call(WireReader& wire, EventStream& events) {
  const Call call = get(wire, events);
  events.set_phase(wire.text());
  events.set_unit(wire.text());
  return call;
}

std::string encode(const FlightRecorder& flight) {
  const std::vector<FlightRecord> records = flight.recent(kRecords);
  const int64_t now = steady_nanoseconds();
  WireWriter wire;
  wire.put(flight.calls()).put(uint64_t(records.size()));
  for (const FlightRecord& record : records) {
    put(wire, record.call);
    wire.text(record.phase).text(record.unit);
    wire.put(record.state).put(now - record.began).put(now - record.changed);
  }
  return wire.take();
}

void decode(const std::string& bytes, EventStream& events, FlightRecorder& flight) {
  WireReader wire(bytes);
  const int64_t now = steady_nanoseconds(), calls = wire.get<int64_t>();
  std::vector<FlightRecord> records;
  const auto count = wire.get<uint64_t>();
  if (calls < 0 || count > uint64_t(kRecords) || count > uint64_t(calls))
    throw CommunicationError("more calls than there can be");
  for (uint64_t left = count; left > 0; --left) {
    FlightRecord record{.call = get(wire, events)};
    record.phase = events.keep(wire.text());
    record.unit = events.keep(wire.text());
    record.state = wire.get<FlightRecord::State>();
    record.began = now - wire.get<int64_t>();
    record.changed = now - wire.get<int64_t>();
    records.push_back(record);
  }
  flight.replace(records, calls);
}

}  // namespace zl
