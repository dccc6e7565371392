#!/usr/bin/env bash
# Tests of the script zl, and of the compiler cache that clones share: tests/zl/zl_test.sh [ZL]
# Each test copies zl into its own small project. apt-get is a fake that "installs" cmake and
# ninja as links; cmake, ninja and the compiler are real. Exit codes: 0, 1 if a check failed.
. "$(dirname "${BASH_SOURCE[0]}")/claims.sh"
zl=$(readlink -f "${1:-$root/zl}")
chmod 755 "$work"
unset ZEROLAB_DEPS ZEROLAB_APT ZL_PRESET CXX CXXFLAGS CMAKE_PREFIX_PATH MAKEFLAGS

page=$work/err                             # what zl says
prints() { [ "$(cat "$work/out")" = "$1" ] || { echo "stdout is:"; cat "$work/out"; return 1; } >&2; }
no_apt_call() { [ ! -s "$work/apt.log" ]; }

# A project of one program, in $tree, and a system that has all packages, in $system.
new_tree() {
  tree=$work/$1 system=$work/$1.system
  mkdir -p "$tree/tests/dist" "$tree/tutorials" "$system"/{etc/apt/sources.list.d,bin}
  mkdir -p "$system"/usr/include/{CLI,nlohmann,eigen3/Eigen,catch2}
  touch "$system"/usr/include/{zlib.h,CLI/CLI.hpp,nlohmann/json.hpp,eigen3/Eigen/Core,catch2/catch_test_macros.hpp}
  echo VERSION_CODENAME=bookworm >"$system/etc/os-release"
  cp "$zl" "$tree/zl"
  cat >"$tree/CMakePresets.json" <<'TEXT'
{"version": 3, "configurePresets": [
  {"name": "default", "generator": "Ninja", "binaryDir": "${sourceDir}/build/${presetName}"}]}
TEXT
  cat >"$tree/CMakeLists.txt" <<'TEXT'
cmake_minimum_required(VERSION 3.22)
project(small LANGUAGES CXX)
if(ZEROLAB_BUILD_TESTS AND EXISTS "${PROJECT_SOURCE_DIR}/catch2_cannot_be_downloaded")
  message(FATAL_ERROR "no Catch2")
endif()
if(ZEROLAB_DEPS AND NOT IS_DIRECTORY "${ZEROLAB_DEPS}")
  message(FATAL_ERROR "ZEROLAB_DEPS is no folder")
endif()
set(ZEROLAB_CUDA_SAYS "not compiled" CACHE INTERNAL "")
add_executable(zerolab_cli main.cpp)
add_custom_target(zerolab_exercises)
add_executable(zerolab_exercise EXCLUDE_FROM_ALL main.cpp)
set_target_properties(zerolab_exercise PROPERTIES OUTPUT_NAME zerolab-exercise)
add_executable(zerolab_bench EXCLUDE_FROM_ALL main.cpp)
set_target_properties(zerolab_cli PROPERTIES OUTPUT_NAME zerolab)
add_executable(05_lesson main.cpp)
set_target_properties(05_lesson PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tutorials")
TEXT
  cat >"$tree/main.cpp" <<'TEXT'
#include <cstdio>
int main(int n, char** words) { std::puts(n > 1 ? words[1] : "no words"); return n > 1 ? n : 0; }
TEXT
  touch "$tree/tutorials/05_lesson.cpp"
  rm -f "$work"/apt.*
}

# Programs that zl and a build need, without cmake, ninja and apt-get -> $path
new_path() {
  local tool
  path=PATH=$system/bin
  for tool in bash env sh awk cat cp flock grep head id mkdir mv nproc readlink realpath rm sed sort tail tee \
      touch sleep ln ls g++ c++ gcc cc as ld ar ranlib ctest; do
    [ -e "$system/bin/$tool" ] || ln -s "$(command -v "$tool")" "$system/bin/$tool"
  done
  cat >"$system/bin/apt-get" <<TEXT
#!/bin/bash
case "\$*" in
  *indextargets*bookworm-backports) exit 0 ;;
  *indextargets*) echo http://mirror.test/debian; exit 0 ;;
