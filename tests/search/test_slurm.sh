#!/usr/bin/env bash
# Trials as jobs of a real SLURM: munged, slurmctld and two slurmd as two nodes of one machine, all in
# a folder of this test and on ports of its own, without systemd, control groups or accounting.
# shellcheck source=/dev/null
source "$(dirname "$0")/../cli/common.sh"
PATH=$PATH:/usr/sbin:/sbin

# Every process of this test has it in its environment, those of the jobs included.
export GD_TEST_RUN=$$-$RANDOM
unset OMP_NUM_THREADS
tiny_config "$WORK/tiny"
quick=("$WORK/tiny" --seq 16 --batch 8 --steps 10 --sample-seconds 0.02 --threads 1 --slurm --methods naive)
export GPUDAYS_DB=$WORK/store/results.db
jobs=$WORK/store/slurm

# count TEXT NUMBER: so many lines of stdout have it.
count() {
  local found
  found=$(grep -c -- "$1" "$OUT" || true)
  [[ $found == "$2" ]] || fail "$LAST: $found lines with '$1', not $2"
}
fresh_store() {
  export GPUDAYS_DB=$WORK/$1/results.db
  jobs=$WORK/$1/slurm
}

# --- what needs no SLURM ---------------------------------------------------------------------

expect 2 bench "$WORK/tiny" --nodes 2 --ranks 2
said "--nodes needs --gpu, whose machines they are, or --slurm, which starts the trials as jobs"
expect 2 bench "${quick[@]}" --nodes 2
said "1 rank cannot be spread evenly over 2 nodes; choose --ranks as a multiple of --nodes"
expect 2 bench "${quick[@]}" --nodes 2 --ranks 3
expect 2 bench "${quick[@]}" --no-store
said "--slurm collects results in the store"
expect 2 bench "$WORK/tiny" --slurm-dir "$WORK"
said "--slurm-dir needs --slurm"
echo '{"cpu": {"partion": "x"}}' >"$WORK/wrong.json"
expect 2 bench "${quick[@]}" --slurm-config "$WORK/wrong.json"
said "$WORK/wrong.json: \"partion\" of cpu is unknown"
expect 2 bench "${quick[@]}" --slurm-config "$WORK/none.json"
mkdir -p "$WORK/empty" "$XDG_CONFIG_HOME/gpudays"
LAST="bench --slurm without SLURM" RC=0
PATH=$WORK/empty "$GPUDAYS" bench "${quick[@]}" --backend cpu >"$OUT" 2>"$ERR" || RC=$?
[[ $RC == 3 && $(wc -l <"$ERR") == 1 ]] || fail "$LAST: exit $RC, or not one line on stderr"
said "--slurm needs SLURM's commands, and sbatch is not in PATH"

# A SLURM that refuses all jobs, and keeps what it was asked for: nothing here has a GPU.
mkdir "$WORK/refuse"
for command in squeue scancel sbatch; do
  printf '#!/bin/sh\n' >"$WORK/refuse/$command"
