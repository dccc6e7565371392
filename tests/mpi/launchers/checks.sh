# What the parts in this folder share. To be sourced by them, with the build's folder as $1.
#
# Every check prints "right", "WRONG" or "skip" and what it claims. A process that a part starts has
# ZEROLAB_TEST_MARK in its environment, so that none is left without notice.
set -uo pipefail

here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
build=$(readlink -f "${1:-$here/../../../build/default}")
work=$(mktemp -d /tmp/zerolab-launch.XXXXXX)
chmod 755 "$work"
export ZEROLAB_TEST_MARK=${work##*.}
wrong=0 code=0 took=0
RANDOM=2026
: >"$work/out" >"$work/said"
unset RANK WORLD_SIZE MASTER_ADDR MASTER_PORT ZEROLAB_PORT ZEROLAB_RUN_ID

right() { printf 'right  %s\n' "$1"; }
wrong() {                                  # $1: the claim; what the program said is shown
  printf 'WRONG  %s\n' "$1"
  sed 's/^/         /' "$work/out" "$work/said" | tail -n 60
  wrong=1
}
skip() { printf 'skip   %s\n' "$1"; }
skip_all() { printf '%s\n' "$1"; exit 77; }

marked() {                                 # process ids of what this part started and has left
  local environ
  for environ in /proc/[0-9]*/environ; do
    grep -qz "^ZEROLAB_TEST_MARK=$ZEROLAB_TEST_MARK\$" "$environ" 2>/dev/null || continue
    environ=${environ#/proc/} environ=${environ%/environ}
    [ "$(readlink "/proc/$environ/exe" 2>/dev/null)" ] && [ "$environ" != $$ ] && echo "$environ"
  done
}
ranks_left() {                             # those of them that are zerolab
  local pid
  for pid in $(marked); do
    case $(readlink "/proc/$pid/exe") in */zerolab | */zerolab_on_fake) echo "$pid" ;; esac
  done
}
at_exit=()                                 # functions that undo what a part set up
finish() {
  local one
  for one in "${at_exit[@]}"; do "$one"; done
  for one in $(ranks_left); do kill -KILL "$one" 2>/dev/null; done
  rm -rf "$work"
}
trap finish EXIT
trap 'exit 143' TERM
trap 'exit 130' INT

# --- runs ----------------------------------------------------------------------------------------

# Backends between processes that this build can run.
backends() {
  ! grep -q '^mpi .*, mpirun ' <<<"$("$build/zerolab" doctor 2>/dev/null)" || echo mpi
  [ ! -x "$build/tests/zerolab_on_fake" ] || echo nccl
}
# The MPI that this build is linked with: "Open MPI", "MPICH" or nothing.
mpi_of_build() {
  sed -nE 's/^mpi .*, name (Open MPI|MPICH),.*/\1/p' <<<"$("$build/zerolab" doctor 2>/dev/null)"
}
# Not a pipe: grep ends at the first match, and pipefail would count what that does to the writer.
has_backend() { grep -qx "$1" <<<"$(backends)"; }
# Sets `zerolab` and `flags` to the program and the flags of a backend.
use() {
  case $1 in
    mpi) zerolab=$build/zerolab flags=(--backend mpi --device cpu) ;;
    nccl) zerolab=$build/tests/zerolab_on_fake flags=(--backend nccl --device cpu) ;;
  esac
}

# Runs a command, with its stdout in $work/out and its stderr in $work/said; sets code and took
# [ms].
ends() {
  local began=${EPOCHREALTIME/./}
  code=0
  timeout -k 5 "${limit:-60}" "$@" >"$work/out" 2>"$work/said" </dev/null || code=$?
  took=$(((${EPOCHREALTIME/./} - began) / 1000))
}

# What must not depend on the launcher: losses, norms, hashes of the weights, bytes and calls.
essence() {
  local keys='backend|launcher|[a-z_]*seconds[a-z_]*|tokens_per_second|[a-z_]*peak_bytes'
  sed -E "/\"($keys)\":/d" "$1"
}
compare_flags=(compare --model tiny --steps 3 --json)
reference() {                              # $1: ranks. Computed once per part, by threads
  [ -s "$work/reference$1" ] ||
    "$build/zerolab" "${compare_flags[@]}" --ranks "$1" 2>/dev/null >"$work/reference$1"
  echo "$work/reference$1"
}
# $1: the claim, $2: ranks, then a command that starts `compare` on as many.
same_as_threads() {
  local claim=$1 ranks=$2
  ends "${@:3}"
  if [ "$code" = 0 ] && diff <(essence "$(reference "$ranks")") <(essence "$work/out") >"$work/diff"
  then right "$claim"; else
    sed 's/^/       diff: /' "$work/diff" 2>/dev/null | head
    wrong "$claim (exit code $code)"
  fi
}
# Negative control: what `same_as_threads` compares differs where the seed does.
other_seed_differs() {
  "$build/zerolab" "${compare_flags[@]}" --ranks 2 --seed 5 2>/dev/null >"$work/other"
  diff <(essence "$(reference 2)") <(essence "$work/other") >"$work/diff"
  if grep -q weights_hash "$work/diff"
  then right "another seed gives other losses and weights"
  else wrong "another seed gives other losses and weights"; fi
}
# $1: the claim, $2: exit codes that are right ("2|4"), $3: a pattern that stderr shows, $4: the
# most milliseconds, then the command.
says() {
  local claim=$1 codes=$2 pattern=$3 most=$4
  ends "${@:5}"
  if [[ $code =~ ^($codes)$ ]] && grep -qE -- "$pattern" "$work/said" && [ "$took" -le "$most" ]
  then right "$claim"; else wrong "$claim (exit code $code after $took ms, expected: $pattern)"; fi
}
none_left() {                              # $1: after what
  local i
  for ((i = 0; i < 40; ++i)); do [ -z "$(ranks_left)" ] && break; sleep 0.1; done
  if [ -z "$(ranks_left)" ]; then right "no rank is left after $1"; else
    wrong "no rank is left after $1"; ps -o pid,ppid,stat,args -p "$(ranks_left | paste -sd,)"
  fi
}

