#!/usr/bin/env bash
# Tests of cmake/ZerolabCuda.cmake: which host compiler nvcc gets, and what is said of it, of PTX and of NVTX.
# Each test configures a small project with a fake nvcc: it refuses the host compilers that the test names, as NVIDIA's
# crt/host_config.h does, and passes all else on to the real one. Without a real nvcc nothing is tested. Exit codes: 0, 1 if a check
# failed.
. "$(dirname "${BASH_SOURCE[0]}")/claims.sh"
page=$work/log
real=$(PATH=$PATH:${CUDA_HOME:-/usr/local/cuda}/bin:/usr/local/cuda/bin command -v nvcc) ||
  { echo "not tested: there is no nvcc here"; exit 0; }
unset CUDAHOSTCXX CUDAARCHS CUDACXX NVCC_CCBIN NVCC_PREPEND_FLAGS NVCC_APPEND_FLAGS

mkdir -p "$work"/{project/cmake,bin,compilers}
cp "$root/cmake/ZerolabCuda.cmake" "$work/project/cmake"
cat >"$work/project/CMakeLists.txt" <<'TEXT'
cmake_minimum_required(VERSION 3.22...3.31)
project(small LANGUAGES CXX)
set(CMAKE_CXX_STANDARD 20)
include(cmake/ZerolabCuda.cmake)
message("CUDA: ${ZEROLAB_HAVE_CUDA}, NVTX: ${ZEROLAB_HAVE_NVTX}, ${ZEROLAB_CUDA_SAYS}")
message("host: ${CMAKE_CUDA_HOST_COMPILER}")
TEXT

# $work/refused lists host compilers, and "default" if nvcc must not choose one. $work/without has "nvtx" if the header is missing.
printf '#!/bin/bash\nwork=%q real=%q\n' "$work" "$real" >"$work/bin/nvcc"
cat >>"$work/bin/nvcc" <<'TEXT'
[ "$*" != --version ] || { printf "nvcc: NVIDIA (R) Cuda compiler driver\nCuda compilation tools, release 12.0, V12.0.140\n"; exit; }
host=default words=()
while [ $# != 0 ]; do
  case $1 in
    -ccbin=*) host=${1#-ccbin=} ;;
    -ccbin) host=$2; shift ;;
    *) words+=("$1") ;;
  esac
  shift
