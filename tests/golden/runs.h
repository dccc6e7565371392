// The frozen runs of tests/golden/runs.txt: two lines each, the command and what it gave.
//
//   zerolab train --stage ddp --ranks 3 …
//     ddp, 3 ranks | 0f3c…, exit 0, loss 5.25, norm 1.75, peak 918324 B, sent 370736 B
//
// The first word is who runs the command: zerolab, or the program on_fake (a fake NCCL),
// on_emulator (an emulated GPU), or own_model (tutorials/own_model.cpp). "NAME=x" before it is a
// variable of the environment. Of a run whose name begins with "keys of", the paths of the JSON
// document count instead of the values.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace golden {

struct Run {
  std::string name;  // unique
  std::string command;
  std::string gave;  // a hash of all that the run gave, and the numbers that one wants to see first
};
std::vector<Run> frozen();

// What a run gives: "stages[3].memory[2].peak_bytes": "20736". A number has all its bits.
using Items = std::map<std::string, std::string>;
struct Result {
  Items items;
  std::string gave;  // as in Run
};
// Of the text of a JSON document, without what depends on the machine or on the moment: times,
// names of files.
Result result(const std::string& json, bool keys = false);
// Runs one of the programs.
Result measure(const Run& run);

// Whether ZEROLAB_RECORD_GOLDEN=1 asks to rewrite runs.txt with what the runs give now.
bool recording();
// Measures all runs, and checks that each gives what was recorded; skipped where a build has other
// bits. While recording, it writes down what each gives instead.
void check_or_record();
// "" if the run gives what was recorded; else both, all that it gives now, and how to go on.
std::string difference(const Run& recorded, const Result& now);

std::string hash(const std::string& bytes);  // 16 hexadecimal digits

}  // namespace golden
