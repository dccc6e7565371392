#include "dist/threads/local_fingerprint_check.h"

namespace zl {

MeetingAgreement::~MeetingAgreement() {
  for (auto& [letter, parcel] : letters_) meeting_.withdraw(*parcel);
}

int64_t MeetingAgreement::post(const Call& call, const EventStream& events) {
  auto parcel = std::make_unique<Parcel>();
  parcel->call = call;
  parcel->rank = rank_;
  parcel->carries = false;
  meeting_.post(*parcel, events);
  const int64_t letter = parcel->record;
  letters_[letter] = std::move(parcel);
  return letter;
}

void MeetingAgreement::withdraw(int64_t letter, bool unwinding) noexcept {
  const auto found = letters_.find(letter);
  if (found == letters_.end()) return;
  meeting_.withdraw(*found->second, unwinding);
  letters_.erase(found);
}

}  // namespace zl
