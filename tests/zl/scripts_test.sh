#!/usr/bin/env bash
# The jobs for Slurm run as they are documented, and documented scripts use variables that exist:
# tests/zl/scripts_test.sh BUILD. Slurm's programs are stand-ins. Exit codes: 0, 1 if a check failed.
. "$(dirname "${BASH_SOURCE[0]}")/claims.sh"
job=$root/tutorials/reference/job.slurm page=$work/out
zerolab=$(readlink -f "$1/zerolab")

# A copy runs in a folder of Slurm's. Of the job, SLURM_SUBMIT_DIR alone says where it was submitted.
mkdir -p "$work"/{submitted/build/default,spool,bin}
ln -s "$zerolab" "$work/submitted/build/default/zerolab"
cat >"$work/bin/srun" <<'TEXT'
#!/usr/bin/env bash
# Starts one rank, which runs without GPUs; options of srun are those before the program.
echo "srun $*"
while [[ $1 = -* ]]; do shift; done
program=$1 command=$2
shift 2
words=("$@")
[ "$command" != train ] || words=("${words[@]/#nccl/threads}" --steps 1 --ranks 2 --device cpu --sample 0)
for i in "${!words[@]}"; do [ "${words[i]}" != 200 ] || unset "words[i-1]" "words[i]"; done
words=("${words[@]/#small/tiny}")
exec "$program" "$command" "${words[@]/#cuda/cpu}"
TEXT
chmod +x "$work/bin/srun"
sbatch() {                                 # $1: the script, $2…: its words
  cp "$1" "$work/spool/script"
  (cd "$work/spool" && PATH=$work/bin:$PATH SLURM_SUBMIT_DIR=$work/submitted SLURM_JOB_ID=17 \
    SLURM_ARRAY_TASK_ID=${task:-1} bash -u script "${@:2}") >"$page" 2>&1
  code=$?
}
sbatch "$job"
check "the job ends with 0" ends_with 0
check "and says what the machine can run, with one task" says "srun --ntasks=1" "NCCL"
check "and trains where it was submitted" [ -s "$work/submitted/runs/17/metrics.jsonl" ]
sed 's/SLURM_SUBMIT_DIR/Slurm_SUBMIT_DIR/' "$job" >"$work/broken"
sbatch "$work/broken"
check "a misspelt variable ends it" says "Slurm_SUBMIT_DIR: unbound variable"

# Of an array, each task grades one subfolder.
mkdir -p "$work/submitted/handed_in"/{ann,'bob b'}
cp "$root/stages/zero1.cpp" "$work/submitted/handed_in/ann/05_zero1.cpp"
echo 'not C++' >"$work/submitted/handed_in/bob b/05_zero1.cpp"
grades=$work/submitted/grades/05
for task in 1 2 3; do
  sbatch "$root/tutorials/reference/grade.slurm" 05 handed_in
  check "task $task of grade.slurm ends with 0" ends_with 0
done
check "the right file has all points" grep -q '"score": 100' "$grades/ann.json"
check "the other one none, and the reason" grep -q 'does not compile' "$grades/bob b.json"

known='HOME PATH PWD SLURM_JOB_ID SLURM_SUBMIT_DIR SLURM_ARRAY_TASK_ID SLURM_NODELIST SLURM_PROCID'
unknown() {                                # $@: files -> the names that they neither set nor find set
  local file name
  for file in "$@"; do
    for name in $(grep -oP '\$\{?\K[A-Za-z_]\w*' "$file" | sort -u); do
      [[ " $known " = *" $name "* ]] || grep -qE "(^|[^\$A-Za-z_])$name=|for $name in" "$file" ||
        echo "$file: \$$name"
    done
  done
}
mapfile -t pages < <(cd "$root" && find . -name build -prune -o \( -name '*.md' -o -name '*.slurm' \) -print)
cd "$root" || exit 1
check "every variable of documented scripts exists" [ -z "$(unknown "${pages[@]}" | tee /dev/stderr)" ]
check "and one that does not is found" [ -n "$(unknown "$work/broken")" ]
exit "$failed"
