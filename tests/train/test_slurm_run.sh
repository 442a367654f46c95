#!/usr/bin/env bash
# A run as jobs of a real SLURM: each ends in order before its limit and is followed by another one until
# the run is done, with the losses of one uninterrupted run; also when a job is killed. The limit of a
# minute is for GD_TEST_ALL=1; otherwise jobs end after ten steps each.
# shellcheck source=/dev/null
source "$(dirname "$0")/common.sh"
mkdir -p "$XDG_CONFIG_HOME/gpudays"

run=(train "$WORK/tiny" --data "$WORK/train.bin" --seq 32 --batch 8 --steps 40 --warmup 4 --lr 1e-2
  --precision fp32 --methods free-lunch --micro-batch 4 --threads 1)
slurm=(--slurm --backend cpu)

# --- what needs no SLURM ------------------------------------------------------------------------

expect 2 "${run[@]}" -o "$WORK/no" --slurm
said "this machine cannot tell whether the jobs of --slurm run on GPUs"
expect 2 "${run[@]}" -o "$WORK/no" "${slurm[@]}" --retries 2
said "leave out --retries"
expect 2 "${run[@]}" -o "$WORK/no" "${slurm[@]}" --job-status
said "has no run: --job-status shows the jobs of one"
expect 2 "${run[@]}" -o "$WORK/no" --job-status
said "--job-status needs --slurm"
expect 2 train "$WORK/tiny" --data "$WORK/none.bin" -o "$WORK/no" "${slurm[@]}"
said "No such file"
[[ ! -e $WORK/no ]] || fail "$LAST: something was written"
expect 0 "${run[@]}" -o "$WORK/whole"

# shellcheck source=/dev/null
source "$GD_SOURCE_DIR/tests/search/cluster.sh"
export OMPI_MCA_btl_tcp_if_include=lo OMPI_MCA_oob_tcp_if_include=lo
echo '{"default": {"memory": "1GiB", "time": "30"}, "cpu": {"cpus": 1, "partition": "main"}}' \
  >"$XDG_CONFIG_HOME/gpudays/slurm.json"

# chain_ends RUN: no job of it is left.
no_job() { [[ -z $(squeue -h -o %i) ]]; }
chain_ends() {
  LAST="the jobs of $1"
  await no_job
  cat "$1"/slurm/log-* >"$OUT"
  [[ -e $1/model/model.safetensors ]] || fail "$LAST: the run is not done"
}
# jobs_of RUN: how many have begun.
jobs_of() { wc -l <"$1/slurm/jobs"; }

# --- four jobs ----------------------------------------------------------------------------------

export GPUDAYS_TEST_TRAIN=late@10,late@20,late@30
expect 0 "${run[@]}" -o "$WORK/four" "${slurm[@]}"
tr '\n' ' ' <"$OUT" | tr -s ' ' >"$WORK/flat"
grep -qF "jobs follow it until the run is done: 'gpudays train $WORK/four --slurm --job-status' shows them" \
  "$WORK/flat" || fail "$LAST: other words"
chain_ends "$WORK/four"
[[ $(jobs_of "$WORK/four") == 4 ]] || fail "$LAST: $(jobs_of "$WORK/four") jobs, not 4"
[[ $(cut -d' ' -f2 "$WORK/four/slurm/jobs" | tr '\n' ' ') == "0 10 20 30 " ]] || fail "$LAST: other steps"
same "$WORK/whole" "$WORK/four"
expect 0 train "$WORK/four" --slurm --job-status
shown "tiny: 40 of 40 steps; done $(date -r "$WORK/four/model/model.safetensors" '+%Y-%m-%d')"
[[ $(grep -c COMPLETED "$OUT") == 4 ]] || fail "$LAST: not four jobs that are done"
expect 0 train "$WORK/four" --slurm --job-status --json
field_is finished true
[[ $(grep -c '"state": "COMPLETED"' "$OUT") == 4 ]] || fail "$LAST: not four jobs that are done"

# --- a job that is killed -------------------------------------------------------------------------

# The next one is there already. While one is, no other chain begins.
touch "$WORK/held"
GPUDAYS_TEST_TRAIN=hold@25=$WORK/held expect 0 "${run[@]}" -o "$WORK/killed" "${slurm[@]}" --checkpoint-every 10
await logged "$WORK/killed" 25
expect 2 train "$WORK/killed" "${slurm[@]}"
said "of SLURM already"
expect 0 train "$WORK/killed" --slurm --job-status
shown "tiny: 25 of 40 steps; done about "
shown RUNNING
shown PENDING
scancel --signal=KILL --full "$(cut -d' ' -f1 "$WORK/killed/slurm/jobs")"
rm "$WORK/held"
chain_ends "$WORK/killed"
[[ $(jobs_of "$WORK/killed") == 2 ]] || fail "$LAST: $(jobs_of "$WORK/killed") jobs, not 2"
(($(sed -n 2p "$WORK/killed/slurm/jobs" | cut -d' ' -f2) >= 10)) || fail "$LAST: it began anew"
same "$WORK/whole" "$WORK/killed"

# --- the limit ----------------------------------------------------------------------------------

if [[ -z ${GD_TEST_ALL:-} ]]; then
  echo "skipped in part: jobs with a limit of a minute take four; GD_TEST_ALL=1 runs them"
  exit 0
fi
unset GPUDAYS_TEST_TRAIN
long=("${run[@]}" --steps 320)
expect 0 "${long[@]}" -o "$WORK/long-whole"
GPUDAYS_TEST_TRAIN=slow@1=500 expect 0 "${long[@]}" -o "$WORK/long" "${slurm[@]}" --job-time 1m
SECONDS=0
until no_job || ((SECONDS > 1200)); do sleep 1; done
chain_ends "$WORK/long"
(($(jobs_of "$WORK/long") >= 4)) || fail "$LAST: $(jobs_of "$WORK/long") jobs, not 4"
expect 0 train "$WORK/long" --slurm --job-status
[[ $(grep -c COMPLETED "$OUT") == "$(jobs_of "$WORK/long")" ]] || fail "$LAST: a job came to its limit"
same "$WORK/long-whole" "$WORK/long"
