# What tests/cuda/run and tests/nccl/run share: parts that run one after the other, each within its time, and a page about them.
#
# Sourced with $build (the build), $out (where all goes), $used (seconds that are over), $most (that all may take), $least (that
# the parts get at least) and $started (what the user typed). Sets $code: 1 if a part failed.
#
# The page is $out/summary.txt: the machine and the build, a line for each part, what to try after each failure, and at the end the
# tables of the measurements. Each line is written when it is known, so that Ctrl-C leaves what is done.
zerolab=$build/zerolab
root=$(readlink -f "$(dirname "${BASH_SOURCE[0]}")/../..")
left=$((most - used > least ? most - used : least))
code=0 child= running= capability= tables=()
settings=$(env | grep -E '^(CUDA[A-Z_]*|NCCL_[A-Z0-9_]*|NVIDIA_TF32_OVERRIDE)=' | LC_ALL=C sort | paste -sd' ')
export CUDA_DEVICE_ORDER=${CUDA_DEVICE_ORDER:-PCI_BUS_ID}   # nvidia-smi's numbers
unset ZEROLAB_TEST_GPU ZEROLAB_POOL_SEGMENT

# The host's names that the page must not show, long and short. Words that the page has anyway stay.
hosts=()
for name in "$(uname -n)" "$(uname -n | sed 's/\..*//')"; do
  case $name in localhost* | ubuntu | debian | zerolab | cuda | nccl | test | tests | ? | ?? | ???) ;; ?*) hosts+=("$name") ;; esac
done
home=${HOME:-} home=${home%/}
[ "${#home}" -ge 4 ] || home=