esac
cp "$work/err" "$work/apt.said"        # what zl had said by now
echo "\$*" >>"$work/apt.log"
case "\$*" in *install*)
  [ ! -e "$work/apt.slow" ] || { touch "$work/apt.started"; sleep 3; }
  [ ! -e "$work/apt.broken" ] || { echo "E: no such package"; exit 100; }
  for tool in cmake ninja; do ln -sf "\$(PATH=$PATH command -v \$tool)" "$system/bin/\$tool"; done
  touch "$system/usr/include/catch2/catch_test_macros.hpp" ;;
esac
TEXT
  printf '#!/bin/bash\n[ "$1" != -n ] || shift\nexec "$@"\n' >"$system/bin/sudo"
  chmod +x "$system"/bin/{apt-get,sudo}
}

# zl WORDS…, with NAME=VALUE words before them as its environment -> $code, $work/out, $work/err
run_zl() {
  local settings=()
  while [[ ${1:-} == *=* ]]; do settings+=("$1"); shift; done
  env ZL_SYSTEM="$system" "${settings[@]}" "$tree/zl" "$@" >"$work/out" 2>"$work/err" </dev/null
  code=$?
}

# zl WHAT EXIT TEXT WORDS…: the claim WHAT of run_zl WORDS…, which ends with EXIT ("any" code) and says TEXT
# (!TEXT: does not say it; =TEXT: stdout is TEXT; -: anything)
zl() {
  run_zl "${@:4}"
  as_told() {
    [ "$1" = any ] || ends_with "$1" || return
    case $2 in -) ;; !*) silent_about "${2#!}" ;; =*) prints "${2#=}" ;; *) says "$2" ;; esac
  }
  check "$1" as_told "$2" "$3"
}

# --- what zl says and does before it installs --------------------------------------------------------

new_tree packages; new_path
zl "ZEROLAB_APT=no ends with 69 and names the packages" \
  69 "missing: cmake ninja-build" "$path" ZEROLAB_APT=no compare
check "ZEROLAB_APT=no calls no apt-get" no_apt_call
check "MPI is not needed" silent_about libopenmpi-dev
mkdir -p "$tree/tutorials" && printf '#!/bin/sh\necho "$@"\n' >"$tree/tutorials/docs.sh" && chmod +x "$tree/tutorials/docs.sh"
zl "docs needs cmark-gfm" 69 "missing: cmake ninja-build cmark-gfm" "$path" ZEROLAB_APT=no docs
zl "packages lists it" 69 "cmark-gfm" "$path" ZEROLAB_APT=no packages
zl "docs --help needs nothing" 0 =--help "$path" ZEROLAB_APT=no docs --help
zl "docs refuses other words before it builds" 2 "docs takes --out DIR" "$path" docs --ut x
zl "test --mpi needs an MPI" \
  69 "openmpi-bin libopenmpi-dev" "$path" ZEROLAB_APT=no test --mpi
touch "$work/apt.broken"
zl "a failed installation ends with 69 and what apt-get said" 69 "E: no such package" "$path" compare
rm "$work/apt.broken"
zl "the set-up can be repeated: packages are installed, and the program runs, alone on stdout" \
  4 =compare "$path" compare these words
check "the packages are named before apt-get is called" \
  grep -qE 'will install with apt-get: cmake ninja-build' "$work/apt.said"
check "no package source is added without need" [ -z "$(ls "$system/etc/apt/sources.list.d")" ]
rm "$work/apt.log"
run_zl "$path" compare
check "with all packages there, apt-get is not called" no_apt_call

new_tree sources; new_path
rm "$system/usr/include/catch2/catch_test_macros.hpp"
zl "ZEROLAB_APT=no names the package source that is needed" \
  any "http://mirror.test/debian bookworm-backports main" "$path" ZEROLAB_APT=no test
check "and adds none" [ -z "$(ls "$system/etc/apt/sources.list.d")" ]
run_zl "$path" test -N
check "the package source is named before apt-get is called" grep -qF \
  "will add the package source 'http://mirror.test/debian bookworm-backports main' as /etc" "$work/apt.said"
check "and added" \
  grep -q 'URIs: http://mirror.test/debian' "$system/etc/apt/sources.list.d/bookworm-backports.sources"
