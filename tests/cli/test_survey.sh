#!/usr/bin/env bash
# `gpudays survey`: questions, template, synthetic answers, their tables for people and programs,
# figures, and files that are no good.
# shellcheck source=/dev/null
source "$(dirname "$0")/common.sh"
cd "$WORK" || exit

# One thing is asked at a time.
expect 2 survey
said "survey takes one of: a file of answers, --questions, --template, --synthetic N"
expect 2 survey --questions --template
expect 2 survey some.csv --synthetic 5
expect 2 survey some.csv --seed 3
said "--seed needs --synthetic"
expect 2 survey --questions -o folder
expect 2 survey --synthetic 0
said "a whole number from 1 to 100000"
expect 2 survey none.csv
said "cannot open none.csv: No such file"
expect 2 survey .
said "is a folder; name a CSV file"

# The questions.
expect 0 survey --questions
shown "19 questions"
shown "q5_satisfaction (scale, required)"
shown "    Ampere (RTX A2000 / A4000 / ... / A6000)"
shown "column: q15_datacenter_time [64+ GPUs]"
expect 0 survey --questions --json
[[ $(grep -c '"id": "q' "$OUT") == 19 ]] || fail "not 19 questions"
expect 0 survey --questions --csv
[[ $(head -1 "$OUT") == "id,kind,required,other,text,answer" ]] || fail "columns of --questions --csv"
[[ $(grep -c '^q17_network,' "$OUT") == 17 ]] || fail "q17 has not 17 answers"

# A template, filled in by hand, is an answer.
expect 0 survey --template -o template.csv
shown "wrote template.csv"
[[ $(wc -l <template.csv) == 1 ]] || fail "the template has not one line"
expect 0 survey --template
cmp "$OUT" template.csv >"$ERR" || fail "the template on stdout is another"
expect 2 survey template.csv
said "template.csv has a header and no answers"
cat >answers.csv <<'END'
q2_role,q4_use,q5_satisfaction,q6_cloud_usd,q7_desktop_gpus,q10_workstation_gpus,q13_datacenter_gpus,q15_datacenter_time [4 GPUs]
Postdoc,"Inference, Fine-tuning",2,0,Ampere,None available,Ampere; Hopper,Days
Professor,Other: teaching,4,250,None available,Not sure,Volta,Weeks
Ph.D. Student,Inference,3,0,Ampere,None available,None available,N/A
END
expect 0 survey answers.csv
shown "answers.csv: 3 respondents"
! grep -qi synthetic "$OUT" || fail "real answers are called synthetic"
grep -qE '^  Inference +2 of 3 +67 % +21 - 94$' "$OUT" || fail "uses are counted otherwise"
shown "  else: teaching"
grep -qE '^  Data Center +2 +1 +0 +3$' "$OUT" || fail "access is counted otherwise"
grep -qE '^  4 GPUs +1 +0 +1 +1 +0 +0 +3$' "$OUT" || fail "the grid is counted otherwise"
grep -qE '^  8 GPUs +0 +0 +0 +0 +0 +0 +0$' "$OUT" || fail "what nobody answered is counted"
grep -A1 '^q3_area' "$OUT" | grep '^  nobody answered$' >/dev/null || fail "q3 was answered by nobody"
shown "least 0, median 0, most 250 (n = 3)"
# No share without its n.
if grep '%' "$OUT" | grep -vE ' of [0-9]+( |$)|95 %' >"$ERR"; then
  fail "a share without the number of answers"
fi
expect 0 survey answers.csv --json
field_is synthetic false
field_is respondents 3
field_is warning null
expect 0 survey answers.csv --csv
[[ $(head -1 "$OUT") == "synthetic,id,row,answer,count,n,share,share_low,share_high" ]] ||
  fail "columns of --csv"
shown "false,q15_datacenter_time,4 GPUs,Days,1,3,0.333"
shown "false,q15_datacenter_time,8 GPUs,Days,0,0,,,"

