#!/usr/bin/env bash
# Tests of `zl test --gpu` and `--nccl`: tests/zl/gpu_test.sh [BUILD]
# The scripts run with fakes of the program, the tests, nvidia-smi and compute-sanitizer, which pass, fail or hang. With a build in
# BUILD, the names of tests that the scripts give to Catch2 are checked there. Exit codes: 0, 1 if a check failed.
. "$(dirname "${BASH_SOURCE[0]}")/claims.sh"
unset CUDA_VISIBLE_DEVICES CUDA_DEVICE_ORDER CUDAARCHS

# What the scripts need of a system, without its nvidia-smi.
mkdir -p "$work/tools"
for tool in awk bash cat cmp cut date dirname env git grep head ls mkdir nproc paste pgrep readlink realpath rm sed \
  sleep sort tail tee timeout touch uname; do ln -s "$(command -v "$tool")" "$work/tools/$tool"; done

hides() { ! grep -qE -- "$1" "$page" || { echo "'$1' is in:"; cat "$page"; return 1; } >&2; }
in_order() {                               # $@: patterns of lines of the page, and those after '!' of no line
  local one line last=0
  for one in "$@"; do
    [[ $one != !* ]] || { hides "${one#!}" || return; continue; }
    line=$(grep -nE -- "$one" "$page" | sed -n '1s/:.*//p')
    ((${line:-0} > last)) || { echo "'$one' is not after line $last of:"; cat "$page"; return 1; } >&2
    last=$line
  done
}

fake() {                                   # $1: the program, in whose place this script calls $work/acts
  mkdir -p "${1%/*}"
  printf '#!/bin/bash\nexec "%s/acts" %s "$@"\n' "$work" "${1##*/}" >"$1"
  chmod +x "$1"
}

# A build and a system with $1 GPUs. Every command passes, except those that match a pattern in $work/fails or
# $work/hangs. Those in $work/rounds have other weights. The words NAME=TEXT after $1 are such files.
new_machine() {
  local i
  cat "$work/calls" >>"$work/all_calls" 2>/dev/null
  rm -rf "$work"/{build,bin,fails,hangs,rounds,warns,calls,says}
  for i in zerolab tests/unit_tests; do fake "$work/build/$i"; done
  fake "$work/bin/compute-sanitizer"
  [ "$1" = 0 ] || fake "$work/bin/nvidia-smi"
  echo "ZEROLAB_CUDA_SAYS:INTERNAL=compiled by nvcc 12.4 for 90" >"$work/build/CMakeCache.txt"
  echo "  --kernel-name arg" >"$work/help"
  {
    [ "$1" = 0 ] && echo "cuda      cannot be used: this machine has no NVIDIA driver. How to fix it: install it; built in yes, usable no"
    for ((i = 0; i < $1; ++i)); do
      echo "GPU $i     index $i, name NVIDIA H100 80GB HBM3, measured matmul size 4096, fp32 50100.0 G/s"
      echo "$i, NVIDIA H100 80GB HBM3, 9.0, 81559 MiB, $((1000 * (i % 2 + 1))) MiB, 550.54.15, Disabled, Default, Disabled" >&3
    done
    echo "nccl      built in yes, compiled for 2.28.9, version 2.28.9"
  } >"$work/doctor" 3>"$work/gpus"
  for i in "${@:2}"; do echo "${i#*=}" >"$work/${i%%=*}"; done
}

printf '#!/bin/bash\nwork=%q\n' "$work" >"$work/acts"
cat >>"$work/acts" <<'TEXT'
matches() { [ -s "$work/$1" ] && grep -qE -f "$work/$1" <<<"${*:2}"; }
echo "$* | GPUs ${CUDA_VISIBLE_DEVICES:-all} segment ${ZEROLAB_POOL_SEGMENT:-default}" >>"$work/calls"
matches hangs "$@" && { touch "$work/hung"; sleep 100; }
if matches fails "$@"; then cat "$work/says" >&2; exit 1; fi
if [[ "$* " =~ --trace\ ([^ ]*)\  && -e ${BASH_REMATCH[1]} ]]; then
  echo "${BASH_REMATCH[1]} exists" >&2     # as the program does
  exit 2
fi
matches warns "$@" && printf 'warning: GPU 0 does not reach GPU 1\n%.0s' 1 2 >&2
if [[ "$* " =~ --out\ ([^ ]*)\  ]]; then   # with other weights if the file `rounds` says so
  mkdir -p "${BASH_REMATCH[1]}"
  [ -s "$work/rounds" ] && grep -oE -f "$work/rounds" <<<"$*" >"${BASH_REMATCH[1]}/model.safetensors" || : >"${BASH_REMATCH[1]}/model.safetensors"
