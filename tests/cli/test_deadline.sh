#!/usr/bin/env bash
# Deadlines are held against intervals, and days of computing become dates where jobs end at a limit
# and wait in a queue: `plan` and `cost`, for people and for programs.
# shellcheck source=/dev/null
source "$(dirname "$0")/common.sh"

# item LABEL: the text of that line of the answer, on one line however it is wrapped.
item() {
  awk -v label="$1" '/^$/ && seen { exit } /^  [a-z]/ { on = substr($0, 3, 10) ~ "^" label " *$" }
    on && /^  / { seen = 1; text = substr($0, 13); sub(/^ +/, "", text); line = line (line == "" ? "" : " ") text }
    END { print line }' "$OUT"
}
# item_is LABEL PATTERN
item_is() {
  # shellcheck disable=SC2053
  [[ $(item "$1") == $2 ]] || fail "$LAST: $1 is '$(item "$1")', not '$2'"
}
# between LOW HIGH SHARE: a number with two digits behind the point, from one to the other
between() { awk -v a="$1" -v b="$2" -v s="$3" 'BEGIN { printf "%.2f", a + s * (b - a) }'; }

# plan: likely, at risk, no; only the last is exit 1.
expect 0 plan pythia-160m --gpu 4xa100 --json
low=$(field days_low) days=$(field days) high=$(field days_high)
field_is deadline null
field_is jobs 0
[[ $(field calendar_days) == "$days" ]] || fail "without a queue, $days days are $(field calendar_days) of the calendar"
expect 0 plan pythia-160m --gpu 4xa100 --days "$(between "$low" "$high" 1.1)"
item_is deadline "likely: * days, and the interval ends at *"
[[ $(awk 'length > 80' "$OUT") == "" ]] || fail "$LAST: more than 80 columns"
expect 0 plan pythia-160m --gpu 4xa100 --days "$(between "$low" "$high" 0.9)"
item_is deadline "at risk: * days lie within the interval, *"
expect 0 plan pythia-160m --gpu 4xa100 --days "$(between "$low" "$high" 0.9)" --json
field_is deadline "at risk"
expect 1 plan pythia-160m --gpu 4xa100 --days "$(between "$low" "$high" -0.1)"
item_is deadline "no: * days, and the interval begins at *"
said "pythia-160m on 4 x A100 SXM4 80 GB takes "
said " days at least, and not "
expect 1 plan pythia-160m --gpu 4xa100 --days 0.1 --json
field_is deadline no
# Of several GPUs one in time is enough; of several models each must be.
expect 0 plan pythia-160m --gpu 1x3090,8xh100 --days "$(between 0 "$low" 0.8)"
grep -E "^pythia-160m +8 x H100 .* 20[0-9-]+ +likely$" "$OUT" >/dev/null || fail "$LAST: no verdict in the row of 8 H100"
grep -E "^pythia-160m +RTX 3090 .* no$" "$OUT" >/dev/null || fail "$LAST: no verdict in the row of the 3090"
expect 1 plan pythia-14m pythia-1b --gpu 4xa100 --days "$(between 0 "$low" 0.8)"
said "pythia-1b on "
expect 0 plan pythia-160m --gpu 4xa100 --stack pytorch --days 30
item_is deadline "likely: *"
expect 1 plan pythia-160m --gpu 4xa100 --stack pytorch --days 0.1
expect 1 plan pythia-160m --gpu 4xa100 --methods all --days 0.1
expect 0 plan pythia-160m --gpu 4xa100 --methods all --days 30
expect 2 plan pythia-160m --gpu a100 --days 0

# A queue: so many jobs, each waits, and none trains from its first second to its last.
expect 0 plan pythia-160m --gpu 4xa100 --wall-limit 6h --queue-wait 3h --json
jobs=$(field jobs)
awk -v jobs="$jobs" -v days="$days" -v end="$(field calendar_days)" 'BEGIN {
  least = ceil(days * 24 / 6); each = 3 / 24
  exit !(jobs >= least && jobs <= 1.2 * least + 1 && end > days + jobs * each && end < 1.1 * days + jobs * each + 0.3) }
  function ceil(x) { return int(x) + (x > int(x)) }' || fail "$LAST: $jobs jobs, $(field calendar_days) days of $days"
[[ $(field "done") == "$(date -d "+$(awk -v d="$(field calendar_days)" 'BEGIN { printf "%d", d * 86400 }') seconds" +%F)" ]] ||
  fail "$LAST: not on $(field "done")"