# All 34 columns of the authors' artifacts/survey.csv, with what it may hold: empty answers, "Masters",
# numbers with a point, and times of GPUs that are not available, which count as N/A.
{
  printf 'role,areas,uses,satisfaction,cloud_budget'
  for class in desktop workstation data_center; do
    printf ',%s_gen,%s_mem' $class $class
    printf ",${class}_%d" 1 2 4 8 16 32 64
  done
  echo ,gpu_link,node_link
  echo 'Masters Student,"Machine Learning, Computer Vision","Training (with small data / models), Inference",3,0.0,"Ampere (RTX 3000 series), Volta (Titan V)",24 GB,Weeks,Days,Hours,N/A,N/A,N/A,N/A,None available,None available,Days,,,,,,,"Ampere (A2 / A10 / A30 / A40 / A100), Hopper (H100 / H200 / GH200)",80 GB,Indefinitely,Days,Days,Hours,N/A,N/A,N/A,"NVLink, NVSwitch",Infiniband HDR (200 Gbps)'
  echo 'Ph.D. Student,Natural Language Processing,Pre-training (with large data / models),2,,,,,,,,,,,,,,,,,,,,Not sure,None available,Weeks,Weeks,Weeks,,,,,Not sure,No multi-node support'
} >authors.csv
expect 0 survey authors.csv
shown "authors.csv: 2 respondents"
grep -qE "^  Master's Student +1 of 2 " "$OUT" || fail "the authors' Masters are not counted"
grep -qE '^  4 GPUs +1 +0 +1 +0 +0 +0 +2$' "$OUT" || fail "a time of GPUs that are not available is counted"
grep -qE '^  Desktop +1 +0 +0 +1$' "$OUT" || fail "an empty answer is counted"

# All that is wrong: listed on stdout, the first one in the sentence.
sed -e '2s/Postdoc/Postdco/' -e '3s/,4,/,7,/' answers.csv >bad.csv
expect 2 survey bad.csv
said 'bad.csv, line 2, column "q2_role": "Postdco"; expected "Postdoc"'
said "(and 1 more problem)"
grep -qE '^   2  q2_role +Postdco +"Postdoc"' "$OUT" || fail "line 2 is not listed"
grep -qE '^   3  q5_satisfaction +7 +a number from 1 to 5$' "$OUT" || fail "line 3 is not listed"
expect 2 survey bad.csv --json
field_is all_problems 2
field_is line 2
field_is column q2_role
expect 2 survey bad.csv --csv
[[ $(head -1 "$OUT") == "line,column,found,expected" && $(wc -l <"$OUT") == 3 ]] ||
  fail "problems as CSV"
sed '2s/Postdoc/Postdco/' answers.csv >bad.csv
expect 2 survey bad.csv
silent
printf 'a,b\n1\n' >bad.csv
expect 2 survey bad.csv --json
said "bad.csv, line 2: 1 cells; the header has 2"

# Synthetic answers: the same for the same seed, accepted, and marked in every output.
expect 0 survey --synthetic 40 --seed 5 -o synthetic.csv
shown "wrote synthetic.csv: 40 synthetic answers"
expect 0 survey --synthetic 40 --seed 5
cmp "$OUT" synthetic.csv >"$ERR" || fail "the same seed gives other answers"
[[ $(wc -l <synthetic.csv) == 41 && $(grep -c '^yes,' synthetic.csv) == 40 ]] ||
  fail "not each row is marked"
expect 0 survey --synthetic 40 --seed 6
! cmp -s "$OUT" synthetic.csv || fail "another seed gives the same answers"
expect 0 survey synthetic.csv
shown "SYNTHETIC: synthetic answers, not a survey of people"
titles=$(grep -cE '^(q[0-9]+_|Access to|Compared)' "$OUT")
[[ $titles -ge 20 && $(grep -cE '^(q[0-9]+_|Access to|Compared).* \(synthetic answers\)$' "$OUT") == "$titles" ]] ||
  fail "a table does not say that it is synthetic"
expect 0 survey synthetic.csv --json
field_is synthetic true
field_is warning "synthetic answers, not a survey of people"
field_is synthetic_respondents 40
expect 0 survey synthetic.csv --csv
! tail -n +2 "$OUT" | grep -v '^true,' >"$ERR" || fail "a line of CSV is not marked"
expect 0 survey --synthetic 2 --json
field_is synthetic true

# Figures.
if ! command -v gnuplot >/dev/null; then
  echo "skipped in part: no gnuplot here, no figures are drawn"
  exit 0
fi
expect 0 survey synthetic.csv -o figures
shown "wrote 17 figures to figures"
for name in figure-1 figure-8-classes figure-8-uses figure-8-satisfaction figure-8-cloud \
  figure-8-gpu-links figure-8-network figure-8-desktop-time figure-8-workstation-time; do
  for ending in svg png csv; do
    [[ -s figures/$name.$ending ]] || fail "no $name.$ending"
  done
  for ending in svg csv; do
    grep -q synthetic "figures/$name.$ending" || fail "$name.$ending is not marked as synthetic"
  done
done
expect 0 survey answers.csv -o figures --json
! grep -q synthetic figures/figure-1.svg figures/figure-1.csv || fail "a figure of real answers says synthetic"
expect 0 survey answers.csv -o new/folder
[[ -s new/folder/figure-1.png ]] || fail "no figures in folders that are made"
expect 3 survey answers.csv -o answers.csv/figures
