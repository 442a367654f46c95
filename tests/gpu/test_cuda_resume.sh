#!/usr/bin/env bash
# A deterministic run on the GPU that is killed and goes on: the losses and the model are those of a run
# that nobody disturbed, bit for bit, though the cache of the machine has lost what was timed. Then what
# it costs: tokens/s of trials as they are by default, with kept choices, and with none.
#
# GD_TEST_MODEL, GD_TEST_SIZES: what the cost is of; default pythia-160m, --batch 128 --micro-batch 16.
# shellcheck source=tests/train/common.sh
source "$(dirname "$0")/../train/common.sh"
"$GPUDAYS" doctor | grep '^GPU  *ok' >/dev/null || {
  "$GPUDAYS" doctor | grep '^GPU' || true
  echo "skipped: there is no GPU"
  exit 77
}
export XDG_CACHE_HOME=${GD_TEST_CACHE:-$WORK/cache} GPUDAYS_AUTOTUNE_LOG=$WORK/log
unset GPUDAYS_DETERMINISTIC

# trained ARGUMENT...: stderr may say that checkpoints, which are many here, stop the run.
trained() {
  LAST="gpudays $*"
  "$GPUDAYS" "$@" >"$OUT" 2>"$ERR" </dev/null || fail "$LAST: exit $?"
}

for precision in bf16 fp32; do
  for dropout in 0 0.1; do
    name=$WORK/$precision-$dropout
    mkdir -p "$name"
    cat >"$name/config.json" <<END
{"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "vocab_size": 512, "n_positions": 512, "n_embd": 512,
 "n_layer": 4, "n_head": 8, "resid_pdrop": $dropout, "embd_pdrop": $dropout, "attn_pdrop": $dropout}
END
    run=(train "$name" --data "$WORK/train.bin" --eval "$WORK/eval.bin" --eval-every 25 --backend cuda --seq 512
      --batch 16 --micro-batch 6 --steps 80 --warmup 4 --lr 1e-3 --precision "$precision" --methods free-lunch
      --deterministic --checkpoint-every 20)
    trained "${run[@]}" -o "$name-whole"
    ls "$name-whole"/kernels/*-rank0.txt >/dev/null || fail "$LAST: no choices were kept"
    LAST="gpudays ${run[*]}, killed after step 50"
    touch "$WORK/held"
    GPUDAYS_TEST_TRAIN=hold@50=$WORK/held "$GPUDAYS" "${run[@]}" -o "$name-killed" >"$OUT" 2>"$ERR" </dev/null &
    program=$!
    await logged "$name-killed" 50
    kill -KILL "$program"
    wait "$program" 2>/dev/null || true
    rm "$WORK/held"
    diff <(sort "$name-whole"/kernels/*) <(sort "$name-killed"/kernels/*) >"$OUT" || fail "$LAST: other choices"
    find "$XDG_CACHE_HOME" -name 'autotune-*.txt' -delete
    rm -f "$GPUDAYS_AUTOTUNE_LOG"
    trained train "$name-killed" --json
    (($(field resumed_step) >= 20)) || fail "$LAST: went on from no checkpoint"
    [[ ! -s $GPUDAYS_AUTOTUNE_LOG ]] || fail "$LAST: timed again: $(head -3 "$GPUDAYS_AUTOTUNE_LOG")"
    same "$name-whole" "$name-killed"
    cmp "$name-whole/model/model.safetensors" "$name-killed/model/model.safetensors" || fail "$LAST: another model"
    echo "$precision, dropout $dropout: $(losses "$name-killed" | tail -1 | cut -d' ' -f2) after 80 steps, the same bits"
  done
done

read -ra sizes <<<"${GD_TEST_SIZES:---batch 128 --micro-batch 16}"
rates() { # WHAT VARIABLE=VALUE...
  local what=$1
  shift
  LAST="gpudays bench, $what"
  env "$@" "$GPUDAYS" bench "${GD_TEST_MODEL:-pythia-160m}" "${sizes[@]}" --backend cuda --precision bf16 \
    --methods free-lunch --sample-seconds 3 --no-store --json >"$OUT" 2>"$ERR" </dev/null || fail "$LAST: failed"
  echo "$what: $(field tokens_per_s) tokens/s"
}
for _ in 1 2 3; do
  rates "by default" GPUDAYS_DETERMINISTIC=0
  rates "deterministic, kept choices" GPUDAYS_DETERMINISTIC=kept
  rates "deterministic, no choices" GPUDAYS_DETERMINISTIC=1
done