page() {                                   # paths in the tree are relative, those in the user's home begin with ~
  local line name
  while IFS= read -r line; do
    line=${line//"$root/"/}
    [ -z "$home" ] || line=${line//"$home"/'~'}
    for name in "${hosts[@]}"; do line=${line//"$name"/HOST}; done
    printf '%s\n' "${line%"${line##*[! ]}"}"
  done | tee -a "$out/summary.txt"
}
fact() { printf '%-12s%s\n' "$@" | page; }
report() { printf '%-8s%-24s%4s s  %s\n' "$@" | page; }   # verdict part seconds why
more() { printf '%-39s%s\n' '' "$*" | page; }             # below a report

stop() {
  [ -z "$child" ] || { kill "$child"; wait "$child"; } 2>/dev/null
  [ -z "$running" ] || report stopped "$running" $((SECONDS - began)) "by a signal; the parts after it did not run"
  exit "$1"                                # and the tables, by the trap of EXIT
}
trap 'stop 130' INT
trap 'stop 143' TERM
trap 'print_tables; echo; echo "one page to send back: $out/summary.txt"' EXIT

# --- the machine -----------------------------------------------------------------------------------------

smi() { timeout 30 nvidia-smi "$@" 2>&1; }

# Prints a line for each GPU that nvidia-smi lists, and what other programs must not use.
print_gpus() {
  local fields=index,name,compute_cap,memory.total,memory.free,driver_version,persistence_mode,compute_mode,display_active
  smi --query-gpu="$fields" --format=csv,noheader | awk -F', *' 'NF < 9 { print; next }
    { printf "GPU %s: %s, compute capability %s, %s (%s free), driver %s, persistence %s, compute mode %s, display %s\n",
        $1, $2, $3, $4, $5, $6, tolower($7), $8, tolower($9) }'
}

print_machine() {
  local commit line name=nvidia-smi
  commit=$(git -C "$root" rev-parse --short HEAD 2>/dev/null || echo unknown)
  [ -z "$(git -C "$root" status --porcelain --untracked-files=no 2>/dev/null)" ] || commit+=" with changes"
  fact started "$started, $(date -u '+%F %R') UTC; all of it is in $out"
  fact zerolab "$("$zerolab" --version 2>&1 | sed -n '1s/^zerolab //p'), commit $commit, built in $used s"
  fact "CUDA part" "$(sed -n 's/^ZEROLAB_CUDA_SAYS:INTERNAL=//p' "$build/CMakeCache.txt")"
  fact system "$(sed -n 's/^PRETTY_NAME="\(.*\)"/\1/p' /etc/os-release 2>/dev/null), $(uname -sr), $(nproc) cores"
  [ -z "$(ls /sys/class/iommu 2>/dev/null)" ] || fact IOMMU "on: copies between GPUs may fail; see PCIe in tutorials/reference/machines.md"
  [ -z "$settings" ] || fact environment "$settings"
  if ! command -v nvidia-smi >/dev/null; then
    fact nvidia-smi "is not on PATH: no NVIDIA driver, or a container that does not see it"
    return
  fi
  while IFS= read -r line; do fact "$name" "$line"; name=; done < <(print_gpus)
  capability=$(smi --query-gpu=compute_cap --format=csv,noheader | sed -n '1s/^\([0-9]*\)\.\([0-9]*\)$/\1\2/p')
  if [ "$(smi -L | grep -c '^GPU ')" -gt 1 ]; then
    smi topo -m | sed -n 's/\x1b\[[0-9;]*m//g; s/\t/  /g; /^ *$/q; p' | page
  fi
}

# Prints how many GPUs zerolab can use, by the report of the part "doctor".
usable_gpus() { awk '/^GPU [0-9]/ && !/^GPU [0-9]+ +cannot be used: / { n += 1 } END { print n + 0 }' "$out/doctor.txt"; }

# The part "doctor": what zerolab says about the machine, and on the page what it measured there.
doctor() {
  local line
  part doctor 60 text "$zerolab" doctor    # 8 GPUs without persistence mode open in up to 3 s each
  while IFS= read -r line; do more "$line"; done < <(sed -n 's/  */ /g; /^cuda /p; /^GPU /p; /^nccl /p' "$out/doctor.txt")
}

# Says why no GPU can be used -> $reason, the short form for each part. The run has failed if nvidia-smi lists a GPU.
no_gpu() {
  local why
  why=$(sed -n '/^cuda /{s/^cuda *//; p; q}' "$out/doctor.txt")
  ! smi -L | grep -q '^GPU ' || { report FAILED doctor 0 "nvidia-smi lists a GPU that zerolab cannot use"; code=1; }
  why=${why#cannot be used: }
  reason=${why%%. How to fix it*}
  reason="no GPU can be used: ${reason:-see doctor.txt}"
}

# --- the parts -------------------------------------------------------------------------------------------

# What to try after a failure: by what CUDA and NCCL said, else by the part.
advice() {                                 # part, what it printed, its exit code
  case "$3 $(grep -o 'PTX only' "$build/CMakeCache.txt" | head -n 1) $(cat "$2")" in
    "124 PTX only"* | "137 PTX only"*)
      echo "the driver may still have been compiling kernels: run it again, or rm -r $build; CUDAARCHS=${capability:-90} $started" ;;
    *"no kernel image"* | *"no kernels for "*"compute capability"*)
      echo "the build has no code for this GPU: rm -r $build; CUDAARCHS=${capability:-90} $started" ;;
    *"unsupported toolchain"* | *"toolkit that is newer than the driver"*)
      echo "the driver cannot compile this toolkit's PTX; build machine code: rm -r $build; CUDAARCHS=${capability:-90} $started" ;;
    *"driver version is insufficient"*)
      echo "update the driver, or build with a toolkit of the table in tutorials/reference/machines.md" ;;
    *"busy or unavailable"* | *"Exclusive Process"*)
      echo "another process has this GPU in exclusive mode: nvidia-smi names it; CUDA_VISIBLE_DEVICES=1 $started takes another GPU" ;;
    *"system not yet initialized"* | *nvidia-fabricmanager*)
      echo "GPUs with NVSwitch need NVIDIA's fabric manager, of the driver's version: systemctl status nvidia-fabricmanager" ;;
    *"out of memory"* | *"Out of memory"*)
      echo "another program may use the GPU's memory: nvidia-smi names it; CUDA_VISIBLE_DEVICES=1 $started takes another GPU" ;;
    *"No space left on device"* | *"Bus error"*)
      echo "/dev/shm is too small for NCCL: start the container with --shm-size=1g or --ipc=host" ;;
    *"illegal memory access"* | *"misaligned address"* | *"unspecified launch failure"*)
      echo "compute-sanitizer --tool memcheck in front of the command names the kernel" ;;
    *) advice_on_part "$1" ;;
  esac
}

