# What tests/cuda/run and tests/nccl/run share: parts that run one after the other, each within its time, and a line on each.
#
# Sourced with $build (the build), $out (where all goes), $used (seconds that are over), $most (that all may take) and $least (that
# the parts get at least). Sets $code: 1 if a part failed.
zerolab=$build/zerolab
left=$((most - used > least ? most - used : least))
code=0 child=

stop() { [ -z "$child" ] || { kill "$child"; wait "$child"; } 2>/dev/null; exit "$1"; }
trap 'stop 130' INT
trap 'stop 143' TERM

report() { printf '%-8s%-24s%4s s  %s\n' "$@" | sed 's/ *$//' | tee -a "$out/summary.txt"; }   # verdict part seconds why

# part NAME LIMIT FORMAT COMMAND…: runs a command for at most LIMIT seconds.
part() {
  local name=$1 limit=$2 format=$3 failure=0 began=$SECONDS file=$out/${1// /_}
  shift 3
  ((limit <= left - SECONDS)) || limit=$((left - SECONDS))
  ((limit >= 5)) || { report SKIPPED "$name" 0 "no time left"; return 1; }
  if [ "$format" = json ]; then timeout -k 5 "$limit" "$@" >"$file.json" 2>"$file.log" </dev/null &
  else timeout -k 5 "$limit" "$@" >"$file.txt" 2>&1 </dev/null & fi
  child=$!
  wait "$child" || failure=$?
  child=
  case $failure in
    0) report passed "$name" $((SECONDS - began)) '' ;;
    4) [ "$format" = cases ] && return 4 ;;&       # Catch2's code if every case was skipped
    124) report FAILED "$name" $((SECONDS - began)) "not done after $limit s; see ${file##*/}.*" ;;
    *) report FAILED "$name" $((SECONDS - began)) "exit code $failure; see ${file##*/}.*" ;;
  esac
  [ "$failure" = 0 ] || code=1
}

skip() { local why=$1 name; shift; for name in "$@"; do report SKIPPED "$name" 0 "$why"; done; }

rm -rf "$out"
mkdir -p "$out" || exit 69
