// diagnosis: '$' outside a string
// check: refused
// clang-format off
// A compiler may take a dollar for a letter.
constexpr int operator""_$R(const char*, unsigned long) { return 0; }
constexpr int a = "x"_$R"(";
#include "stages/zero1.cpp"
// )"
