// Ctrl-C: the first asks the run to end in order, the second ends the program at once.
#pragma once

namespace zl::cli {

// Takes over SIGINT. Also keeps a reader that goes away (`zerolab … | head -1`) from killing the
// program.
void watch_signals();

// Opens /dev/null in place of stdin, stdout or stderr if they came closed. Call it before any file
// is opened.
void open_standard_streams();

// Whether Ctrl-C was pressed. Any thread may ask.
bool interrupt_requested();

}  // namespace zl::cli
