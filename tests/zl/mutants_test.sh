#!/usr/bin/env bash
# Tests of `zl test --mutants`: tests/zl/mutants_test.sh
# tests/mutants/run works on a small project with the same names: a library of one file, and a unit_tests that takes the
# options of Catch2 that the script uses. Exit codes: 0, 1 if a check failed.
set -uo pipefail

root=$(readlink -f "$(dirname "${BASH_SOURCE[0]}")/../..")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tree=$work/tree failed=0 code=0
mkdir -p "$tree"/{nn,tests/mutants}
cp "$root/tests/mutants/run" "$tree/tests/mutants/run"

check() { if "${@:2}"; then printf 'right  %s\n' "$1"; else printf 'WRONG  %s\n' "$1"; cat "$work/out"; failed=1; fi; }
ends_with() { [ "$code" = "$1" ]; }
says() { grep -qF -- "$1" "$work/out"; }
silent_about() { ! grep -qF -- "$1" "$work/out"; }
run() { "$tree/tests/mutants/run" "$tree/build" "$@" >"$work/out" 2>&1; code=$?; }

cat >"$tree/nn/gpt.cpp" <<'TEXT'
// How many.
int answer() {
  return 42;
}
TEXT
cat >"$tree/tests/unit_tests.cpp" <<'TEXT'
#include <cstdio>
#include <cstring>
int answer();
const char* const kTests =
    "<Name>the answer, in [full]</Name>\n<File>../tests/unit_tests.cpp</File>\n"
    "<Name>never right</Name>\n<File>../tests/unit_tests.cpp</File>";
int main(int, char** words) {
  if (std::strcmp(words[1], "--list-tests") == 0) return std::puts(kTests), 0;
  if (std::strcmp(words[2], "never right") == 0) return 1;
  return std::strcmp(words[1], "--abort") != 0 || std::strcmp(words[2], "the answer\\, in \\[full\\]") != 0 || answer() != 42;
}
TEXT
cat >"$tree/CMakeLists.txt" <<'TEXT'
cmake_minimum_required(VERSION 3.22)
project(small LANGUAGES CXX)
add_library(zerolab_nn OBJECT nn/gpt.cpp)
add_library(zerolab $<TARGET_OBJECTS:zerolab_nn>)
add_executable(unit_tests tests/unit_tests.cpp)
target_link_libraries(unit_tests PRIVATE zerolab)
set_target_properties(unit_tests PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests")
TEXT
built() { cmake -G Ninja -S "$tree" -B "$tree/build" >"$work/out" 2>&1 && cmake --build "$tree/build" >"$work/out" 2>&1; }
check "the small project builds" built

# The patch NAME, which replaces "return 42;" by LINE.
patch_of() {                               # NAME LINE [TEST [header line]]
  printf 'Bug: none.\nFinds: %s\n%s\n--- a/nn/gpt.cpp\n+++ b/nn/gpt.cpp\n@@ -2,3 +2,3 @@\n int answer() {\n-  return 42;\n+  %s\n }\n' \
    "${3:-the answer, in [full]}" "${4:-}" "$2" >"$tree/tests/mutants/$1.patch"
}
only() { rm -f "$tree"/tests/mutants/*.patch; patch_of "$@"; }

only wrong 'return 41;'
run
check "a bug that the test finds" ends_with 0
check "is found" says 'wrong: found'
check "and counted" says '1 passed, 0 failed'
run
check "it is not run again" silent_about '[1/'
check "and still counted" says '1 passed, 0 failed'
sed -i '1i // Another comment.' "$tree/tests/unit_tests.cpp"
check "the small project builds again" built
run
check "a test of the same object is not run again" silent_about '[1/'
sed -i 's/answer() != 42/answer() < 42 || answer() > 42/' "$tree/tests/unit_tests.cpp"
check "the small project builds with another test" built
run
check "a changed test is run again" says 'wrong: found'
run --again
check "--again repeats what was found" says '] wrong: found'
patch_of wrong 'return 43;'
run
check "a changed patch is run again" says '[1/1] wrong: found'

only same 'return 6 * 7;'
run
check "a bug that no test finds" ends_with 1
check "survives" says 'same: SURVIVES'
check "and is counted" says '0 passed, 1 failed'

only crash '__builtin_trap();'
run
check "a crash is found" says 'crash: found'

only elsewhere 'return 41;'
sed -i 's/return 42/return 40/' "$tree/tests/mutants/elsewhere.patch"
run
check "a patch that does not apply is an error" ends_with 1
check "that names it and its file" says 'elsewhere: does not apply to nn/gpt.cpp'

only broken 'return;'
run
check "a patch that does not compile is an error" ends_with 1
check "and no found bug" says 'broken: does not compile'

only hangs 'for (volatile int i = 0;;) (void)i;'
run --limit 1
check "a test that hangs is an error" ends_with 1
check "unless the patch says so" says 'does not end'
only hangs 'for (volatile int i = 0;;) (void)i;' '' 'Finds by: deadline'
run --limit 1
check "if it says so, the bug is found" ends_with 0
only wrong 'return 41;' '' 'Finds by: deadline'
run
check "a test that ends although the patch says that it hangs is an error" ends_with 1

only wrong 'return 41;' 'never right'
run
check "a test that fails without the bug is an error" ends_with 1
check "and no found bug" says 'fails without the bug'
only wrong 'return 41;' 'no test'
run
check "a test that is not there is an error" says 'unit_tests has no such test'

rm "$tree"/tests/mutants/*.patch
for i in {1..9}; do patch_of "p$i" 'return 41;'; done
names() { run --sample 3 --seed "$1"; grep -o '^p[0-9]' "$work/out" | sort | paste -sd' '; }
first=$(names 1)
check "a sample has as many as it says" [ "$(wc -w <<<"$first")" = 3 ]
check "one seed takes the same ones" [ "$(names 1)" = "$first" ]
check "another takes others" [ "$(names 2) $(names 3)" != "$first $first" ]
run p1 p10
check "a name that is not there is an error" says 'there is no'
exit "$failed"
