# Words that the field says otherwise, for tools/lint: tools/words has the list, and what is allowed. First
# file: tools/words; then the files to read. Prints "file:line: message" for every line with one.
BEGIN {
  FS = "\n"
}

function trim(text) {
  gsub(/^[ \t]+|[ \t]+$/, "", text)
  return text
}

NR == FNR {
  if (/^[ \t]*(#|$)/)
    next
  if (/^\[/) {
    part = substr($0, 1, index($0, "]"))
    next
  }
  if (part == "[words]") {
    at = index($0, "|")
    word = trim(substr($0, 1, at - 1))
    say[word] = trim(substr($0, at + 1))
    words = words (words == "" ? "" : "|") word
  } else if (part == "[allowed]") {
    allowed = allowed (allowed == "" ? "" : "|") trim($0)
  }
  next
}

FNR == 1 {
  pattern = "(^|[^a-z])(" words ")([^a-z]|$)"
}

{
  line = tolower($0)
  if (line !~ pattern)
    next
  gsub(allowed, " ", line)
  if (line !~ pattern)
    next
  match(line, pattern)
  found = substr(line, RSTART, RLENGTH)
  gsub(/^[^a-z]|[^a-z]$/, "", found)
  print FILENAME ":" FNR ": \"" found "\": " remedy(found)
}

function remedy(word,    w) {
  for (w in say)
    if (word ~ ("^(" w ")$"))
      return "the field says " say[w]
  return ""
}
