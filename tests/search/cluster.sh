# A real SLURM for a test: munged, slurmctld and two slurmd as two nodes of one machine, all in a folder
# of the test and on ports of its own, without systemd, control groups or accounting. Sourced behind
# tests/cli/common.sh; a test without SLURM is skipped. GD_TEST_RUN marks all processes of the test.
# shellcheck shell=bash
PATH=$PATH:/usr/sbin:/sbin
export GD_TEST_RUN=${GD_TEST_RUN:-$$-$RANDOM}

skip() {
  echo "SKIPPED: jobs of SLURM: $*" >&2
  exit 77
}
for command in munged slurmctld slurmd sbatch squeue scancel srun sinfo scontrol; do
  command -v "$command" >/dev/null ||
    skip "$command is missing; run tools/setup (Debian: apt-get install slurmctld slurmd munge)"
done

# With marks in their environment even those are found that have left their parents.
marked() {
  local pid
  for pid in $(pgrep "^($1)" || true); do
    ! grep -qsz "^GD_TEST_RUN=$GD_TEST_RUN\$" "/proc/$pid/environ" || echo "$pid"
  done
}
clean_up() {
  local pid tries
  trap - EXIT
  exec 2>/dev/null # bash tells of every process that is killed
  for ((tries = 0; tries < 100; tries++)); do
    for pid in $(marked 'gpudays|srun|slurm|munged|sbatch|sleep'); do
      kill -KILL "$pid" 2>/dev/null || true
    done
    [[ -n $(marked 'gpudays|srun|slurm|munged') ]] || break
    sleep 0.1
  done
  wait 2>/dev/null
  rm -rf "$WORK"
}
trap clean_up EXIT
trap 'exit 1' INT TERM

S=$WORK/s
mkdir -m 755 "$S" "$S/state" "$S/munge"
chmod 755 "$WORK"
# is_free PORT...: nobody listens there.
is_free() {
  local port
  for port in "$@"; do
    ! (: <"/dev/tcp/127.0.0.1/$port") 2>/dev/null || return 1
  done
}
port=0
until ((port > 0)) && is_free "$port" $((port + 1)) $((port + 2)); do
  port=$((20000 + RANDOM % 10000))
done
host=$(hostname -s)
# TmpFS: the PMIx servers of both nodes would make the same folder in /tmp.
cat >"$S/slurm.conf" <<END
ClusterName=gpudays-test
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port
SlurmUser=$(id -un)
SlurmdUser=$(id -un)
AuthType=auth/munge
AuthInfo=socket=$S/munge/socket
CredType=cred/munge
StateSaveLocation=$S/state
SlurmdSpoolDir=$S/spool.%n
TmpFS=$S/tmp.%n
SlurmctldPidFile=$S/slurmctld.pid
SlurmdPidFile=$S/slurmd.%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SlurmdParameters=config_overrides
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0
MpiDefault=none
KillWait=1
ReturnToService=2
MinJobAge=86400
MessageTimeout=100
BatchStartTimeout=300
SlurmdTimeout=0
NodeName=node1 NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + 1)) CPUs=16 RealMemory=1000000
NodeName=node2 NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + 2)) CPUs=16 RealMemory=1000000
PartitionName=main Nodes=node[1-2] Default=YES MaxTime=INFINITE State=UP
END
export SLURM_CONF=$S/slurm.conf
(umask 077 && head -c 1024 /dev/urandom >"$S/munge/key")
munged --foreground --force --key-file="$S/munge/key" --socket="$S/munge/socket" \
  --pid-file="$S/munge/pid" --log-file="$S/munge/log" --seed-file="$S/munge/seed" \
  --num-threads=2 >"$S/munged.out" 2>&1 &
slurmctld -D -i >"$S/slurmctld.log" 2>&1 &
for node in node1 node2; do
  mkdir "$S/spool.$node" "$S/tmp.$node"
  slurmd -D -N "$node" >"$S/$node.log" 2>&1 &
done
for ((tries = 0; ; tries++)); do
  [[ $(sinfo -h -N -o %T 2>/dev/null | grep -c idle) != 2 ]] || break
  ((tries < 500)) || skip "the nodes do not come up here:" \
    "$(cat "$S/munged.out" "$S/munge/log" "$S"/*.log 2>/dev/null | grep -iE 'error|fatal' | tail -n 3 | tr '\n' ' ')"
  sleep 0.2
done