# --- what every launcher must do -----------------------------------------------------------------

# The rank of this process, whichever launcher started it.
rank_of='${RANK:-${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-$SLURM_PROCID}}}'
forever=(train --model tiny --steps 1000000 --sample 0 --timeout 2)

process_of() {                             # $1: a rank; its process, once it trains
  local pid i
  for ((i = 0; i < 300; ++i)); do
    grep -q '^step' "$work/said" && break
    sleep 0.1
  done
  for pid in $(ranks_left); do
    [ "$(tr '\0' '\n' <"/proc/$pid/environ" 2>/dev/null |
      sed -nE 's/^(RANK|OMPI_COMM_WORLD_RANK|PMI_RANK|SLURM_PROCID)=//p' | head -n 1)" = "$1" ] &&
      echo "$pid" && return
  done
}
# Starts a run in the background and, once it trains, sends a signal to a rank or the launcher.
# Without such a process the check fails, by its code.
disturbed() {                              # $1: signal, $2: rank or "launcher", then the command
  local signal=$1 whom=$2 pid launcher began i
  shift 2
  : >"$work/said"  # process_of would find the steps of the run before
  setsid env --default-signal=INT "$@" >"$work/out" 2>"$work/said" </dev/null &
  launcher=$!
  pid=$(process_of 1)
  sleep "0.$((RANDOM % 4))"
  [ -z "$pid" ] || [ "$whom" = 1 ] || [ "$whom" = launcher ] || pid=$(process_of "$whom")
  began=${EPOCHREALTIME/./}
  if [ -z "$pid" ]; then
    kill -KILL "-$launcher"
    wait "$launcher"
    code=untouched took=0
    return
  fi
  [ "$whom" != launcher ] || pid=$launcher
  kill "-$signal" "$pid"
  if [ "$whom" = launcher ] && [ "${launch[0]}" = srun ]; then  # it wants Ctrl-C twice in a second
    sleep 0.3
    kill "-$signal" "$launcher"
  fi
  # Some launchers wait for a stopped rank until it is ended.
  for ((i = 0; i < 150; ++i)); do
    kill -0 "$launcher" 2>/dev/null || break
    if [ "$i" = 60 ] && [ "$signal" = STOP ]; then kill -KILL "$pid"; fi
    sleep 0.1
  done
  [ "$i" -lt 150 ] || kill -KILL "-$launcher"
  code=0
  wait "$launcher" || code=$?
  [ "$i" -lt 150 ] || code=overdue
  took=$(((${EPOCHREALTIME/./} - began) / 1000))
}
said() {                                   # $1: the claim, $2: a pattern, $3: codes that are right
  if grep -qE -- "$2" "$work/said" && [[ $code =~ ^($3)$ ]]
  then right "$1 ($took ms)"; else wrong "$1 (exit code $code after $took ms, expected: $2)"; fi
}

# The checks of one launcher with one backend. `launch` is its command up to the number of ranks.
launcher_checks() {                        # $1: its name, $2: codes when a rank fails by itself
  local name=$1 codes=$2 most=${slowest:-20000}
  same_as_threads "$name: 3 ranks compute what 3 threads do" 3 \
    "${launch[@]}" 3 "$zerolab" "${compare_flags[@]}" "${flags[@]}"
  says "$name: --ranks is refused" "$codes" "leave --ranks out" "$most" \
    "${launch[@]}" 2 "$zerolab" train "${flags[@]}" --ranks 3
  says "$name: other settings on rank 1 are named" "$codes" \
    "rank 1 was started with 'zerolab.seed=1'" "$most" \
    "${launch[@]}" 2 sh -c "exec \"\$@\" --seed $rank_of" sh \
    "$zerolab" "${forever[@]}" "${flags[@]}"
  says "$name: a rank that never comes is named within the timeout" "4|143|$codes" \
    "missing: rank 1" "${slowest:-15000}" \
    "${launch[@]}" 2 sh -c "[ $rank_of != 1 ] || exec sleep 9; exec \"\$@\"" sh \
    "$zerolab" "${forever[@]}" "${flags[@]}"
  disturbed KILL 1 "${launch[@]}" 3 "$zerolab" "${forever[@]}" "${flags[@]}"
  said "$name: a rank that SIGKILL ends is named" "${dead-rank 1 has died}" '[1-9][0-9]*'
  none_left "$name: SIGKILL of a rank"
  disturbed STOP 1 "${launch[@]}" 3 "$zerolab" "${forever[@]}" "${flags[@]}"
  said "$name: a rank that SIGSTOP stops is named" \
    "rank 1 has given no sign of life|rank 1 was last seen" '[1-9][0-9]*'
  none_left "$name: SIGSTOP of a rank"
  disturbed INT launcher "${launch[@]}" 3 "$zerolab" "${forever[@]}" "${flags[@]}"
  said "$name: Ctrl-C ends all ranks" "" "${interrupted-[1-9][0-9]*}"
  none_left "$name: Ctrl-C"
}
