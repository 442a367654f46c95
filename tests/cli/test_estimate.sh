#!/usr/bin/env bash
# The analytic estimate: Section 3.1's division, for one cell and for all of the paper's, by
# datasheet and by the paper's peaks.
# shellcheck source=/dev/null
source "$(dirname "$0")/common.sh"

# days_are DAYS: of the last run, within 3 % of Appendix E's FLOPs over the paper's peaks.
days_are() {
  awk -v got="$(field days)" -v want="$1" 'BEGIN { exit !(got > 0.97 * want && got < 1.03 * want) }' ||
    fail "$LAST: $(field days) days, not $1"
}
while read -r model flops; do
  while read -r gpu peak; do
    expect 0 estimate "$model" --gpu "$gpu" --count 4 --peaks paper --json
    field_is model "$model"
    field_is gpu "$gpu"
    field_is count 4
    days_are "$(awk -v f="$flops" -v p="$peak" 'BEGIN { print f / p / 4 / 86400 }')"
  done <<'END'
3090 71e12
a6000 154.8e12
a100 312e12
h100 756e12
END
done <<'END'
pythia-160m 2.9e20
pythia-1b 1.9e21
roberta 4.8e21
END

# Datasheets: the H100 is an SXM card there; a fp32 recipe runs at the TF32 rate.
expect 0 estimate pythia-1b --gpu h100 --count 8 --json
field_is peak_flops 989400000000000.0
field_is peaks datasheet
expect 0 estimate vit --gpu a100 --count 1 --json
field_is rate tf32
field_is peak_flops 156000000000000.0
expect 0 estimate vit --gpu a100 --count 1 --json --peaks paper
field_is peak_flops 156000000000000.0

# All cells: nine models x four GPUs x four counts, in each form; twice the GPUs, half the days.
expect 0 estimate --csv
[[ $(wc -l <"$OUT") == 145 ]] || fail "not 144 cells"
awk -F, 'NR > 1 && $3 == 1 { one[$1 $2] = $4 }
  NR > 1 && $3 == 8 && ($4 * 8 < 0.999999 * one[$1 $2] || $4 * 8 > 1.000001 * one[$1 $2]) { exit 1 }' \
  "$OUT" || fail "8 GPUs do not take an eighth"
expect 0 estimate --json
[[ $(grep -c '"days"' "$OUT") == 144 ]] || fail "JSON has not 144 cells"
expect 0 estimate
grep -qE '^MODEL +FLOPS +GPU +RATE +TFLOP/s +1 GPU +2 GPUs +4 GPUs +8 GPUs$' "$OUT" ||
  fail "the table has another head"
[[ $(grep -cE '^(pythia|roberta|mamba|convnext|vit)' "$OUT") == 36 ]] || fail "not 36 lines"
shown "Lower bound (100 % MFU)"

# Recipe, several GPUs, models by path, GPUs without the precision.
tiny_config "$WORK/tiny"
expect 0 estimate "$WORK/tiny" pythia-14m --gpu v100,b200 --count 16 --steps 10 --csv
[[ $(wc -l <"$OUT") == 5 ]] || fail "not four cells"
# A recipe in bf16 runs as fp16 where the GPU has none, and that is said; asked for, it is refused.
expect 0 estimate pythia-1b --gpu v100 --count 1 --json
field_is precision fp16
field_is precision_substituted true
field_is rate fp16
field_above days 1
expect 0 estimate pythia-1b --gpu v100,a100 --count 1
shown "pythia-1b on v100-16gb: the recipe's bf16 runs as fp16, since the GPU has no bf16."
[[ $(grep -c "runs as" "$OUT") == 1 ]] || fail "the A100 has bf16"
expect 2 estimate pythia-1b --gpu v100 --precision bf16
said "--precision is bf16, which this GPU does not compute in; choose fp16, or leave it out"
expect 0 estimate pythia-1b --gpu v100 --count 1 --json --precision fp16
field_is precision_substituted false
field_above days 1

expect 2 estimate pythia-1b --gpu b200 --peaks paper
said "the paper states no peak of b200"
expect 2 estimate pythia-1b --gpu ''
expect 2 estimate pythia-1b --gpu a100,
expect 2 estimate pythia-1b --peaks measured
expect 2 estimate nothing
expect 2 estimate pythia-1b --count 0
