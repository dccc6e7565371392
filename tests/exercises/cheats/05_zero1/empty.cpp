// diagnosis: it does not define zl::make_zero1(…)
// check: refused
// The linker would take the function of the library.