done
cat >>"$WORK/refuse/sbatch" <<END
[ "\$1" != --version ] || exit 0
eval job=\\\${\$#}
cp "\$job" "$WORK/job.sh"
cp "\$(dirname "\$job")/order.json" "$WORK/order.json"
echo 'sbatch: error: no' >&2
exit 1
END
chmod +x "$WORK/refuse"/*
# submits ARGUMENT...: leaves the script in OUT and the order in ERR.
submits() {
  rm -f "$WORK/job.sh" "$WORK/order.json"
  PATH=$WORK/refuse:$PATH GPUDAYS_CUDA_PATH=$WORK/empty expect 3 bench "${quick[@]}" "$@"
  said "sbatch refuses the job: no;"
  cp "$WORK/job.sh" "$OUT"
  cp "$WORK/order.json" "$ERR"
}
key() { sed -n 's/^#SBATCH --job-name=//p' "$OUT"; }
# The job's backend is the job's. Its GPU says how much memory it has, unless we do.
expect 2 bench "${quick[@]}"
said "this machine cannot tell whether the jobs of --slurm run on GPUs: add --backend cuda or cpu"
submits --backend cuda
shown "--gres=gpu:1"
said '"backend":"cuda"'
said '"device_limit_bytes":0,'
any=$(key)
submits --backend cuda --device-memory 3GiB
said '"device_limit_bytes":3221225472,'
submits --backend cpu
said '"backend":"cpu"'
! grep -q gres "$OUT" || fail "$LAST: a GPU for a job on CPUs"
echo '{"a100": {"gres": "gpu:a"}, "ours": {"gpu": "h100"}, "cpu": {}, "big": {"backend": "cpu"}}' \
  >"$WORK/sections.json"
for section in a100 ours; do
  submits --slurm-config "$WORK/sections.json" --slurm-device "$section"
  said '"backend":"cuda"'
  shown "--gres=gpu:"
done
for section in cpu big; do
  submits --slurm-config "$WORK/sections.json" --slurm-device "$section"
  said '"backend":"cpu"'
done
expect 2 bench "${quick[@]}" --slurm-config "$WORK/sections.json"
said "several sections fit; --slurm-device says which the jobs are for: a100, ours, cpu, big"
# Each GPU and each section is another question.
submits --gpu h100
h100=$(key)
submits --gpu a100
a100=$(key)
submits --slurm-config "$WORK/sections.json" --gpu a100
[[ $(printf '%s\n' "$any" "$h100" "$a100" "$(key)" | sort -u | wc -l) == 4 ]] ||
  fail "$LAST: keys of one for another: $any $h100 $a100 $(key)"
# As many nodes as the machines of the plan.
submits --gpu h100 --count 16 --batch 16
for option in nodes=2 ntasks=16 ntasks-per-node=8 gres=gpu:8; do
  shown "#SBATCH --$option"
done
said '"ranks":16,"nodes":2,'
[[ -z $(ls -A "$jobs") ]] || fail "$LAST: left over in $jobs: $(ls "$jobs")"

# --- jobs of another build ---------------------------------------------------------------------

# slurm-5a9dd79.tar.gz is what 5a9dd79 leaves when it is killed while the job of
# `bench "${quick[@]}" --methods naive --backend cpu` runs: its store, and the job's folder with the
# result that came later. Its keys name the build and no machine.
left=625846415abe93a3905fd320550fa54d
# leave_behind STORE
leave_behind() {
  fresh_store "$1"
  mkdir "$WORK/$1"
  tar -xzf "$GD_SOURCE_DIR/tests/search/slurm-5a9dd79.tar.gz" -C "$WORK/$1"
  [[ -e $jobs/$left/result.json ]] || fail "no result of another build"
}
# taken: the result is stored with what is known by now, and nothing is left.
taken() {
  expect 0 results --json --method naive --reverse # the newer build's may come after it
  field_is commit 5a9dd79b906c
  field_is status ok
  grep -qE '^      "recipe": "[0-9a-f]{32}"' "$OUT" || fail "$LAST: no recipe"
  shown '"machine": "cpu='
  expect 0 results --pending --method naive --json
  ! grep -q "$left" "$OUT" || fail "$LAST: still pending"
  [[ -z $(ls -A "$jobs") ]] || fail "$LAST: left over in $jobs: $(ls "$jobs")"
}
cat >"$XDG_CONFIG_HOME/gpudays/slurm.json" <<'END'
{"default": {"memory": "1GiB", "time": "5"}, "cpu": {"cpus": 1, "partition": "main"}}
END
# The same question by this build is one of its own, and its job is submitted.
leave_behind old-asked
submits --backend cpu --methods naive
taken
# Another question.
leave_behind old-other
submits --backend cpu --methods kernels
taken
leave_behind old-gpu
submits --gpu h100 --methods naive
taken

# --- a cluster -------------------------------------------------------------------------------

# shellcheck source=/dev/null
source "$GD_SOURCE_DIR/tests/search/cluster.sh"

# Ranks of two "nodes" of one machine find each other over the loopback device.
export OMPI_MCA_btl_tcp_if_include=lo OMPI_MCA_oob_tcp_if_include=lo
echo '{"default": {"memory": "1GiB", "time": "5"}, "cpu": {"cpus": 1, "partition": "main"}}' \
  >"$XDG_CONFIG_HOME/gpudays/slurm.json"

# How many jobs were ever submitted; those that are there now.
submitted() { squeue -h -t all -o %i | sort -n | tail -n 1; }
present() { squeue -h -o %i; }
# SLURM takes a moment to end those that do not listen.
nothing_left() {
  [[ -z $(ls -A "$jobs") ]] || fail "$LAST: left over in $jobs: $(ls "$jobs")"
  await no_job
}
no_job() { [[ -z $(present)$(marked gpudays) ]]; }

# --- jobs ------------------------------------------------------------------------------------

expect 0 bench "${quick[@]}" --methods naive,kernels --json
count '^      "status": "ok"' 2
count '^      "source": "run"' 2
count '^      "nodes": 1' 2
field_is device_limit_bytes $((960 * 1024 * 1024)) # 15/16 of what the job has
nothing_left
[[ $(submitted) == 2 ]] || fail "$LAST: $(submitted) jobs, not 2"
expect 0 bench "${quick[@]}" --methods naive,kernels --json
count '^      "source": "store"' 2
[[ $(submitted) == 2 ]] || fail "$LAST: submitted again"
expect 0 results --json
field_is host "$(hostname)"
! grep -q SLURM: "$OUT" || fail "$LAST: the device is not the node's"

# On a terminal the progress line counts the jobs.
if script -qec true /dev/null </dev/null >/dev/null 2>&1; then
  LAST="bench on a terminal"
  printf -v line '%q ' "$GPUDAYS" bench "${quick[@]}" --methods naive,kernels --seed 1
  touch "$WORK/held"
  GPUDAYS_TEST_FAULT=kernels=held=$WORK/held script -qec "$line" /dev/null >"$OUT" </dev/null &
  await grep -q '2 jobs: 0 pending, 1 running, 1 done, 50 %' "$OUT"
  rm "$WORK/held"
  wait $! || fail "$LAST: failed"
  shown "2 jobs: 2 pending, 0 running, 0 done ..."
fi

# An srun that fails is heard.
mkdir "$WORK/fails"
printf '#!/bin/sh\necho "srun: error: no plugin of that name" >&2\nexit 1\n' >"$WORK/fails/srun"
chmod +x "$WORK/fails/srun"
PATH=$WORK/fails:$PATH expect 3 bench "${quick[@]}" --methods compile
said "srun could not start it: no plugin of that name;"
nothing_left

# Two ranks on two nodes. The plugin is listed also where the library that it loads is missing.
if srun --mpi=pmix --nodes=2 --ntasks=2 true 2>"$WORK/pmix"; then
  expect 0 bench "${quick[@]}" --methods kernels+zero2 --ranks 2 --nodes 2 --json
  field_is status ok
  field_is ranks 2
  field_is nodes 2
  scontrol show job "$(submitted)" >"$WORK/job"
  grep -q 'NumNodes=2 .*NumTasks=2' "$WORK/job" || fail "$LAST: $(grep NumNodes "$WORK/job")"
  expect 0 bench "${quick[@]}" --methods kernels+zero2 --ranks 2 --json
  field_is nodes 1
  field_is status ok
  # An srun whose processes are no ranks.
  sed 's/"cpus"/"mpi": "none", "cpus"/' "$XDG_CONFIG_HOME/gpudays/slurm.json" >"$WORK/none.json"
  expect 3 bench "${quick[@]}" --methods kernels --ranks 2 --nodes 2 --slurm-config "$WORK/none.json"
  said "srun started a process that is no rank of an MPI job, instead of one of 2"
  GPUDAYS_TEST_FAULT=kernels=segfault expect 4 bench "${quick[@]}" --methods kernels --ranks 2 --nodes 2 \
    --fresh
  said "a rank of it ended (node1: task 0: Segmentation fault"
  nothing_left
else
  echo "skipped in part: no job has several ranks, since srun --mpi=pmix fails here (tools/setup" \
    "installs libpmix-dev, which has the library): $(head -n 1 "$WORK/pmix")"
fi

# --- jobs that break -------------------------------------------------------------------------

fresh_store broken
for again in run store; do
  GPUDAYS_TEST_FAULT=kernels=exit expect 0 bench "${quick[@]}" --methods naive,kernels --json
  count '^      "status": "ok"' 1
  count '^      "status": "failed"' 1
  count "^      \"source\": \"$again\"" 2
  shown "its process ended with exit code 5 and gave no reason"
done
GPUDAYS_TEST_FAULT=compile=held=$WORK expect 3 bench "${quick[@]}" --methods compile --trial-timeout 1s
said "it took longer than 1 s and was ended; --trial-timeout sets the limit"
nothing_left
# A limit on jobs, and a controller that does not answer at first: both are waited for.
mkdir "$WORK/fake"
cat >"$WORK/fake/sbatch" <<END
#!/bin/sh
if [ "\$1" != --version ] && [ -n "\$($(command -v squeue) -h -o %i)" ]; then
  echo 'sbatch: error: AssocMaxSubmitJobLimit' >&2
  exit 1
fi
exec $(command -v sbatch) "\$@"
END
cat >"$WORK/fake/squeue" <<END
#!/bin/sh
if [ "\$1" != --version ] && ! mv "$WORK/fake/answers" "$WORK/fake/answered" 2>/dev/null &&
  [ ! -e "$WORK/fake/answered" ]; then
  touch "$WORK/fake/answers"
  echo 'slurm_load_jobs error: Unable to contact slurm controller (connect failure)' >&2
  exit 1
fi
exec $(command -v squeue) "\$@"
END
chmod +x "$WORK/fake/sbatch" "$WORK/fake/squeue"
PATH=$WORK/fake:$PATH expect 0 bench "${quick[@]}" --methods naive,kernels --fresh --json
count '^      "status": "ok"' 2
[[ -e $WORK/fake/answered ]] || fail "$LAST: squeue was not asked again"
nothing_left
# What needs control groups, or minutes, to happen: SLURM's words for it.
# ends_as STATE SENTENCE
ends_as() {
  mkdir -p "$WORK/word"
  printf '#!/bin/sh\n%s "$@" | sed "s/|RUNNING|.*/|%s|None/"\n' "$(command -v squeue)" "$1" \
    >"$WORK/word/squeue"
  chmod +x "$WORK/word/squeue"
  GPUDAYS_TEST_FAULT=compile=held=$WORK PATH=$WORK/word:$PATH expect 3 bench "${quick[@]}" \
    --methods compile --fresh
  said "$2"
  scancel "$(submitted)"
  nothing_left
}
ends_as OUT_OF_MEMORY 'ran out of memory, of which it had 1.00 GiB a rank; raise "memory" in slurm.json'
ends_as TIMEOUT "came to SLURM's time limit; raise \"time\" in slurm.json"
sed 's/"main"/"nowhere"/' "$XDG_CONFIG_HOME/gpudays/slurm.json" >"$WORK/nowhere.json"
expect 3 bench "${quick[@]}" --methods kernels --fresh --slurm-config "$WORK/nowhere.json"
said "sbatch refuses the job: "
said "nvalid partition"
nothing_left