fi
case "$*" in
  "zerolab --version") echo "zerolab 0.1.0 (kernels for x86-64-v3, CUDA 12.4, NCCL 2.28.9)" ;;
  "zerolab doctor") cat "$work/doctor" ;;
  "uname -n") cat "$work/host" ;;
  "compute-sanitizer --help") cat "$work/help" ;;
  nvidia-smi*query-gpu=index*) cat "$work/gpus" ;;
  nvidia-smi*memory.free,index*) awk -F', ' '{ print $5, $1 }' "$work/gpus" | sed 's/ MiB /, /' ;;
  nvidia-smi*compute_cap*) echo 9.0 ;;
  "nvidia-smi -L") sed 's/^\([0-9]*\), /GPU \1: /' "$work/gpus" ;;
  "nvidia-smi topo -m") printf '\tGPU0\tGPU1\nGPU0\t X \tNV18\nGPU1\tNV18\t X \n\nLegend:\n  X = Self\n' ;;
  *bench\ kernels*) printf 'kernel     share of\nattention  61 %%  operations\n'; echo progress >&2 ;;
  *bench\ comm*) printf 'average bus  167.0 GB/s\n\n  collective size\n  all_reduce 8192 2048 float sum 9 ms 1.0 1.5 0\n  all_reduce 67108864 16777216 float sum 9 ms 1.0 333 0\n  broadcast 8192 2048 float - 9 ms 1.0 1.5 0\n' ;;
  *compare*|*train*)
    matches rounds "$@" && hash=00fe
    echo "{\"weights_hash\": \"${hash:-00ff}\"}" ;;
  unit_tests*) echo 'All tests passed (12 assertions in 3 test cases)' ;;
esac
TEXT
chmod +x "$work/acts"

