// What this process cost the system: pages that it touched for the first time, and how much memory
// it holds.
#pragma once

#include <cstdint>
#include <optional>

namespace zl::cli {

int64_t minor_page_faults();  // of all threads, since the process began

// The most memory that the process holds at one time while this object lives. Before it begins,
// memory that was given back to the C library goes back to the system, so that what ran before does
// not count.
class PeakResident {
 public:
  PeakResident();
  int64_t before() const {
    return before_;
  }  // [B] held when it began: program, libraries, what others keep
  // [B]; nothing where the system cannot count anew, as the peak would be that of something that
  // ran before.
  std::optional<int64_t> peak() const;

 private:
  int64_t before_ = 0;
  bool anew_ = false;
};

}  // namespace zl::cli