# --- submitters that end ---------------------------------------------------------------------

# background FAULT ARGUMENT...: a search whose job runs. INT: background jobs of a script ignore it.
background() {
  LAST="gpudays bench ${*:2} in the background"
  touch "$WORK/held"
  GPUDAYS_TEST_FAULT=$1 env --default-signal=INT "$GPUDAYS" bench "${@:2}" \
    >"$OUT" 2>"$ERR" </dev/null &
  SEARCH=$!
  await job_runs
}
job_runs() {
  [[ -n $(marked gpudays | grep -vx "$SEARCH" || true) && -n $(squeue -h -t running -o %i) ]]
}
# release: what is held goes on, a moment after the next command has begun.
release() { (sleep 1 && rm "$WORK/held") & }
# finish CODE
finish() {
  RC=0
  wait "$SEARCH" 2>/dev/null || RC=$?
  [[ $RC == "$1" ]] || fail "$LAST: exit $RC, not $1"
}

# Somebody else's scancel is a reason; the search goes on to its end.
fresh_store cancelled
background "naive=held=$WORK" "${quick[@]}" --methods naive --json
scancel "$(present)"
finish 3
said "was cancelled by somebody"
nothing_left
# Asked again, it is tried again.
expect 0 bench "${quick[@]}" --methods naive --json
field_is source run
field_is tries 2

