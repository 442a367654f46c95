# What tests on a GPU that computes nothing (fake_gpu.c) begin with; sourced by each. It stands for the
# driver, NVRTC and cuBLASLt; nothing of this machine's is found.
# shellcheck shell=bash
# shellcheck source=/dev/null
source "$(dirname "${BASH_SOURCE[0]}")/../cli/common.sh"

library=$(dirname "$GPUDAYS")/tests/gpu/fake_gpu.so
[[ -e $library ]] || {
  echo "skipped: $library is not there"
  exit 77
}
mkdir "$WORK/fake" "$WORK/state"
for name in libcuda.so.1 libnvrtc.so.13 libcublasLt.so.13; do
  ln -s "$library" "$WORK/fake/$name"
done
export GPUDAYS_CUDA_PATH=$WORK/fake GD_FAKE_GPU=$WORK/state HOME=$WORK XDG_CACHE_HOME=$WORK/cache
unset VIRTUAL_ENV CONDA_PREFIX CUDA_HOME CUDA_PATH GPUDAYS_DETERMINISTIC
