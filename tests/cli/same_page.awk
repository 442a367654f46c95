# Whether two pages are the same: `awk -f same_page.awk ONE OTHER`. Text must be equal. A number may differ
# by 0.5 % of itself, and one that has decimals or is a percentage also by one in its last digit: how a
# compiler and a C library round is not a matter of the page. Prints the first lines that differ; exit 1.

# The next number of `rest`: sets before, number and unit, one in its last digit; rest becomes what follows. 0: none is left.
function next_number(    at) {
  if (!match(rest, /[-+]?[0-9]+(\.[0-9]+)?(e[-+]?[0-9]+)?/))
    return 0
  before = substr(rest, 1, RSTART - 1)
  number = substr(rest, RSTART, RLENGTH)
  rest = substr(rest, RSTART + RLENGTH)
  at = index(number, ".")
  unit = 0
  if (at && number !~ /e/)
    unit = 10 ^ -(length(number) - at)
  else if (at)
    unit = 10 ^ (substr(number, index(number, "e") + 1) - (index(number, "e") - at - 1))
  else if (rest ~ /^ %/)
    unit = 1
  return 1
}

function abs(x) { return x < 0 ? -x : x }

function same(a, b,    before_a, number_a, unit_a, rest_a, rest_b, more_a, more_b) {
  rest_a = a
  rest_b = b
  for (;;) {
    rest = rest_a
    more_a = next_number()
    rest_a = rest
    before_a = before
    number_a = number
    unit_a = unit
    rest = rest_b
    more_b = next_number()
    rest_b = rest
    if (!more_a || !more_b)
      return !more_a && !more_b && rest_a == rest_b
    if (before_a != before || unit_a != unit)
      return 0
    if (abs(number_a - number) > 0.005 * abs(number_a) && abs(number_a - number) > 1.001 * unit_a)
      return 0
  }
}

NR == FNR {
  one[FNR] = $0
  lines = FNR
  next
}

{
  others = FNR
  if (FNR > lines || (one[FNR] != $0 && !same(one[FNR], $0))) {
    print FILENAME ":" FNR ": " $0
    print "  instead of: " one[FNR]
    if (++differing == 5)
      exit
  }
}

END {
  if (!differing && others != lines)
    print others " lines instead of " lines
  exit differing || others != lines
}
