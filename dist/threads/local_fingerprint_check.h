// The fingerprint check of a rank that is a thread, at the Rendezvous of its process.
#pragma once

#include <map>
#include <memory>

#include "dist/fingerprint_check.h"
#include "dist/threads/rendezvous.h"
#include "tensor/platform/driver_turns.h"

namespace zl {

class LocalFingerprintCheck final : public FingerprintCheck {
 public:
  LocalFingerprintCheck(Rendezvous& rendezvous, int rank) : rendezvous_(rendezvous), rank_(rank) {}
  ~LocalFingerprintCheck() override {
    for (auto& [record, entry] : entries_) at(entry->call).withdraw(*entry);
  }

  int64_t require_same_call(const Call& call, const EventStream& events) override {
    return at(call).require_same_call(rank_in(call), call, events);
  }
  void issue_together(const Call& call, const std::function<void()>& issue) override {
    const auto wait_for_all = [&] { at(call).wait_for_issuers(rank_in(call), call); };
    wait_for_all();  // before that a rank may allocate, and would wait for this one's turn
    {
      const IssueTurn turn;
      wait_for_all();  // all have their turn
      issue();
    }
    wait_for_all();
  }
  void set_state(int64_t record, CallState state) override {
    rendezvous_.set_state(rank_, record, state);
  }
  std::vector<std::string> all_gather_object(const Call& call, const std::string& text,
                                             const EventStream& events) override {
    return at(call).all_gather_object(rank_in(call), call, text, events);
  }

  int64_t post(const Call& call, const EventStream& events) override {
    auto entry = std::make_unique<QueueEntry>();
    entry->call = call;
    entry->rank = rank_in(call);
    entry->has_data = false;
    at(call).post(*entry, events);
    const int64_t record = entry->record;
    entries_[record] = std::move(entry);
    return record;
  }
  void wait_for_match(int64_t record) override {
    at(entries_.at(record)->call).wait_for_match(*entries_.at(record));
  }
  bool has_match(int64_t record) const override {
    return entries_.at(record)->state == QueueEntry::State::done;
  }
  void withdraw(int64_t record, bool unwinding) noexcept override {
    const auto found = entries_.find(record);
    if (found == entries_.end()) return;
    at(found->second->call).withdraw(*found->second, unwinding);
    entries_.erase(found);
  }

  bool fail(const std::string& why) override { return rendezvous_.fail(why); }
  bool failed() const override { return rendezvous_.failed(); }

 protected:
  std::string failure_in(const Call& call) override {
    return at(call).failure_in(rank_in(call), call);
  }

 private:
  Rendezvous& at(const Call& call) { return rendezvous_.group(call.group); }
  int rank_in(const Call& call) const { return call.group.in_group(rank_); }

  Rendezvous& rendezvous_;
  const int rank_;
  std::map<int64_t, std::unique_ptr<QueueEntry>>
      entries_;  // by their number in the flight recorder
};

}  // namespace zl