waits=$(field calendar_days)
expect 0 plan pythia-160m --gpu 4xa100 --wall-limit 6h --queue-wait 3h
item_is calendar "$jobs jobs of 6 h, 3 h of waiting each: * days, done by 20* (20* - 20*) assumed: 2 min to start, a checkpoint of * read and written at 1 GB/s by each job, and an end in order before its limit: * of a job do not train"
item_is time "* of computing"
[[ $(awk 'length > 80' "$OUT") == "" ]] || fail "$LAST: more than 80 columns"
# Jobs that wait while others run lose less, and a limit alone costs no waiting.
for jobs_at_a_time in 2 3; do
  expect 0 plan pythia-160m --gpu 4xa100 --wall-limit 6h --queue-wait 3h --jobs $jobs_at_a_time --json
  awk -v a="$(field calendar_days)" -v b="$waits" 'BEGIN { exit !(a < b - 0.2) }' ||
    fail "$LAST: $(field calendar_days) days, and $waits without --jobs"
done
expect 0 plan pythia-160m --gpu 4xa100 --wall-limit 6h --json
awk -v a="$(field calendar_days)" -v days="$days" 'BEGIN { exit !(a > days && a < 1.1 * days) }' ||
  fail "$LAST: $(field calendar_days) days of the calendar for $days"
# The deadline is one of the calendar.
expect 0 plan pythia-160m --gpu 4xa100 --days "$(between "$low" "$high" 1.1)" --json
field_is deadline likely
expect 1 plan pythia-160m --gpu 4xa100 --days "$(between "$low" "$high" 1.1)" --wall-limit 6h --queue-wait 24h --json
field_is deadline no
expect 0 plan pythia-2.8b --gpu 8xh100 --wall-limit 3m
item_is calendar "never: *"
for arguments in "--jobs 2" "--wall-limit 2m" "--wall-limit 24" "--queue-wait -1h" "--wall-limit 1d --jobs 0"; do
  # shellcheck disable=SC2086
  expect 2 plan pythia-160m --gpu a100 $arguments
  silent
done

# cost: only what is likely in time is advised, each machine has its verdict.
machines=(--gpu "2x4090,4xa100,8xh100")
expect 0 cost pythia-160m "${machines[@]}" --json
verdicts() { awk '$1 == "\"options\":" { on = 1 } on && $1 == "\"deadline\":" { printf "%s ", $2 $3 } $1 == "],"{ on = 0 }' "$OUT"; }
[[ $(verdicts) =~ ^("null ")+$ ]] || fail "verdicts without a deadline: $(verdicts)"
expect 0 cost pythia-160m "${machines[@]}" --days "$(between "$low" "$high" 0.9)" --json
[[ $(verdicts) == *'"atrisk" '* && $(verdicts) == *'"no" '* && $(verdicts) == *'"likely" '* ]] || fail "verdicts: $(verdicts)"
field_is at_risk null
expect 0 cost pythia-160m "${machines[@]}" --days "$(between "$low" "$high" 0.9)"
item_is answer "rent 8 x h100: *, the cheapest of * ways to buy or rent within * days"
item_is deadline "likely: *"
grep -q "DEADLINE" "$OUT" || fail "no column of deadlines"
expect 1 cost pythia-160m --gpu 4xa100 --days "$(between "$low" "$high" 0.9)"
item_is answer "no: no machine is likely to train it within * days, bought or rented"
item_is "at risk" "rent 4 x a100 for *: the deadline lies within the interval, * - * days"
said "no machine is likely to train pythia-160m within"
expect 1 cost pythia-160m --gpu 4xa100 --days "$(between "$low" "$high" 0.9)" --json
sed -n '/"at_risk": {/,/}/p' "$OUT" | grep '"deadline": "at risk"' >/dev/null || fail "$LAST: no way at risk"
expect 0 cost pythia-160m --gpu 4xa100 --wall-limit 6h --queue-wait 3h
item_is calendar "$jobs jobs of 6 h, 3 h of waiting each: *"
expect 0 cost pythia-160m --gpu 4xa100 --wall-limit 6h --queue-wait 3h --json
sed -n '/"queue": {/,/}/p' "$OUT" | grep '"wall_limit_s": 21600.0' >/dev/null || fail "$LAST: no queue"
awk -v a="$(field calendar_days)" -v b="$waits" 'BEGIN { exit !((a / b - 1) ^ 2 < 1e-6) }' ||
  fail "$LAST: $(field calendar_days) days, and plan has $waits"
expect 1 cost pythia-160m --gpu 4xa100 --days "$(between "$low" "$high" 1.1)" --wall-limit 6h --queue-wait 24h
