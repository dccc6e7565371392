#!/usr/bin/env bash
# Tests of the script zl, and of the compiler cache that clones share: tests/zl/zl_test.sh [ZL]
# Each test copies zl into its own small project. apt-get is a fake that "installs" cmake and
# ninja as links; cmake, ninja and the compiler are real. Exit codes: 0, 1 if a check failed.
set -uo pipefail

source=$(readlink -f "$(dirname "${BASH_SOURCE[0]}")/../..")
zl=$(readlink -f "${1:-$source/zl}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
failed=0 code=0
unset ZEROLAB_DEPS ZEROLAB_APT ZL_PRESET CXX CXXFLAGS CMAKE_PREFIX_PATH MAKEFLAGS

check() { if "${@:2}"; then printf 'right  %s\n' "$1"; else printf 'WRONG  %s\n' "$1"; failed=1; fi; }
ends_with() { [ "$code" = "$1" ] || { printf '%s\n' "exit code $code:"; cat "$work/err"; return 1; } >&2; }
says() { grep -qF -- "$1" "$work/err" || { echo "'$1' is not in:"; cat "$work/err"; return 1; } >&2; }
silent_about() { ! grep -qF -- "$1" "$work/err" || { echo "'$1' is in:"; cat "$work/err"; return 1; } >&2; }
apt_calls() { cat "$work/apt.log" 2>/dev/null; }
no_apt_call() { [ -z "$(apt_calls)" ]; }

# A project of one program, in $tree, and a system that has all packages, in $system.
new_tree() {
  tree=$work/$1 system=$work/$1.system
  mkdir -p "$tree/tests/dist" "$tree/tutorials" "$system"/{etc/apt/sources.list.d,bin}
  mkdir -p "$system"/usr/include/{CLI,nlohmann,eigen3/Eigen,catch2}
  touch "$system"/usr/include/{CLI/CLI.hpp,nlohmann/json.hpp,eigen3/Eigen/Core,catch2/catch_test_macros.hpp}
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

# Programs that zl and a build need, without cmake, ninja and apt-get.
new_path() {
  local tool
  for tool in bash env sh awk cat cp flock grep head id mkdir mv nproc readlink realpath rm sed sort tail \
      tee touch sleep ln ls g++ c++ gcc cc as ld ar ranlib ctest; do
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
  chmod +x "$system/bin/apt-get"
  printf '#!/bin/bash\n[ "$1" != -n ] || shift\nexec "$@"\n' >"$system/bin/sudo"
  chmod +x "$system/bin/sudo"
}

# zl WORDS…, with NAME=VALUE words before them as its environment -> $code, $work/out, $work/err
run_zl() {
  local settings=()
  while [[ ${1:-} == *=* ]]; do settings+=("$1"); shift; done
  env ZL_SYSTEM="$system" "${settings[@]}" "$tree/zl" "$@" >"$work/out" 2>"$work/err" </dev/null
  code=$?
}

# --- what zl says and does before it installs --------------------------------------------------------

new_tree packages; new_path
run_zl PATH="$system/bin" ZEROLAB_APT=no compare
check "ZEROLAB_APT=no ends with 69" ends_with 69
check "ZEROLAB_APT=no names the packages" says "missing: cmake ninja-build"
check "ZEROLAB_APT=no calls no apt-get" no_apt_call
check "MPI is not needed" silent_about libopenmpi-dev
run_zl PATH="$system/bin" ZEROLAB_APT=no test --mpi
check "test --mpi needs both MPIs" says "openmpi-bin libopenmpi-dev mpich libmpich-dev"
check "and ends with 69 without them" ends_with 69
touch "$work/apt.broken"
run_zl PATH="$system/bin" compare
check "a failed installation ends with 69 and the reason" ends_with 69
check "what apt-get said is shown" says "E: no such package"
rm "$work/apt.broken"
run_zl PATH="$system/bin" compare these words
check "the set-up can be repeated: packages are installed, and the program runs" ends_with 4
check "stdout is the program's alone" [ "$(cat "$work/out")" = compare ]
check "the packages are named before apt-get is called" \
  grep -qE 'will install with apt-get: cmake ninja-build' "$work/apt.said"
check "no package source is added without need" [ -z "$(ls "$system/etc/apt/sources.list.d")" ]
rm "$work/apt.log"
run_zl PATH="$system/bin" compare
check "with all packages there, apt-get is not called" no_apt_call

new_tree sources; new_path
rm "$system/usr/include/catch2/catch_test_macros.hpp"
run_zl PATH="$system/bin" ZEROLAB_APT=no test
check "ZEROLAB_APT=no names the package source that is needed" \
  says "http://mirror.test/debian bookworm-backports main"
check "and adds none" [ -z "$(ls "$system/etc/apt/sources.list.d")" ]
run_zl PATH="$system/bin" test -N
check "the package source is named before apt-get is called" \
  grep -qF "will add the package source 'http://mirror.test/debian bookworm-backports main' as /etc" \
  "$work/apt.said"
check "and added" \
  grep -q 'URIs: http://mirror.test/debian' "$system/etc/apt/sources.list.d/bookworm-backports.sources"
check "Catch2 is taken from it" grep -q 'install -t bookworm-backports catch2' "$work/apt.log"

new_tree interrupted; new_path
touch "$work/apt.slow"
: >"$work/err"
setsid env ZL_SYSTEM="$system" PATH="$system/bin" "$tree/zl" compare >"$work/out" 2>"$work/err" </dev/null &
for _ in {1..100}; do [ -e "$work/apt.started" ] || sleep 0.05; done
kill -TERM -- "-$!"
wait "$!"; code=$?
check "a signal during apt-get ends zl with 143" ends_with 143
check "and is reported on stderr, not in apt's log" says "zl: interrupted"
rm "$work/apt.slow"
run_zl PATH="$system/bin" compare
check "an interrupted installation can be repeated" ends_with 2

# --- a student's tree, which has no tests ----------------------------------------------------------------

new_tree student
sed -i 's/"configurePresets": \[/&\n  {"name": "course", "generator": "Ninja", "binaryDir": "${sourceDir}\/build\/${presetName}"},/' \
  "$tree/CMakePresets.json"
cat >"$tree/main.cpp" <<'TEXT'
#include <cstdio>
#include <cstdlib>
int main() { std::puts(std::getenv("ZL_COMMAND")); }
TEXT
run_zl exercise
check "a tree with tests is built in build/default" [ -x "$tree/build/default/zerolab" ]
check "the program learns how zl was called" [ "$(cat "$work/out")" = "$tree/zl" ]
run_zl --preset course exercise
check "and with which preset" [ "$(cat "$work/out")" = "$tree/zl --preset course" ]
rm -r "$tree/tests" "$tree/build"
run_zl exercise
check "a tree without tests is built in build/course" [ -x "$tree/build/course/zerolab" ]
check "where no word about the preset is needed" [ "$(cat "$work/out")" = "$tree/zl" ]
run_zl test
check "it says that it has no tests" says "this tree has no tests"
check "which is a usage error" ends_with 2

# --- a configuration that fails leaves nothing behind --------------------------------------------------

new_tree bad_compiler
run_zl CXX=/bin/false doctor
check "a compiler that fails ends with 69" ends_with 69
check "and the message names it" says "CXX=/bin/false"
run_zl doctor
check "the next run without it is right" ends_with 2
run_zl CXX=/bin/false doctor
check "later another CXX is reported as without effect" says "CXX=/bin/false has no effect"
run_zl CXX="$(sed -n 's/^CMAKE_CXX_COMPILER:[^=]*=//p' "$tree/build/default/CMakeCache.txt")" doctor
check "the same CXX is not" silent_about "no effect"

new_tree bad_flags
run_zl CXXFLAGS=--nonsense doctor
check "flags that fail end with 69" ends_with 69
run_zl doctor
check "the next run without them is right" ends_with 2
touch "$tree/catch2_cannot_be_downloaded"
run_zl test
check "tests that cannot be configured end with 69" ends_with 69
run_zl doctor
check "the program is still built and run" ends_with 2
check "without configuring again" silent_about "configuring"
run_zl ZEROLAB_DEPS=/nowhere doctor
check "a wrong ZEROLAB_DEPS ends with 69" ends_with 69
run_zl doctor
check "and is forgotten" ends_with 2

mv "$tree" "$tree.moved"; tree=$tree.moved
run_zl CXX=/bin/false doctor
check "a moved tree whose first configuration fails ends with 69" ends_with 69
run_zl doctor
check "the next run is right" ends_with 2
run_zl doctor
check "and the one after it configures nothing" silent_about "configuring"
cp "$tree/build/default/CMakeCache.txt" "$tree/build/default/zl-kept-cache"    # as if interrupted
sed -i 's/^CMAKE_HOME_DIRECTORY.*/CMAKE_HOME_DIRECTORY:INTERNAL=\/half/' "$tree/build/default/CMakeCache.txt"
run_zl doctor
check "after an interrupted configuration the one that worked is used" silent_about "configuring"

if localedef -i tr_TR -f UTF-8 "$work/tr_TR.UTF-8" 2>/dev/null; then
  run_zl LOCPATH="$work" LC_ALL=tr_TR.UTF-8 doctor
  check "in a Turkish locale nothing is configured again" silent_about "configuring"
else
  echo "not tested: localedef cannot make the locale tr_TR.UTF-8 here"
fi

# --- small things --------------------------------------------------------------------------------------

run_zl --preset
check "--preset without a name is a usage error" ends_with 2
check "and says so" says "--preset needs a name"
run_zl run '*'
check "a pattern is no lesson" ends_with 2
check "the lessons are named" says "there are: 05"
run_zl run 5 a b
check "a lesson runs by its number" ends_with 3
mkdir "$work/nearly_empty" && ln -s "$(command -v bash)" "$work/nearly_empty/bash"
run_zl PATH="$work/nearly_empty" doctor
check "a PATH without the basic programs is named" says "is not on PATH"
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
run_zl test --random 40 --pairwise --seed 7
check "test --random passes on its number and seed" [ "$(cat "$work/out")" = "40 7 [random][pairs]" ]
run_zl test --random 40 --sed 7
check "and takes no other words" ends_with 2

# --- the compiler cache ----------------------------------------------------------------------------------

if command -v ccache >/dev/null; then
  for clone in one two; do
    mkdir -p "$work/$clone/cmake"
    cp "$source/cmake/ZerolabCompilerCache.cmake" "$work/$clone/cmake"
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
      export CCACHE_DIR=$work/cache CCACHE_CONFIGPATH=$work/no.conf
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
