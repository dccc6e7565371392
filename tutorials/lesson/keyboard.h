// Single keys of a terminal. It is in raw mode only while a key is awaited, and signals restore it too.
#pragma once

namespace zl::lesson {

// Whether a person can see stdout and answer on stdin.
bool has_keyboard();
// Waits for a key of stdin. 'q' at its end.
char read_key();
// Rows of the terminal on stdout; 24 if it does not say.
int terminal_rows();

}  // namespace zl::lesson
