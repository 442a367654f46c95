#!/usr/bin/env bash
# `gpudays cost`: the paper's statements as a user asks for them, limits that nothing meets, budget
# and deadline together, measured trials, the paragraph, and values that cannot be meant.
# shellcheck source=/dev/null
source "$(dirname "$0")/common.sh"
paper=(cost pythia-1b --times paper)

# chosen NAME: a field of the machine that was taken.
chosen() {
  sed -n '/^  "chosen": {$/,/^  }/p' "$OUT" | sed -nE 's/^ *"'"$1"'": ("(.*)"|([^"[{,]+)),?$/\2\3/p'
}
# chosen_is NAME VALUE
chosen_is() {
  [[ $(chosen "$1") == "$2" ]] || fail "$LAST: chosen $1 is '$(chosen "$1")', not '$2'"
}

# item LABEL: the text of that line of the answer, on one line however it is wrapped; said_by LABEL TEXT.
item() {
  awk -v label="$1" '/^$/ && seen { exit } /^  [a-z]/ { on = substr($0, 3, 10) ~ "^" label " *$" }
    on && /^  / { seen = 1; text = substr($0, 13); sub(/^ +/, "", text); line = line (line == "" ? "" : " ") text }
    END { print line }' "$OUT"
}
# shellcheck disable=SC2053
item_is() { [[ $(item "$1") == $2 ]] || fail "$LAST: $1 is '$(item "$1")', not '$2'"; }

# $40k buys 8 x 3090; the days are flagged.
expect 0 "${paper[@]}" --budget 40k
shown "to buy: server-8x-3090 for \$21,073, 30 days: the fastest of"
shown "impossible"
shown "of those that physics allows: desktop-1x-h100 for \$31,020, 34 days"
expect 0 "${paper[@]}" --budget 40000 --json
chosen_is machine server-8x-3090
chosen_is gpu 3090
chosen_is count 8
chosen_is physics impossible
chosen_is times paper
chosen_is method free-lunch+zero1
[[ $(chosen days) == 30.0 ]] || fail "30 days"
[[ $(grep -c '"hardware_usd":' "$OUT") -gt 16 ]] || fail "options are missing"

# The cheapest in time, the fastest of all, the cheapest run.
expect 0 "${paper[@]}" --days 17 --json
chosen_is machine desktop-2x-h100
expect 0 "${paper[@]}" --budget 1M --json
chosen_is machine server-8x-h100
expect 0 "${paper[@]}" --json
chosen_is machine desktop-2x-h100 # the 3090s draw four times the energy
expect 0 "${paper[@]}" --kwh-usd 0 --json
chosen_is machine desktop-2x-3090