check "Catch2 is taken from it" grep -q 'install -t bookworm-backports catch2' "$work/apt.log"

new_tree interrupted; new_path
touch "$work/apt.slow"
: >"$work/err"
setsid env ZL_SYSTEM="$system" "$path" "$tree/zl" compare >"$work/out" 2>"$work/err" </dev/null &
for _ in {1..100}; do [ -e "$work/apt.started" ] || sleep 0.05; done
kill -TERM -- "-$!"
wait "$!"; code=$?
check "a signal during apt-get ends zl with 143" ends_with 143
check "and is reported on stderr, not in apt's log" says "zl: interrupted"
rm "$work/apt.slow"
zl "an interrupted installation can be repeated" 2 - "$path" compare

# --- a student's tree, which has no tests ----------------------------------------------------------------

new_tree student
sed -i 's/"configurePresets": \[/&\n  {"name": "course", "generator": "Ninja", "binaryDir": "${sourceDir}\/build\/${presetName}"},/' \
  "$tree/CMakePresets.json"
printf '#include <%s>\n' cstdio cstdlib >"$tree/main.cpp"
echo 'int main() { std::puts(std::getenv("ZL_COMMAND")); }' >>"$tree/main.cpp"
zl "the program learns how zl was called" 0 "=$tree/zl" exercise list
check "a tree with tests is built in build/default" [ -x "$tree/build/default/zerolab-exercise" ]
check "with the judge's Catch2" grep -q ZEROLAB_EXERCISES:.*=ON "$tree/build/default/CMakeCache.txt"
check "without the program that needs no exercise" [ ! -e "$tree/build/default/zerolab" ]
check "without the program of bench" [ ! -e "$tree/build/default/zerolab_bench" ]
zl "which bench builds, also below launch" 0 - launch -n 2 -- bench comm
check "beside the first program" [ -x "$tree/build/default/zerolab_bench" ]
zl "and with which preset" 0 "=$tree/zl --preset course" --preset course exercise list
rm -r "$tree/tests" "$tree/build"
zl "a tree without tests needs no word about the preset" 0 "=$tree/zl" exercise list
check "and is built in build/course" [ -x "$tree/build/course/zerolab-exercise" ]
zl "that it has no tests is a usage error" 2 "this tree has no tests" test

# --- words that are checked before anything is built ---------------------------------------------------

new_tree words
zl "exercise needs one of its commands" 2 "list, start, check, hint, board or pack, not ''" exercise
zl "a word that is none is named" 2 "not 'lst'" exercise lst
zl "test names the folders that there are" 2 "there is no folder tests/nonesuch" test nonesuch
check "which are those of the tree" says "there are: dist"
check "and nothing is built" [ ! -e "$tree/build" ]

# --- a configuration that fails leaves nothing behind --------------------------------------------------

new_tree bad_compiler
zl "a compiler that fails ends with 69, and the message names it" 69 "CXX=/bin/false" CXX=/bin/false doctor
zl "the next run without it is right" 2 - doctor
zl "later another CXX is reported as without effect" 2 "CXX=/bin/false has no effect" CXX=/bin/false doctor
zl "the same CXX is not" 2 "!no effect" \
  CXX="$(sed -n 's/^CMAKE_CXX_COMPILER:[^=]*=//p' "$tree/build/default/CMakeCache.txt")" doctor

new_tree bad_flags
zl "flags that fail end with 69" 69 - CXXFLAGS=--nonsense doctor
zl "the next run without them is right" 2 - doctor
touch "$tree/catch2_cannot_be_downloaded"
zl "tests that cannot be configured end with 69" 69 - test
zl "the program is still built and run, without configuring again" 2 "!configuring" doctor
zl "a wrong ZEROLAB_DEPS ends with 69" 69 - ZEROLAB_DEPS=/nowhere doctor
zl "and is forgotten" 2 - doctor

