// diagnosis: is not among the headers of this exercise
// check: refused
// Includes the library's file.
#include "stages/zero1.cpp"
