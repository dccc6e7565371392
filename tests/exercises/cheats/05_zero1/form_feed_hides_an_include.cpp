// diagnosis: the control character of byte 12
// check: refused
// clang-format off
// A compiler joins lines at a backslash with a form feed behind it.
namespace { constexpr const char* a = "\
 R"/*(
*/; }
#include "stages/zero1.cpp"
// )/*"