# The days of other software: those of plan for the same machine, the fastest of all methods that fit.
option() { # option MACHINE NAME: a field of that row
  awk -v machine="\"$1\"," -v want="\"$2\":" '$1 == "\"machine\":" { on = $2 == machine }
    on && $1 == want { sub(/^ *"[a-z_]+": "?/, ""); sub(/"?,?$/, ""); print; exit }' "$OUT"
}
machines=desktop-1x-4090,server-8x-4090,server-8x-h100
for stack in pytorch deepspeed megatron paper; do
  for model in pythia-160m pythia-2.8b; do
    expect 0 cost "$model" --stack "$stack" --machine "$machines" --json
    cp "$OUT" "$WORK/cost.json"
    for machine in desktop-1x-4090 server-8x-4090 server-8x-h100; do
      count=${machine#*-} gpu=${machine##*-}
      expect "$([[ $(option $machine state) == known ]] && echo 0 || echo 1)" \
        plan "$model" --gpu "$gpu" --count "${count%x*}" --machine $machine --stack "$stack" --methods all --csv
      # Those of a run, which waits for the GPU, where the paper's clock does not.
      planned=$(sed 's/"[^"]*"//g' "$OUT" | awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
        $at["feasible"] == "true" {
          days = $at["days"]; run = at["waited_days"] ? $at["waited_days"] : days
          if (least == "" || run < least) { least = run
            answer = sprintf("%s %.17g %.17g %.17g", $at["method"], run, run / days * $at["days_low"], run / days * $at["days_high"]) } }
        END { print answer }')
      cp "$WORK/cost.json" "$OUT"
      if [[ $(option $machine state) == known ]]; then
        asked="$(option $machine method) $(option $machine days) $(option $machine days_low) $(option $machine days_high)"
        # Both print all digits of the number, in two ways.
        awk -v a="$asked" -v b="$planned" 'BEGIN { n = split(a, x, " "); split(b, y, " "); bad = n != 4 || x[1] != y[1]
          for (i = 2; i <= n; i++) bad = bad || (x[i] / y[i] - 1) ^ 2 > 1e-24; exit bad }' ||
          fail "$model, $stack, $machine: $asked; plan: $planned"
      else
        [[ $(option $machine state) == infeasible ]] || fail "$model, $stack, $machine is $(option $machine state)"
      fi
      [[ $(option $machine times) == predicted ]] || fail "not predicted"
    done
  done
done
# fp32 recipes have TF32 with free-lunch, and without it in naive: 312 and 19.5 TFLOP/s of an A100 in between.
plan_days() {
  expect 0 plan vit --gpu 8xa100 --stack "$1" --methods "$2" --json
  field days
}
for stack in pytorch timm composer; do
  awk -v with="$(plan_days $stack free-lunch)" -v without="$(plan_days $stack naive)" 'BEGIN { exit !(without > 3 * with) }' ||
    fail "$stack: no TF32"
done
expect 2 plan gpt2 --gpu a100 --stack pytorch --calibration h200
said "leave out --calibration"
# A GPU on which nothing but offload fits is there, for this engine as for others.
for stack in own deepspeed; do
  expect 0 cost pythia-2.8b --stack $stack --machine desktop-1x-4090 --json
  [[ $(option desktop-1x-4090 method) == *+offload ]] || fail "$stack: $(option desktop-1x-4090 method)"
done
field_is stack deepspeed
expect 0 cost pythia-1b --stack pytorch --machine server-8x-4090
shown "PyTorch with"
item_is trust "*that rests on published figures of that software and*"
item_is next "gpudays plan pythia-1b --gpu 8x4090 --stack pytorch"
expect 0 cost --budget 500 --days 9 --stack hf-trainer --json
field_is stack pytorch-eager
[[ $(grep -c '"times": "predicted"' "$OUT") == $(grep -c '"times":' "$OUT") ]] || fail "other days than predicted ones"
expect 2 cost pythia-1b --stack pytorch --times paper
said "--stack pytorch only has predicted days, but --times paper asks for other ones"
expect 2 cost pythia-1b --stack nothing
said "expected one of composer, deepspeed"

# Renting is an answer: for one run it costs less than any machine, and the first line says so.
expect 0 cost pythia-1b --times analytic --tokens 20B --budget 500
[[ $(item answer) =~ ^"rent 8 x "[a-z0-9-]+": \$"[0-9]+" for one run, the fastest of "[0-9]+" ways to buy or rent within \$500"$ ]] ||
  fail "the answer is '$(item answer)'"
for label in time cost buy or energy next trust; do
  [[ -n $(item $label) ]] || fail "$LAST: no line $label"
done
item_is time "*, done by 20*"
item_is buy "buying pays from *; break-even: buying the same machine pays after * months of use"
[[ $(sed '/^MACHINE/,$d' "$OUT" | grep -v "^  next" | awk 'length > 80') == "" ]] || fail "$LAST: more than 80 columns"
# ... against the cheapest rent, whatever is advised; both ends are said in one line.
against=$(item buy | sed -nE 's/.*, against the cheapest rent of (\$[0-9.,]+) a run;.*/\1/p')
item_is or "cheapest: rent * x * for $against, * days; fastest: rent 8 x *"
! grep -q "^cheapest to rent" "$OUT" || fail "the cheapest rent is said twice"
# shellcheck disable=SC2046
expect 0 $(item next | cut -d' ' -f2-)
expect 0 cost pythia-1b --times analytic --tokens 20B
item_is answer "rent *, the cheapest of * ways to buy or rent"
shown "if it is never idle"
# A few percent of dollars do not decide over many days.
expect 0 cost pythia-12b --times analytic --machine rented-1x-b200,rented-8x-b200
item_is answer "rent 8 x b200: *"
expect 0 cost pythia-12b --times predicted --machine rented-8x-b200,rented-2x-b200
item_is answer "rent 8 x b200: *, within 5 % of the cheapest of 2 ways to buy or rent, and * times as fast"
expect 0 cost pythia-12b --times predicted --machine server-4x-5090,rented-8x-b200,rented-4x-b200
item_is or "cheapest: buy server-4x-5090 for *; fastest for up to twice that: rent 8 x b200 for *"
expect 0 cost pythia-1b --times analytic --tokens 20B
shown "twice the rent: rent "
expect 0 cost pythia-1b --times analytic --tokens 20B --json
advice() { sed -n '/^  "advice": {$/,/^  }/p' "$OUT" | sed -nE 's/^ *"'"$1"'": ("(.*)"|([^"[{,]+)),?$/\2\3/p'; }
[[ $(advice way) == rent ]] || fail "the advice is not to rent"
awk -v usd="$(advice usd)" -v runs="$(advice buying_pays_runs)" 'BEGIN { exit !(usd > 10 && usd < 500 && runs > 1 && runs < 1000) }' ||
  fail "the advice: $(advice usd) dollars, $(advice buying_pays_runs) runs"
[[ $(grep -c '"at": ' "$OUT") == 7 ]] || fail "seven other prices"
# Dear rents and a long run: buying is the advice.
expect 0 cost pythia-1b --times analytic --rent 50
item_is answer "buy desktop-1x-*"
item_is cost "buy it for \$* of its 5 years for this run, \$* of electricity; renting as much: *; break-even: against renting it after * months of use"

# The answer is no, and what is nearest.
expect 1 "${paper[@]}" --budget 500
said "no machine is likely to train pythia-1b for \$500, bought or rented; the cheapest that there is: rent "
said "; to buy: desktop-1x-3090 for \$2,320"
expect 1 "${paper[@]}" --days 1
said "no machine is likely to train pythia-1b within 1 day, bought or rented; the fastest that there is: rent 8 x h100 for "
item_is answer "no: no machine is likely to train it within 1 day, bought or rented"
expect 1 "${paper[@]}" --budget 500 --json
field_is chosen null
field_is advice null
# A budget inside of the interval of the rent is at risk, and above it is likely to do.
expect 0 cost pythia-160m --gpu 4x3090 --json
at() { awk -v a="$(field rent_usd_low)" -v b="$(field rent_usd_high)" -v s="$1" 'BEGIN { printf "%.0f", a + s * (b - a) }'; }
inside=$(at 0.7) above=$(at 1.1) below=$(at -0.2)
expect 1 cost pythia-160m --gpu 4x3090 --budget "$inside"
item_is "at risk" "rent 4 x 3090 for *: the budget lies within the interval of its rent, *"
expect 1 cost pythia-160m --gpu 4x3090 --budget "$inside" --json
field_is budget "at risk"
expect 0 cost pythia-160m --gpu 4x3090 --budget "$above"
expect 1 cost pythia-160m --gpu 4x3090 --budget "$below" --json
field_is at_risk null
expect 1 cost gpt2 --times paper
said "the paper has no days of gpt2"
expect 1 cost pythia-6.9b --times paper --machine desktop-1x-a100
said "none of these machines"

# Budget and deadline: how much of the model, or which preset.
expect 0 "${paper[@]}" --budget 5000 --days 30
part=$(sed -n '/^in all of the days/,/^$/p' "$OUT" | tr -s ' \n' ' ')
[[ $part == *" bought desktop-2x-3090, \$4,056, 30 days: 8.3e10 tokens, 27.5 % of the recipe rented 4 x h100, "* ]] ||
  fail "in all of the days: $part"
# Nothing is within both: exit 1, the verdict first, and how much of the run is.
expect 1 cost pythia-12b --times analytic --budget 5000 --days 40
said "no machine is likely to train pythia-12b within \$5,000 and 40 days, bought or rented; the cheapest in time: rent "
item_is answer "no: no machine is likely to train it within \$5,000 and 40 days, bought or rented; a part of the run is:"
item_is rented "* % of the recipe"
expect 1 cost pythia-12b --times analytic --budget 5000 --days 30 --json
field_is advice null
expect 1 cost pythia-12b --times analytic --budget 1M --days 0.001
said "; the fastest that there is: "
# What can be bought is held against the deadline too.
expect 0 cost gpt2-xl --machine desktop-2x-4090,rented-8x-b200 --budget 8000 --days 30
shown "to buy: nothing within \$8,000 and 30 days; past the deadline: desktop-2x-4090 for \$4,654, "

# The list takes what the advice for each model takes, from the same source of days.
few=(--budget 7500 --days 30 --machine "desktop-2x-4090,server-8x-4090,rented-8x-b200,rented-2x-b200,rented-8x-l40s")
list_cell() { awk -v model="$1" -v column="$2" '$1 == model { split($0, cells, /  +/); print cells[column] }' "$WORK/list"; }
expect 0 cost "${few[@]}"
cp "$OUT" "$WORK/list"
shown "largest that can be trained, by the FLOPs of its run:"
shown "  rented: gpt2-xl on 8 x b200, "
shown "predicted:"
for model in pythia-14m mamba-130m mamba-1.4b gpt2-xl; do
  rented=$(list_cell "$model" 5) # "8 x b200, $44, 0.038 days", or "-"
  try cost "$model" "${few[@]}"
  first=$(item answer | sed -nE 's/^rent (.*): (\$[0-9.,]+) for one run,.*/\1, \2/p')
  if [[ $rented == - ]]; then
    [[ $(list_cell "$model" 4) == - && $RC == 1 ]] || fail "$model: the list has nothing, cost MODEL '$first'"
  else
    [[ $RC == 0 && $first == "${rented%, *}" ]] || fail "$model: the list has '$rented', cost MODEL '$first'"
  fi
done
[[ $(list_cell mamba-1.4b 5) == - && $(list_cell gpt2-xl 6) == predicted ]] || fail "the list: $(grep gpt2-xl "$WORK/list")"
expect 0 cost --budget 5000 --days 30 --times analytic --csv
cp "$OUT" "$WORK/all"
for model in bert-base roberta-base pythia-410m pythia-1b; do # whatever was left out would not have won
  expect 0 cost "$model" --budget 5000 --days 30 --times analytic --json
  way=$(sed -n '/^  "advice": {$/,/^  }/p' "$OUT" | sed -nE 's/^ *"machine": "(.*)",$/\1/p')
  grep -q "^$model,$way,.*,rent\$" "$WORK/all" || fail "$model: the list has not $way"
done
expect 0 cost "${few[@]}" --json
[[ -n $(chosen machine) ]] || fail "no preset was chosen"
chosen_is times predicted
chosen_is machine desktop-2x-4090
expect 1 cost --budget 1 --days 1
said "no preset is likely to be trained within \$1.00 and 1 day"

# A budget alone is a question too, and what is answered comes first.
expect 0 cost --budget 500 --gpu 4090,h100 --times analytic
item_is "to rent" "*, the most FLOPs within \$500: * for \$*, * days (* - *); details: gpudays cost *"
item_is "to buy" "no preset is likely to be trained within \$500"
model=$(item "to rent" | cut -d, -f1)
expect 0 cost "$model" --budget 500 --gpu 4090,h100 --times analytic
[[ $(item answer) == rent* ]] || fail "the largest of the list is not to be had"

# GPUs by name and number, bought and rented, and no others.
expect 0 cost pythia-1b --tokens 20B --gpu 2x4090,8xa100 --times analytic --csv
[[ $(tail -n +2 "$OUT" | cut -d, -f3,4 | sort -u | paste -sd' ') == "4090,2 a100,8" ]] || fail "$LAST: other GPUs"
[[ $(tail -n +2 "$OUT" | cut -d, -f5 | grep -c '[0-9]') -ge 2 ]] || fail "$LAST: nothing is for sale"
expect 0 cost pythia-1b --tokens 20B --gpu a100 --times analytic --csv
[[ $(tail -n +2 "$OUT" | cut -d, -f4 | sort -nu | paste -sd' ') == "1 2 4 8" ]] || fail "$LAST: not 1, 2, 4 and 8 of them"
expect 0 cost pythia-160m --gpu 16xa100,3x4090 --times analytic --csv
[[ $(tail -n +2 "$OUT" | cut -d, -f2,4 | sort | paste -sd' ') == "2x-server-8x-a100,16 rented-3x-4090,3" ]] ||
  fail "$LAST: $(tail -n +2 "$OUT" | cut -d, -f2,4 | paste -sd' ')"
expect 0 cost pythia-160m --gpu 2xrtx-4090 --times predicted --json
days=$(field days)
expect 0 plan pythia-160m --gpu 2x4090 --json
awk -v a="$days" -v b="$(field days)" 'BEGIN { exit !(a / b > 0.98 && a / b < 1.02) }' || fail "$days days, and plan has $(field days)"

# One's own GPU, at one's own prices: a file, in the folder of the user's or by its path.
sed -e 's/"name": "4090"/"name": "mine"/' -e 's/"aliases": .*/"aliases": [],/' "$GD_SOURCE_DIR/data/gpus/4090.json" >"$WORK/mine.json"
mkdir -p "$XDG_CONFIG_HOME/gpudays/gpus"
expect 1 cost pythia-160m --gpu "$WORK/mine.json" --times analytic
said "no price is known of the GPUs that train pythia-160m; --usd-per-hour says one"
[[ -n $(item time) && $(item energy) == *"kg of CO2"* ]] || fail "$LAST: no days, or no energy"
cp "$WORK/mine.json" "$XDG_CONFIG_HOME/gpudays/gpus/"
expect 0 cost pythia-160m --gpu 2xmine --usd-per-hour 0.4 --times analytic --json
[[ $(advice way) == rent ]] || fail "the price of an hour is not one to rent"
awk -v usd="$(advice usd)" -v days="$(advice days)" 'BEGIN { exit !((usd / (2 * 24 * 0.4 * days) - 1) ^ 2 < 1e-12) }' ||
  fail "$(advice usd) dollars for $(advice days) days at 0.4 a GPU-hour"
field_is rent_provider --usd-per-hour
expect 0 cost pythia-160m --gpu 2xmine --gpu-usd 900 --times analytic --json
[[ $(advice way) == buy ]] || fail "a price to buy is not one"
dear=$(field hardware_usd)
expect 0 cost pythia-160m --gpu 2xmine --gpu-usd 400 --times analytic --json
awk -v a="$dear" -v b="$(field hardware_usd)" 'BEGIN { exit !((a - b - 1000) ^ 2 < 1e-6) }' || fail "two GPUs for 500 less each: $dear, $(field hardware_usd)"
expect 0 cost pythia-160m --gpu 2x4090 --gpu-usd 100 --times analytic
item_is buy "*desktop-2x-4090 for \$1,*"
rm -r "$XDG_CONFIG_HOME/gpudays/gpus"

# Terms: every one is shown with its source, and every one can be said.
expect 0 "${paper[@]}" --machine server-8x-a100 --rent reserved
shown "5 years without pause: "
shown "\$646,050 to rent" # at AWS's own price; the paper says about \$650,000
shown "PUE "
shown "electricity \$"
shown "CO2 "
expect 0 "${paper[@]}" --machine server-8x-a100 --rent 2 --pue 1 --kwh-usd 0 --co2 0 --utilisation 0.5 --json
[[ $(chosen energy_usd) == 0.0 && $(chosen co2_kg) == 0.0 ]] || fail "free electricity"
chosen_is rent_usd_per_hour 16.0
chosen_is rent_provider --rent
shown '"source": "--pue"'
expect 0 "${paper[@]}" --machine server-8x-a100 --energy eu
shown "European Union"

# Days by arithmetic: twice the share of the peak, half the days.
expect 0 cost pythia-1b --times analytic --mfu 0.25 --machine server-8x-a100 --json
slow=$(chosen days)
expect 0 cost pythia-1b --times analytic --mfu 0.5 --machine server-8x-a100 --json
awk -v a="$slow" -v b="$(chosen days)" 'BEGIN { exit !(a > 0 && a - 2 * b < 1e-9 * a && 2 * b - a < 1e-9 * a) }' ||
  fail "days at half the share"
chosen_is physics fine

# Predicted days are those of plan; what fits nowhere is said so.
expect 0 plan pythia-14m --gpu a100 --count 1 --machine desktop-1x-a100 --methods free-lunch --json
planned=$(field days)
expect 0 cost pythia-14m --times predicted --machine desktop-1x-a100 --json
chosen_is days "$planned"
chosen_is times predicted
chosen_is method free-lunch
[[ $(chosen days_low) != "$(chosen days_high)" ]] || fail "a prediction without an interval"
expect 0 cost pythia-14m --machine desktop-1x-a100
shown "predicted, not measured: "
expect 1 cost pythia-12b --machine desktop-1x-3090
said "none of these machines"

# GPUs that are rented have names too.
expect 0 cost pythia-14m --times analytic --machine rented-4x-h200,rented-4x-h200 --budget 1000 --days 9 --csv
[[ $(cut -d, -f2,5 "$OUT" | paste -sd' ') == "machine,hardware_usd rented-4x-h200," ]] || fail "one rented row"

# Measured trials come first; what the catalogue does not have is named.
expect 1 cost pythia-14m --times measured
said "gpudays bench pythia-14m"
sed 's/NVIDIA A100 80GB PCIe/NVIDIA A100-SXM4-80GB/' "$(dirname "$0")/results.jsonl" >"$WORK/results"
expect 0 results load "$WORK/results"
expect 0 cost pythia-14m --times measured --json
chosen_is machine server-4x-a100
chosen_is times measured
[[ $(chosen days) == 1.625* ]] || fail "not the trial's days: $(chosen days)"
expect 0 cost pythia-14m
shown "also measured, on what the catalogue does not have: AMD EPYC"
expect 0 cost pythia-14m --machine server-4x-a100,server-8x-a100 --csv
[[ $(cut -d, -f2,11 "$OUT" | paste -sd' ') == "machine,times server-4x-a100,measured server-8x-a100,"* ]] ||
  fail "the sources of two machines"

# A machine that is only rented has an answer of its own. The low end of a trial that was held back is
# lower than its samples alone say.
sed '/A100/s/"stalled_share":0.0/"stalled_share":0.5/; s/NVIDIA A100 80GB PCIe/NVIDIA H200/; s/"days_low":1.6087[0-9]*/"days_low":0.8125/' "$(dirname "$0")/results.jsonl" >"$WORK/h200"
expect 0 results load "$WORK/h200" --store "$WORK/h200.db"
expect 0 cost pythia-14m --times measured --machine rented-4x-h200 --store "$WORK/h200.db"
item_is answer "rent 4 x h200: *, the only way to buy or rent"
item_is buy "buying was not compared: no machine for sale has days here"
expect 0 cost pythia-14m --times measured --machine rented-4x-h200 --store "$WORK/h200.db" --text
! grep -q "Buying" "$OUT" || fail "the paragraph compares with nothing"
expect 0 cost pythia-14m --times measured --machine rented-4x-h200 --store "$WORK/h200.db" --json
[[ $(field days_low) == 0.8125* ]] || fail "$LAST: days_low is $(field days_low)"

# The share of the peak that arithmetic assumes is compared with that of the fastest trial of each model.
range=$(awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
  $at["status"] == "ok" && (!($1 in days) || $at["days"] < days[$1]) { days[$1] = $at["days"]; mfu[$1] = $at["mfu"] }
  END { low = 1; for (m in mfu) { low = mfu[m] < low ? mfu[m] : low; high = mfu[m] > high ? mfu[m] : high }
        printf "%.0f - %.0f %%", 100 * low, 100 * high }' "$GD_SOURCE_DIR/results/h200.csv")
expect 0 cost pythia-14m --times analytic --json
shown "has $range on an H200 (results/h200.csv)"
grep -q "run at ${range/ - / to } on an H200 here" "$GD_SOURCE_DIR/docs/cost.md" || fail "docs/cost.md has not $range"

# The paragraph.
expect 0 "${paper[@]}" --budget 40000 --text
shown "We will pre-train pythia-1b"
shown "We will rent these GPUs for the run"
shown "Assumptions:"
[[ $(awk 'length > 80' "$OUT" | wc -l) == 0 ]] || fail "a line over 80 columns"
expect 0 "${paper[@]}" --budget 40000 --text --json
shown '"text": "We will pre-train'
expect 1 "${paper[@]}" --budget 5 --text

# Days without a model or dollars: what given GPUs train in them.
expect 0 cost --days 5 --gpu 4x3090
item_is "to rent" "pythia-31m, the most FLOPs within 5 days: 4 x 3090 for *"
item_is size "at that rate 4 x 3090 trains * parameters on 20 tokens each, *"
expect 0 cost --days 5 --gpu 4x3090 --own
item_is "to train" "pythia-31m, *"
! grep -q "to rent" "$OUT" || fail "$LAST: own GPUs are rented"
for model in pythia-31m pythia-70m; do # the list and the model's own answer are one
  try cost $model --days 5 --gpu 4x3090
  [[ $RC == $([[ $model == pythia-31m ]] && echo 0 || echo 1) ]] || fail "$LAST: exit $RC, unlike the list"
done
expect 1 cost --days 0.01 --gpu 3090
expect 2 cost --days 5
said "--days 5 of what?"

# One model of power: at about the same MFU other software draws about as much.
for gpu in a100 h100; do
  expect 0 plan pythia-1b --gpu $gpu --json
  own_w=$(field gpu_power_w) own_mfu=$(field mfu)
  expect 0 plan pythia-1b --gpu $gpu --stack pytorch --json
  awk -v w="$own_w" -v mfu="$own_mfu" -v v="$(field power_w)" -v m="$(field mfu)" 'BEGIN { exit !(v / w > 0.85 * m / mfu && v / w < 1.15) }' ||
    fail "$LAST: $(field power_w) W at MFU $(field mfu), own engine $own_w W at $own_mfu"
done

# GPUs that are there: electricity alone, and nobody rents.
expect 0 cost pythia-160m --gpu 4x3090 --own --text
shown "our own"
[[ $(tr -s ' \n' ' ' <"$OUT" | grep -o "fused kernels" | wc -l) == 1 ]] || fail "$LAST: fused kernels are said twice"
! grep -qiE "rent(ing|:)|will rent|to buy" "$OUT" || fail "$LAST: something is bought or rented"
expect 0 cost pythia-160m --gpu 4x3090 --own
shown "use your 4 x 3090: $"
expect 0 cost pythia-160m --gpu 4x3090 --own --json
field_is way own
field_is hardware_usd 0.0
field_is rent_usd null
expect 1 cost pythia-160m --gpu 4x3090 --own --days 1
! grep -q "rented" "$ERR" || fail "$LAST: own GPUs are rented"
expect 2 cost pythia-160m --own
said "--gpu or --machine names them"
expect 2 cost pythia-160m --gpu 4x3090 --own --budget 5
said "--budget is for what is bought or rented"

# CSV has a row a machine.
expect 0 "${paper[@]}" --csv --machine server-8x-a100,desktop-2x-h100
[[ $(wc -l <"$OUT") == 3 ]] || fail "CSV: a header and two rows"
head -1 "$OUT" | grep '^model,machine,gpu,count,hardware_usd,experiment_usd,days,' >/dev/null || fail "CSV: the header"

# What cannot be meant.
for arguments in "" "--days 3" "pythia-1b --gpu a100 --machine server-8x-a100" "pythia-1b --gpu-usd 500" \
  "pythia-1b --rent 2 --usd-per-hour 2" "pythia-1b --usd-per-hour 0" "pythia-1b --gpu 0xa100" "pythia-1b --gpu abacus" \
  "pythia-1b --jobs 2" "pythia-1b --wall-limit 1m" "pythia-1b --wall-limit 24" "pythia-1b --queue-wait soon" \
  "pythia-1b --wall-limit 1d --jobs 0" "--text --budget 5000 --days 30" \
  "pythia-1b --budget -5" "pythia-1b --budget 0" "pythia-1b --budget many" "pythia-1b --budget 4x" \
  "pythia-1b --days 0" "pythia-1b --days -1" "pythia-1b --days nan" "pythia-1b --pue 0.9" \
  "pythia-1b --utilisation 0" "pythia-1b --utilisation 1.5" "pythia-1b --kwh-usd -1" \
  "pythia-1b --co2 1e9" "pythia-1b --mfu 2" "pythia-1b --times guessed" "pythia-1b --rent 0" \
  "pythia-1b --rent nobody" "pythia-1b --machine abacus" "pythia-1b --energy moon" \
  "pythia-1b --text --csv" "pythia-1b roberta" "no-such-model" "pythia-1b --ranks 4" \
  "--budget 5 --days 3 --steps 7" "pythia-1b --mfu 0.5" "pythia-1b --mfu 0.5 --times predicted"; do
  # shellcheck disable=SC2086
  expect 2 cost $arguments
  silent
done
expect 2 cost pythia-1b --machine server-8x-a10
said "server-8x-a100"
expect 2 cost pythia-1b --mfu 0.5
said "add --times analytic"
expect 2 cost pythia-1b --budget -5
said "dollars above 0"

# A GPU that the engine does not run on has days for comparison only, and its row says so.
expect 0 cost pythia-160m --times predicted --json
shown "for comparison only: the engine needs compute capability 8.0"
# Nor has it bf16, and the row says what it computes in instead.
expect 0 cost gpt2-medium --times predicted --json
shown "bf16 runs as fp16"

# Machines without measured days may well train it: they are not said not to.
expect 1 cost pythia-14m --times measured --budget 0.01 --store "$WORK/h200.db"
said "none of the machines with measured days is likely to train pythia-14m"
! grep -q "no machine trains" "$OUT" "$ERR" || fail "$LAST: speaks for machines without days"
