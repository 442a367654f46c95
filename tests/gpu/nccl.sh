# Shared by tests that want several ranks on real NCCL.
# shellcheck shell=bash disable=SC2034

# nccl_takes RANKS: whether NCCL can carry so many here, each on a GPU of its own, or all on one where
# NCCL permits it (from 2.30.3 on), which it is then told. NCCL_REFUSES says why not.
nccl_takes() {
  local version gpus
  NCCL_REFUSES=
  version=$("$GPUDAYS" doctor | sed -n 's/^NCCL  *ok: \([0-9.]*\).*/\1/p')
  gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU' || true)
  if [[ -z $version ]]; then
    NCCL_REFUSES="there is no NCCL"
  elif ! command -v mpirun >/dev/null; then
    NCCL_REFUSES="there is no mpirun"
  elif ((${gpus:-0} >= $1)); then
    return 0
  elif [[ $(printf '%s\n' 2.30.3 "$version" | sort -V | head -1) != 2.30.3 ]]; then
    NCCL_REFUSES="$1 ranks share ${gpus:-0} GPU, which NCCL $version refuses (2.30.3 and later permit it)"
  else
    export NCCL_MULTI_RANK_GPU_ENABLE=1 NCCL_NVLS_ENABLE=0
    return 0
  fi
  return 1
}
