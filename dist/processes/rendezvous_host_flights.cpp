// What rank 0 makes of the last calls of all ranks.
#include "dist/processes/rendezvous_host.h"
#include "tensor/error.h"

namespace zl {

namespace {

using namespace std::chrono_literals;

int64_t last_collective(const FlightRecorder& flight) {  // its number; 0: none
  int64_t last = 0;
  for (const FlightRecord& record : flight.recent(64))
    if (!record.call.between_two()) last = record.call.sequence;
  return last;
}

}  // namespace

// What is known of the calls of a rank. Where it trusts calls the meeting misses them, and it has
// told of more itself.
const FlightRecorder& MeetingHost::flight(int rank) const {
  const FlightRecorder& own = remotes_[size_t(rank)].own;
  return own.calls() > meeting_.flight(rank).calls() ? own : meeting_.flight(rank);
}

std::string MeetingHost::flights() const {
  std::string text;
  for (int r = 0; r < size_; ++r)
    text += flight_report(r, flight(r), r == 0 ? rank0_ended_ : remotes_[size_t(r)].ended,
                          steady_nanoseconds());
  return text;
}

std::string MeetingHost::explain(int rank) const {
  std::vector<const FlightRecorder*> flights;
  for (int r = 0; r < size_; ++r) flights.push_back(&flight(r));
  if (std::string text = first_mismatch_text(flights); !text.empty()) return text;
  const int64_t own = last_collective(flight(rank));
  std::string text;
  for (int r = 0; own > 0 && r < size_; ++r)
    if (r != rank && last_collective(flight(r)) < own)
      text += str(text.empty() ? "" : "; ",
                  "not there: ", last_seen(r, flight(r), steady_nanoseconds()));
  return text;
}

void MeetingHost::collect(int but, std::chrono::milliseconds patience,
                          const std::function<bool()>& done) {
  std::vector<int64_t> before;
  for (const RemoteRank& remote : remotes_) before.push_back(remote.flights);
  for (int r = 1; r < size_;
       ++r)  // who does not read is not waited for here, with a failure to be told
    if (r != but) (void)send_if_free(r, LineMessage::send_flight, "");
  const auto all_sent = [&] {
    for (int r = 1; r < size_; ++r)
      if (const RemoteRank& remote = remotes_[size_t(r)];
          r != but && !remote.gone && remote.flights == before[size_t(r)])
        return false;
    return true;
  };
  const auto until = std::chrono::steady_clock::now() + patience;
  while (!done() && !all_sent() && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(1ms);
}

void MeetingHost::judge(int rank, const std::string& why) {
  collect(rank, kFlightsToFindOut, [&] {
    return meeting_.failed();
  });  // whoever died, and made this call fail, is noticed meanwhile
  const bool explained = why.ends_with(kSameOrder);  // a mismatch is all the reason there is
  const std::string reason = explained ? "" : explain(rank);
  fail({reason.empty() ? why : str(reason, ". So ", why), ""});
}

}  // namespace zl
