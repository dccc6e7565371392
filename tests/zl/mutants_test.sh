#!/usr/bin/env bash
# Tests of `zl test --mutants`: tests/zl/mutants_test.sh
# tests/mutants/run works on a small project with the same names: a library of one file, and a unit_tests that takes the
# options of Catch2 that the script uses. Exit codes: 0, 1 if a check failed.
. "$(dirname "${BASH_SOURCE[0]}")/claims.sh"
tree=$work/tree page=$work/out
mkdir -p "$tree"/{nn,tests/mutants}
cp "$root/tests/mutants/run" "$tree/tests/mutants/run"

run() { "$tree/tests/mutants/run" "$tree/build" "$@" >"$work/out" 2>&1; code=$?; }

# ran WHAT EXIT TEXTS OPTIONS…: the claim WHAT of a run, which ends with EXIT; TEXTS, which ';' separates, are for `says`
ran() {
  local texts
  IFS=';' read -ra texts <<<"$3"
  run "${@:4}"
  as_told() { ends_with "$1" && says "${@:2}"; }
  check "$1" as_told "$2" "${texts[@]}"
}

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
ran "a bug that the test finds is found, and counted" 0 'wrong: found;1 passed, 0 failed'
ran "it is not run again, and still counted" 0 '![1/;1 passed, 0 failed'
sed -i '1i // Another comment.' "$tree/tests/unit_tests.cpp"
check "the small project builds again" built
ran "a test of the same object is not run again" 0 '![1/'
sed -i 's/answer() != 42/answer() < 42 || answer() > 42/' "$tree/tests/unit_tests.cpp"
check "the small project builds with another test" built
ran "a changed test is run again" 0 'wrong: found'
ran "--again repeats what was found" 0 '] wrong: found' --again
patch_of wrong 'return 43;'
ran "a changed patch is run again" 0 '[1/1] wrong: found'

only same 'return 6 * 7;'
ran "a bug that no test finds survives, and is counted" 1 'same: SURVIVES;0 passed, 1 failed'
only crash '__builtin_trap();'
ran "a crash is found" 0 'crash: found'
only elsewhere 'return 41;'
sed -i 's/return 42/return 40/' "$tree/tests/mutants/elsewhere.patch"
ran "a patch that does not apply is an error that names it and its file" \
  1 'elsewhere: does not apply to nn/gpt.cpp'
only broken 'return;'
ran "a patch that does not compile is an error, and no found bug" 1 'broken: does not compile'

only hangs 'for (volatile int i = 0;;) (void)i;'
ran "a test that hangs is an error, unless the patch says so" 1 'does not end' --limit 1
only hangs 'for (volatile int i = 0;;) (void)i;' '' 'Finds by: deadline'
ran "if it says so, the bug is found" 0 '' --limit 1
only wrong 'return 41;' '' 'Finds by: deadline'
ran "a test that ends although the patch says that it hangs is an error" 1 ''

only wrong 'return 41;' 'never right'
ran "a test that fails without the bug is an error, and no found bug" 1 'fails without the bug'
only wrong 'return 41;' 'no test'
ran "a test that is not there is an error" 1 'unit_tests has no such test'

rm "$tree"/tests/mutants/*.patch
for i in {1..9}; do patch_of "p$i" 'return 41;'; done
names() { run --sample 3 --seed "$1"; grep -o '^p[0-9]' "$work/out" | sort | paste -sd' '; }
first=$(names 1)
check "a sample has as many as it says" [ "$(wc -w <<<"$first")" = 3 ]
check "one seed takes the same ones" [ "$(names 1)" = "$first" ]
check "another takes others" [ "$(names 2) $(names 3)" != "$first $first" ]
ran "a name that is not there is an error" 2 'there is no' p1 p10
exit "$failed"
