// The recorded runs of tests/golden/runs.json: what was run, and every quantity that it gave.
//
// A quantity is a name and a text, such as "zero3 memory device gradient": "rest 12544 x3, peak
// 20736 x3". What is too long to read is a hash; the last number is in clear beside it.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace golden {

using Quantities = std::map<std::string, std::string>;

struct Record {
  std::string name;     // unique
  std::string program;  // who runs the command; tests/golden/run.h lists them
  std::string command;  // words with single blanks between them; "NAME=x" first: the environment
  bool keys = false;    // the quantities are the paths of the JSON document, not its values
  Quantities expect;
};

std::vector<Record> recorded();

// Whether ZEROLAB_RECORD_GOLDEN=1 asks to rewrite runs.json with what the runs give now.
bool recording();

// Runs each record of these programs with `measure`, and checks that it gives what was recorded.
// While recording, it writes down what each gives instead.
void check_or_record(const std::set<std::string>& programs,
                     const std::function<Quantities(const Record&)>& measure);

// "zero3 loss: recorded '…', now '…'": one line per quantity that differs. Empty: none does.
std::vector<std::string> differences(const Quantities& recorded, const Quantities& now);

// The text of a file with these records, and back.
std::string to_text(const std::vector<Record>& records);
std::vector<Record> from_text(const std::string& text);

std::string hash(const std::string& bytes);              // 16 hexadecimal digits
std::string exactly(double value);                       // all its bits, as text
std::string of_ranks(const std::vector<int64_t>& each);  // "12544 x3", "16 16 12"

}  // namespace golden
