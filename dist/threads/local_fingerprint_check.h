// The agreement of a rank with others at a Meeting in the same process.
#pragma once

#include <map>
#include <memory>

#include "dist/fingerprint_check.h"
#include "dist/threads/rendezvous.h"

namespace zl {

class MeetingAgreement : public Agreement {
 public:
  MeetingAgreement(Meeting& meeting, int rank) : meeting_(meeting), rank_(rank) {}
  ~MeetingAgreement() override;

  int64_t agree(const Call& call, const EventStream& events) override {
    return meeting_.agree(rank_, call, events);
  }
  void tell(int64_t record, FlightRecord::State state) override {
    meeting_.tell(rank_, record, state);
  }
  std::vector<std::string> exchange(const Call& call, const std::string& text,
                                    const EventStream& events) override {
    return meeting_.exchange(rank_, call, text, events);
  }

  int64_t post(const Call& call, const EventStream& events) override;
  void await(int64_t letter) override { meeting_.await(*letters_.at(letter)); }
  bool has_met(int64_t letter) const override {
    return letters_.at(letter)->state == Parcel::State::done;
  }
  void withdraw(int64_t letter, bool unwinding) noexcept override;

  bool fail(const std::string& why) override { return meeting_.fail(why); }
  bool failed() const override { return meeting_.failed(); }

 protected:
  std::string told(const Call& call) override { return meeting_.told(rank_, call); }
  Meeting& meeting() { return meeting_; }
  int rank() const { return rank_; }

 private:
  Meeting& meeting_;
  const int rank_;
  std::map<int64_t, std::unique_ptr<Parcel>> letters_;  // by their number in the flight recorder
};

}  // namespace zl