# Two submitters at once: one of them submits, and the other one waits for its job.
before=$(submitted)
background "naive=held=$WORK/held" "${quick[@]}" --methods naive --seed 7 --json
release
expect 0 bench "${quick[@]}" --methods naive --seed 7 --json
field_is status ok
field_is source store
finish 0
[[ $(submitted) == $((before + 1)) ]] || fail "$LAST: $(submitted) jobs, not $((before + 1))"
nothing_left

# Ctrl-C cancels.
background "compile=held=$WORK" "${quick[@]}" --methods compile
kill -INT "$SEARCH"
finish 130
[[ $(cat "$ERR") == "gpudays: interrupted with 1 of 1 trials to go; 1 job was cancelled; \
the same command goes on" ]] || fail "$LAST: other words"
nothing_left

# So does the time limit.
GPUDAYS_TEST_FAULT=compile=held=$WORK expect 1 bench "${quick[@]}" --methods compile --time-limit 2s
said "no trial was good before the time limit, and 1 of 1 are pending"
nothing_left

# A submitter that goes away comes back to its job: by the id, by the name, and after the job's end.
slow=("${quick[@]}" --methods naive)
come_back() {
  local before=$1
  expect 0 bench "${slow[@]}" --json
  field_is status ok
  field_is source run
  [[ $(submitted) == "$before" ]] || fail "$LAST: submitted again: $(submitted), not $before"
  nothing_left
}
fresh_store hup
background "naive=held=$WORK/held" "${slow[@]}"
kill -HUP "$SEARCH"
finish 129
said "its jobs stay with SLURM"
release
come_back "$(submitted)"
fresh_store killed
background "naive=held=$WORK/held" "${slow[@]}"
kill -KILL "$SEARCH"
finish 137
echo submitting >"$(echo "$jobs"/*/job)"
release
come_back "$(submitted)"
# That of another build is left alone; its result is stored when it is there.
leave_behind old-running
mv "$jobs/$left/result.json" "$WORK/result"
rm "$jobs/$left/code"
touch "$WORK/hold"
printf '#!/bin/sh\nwhile [ -e %q ]; do sleep 0.2; done\ncp %q %q\nmv %q %q\n' "$WORK/hold" \
  "$WORK/result" "$jobs/$left/new" "$jobs/$left/new" "$jobs/$left/result.json" >"$WORK/old.sh"
sbatch --parsable --job-name="gpudays-$left" --output=/dev/null "$WORK/old.sh" >"$jobs/$left/job"
before=$(submitted)
try bench "${slow[@]}" --json
[[ $RC == 0 ]] || fail "$LAST: exit $RC: $(cat "$ERR")"
field_is source run
[[ $(submitted) == $((before + 1)) ]] || fail "$LAST: $(submitted) jobs, not one more than $before"
rm "$WORK/hold"
await test -e "$jobs/$left/result.json"
try bench "${slow[@]}" --json
[[ $RC == 0 ]] || fail "$LAST: exit $RC: $(cat "$ERR")"
field_is source store
said "1 trial of another build of gpudays was found next to the store and is stored as that build's"
nothing_left
taken
fresh_store ended
background "naive=held=$WORK/held" "${slow[@]}"
kill -KILL "$SEARCH"
finish 137
id=$(submitted)
rm "$WORK/held"
await no_job
come_back "$id"
