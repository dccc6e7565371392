// Commands as lines, the documents they print, and training runs that tests stop and resume.
#pragma once

#include <initializer_list>

#include "tests/zerolab/process.h"

namespace cli {

using Words = std::vector<std::string>;

// The words of a line: blanks separate them, but not between two '.
Words words(const std::string& line);
Finished call(const std::string& line);  // zerolab with these words
// The JSON that a command which ends with 0 prints with --json, which this adds.
std::string document(const std::string& line);
// zerolab with the words of `line`, which gets `signal` once stderr shows `text`.
Finished stopped_at(const std::string& text, int signal, const std::string& line);

// Checks that all of `parts` are in `text`.
void check_says(const std::string& text, std::initializer_list<std::string> parts);
// Checks that a command ends with this code, nothing on stdout and `part` on stderr.
void check_refused(const Finished& finished, const std::string& part, int code = 2);
std::vector<std::string> keys(const std::string& object);  // of JSON, in its order
std::vector<std::string> starting(const std::string& text, const std::string& begin);  // lines
size_t count(const std::string& text, const std::string& part);

// A run of the tiny model without a sample: its line, and that run, quiet.
std::string tiny_run(int steps, const std::string& more);
Finished train(int steps, const std::string& more);
std::string report_in(const std::string& folder);                // report.json
std::vector<std::string> metrics_of(const std::string& folder);  // lines without the seconds
std::string weights_of(const std::string& folder);               // the bytes of model.safetensors
Words checkpoints_in(const std::string& folder);                 // their names

}  // namespace cli
