// The contract of the tests' own exercise: what its student's file defines.
#pragma once

namespace zl::exercises {

// Twice x.
double answer(double x);

}  // namespace zl::exercises
