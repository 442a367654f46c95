#!/usr/bin/env bash
# Every switch that demands or rules out a path of the CUDA backend does so, on a GPU that computes
# nothing (fake_gpu.c) and says which kernels were launched. That the paths compute the right numbers
# is for cuda_ops, cuda_gemm_emulated and cuda_gemm_epilogue, on a real one.
# shellcheck source=/dev/null
source "$(dirname "$0")/fake.sh"

export GPUDAYS_CUDNN=0 GPUDAYS_AUTOTUNE=off GD_TEST_KERNELS=$WORK/ran GD_TEST_HOPPER=1
tiny_config "$WORK/tiny" 's/: 16/: 128/; s/: 32/: 64/' # heads of 64

# runs PRECISION SWITCHES KERNELS: SWITCHES are NAME=VALUE without GPUDAYS_; of KERNELS, those with !
# before them must not be launched, the others must.
runs() {
  local switches=() kernel
  for kernel in $2; do
    switches+=("GPUDAYS_$kernel")
  done
  rm -rf "$WORK/ran"
  mkdir "$WORK/ran"
  [[ ${#switches[@]} == 0 ]] || export "${switches[@]}"
  expect 0 bench "$WORK/tiny" --backend cuda --seq 64 --batch 4 --micro-batch 4 --precision "$1" \
    --methods free-lunch --sample-seconds 0.01 --no-store --json
  [[ ${#switches[@]} == 0 ]] || unset "${switches[@]%%=*}"
  field_is status ok
  for kernel in $3; do
    if [[ $kernel == !* ]]; then
      [[ ! -e $WORK/ran/${kernel#!} ]] || fail "$2, $1: ${kernel#!} runs"
    else
      [[ -e $WORK/ran/$kernel ]] || fail "$2, $1: $kernel does not run; these do: $(cd "$WORK/ran" && echo *)"
    fi
  done
}

tiled="attention_forward attention_grad_queries attention_grad_keys"
emulated="emulated_sample emulated_cast"
runs fp32 "" "attention_short attention_short_grad !attention_forward !emulated_cast !matmul_finish"
runs fp32 "ATTENTION_SHORT=0" "!attention_short !attention_short_grad $tiled"
runs fp32 "TF32_EMULATED=0" "!attention_short !attention_short_grad $tiled !emulated_cast"
runs fp32 "TF32_EMULATED=0 ATTENTION_SHORT=1" "attention_short attention_short_grad !attention_forward"
runs fp32 "TF32_EMULATED=1" "$emulated"
runs fp32 "TF32_EMULATED=2" "$emulated"
runs fp32 "GEMM_GROUP=1" "$emulated"
runs fp32 "GEMM_GROUP=0" "!emulated_cast"
runs fp32 "GEMM_TRANSPOSED=1" "matmul_transpose"
runs fp32 "GEMM_TRANSPOSED=0" "!matmul_transpose"
runs fp32 "GEMM_STAGED=1" "matmul_finish"
runs bf16 "" "$tiled !attention_short !attention_grad !matmul_finish"
runs bf16 "GEMM_STAGED=1" "matmul_finish"
runs bf16 "ATTENTION_TILE=w" "attention_forward attention_grad !attention_grad_queries !attention_grad_keys"
runs bf16 "ATTENTION_TILE=1" "$tiled !attention_grad"