mv "$tree" "$tree.moved"; tree=$tree.moved
zl "a moved tree whose first configuration fails ends with 69" 69 - CXX=/bin/false doctor
zl "the next run is right" 2 - doctor
zl "and the one after it configures nothing" 2 "!configuring" doctor
cp "$tree/build/default/CMakeCache.txt" "$tree/build/default/zl-kept-cache"    # as if interrupted
sed -i 's/^CMAKE_HOME_DIRECTORY.*/CMAKE_HOME_DIRECTORY:INTERNAL=\/half/' "$tree/build/default/CMakeCache.txt"
zl "after an interrupted configuration the one that worked is used" 2 "!configuring" doctor

if localedef -i tr_TR -f UTF-8 "$work/tr_TR.UTF-8" 2>/dev/null; then
  zl "in a Turkish locale nothing is configured again" \
    2 "!configuring" LOCPATH="$work" LC_ALL=tr_TR.UTF-8 doctor
else
  echo "not tested: localedef cannot make the locale tr_TR.UTF-8 here"
fi

# --- small things --------------------------------------------------------------------------------------

zl "--preset without a name is a usage error" 2 "--preset needs a name" --preset
zl "a pattern is no lesson, and the lessons are named" 2 "there are: 05" run '*'
zl "a lesson runs by its number" 3 - run 5 a b
mkdir "$work/nearly_empty" && ln -s "$(command -v bash)" "$work/nearly_empty/bash"
zl "a PATH without the basic programs is named" any "is not on PATH" PATH="$work/nearly_empty" doctor
as_user=()
[ "$(id -u)" != 0 ] || as_user=(setpriv --reuid=65534 --regid=65534 --clear-groups)
chmod -R a+rX,a-w "$work"/*.moved
env ZL_SYSTEM="$system" "${as_user[@]}" "$tree/zl" doctor >"$work/out" 2>"$work/err" </dev/null; code=$?
check "in a folder that cannot be written the program that was built runs" ends_with 2
check "and zl says so" says "running zerolab as it was built"
check "without words of bash" silent_about "Permission denied"
chmod -R u+w "$work"/*.moved

new_tree random
cat >>"$tree/CMakeLists.txt" <<'TEXT'
add_executable(unit_tests main.cpp)
set_target_properties(unit_tests PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests")
TEXT
cat >"$tree/main.cpp" <<'TEXT'
#include <cstdio>
#include <cstdlib>
int main(int, char** words) {
  std::printf("%s %s %s", getenv("ZEROLAB_RANDOM_RUNS"), getenv("ZEROLAB_RANDOM_SEED"), words[1]);
}
TEXT
zl "test --random passes on its number and seed" \
  0 "=40 7 [random][pairs]" test --random 40 --pairwise --seed 7
zl "and takes no other words" 2 - test --random 40 --sed 7

# --- the compiler cache ----------------------------------------------------------------------------------

if command -v ccache >/dev/null; then
  for clone in one two; do
    mkdir -p "$work/$clone/cmake"
    cp "$root/cmake/ZerolabCompilerCache.cmake" "$work/$clone/cmake"
    printf 'inline int seven() { return 7; }\n' >"$work/$clone/seven.h"
    printf '#include "seven.h"\nint main() { return seven(); }\n' >"$work/$clone/main.cpp"
    cat >"$work/$clone/CMakeLists.txt" <<'TEXT'
cmake_minimum_required(VERSION 3.22)
project(cached LANGUAGES CXX)
include(cmake/ZerolabCompilerCache.cmake)
add_executable(main main.cpp)
target_include_directories(main PRIVATE "${PROJECT_SOURCE_DIR}")
TEXT
    (
      export CCACHE_DIR=$work/cache CCACHE_CONFIGPATH=$work/no.conf; unset CCACHE_DISABLE
      cmake -S "$work/$clone" -B "$work/$clone/build" -G Ninja && ccache -z &&
        cmake --build "$work/$clone/build" && ccache --print-stats
    ) >"$work/$clone/log" 2>&1
  done
  hits() { awk '/^(direct|preprocessed)_cache_hit/ { n += $2 } END { print n }' "$work/$1/log"; }
  check "the first clone fills the compiler cache" [ "$(hits one)" = 0 ]
  check "the second clone takes its objects from there" [ "$(hits two)" = 1 ]
else
  echo "not tested: there is no ccache here"
fi
exit "$failed"