again() {                                  # words: the command, so that a shell takes it
  local text
  printf -v text ' %q' "$@"
  printf '%s' "${text# }"
}

# The first lines in which Catch2 and compute-sanitizer name a place.
findings() {
  sed -n 's/^.*\(tests\/[^ ]*: FAILED:\)/\1/p; /^========= \(Invalid\|Error\|Race\|Uninitialized\|Barrier\|    at \)/p' "$1" |
    awk '!seen[$0]++' | head -n 6
}

# part NAME LIMIT FORMAT COMMAND…: runs a command for at most LIMIT seconds. FORMAT: text; cases (of Catch2); json; table (is copied
# to the page). The last two keep stderr apart.
part() {
  local name=$1 limit=$2 format=$3 failure=0 file=$out/${1// /_} log words
  shift 3
  ((limit <= left - SECONDS)) || limit=$((left - SECONDS))
  ((limit >= 5)) || { report SKIPPED "$name" 0 "no time left"; return 1; }
  running=$name began=$SECONDS log=$file.txt
  case $format in
    json) log=$file.log; timeout -k 5 "$limit" "$@" >"$file.json" 2>"$log" </dev/null & ;;
    table) log=$file.log tables+=("$name"); timeout -k 5 "$limit" "$@" >"$file.txt" 2>"$log" </dev/null & ;;
    *) timeout -k 5 "$limit" "$@" >"$log" 2>&1 </dev/null & ;;
  esac
  child=$!
  wait "$child" || failure=$?
  child= running=
  words=$(grep -hE '^All tests passed|^test cases:|ERROR SUMMARY|^average bus|^ended with' "$file".* | tail -n 1 | sed 's/^=* *//')
  case $failure in
    0) report passed "$name" $((SECONDS - began)) "$words"; return 0 ;;
    4) [ "$format" = cases ] && { report SKIPPED "$name" $((SECONDS - began)) "every case was skipped"; return 4; } ;;&
    124 | 137) report FAILED "$name" $((SECONDS - began)) "not done after $limit s; see ${file##*/}.*" ;;
    *) report FAILED "$name" $((SECONDS - began)) "exit code $failure; see ${file##*/}.*" ;;
  esac
  code=1
  while IFS= read -r words; do more "$words"; done < <(findings "$log")
  words=$(grep -v '^ *$' "$log" | tail -n 1 | cut -c1-160)
  [ -z "$words" ] || more "it said: $words"
  more "try: $(advice "$name" "$log" "$failure")"
  [ "$1" = bash ] || more "again: $(again "$@")"
  return 1
}

skip() { local why=$1 name; shift; for name in "$@"; do report SKIPPED "$name" 0 "$why"; done; }

# The warnings of all parts, such as that a GPU does not reach another, and the tables of the measurements. Of the sizes of each
# collective only the largest.
print_tables() {
  local name file warnings
  warnings=$(grep -hs '^warning: ' "$out"/*.txt "$out"/*.log | LC_ALL=C sort -u | head -n 8)
  [ -z "$warnings" ] || printf '\n--- warnings\n%s\n' "$warnings" | page
  for name in "${tables[@]}"; do
    file=$out/${name// /_}.txt
    [ -s "$file" ] || continue
    printf '\n--- %s\n' "$name"
    awk '!/^ *[a-z_]+ +[0-9]+ +[0-9]+ +(float|half|bfloat16) / { if (row) print row; row = ""; print; next }
      $1 != kind && row { print row } { kind = $1; row = $0 } END { if (row) print row }' "$file"
  done | page
  tables=()
}

rm -rf "$out"
mkdir -p "$out" || exit 69