done
host=${host//\"/}
if [[ ${words[*]} == *.cu* ]] && grep -qxF -- "${host##*/}" "$work/refused"; then
  says="host_config.h:132:2: error: #error -- unsupported GNU version! gcc versions later than 12 are not supported!"
fi
for word in "${words[@]}"; do
  [ -f "$word" ] && grep -qs nvtx "$work/without" && grep -qs '<nvtx3/' "$word" &&
    says="$word:1:10: fatal error: nvtx3/nvToolsExt.h: No such file or directory"
done
[ -z "${says:-}" ] || { echo "$says" >&2; exit 1; }
[[ ${words[*]} != *zerolab_nvcc.cu* ]] || exit 0   # a trial, in seconds less than the real one
# CMake asks about the real one each time it configures: the same files, which are compiled once.
for ((i = 0; i < ${#words[@]}; ++i)); do [ "${words[i]}" != -o ] || object=${words[i + 1]}; done
kept=$work/kept real=("$real" "-ccbin=$(cat "$work/works")" "${words[@]}")
case ${words[*]} in
  *CMakeCUDACompilerABI.cu*)
    [ -e "$kept.o" ] || { "${real[@]}" && cp "$object" "$kept.o"; } || exit
    cp "$kept.o" "$object" ;;
  *CMakeCUDACompilerId.cu*)
    [ -e "$kept" ] || { "${real[@]}" >"$kept.txt" 2>&1 && cp -r . "$kept"; } || exit
    cp -r "$kept/." .
    cat "$kept.txt" ;;
  *) exec "${real[@]}" ;;
esac
TEXT
printf '#!/bin/bash\n[ ! -e "%s/gpu" ] || { echo 9.0; exit; }\nexit 9\n' "$work" >"$work/bin/nvidia-smi"; chmod +x "$work"/bin/*

# A host compiler that nvcc works with whatever it is called: this machine has one or two only.
host=$(command -v g++-12 || command -v g++)
echo "$host" >"$work/works"
printf '#!/bin/bash\nexec "%s" "$@"\n' "$host" | tee "$work/compilers"/{g++-1{1..4},clang++} >"$work/out"
chmod +x "$work"/compilers/*

# configure REFUSED… -- OPTIONS…: with g++-13 for C++ -> $code, $work/log
configure() {
  : >"$work/refused"
  while [ $# != 0 ] && [ "$1" != -- ]; do echo "$1" >>"$work/refused"; shift; done
  rm -rf "$work/build"
  mkdir -p "$work/build"
  [ ! -d "$work/cxx" ] || cp -r "$work/cxx" "$work/build/CMakeFiles"   # what CMake found out about g++-13
  again "${@:2}"
  [ -d "$work/cxx" ] || { mkdir "$work/cxx"; cp -r "$work/build/CMakeFiles"/[0-9]* "$work/cxx"; }
}
again() {
  PATH=$work/bin:$work/compilers:$PATH cmake -S "$work/project" -B "$work/build" -G Ninja \
    "-DCMAKE_CXX_COMPILER=$work/compilers/g++-13" "$@" >"$work/log" 2>&1
  code=$?
}

# --- what is chosen, and what is said of it -----------------------------------------------------------------

refused="because it refuses g++-13, for" all=(g++-13 default g++-14 g++-12 g++-11 clang++)
configure --
check "without a GPU or a chosen architecture the part is left out, and the result says what builds it" \
  says "CUDA: OFF" "not compiled: there is nvcc 12.0, but nvidia-smi is not here or lists no GPU that nvcc compiles for; CUDAARCHS=90" "or ZEROLAB_CUDA=ON builds it all the same"
touch "$work/gpu"; again
check "where there is a GPU it is built for that" says "CUDA: ON, NVTX: ON, compiled by nvcc 12.0 for 90"
check "nvcc gets the compiler of the C++ code, nothing is said about it, nor about PTX" \
  says "host: $work/compilers/g++-13" "!PTX only"
rm "$work/gpu"; again
check "and left out again once there is none" says "CUDA: OFF" "lists no GPU"
configure g++-13 -- -DCMAKE_CUDA_ARCHITECTURES=80-virtual
check "else the one that nvcc takes by itself, and the result says why" \
  says "compiled by nvcc 12.0 with the host compiler that it takes by itself, $refused 80-virtual"
check "a build that has PTX only is announced, with what avoids it and where the result is kept" \
  says "PTX only: the driver compiles the kernels at their first use" "CUDAARCHS=86" "CUDA_CACHE_PATH"
again
check "architectures that the user chose stay" says "80-virtual, PTX only"
echo nvtx >"$work/without"
chosen=("host: $work/compilers/g++-12" "compiled by nvcc 12.0 with g++-12, $refused")
configure g++-13 default g++-14 -- -DZEROLAB_CUDA=ON
check "else the newest that nvcc supports, and the result says which and why" says "${chosen[@]}"
check "a toolkit without NVTX's header is enough; the result says what is left out, and how to get it" \
  says "CUDA: ON, NVTX: OFF" \
  "without NVTX ranges for profilers: nvtx3/nvToolsExt.h is missing (apt: cuda-nvtx-12-0)"
again
check "also when the project is configured again, with the same result" says "${chosen[@]}"
sed -i 's/^\(CMAKE_CUDA\|ZEROLAB_CHOSEN\)_ARCHITECTURES:\([^=]*\)=.*/\1_ARCHITECTURES:\2=75-virtual/' \
  "$work/build/CMakeCache.txt"
again
check "architectures that an older version chose are chosen again" says "and 80-virtual"
export CUDAARCHS=80
configure "${all[@]}" --
check "if nvcc refuses all, the CPU is left; AUTO breaks no build" [ "$code" = 0 ]
check "and the result names what was tried, why, and what to install" says "CUDA: OFF" "install g++-12" \
  "not compiled: nvcc 12.0 refuses g++-13, its default, g++-14, g++-12, g++-11, clang++" \
  "gcc versions later than 12 are not supported"
CUDAHOSTCXX=$work/compilers/g++-13 configure g++-13 --
check "a compiler that the user names is not replaced" says "not compiled: nvcc 12.0 refuses g++-13 ("
configure g++-13 -- "-DCMAKE_CUDA_HOST_COMPILER=$work/compilers/g++-11" "-DCMAKE_CUDA_ARCHITECTURES=80;90-virtual"
check "one that works is taken" says "host: $work/compilers/g++-11"
check "nothing is said about PTX beside a real architecture" says "compiled by nvcc 12.0 for 80 and 90-virtual" "!PTX only"
configure "${all[@]}" -- -DZEROLAB_CUDA=ON
check "ON ends the configuration" [ "$code" != 0 ]
check "and names the reason" says "ZEROLAB_CUDA is ON, but nvcc 12.0 refuses"

# --- a file without NVTX ---------------------------------------------------------------------------------

ranges() {                                 # $@: options of g++ for the file that uses NVTX
  g++ -std=c++20 -xc++ -Wno-unknown-pragmas -DZEROLAB_CUDA_ON_CPU -I"$root/tests/cuda/on_cpu" -I"$root" \
    "$@" "$root/tensor/cuda/profiler_ranges.cu"
}
check "with the header the ranges use it" grep -q nvToolsExt <(ranges -M -DZEROLAB_NVTX)
check "and the file compiles" ranges -fsyntax-only -DZEROLAB_NVTX
check "as it does without it" ranges -fsyntax-only
check "and then includes none of it" [ "$(ranges -M | grep -c nvToolsExt)" = 0 ]
exit "$failed"
