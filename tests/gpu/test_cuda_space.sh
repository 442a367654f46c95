#!/usr/bin/env bash
# The search space trained on the GPU, on one rank and on two and four that share it, or on as many
# as the argument says: tests/methods/test_space with another backend. It compares bits on one rank,
# which need algorithms that are not chosen by their time. Several ranks train through host memory,
# then once more through NCCL where it permits that: the losses must be the same.
set -euo pipefail
# shellcheck source=tests/gpu/nccl.sh
source "$(dirname "$0")/nccl.sh"
"$GPUDAYS" doctor | grep '^GPU  *ok' >/dev/null || {
  "$GPUDAYS" doctor | grep '^GPU' || true
  echo "skipped: there is no GPU"
  exit 77
}
export GPUDAYS_DETERMINISTIC=1 GD_TEST_BACKEND=cuda
space=$(dirname "$GPUDAYS")/tests/methods/test_space
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
for ranks in "${@:-1 2 4}"; do
  if [[ $ranks == 1 ]]; then
    "$space" 1
    continue
  fi
  GPUDAYS_NCCL=off GD_TEST_LOSSES=$scratch/host.$ranks "$space" "$ranks"
  if ! nccl_takes "$ranks"; then
    echo "skipped in part: $NCCL_REFUSES"
    continue
  fi
  GPUDAYS_NCCL=on GD_TEST_LOSSES=$scratch/nccl.$ranks "$space" "$ranks"
  # Sums of more than two ranks have another order in NCCL.
  paste -d ' ' "$scratch/host.$ranks" "$scratch/nccl.$ranks" | awk -v ranks="$ranks" '
    NF != 16 || $1 != $9 || $2 != $10 || $3 != $11 { print "not the same runs: " $0; bad++; next }
    {
      worst = 0
      for (i = 4; i <= 8; i++) {
        d = ($i - $(i + 8)) / $i
        d = d < 0 ? -d : d
        worst = d > worst ? d : worst
      }
      runs++
      methods[$2] = 1
      equal += worst == 0
      most[$3] = worst > most[$3] ? worst : most[$3] + 0
      if (worst > ($3 == "fp32" ? 1e-5 : 1e-2)) {
        print $1, $2, $3 ": losses through NCCL differ by " worst
        bad++
      }
    }
    END {
      for (m in methods)
        n++
      printf "%d ranks through NCCL and through host memory: %d methods, %d runs, %d with equal bits;" \
        " largest difference %.1e in fp32, %.1e in bf16\n", ranks, n, runs, equal, most["fp32"], most["bf16"]
      exit bad > 0 || runs == 0
    }'
done