launch() {                                 # $1: cuda or nccl, ${@:2}: of a new machine, or none -> $page, $code
  [ $# = 1 ] || new_machine "${@:2}"
  page=$work/build/${1/cuda/gpu}/summary.txt
  PATH=$work/bin:$work/tools "$root/tests/$1/run" "$work/build" 7 >"$work/out" 2>&1
  code=$?
}

# --- a machine without a GPU -------------------------------------------------------------------------------

for script in cuda nccl; do
  launch "$script" 0
  check "$script: without a GPU the exit code is 0" ends_with 0
  check "$script: the page says that there is no driver, and every part is skipped, with the reason" in_order \
    '^nvidia-smi +is not on PATH' '^SKIPPED [^:]*: .*this machine has no NVIDIA driver$' '!^(passed|FAILED) +[^d ]'
  check "$script: how to fix it is said once" [ "$(grep -c 'How to fix it: install it' "$page")" = 1 ]
done
check "no part ran" [ "$(grep -cvE '^(zerolab (doctor|--version)|nvidia-smi)' "$work/calls")" = 0 ]

new_machine 1
sed -i '1i cuda      cannot be used: this program was built without CUDA. How to fix it: install the toolkit' "$work/doctor"; sed -i '/^GPU/d' "$work/doctor"
launch cuda
check "a GPU that zerolab cannot use is a failure" ends_with 1
check "and the page says how to fix it, and why" in_order 'How to fix it: install the toolkit' \
  '^SKIPPED compare fp32 .*no GPU can be used: this program was built without CUDA'

new_machine 2
sed -i 's/^nccl .*/nccl      cannot be used: not built in. How to fix it: install NCCL/' "$work/doctor"
launch nccl
check "without NCCL nothing has failed" ends_with 0
check "and the parts are skipped, with the reason" in_order 'nccl cannot be used: not built in. How to fix it: install NCCL' \
  '^SKIPPED one rank .*no NCCL, as doctor says above' '^SKIPPED bench nccl'

# --- one GPU -------------------------------------------------------------------------------------------

launch cuda 1
check "with one GPU all passes" ends_with 0
check "the page begins with the build" in_order '^started +./zl test --gpu, 20' '^zerolab +0.1.0.*commit .*built in 7 s' \
  '^CUDA part +compiled by nvcc 12.4 for 90' '^system ' 'GPU 0: NVIDIA H100.*capability 9.0.*driver 550.54.15'
check "the order is that of the review, with what doctor measured and the tests counted" in_order '^passed +doctor' \
  'fp32 50100.0 G' '^passed +compare fp32' '^SKIPPED ranks on two GPUs .*there is 1 GPU' \
  '^passed +tests +[0-9]+ s  All tests passed \(12 assertions' '^passed +bench kernels' '^passed +bench step bf16' \
  '^passed +memcheck attention' '^passed +synccheck'
check "the table of the kernels is at the end, without the lines of progress" in_order '^passed +synccheck' \
  '^--- bench kernels' '^attention +61 % +operations' '!progress'
check "the terminal shows the same" grep -q 'attention  61 %' "$work/out"
check "sanitizers get a segment for each block" \
  [ "$(grep -c '^compute-sanitizer.*segment 1$' "$work/calls")" = "$(grep -c '^compute-sanitizer --tool' "$work/calls")" ]
for tool in memcheck racecheck initcheck synccheck; do check "$tool runs" grep -q "compute-sanitizer --tool $tool" "$work/calls"; done
check "other parts do not" [ "$(grep -v sanitizer "$work/calls" | grep -c 'segment 1$')" = 0 ]
races() { grep -cE "^compute-sanitizer --tool racecheck $1" "$work/calls"; }
check "racecheck checks our kernels only" [ "$(races '--kernel-name kernel_substring=zl4cuda ')" = 3 ]
check "the other tools check all kernels" [ "$(grep -c kernel_substring "$work/calls")" = 3 ]
check "racecheck runs one test of attention" [ "$(races '.*unit_tests one key that the GPU saw')" = 1 ]
echo "  --kernel-regex arg" >"$work/help"
launch cuda
check "before CUDA 12.3 its flag has another name" [ "$(races '--kernel-regex kernel_substring=zl4cuda ')" = 3 ]
launch nccl
check "with one GPU ranks share it, first two, then four" in_order '^passed +one rank' '^passed +two ranks' \
  '^passed +same bits without NCCL' '^passed +four ranks' '^passed +same bits, four ranks' '^FAILED +a rank is killed' \
  '^FAILED +a rank is stopped' '^passed +resume on 2 of 4 ranks' '^SKIPPED torchrun .*not on PATH' '^passed +compare unordered'
check "they do so by a flag" [ "$(grep -c '^zerolab launch -n [24] --share-gpu -- ' "$work/calls")" = 10 ]
check "all runs of several ranks on NCCL have it" [ "$(grep 'backend nccl' "$work/calls" | grep -v share-gpu | grep -cv 'launch -n 1 ')" = 0 ]
check "the page says that they share it" in_order '^shared GPUs +ranks share a GPU where a part has more than 1 of them'
check "bandwidths are skipped, with the reason" in_order \
  '^SKIPPED bench nccl .*times with several ranks mean nothing'
check "the advice names a command that works here" in_order 'try: by hand: .*launch -n 2 --share-gpu -- train'
echo 'launch -n 2.*run_nccl' >"$work/rounds"
launch nccl
check "a resumed run with other weights than threads is a failure" in_order '^FAILED +resume on 2 of 4 ranks'
echo 'launch -n 4.*compare' >"$work/rounds"
launch nccl
check "and so are four ranks" in_order '^passed +same bits without NCCL' '^FAILED +same bits, four ranks' '^passed +resume'
rm "$work/rounds"
fake "$work/bin/torchrun"
launch nccl
check "torchrun starts ranks where it is there" in_order '^passed +torchrun' '^passed +same bits, torchrun'

# --- four GPUs -----------------------------------------------------------------------------------------

launch cuda 4
check "on several GPUs the topology is on the page, without its legend" in_order '^GPU0 +X +NV18' '^GPU1 +NV18' '!Legend'
check "two GPUs are tested right after the first comparison" in_order '^passed +compare fp32' '^passed +ranks on two GPUs' '^passed +tests '
check "all but that use the GPU with the most free memory" \
  [ "$(grep -E '(compare|bench|train) ' "$work/calls" | grep -cv 'GPUs 1 ')" = 0 ]
check "the test of two GPUs sees all" grep -qE '^unit_tests ranks on two GPUs.*GPUs all' "$work/calls"
CUDA_VISIBLE_DEVICES=2,3 launch cuda
check "the first GPU that the user names is taken" grep -qE 'compare --device.*GPUs 2 ' "$work/calls"
check "and the page says what the user set" in_order '^environment +.*CUDA_VISIBLE_DEVICES=2,3'
launch nccl
check "NCCL passes on fakes" ends_with 1
check "except for ranks that must die" [ "$(grep '^FAILED' "$page" | cut -c9-24)" = $'a rank is killed\na rank is stoppe' ]
check "two ranks come before all" in_order '^passed +one rank' '^passed +two ranks' '^passed +all ranks' \
  '^passed +same bits without NCCL' '^passed +bench nccl' 'a rank is killed'
check "no rank shares a GPU where each can have one" [ "$(grep -c share-gpu "$work/calls")" = 0 ]
check "and the page does not say so" hides '^shared GPUs'
check "bench comm shows its bus bandwidth, and of each collective the largest size only" in_order '!all_reduce 8192 ' \
  '^passed +bench nccl .*average bus +167.0 GB/s' '--- bench nccl' '^  all_reduce 67108864 .*333' '^  broadcast 8192 '
check "a rank that survives is a failure, with advice" in_order '^FAILED +a rank is killed' 'try: by hand: .*launch -n 2'

launch cuda 2 warns='compare.*fp32'
check "a warning of a part that passes is on the page" in_order '^passed +compare fp32' '^--- warnings' '^warning: GPU 0 does not reach'
check "once" [ "$(grep -c '^warning: ' "$page")" = 1 ]

# --- failures ------------------------------------------------------------------------------------------

fails() { launch "${3:-cuda}" 2 fails="$1" says="$2"; }
fails 'compare.*--precision bf16' 'losses of zero2 differ'
check "a part that fails fails the run" ends_with 1
check "its line, what it said, what to try and the command are on the page" in_order '^FAILED +compare bf16 .*exit code 1; see compare_bf16' \
  'it said: losses of zero2 differ' "try: .*unit_tests '\[cuda\]~\[host\]'" 'again: env CUDA_VISIBLE_DEVICES=1 .*compare --device cuda .*bf16'
check "the parts after it run" in_order '^passed +compare fp16'
new_machine 2 host=lab-gpu7.cs.example fails='compare.*bf16' says="lab-gpu7: cannot read $work/data"
fake "$work/bin/uname"
HOME=$work CUDA_CACHE_PATH=$work/cache launch cuda
check "names of home and host are replaced, so they are not on the page" in_order \
  '^environment .*CUDA_CACHE_PATH=~/cache' 'it said: HOST: cannot read ~/data' "!$work|lab-gpu7"
echo localhost >"$work/host"; echo "localhost: cannot read $work/data" >"$work/says"
HOME='' launch cuda
check "localhost stays, and paths if there is no home" in_order "it said: localhost: cannot read $work/data"
fails 'unit_tests ranks on' 'wrong bits'
check "wrong copies between GPUs lead to the notes on PCIe" in_order '^FAILED +ranks on two GPUs' 'try: .*topo -p2p'
fails 'unit_tests .cuda.~' $'../../tests/cuda/norm_test.cpp:12: FAILED:\n../../tests/cuda/norm_test.cpp:12: FAILED:\nassertions: 2 | 2 failed'
check "the places of failed tests are on the page" in_order '^FAILED +tests ' '^ +tests/cuda/norm_test.cpp:12: FAILED:' 'it said: assertions'
check "each once" [ "$(grep -c 'norm_test' "$page")" = 1 ]
fails 'sanitizer.*bf16' $'========= Invalid __shared__ write of size 4 bytes\n=========     at kernel+0x1\n========= ERROR SUMMARY: 1 error'
check "and the finding of a sanitizer" in_order '^FAILED +memcheck bf16' 'Invalid __shared__ write' 'at kernel' 'ERROR SUMMARY'
cat >"$work/advise" <<TEXT
set -uo pipefail
build=$work/build out=$work/build/advice used=0 most=12 least=1 started="./zl test --gpu"
. "$root/tests/cuda/parts.sh"
capability=90
while IFS='|' read -r said _; do echo "zerolab: \$said" >"\$out/said"; echo "\$said: \$(advice part "\$out/said" 1)"; done
TEXT
cat >"$work/rows" <<'TEXT'
no kernel image is available for execution on the device|CUDAARCHS=90 ./zl test --gpu
this build has no kernels for its compute capability|CUDAARCHS=90 ./zl test --gpu
the provided PTX was compiled with an unsupported toolchain.|rm -r .*CUDAARCHS=90 ./zl test --gpu
from a toolkit that is newer than the driver, which cannot compile it|rm -r .*CUDAARCHS=90 ./zl test --gpu
CUDA driver version is insufficient for CUDA runtime version|update the driver, or build with a toolkit of the table
CUDA-capable device(s) is/are busy or unavailable|exclusive mode
it serves one at a time (compute mode Exclusive Process)|exclusive mode
the service nvidia-fabricmanager must run|systemctl status nvidia-fabricmanager
out of memory|nvidia-smi names it
Bus error|--shm-size=1g
an illegal memory access was encountered|memcheck
TEXT
bash "$work/advise" <"$work/rows" >"$work/advice"
while IFS='|' read -r said tried; do
  check "advice on '$said'" grep -qE -- ": .*$tried" <(grep -F -- "$said: " "$work/advice")
done <"$work/rows"
launch nccl 2
check "four ranks share two GPUs, two do not" [ "$(grep -- '--share-gpu' "$work/calls" | grep -cv -- '-n 4 ')" = 0 ]
check "and the page says so" in_order '^shared GPUs +ranks share a GPU where a part has more than 2'
launch nccl 2 rounds='backend threads'
check "other bits without NCCL are a failure" in_order '^passed +without NCCL' '^FAILED +same bits without NCCL' 'wrong copies'
fails 'launch -n 2 -- compare' '' nccl
check "bits that cannot be compared are a failure" in_order '^FAILED +two ranks' '^FAILED +same bits without NCCL' 'equal bits then mean'

# --- time ------------------------------------------------------------------------------------------------

new_machine 1
cat >"$work/limits" <<TEXT
set -uo pipefail
build=$work/build out=$work/build/limits used=0 most=12 least=1 started=limits
. "$root/tests/cuda/parts.sh"
advice_on_part() { echo "more time"; }
capability=86
part slow 5 text sleep 100
part late 60 text true
part later 3 text true
exit "\$code"
TEXT
page=$work/build/limits/summary.txt
bash "$work/limits" >/dev/null; code=$?
check "a part is ended after its time" in_order '^FAILED +slow +[56] s  not done after 5 s' 'try: more time' 'again: sleep 100' '^passed +late'
check "one without enough time left is skipped" in_order '^SKIPPED later .*no time left'
check "and the run has failed" ends_with 1
echo "ZEROLAB_CUDA_SAYS:INTERNAL=compiled by nvcc 12.4 for 75-virtual, PTX only: the driver" >"$work/build/CMakeCache.txt"
bash "$work/limits" >/dev/null
check "in a build that has PTX only, the driver is the first suspect" in_order '^FAILED +slow' 'try: the driver .*CUDAARCHS=86 limits'

set -m                                     # else a shell that runs in the background ignores SIGINT
new_machine 1 hangs='bench kernels'
page=$work/build/gpu/summary.txt
PATH=$work/bin:$work/tools "$root/tests/cuda/run" "$work/build" >"$work/out" 2>&1 &
for _ in {1..1200}; do [ -e "$work/hung" ] || sleep 0.05; done
SECONDS=0
kill -INT $!
wait $!; code=$?
set +m
check "Ctrl-C ends with 130" ends_with 130
check "at once" [ "$SECONDS" -le 5 ]
check "what is done is on the page, and nothing runs after it" in_order \
  '^passed +compare fp32' '^stopped +bench kernels +[0-9]+ s' '!bench step'

# --- names of tests and of flags -------------------------------------------------------------------------

tests=${1:+$1/tests/unit_tests}
if [ -x "$tests" ]; then
  for names in "ranks on two GPUs*" "on GPUs*" "[cuda]*attention*" "one key that the GPU saw*" "[cuda]~[host]" "[dist],[stages]"; do
    check "there are tests '$names'" [ "$("$tests" --list-tests "$names" | sed -n 's/^\([0-9]*\) matching test case.*/\1/p')" -gt 0 ]
  done
fi
if [ -x "${1:+$1/zerolab}" ]; then         # each command goes as far as without a GPU it can
  while IFS= read -r words; do
    read -ra words <<<"$words"
    CUDA_VISIBLE_DEVICES='' timeout 60 "$1/zerolab" "${words[@]}" >"$work/out" 2>&1
    check "the program takes: ${words[*]}" grep -qE -- '--device cuda: ' "$work/out"
  done < <(sed -n '/--version\|doctor/d; s/ | GPUs.*//; s/^compute-sanitizer.*\/zerolab \|^zerolab //p' "$work/all_calls" |
    grep -- --device | LC_ALL=C sort -u)
fi
exit "$failed"
