// The pictures of the documents. Each is drawn from what the library does when it is drawn: a real
// run of a tiny model, a tape, a ledger, a ring. They show no times, and nothing that depends on
// the machine, so the files in tutorials/pictures/ can be compared byte for byte.
#pragma once

#include <string>
#include <vector>

namespace zl::draw {

struct Picture {
  const char* name;         // tutorials/pictures/NAME.svg
  const char* page;         // the document that shows it
  const char* description;  // for the list
  std::string (*draw)();    // the SVG file
};

const std::vector<Picture>& pictures();

std::string draw_ranks();            // 00
std::string draw_live_bytes();       // 01
std::string draw_tape();             // 02
std::string draw_step_memory();      // 03
std::string draw_ring();             // 04
std::string draw_buckets();          // 05
std::string draw_shards();           // 06
std::string draw_bucket_peaks();     // 07
std::string draw_full_parameters();  // 08
std::string draw_number_ranges();    // 09
std::string draw_offload();          // 10
std::string draw_prefetch();         // 11
std::string draw_activations();      // 12
std::string draw_checkpoint();       // 13
std::string draw_failures();         // 14
std::string draw_step_times();       // 15
std::string draw_stages();           // README.md
std::string draw_unit_calls();       // internals.md
std::string draw_in_flight();        // overlap.md

}  // namespace zl::draw
