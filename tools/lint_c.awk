# Text checks on C files, for tools/lint. Plain POSIX awk; prints "file:line: message".
#   - banned functions in src/ (comments and strings do not count)
#   - include direction: a file includes from its own folder or from folders earlier in `order`
#   - header guards GD_<FOLDER>_<FILE>_H, src/ left out of the name
#   - lines over 100 columns (UTF-8 counts as one column per character)

BEGIN {
  order = "base ir model codegen pass plan hw paper comm backend exec store predict search plot money survey export report cli"
  count = split(order, names, " ")
  for (i = 1; i <= count; i++)
    rank[names[i]] = i
  banned = "malloc calloc realloc free aligned_alloc posix_memalign strdup strndup asprintf " \
           "vasprintf atoi atol atoll atof strcpy strcat sprintf vsprintf gets exit"
  banned_count = split(banned, banned_names, " ")
}

function say(message) {
  print FILENAME ":" FNR ": " message
}

# The line without comments and the insides of strings; in_comment carries over lines.
function code_of(line,    out, at, token, rest) {
  out = ""
  while (line != "") {
    if (in_comment) {
      at = index(line, "*/")
      if (!at)
        return out
      in_comment = 0
      line = substr(line, at + 2)
      out = out " "
      continue
    }
    if (!match(line, /["']|\/\*|\/\//))
      return out line
    out = out substr(line, 1, RSTART - 1)
    token = substr(line, RSTART, RLENGTH)
    rest = substr(line, RSTART + RLENGTH)
    if (token == "//")
      return out
    if (token == "/*") {
      in_comment = 1
      line = rest
      continue
    }
    # A literal: skip to its end, over escapes.
    while (rest != "" && substr(rest, 1, 1) != token)
      rest = substr(rest, substr(rest, 1, 1) == "\\" ? 3 : 2)
    out = out token token
    line = substr(rest, 2)
  }
  return out
}

# Calls only: a field or method of that name (x->free(), .exit =) is someone else's.
function check_banned(code,    i, name) {
  for (i = 1; i <= banned_count; i++) {
    name = banned_names[i]
    if (index(code, name) && code ~ ("(^|[^A-Za-z0-9_.>])" name "[ \t]*\\(")) {
      if (name == "exit" && folder == "cli")
        continue
      if (FILENAME == "src/base/mem.c" && name ~ /^(malloc|calloc|realloc|free|aligned_alloc)$/)
        continue
      say(name "() is banned in src/" remedy(name))
    }
  }
}

function remedy(name) {
  if (name == "exit")
    return ": return a status, only src/cli ends the program"
  if (name ~ /^ato/)
    return ": use strtol or strtod and check the end"
  if (name ~ /^(strcpy|strcat|sprintf|vsprintf|gets)$/)
    return ": use snprintf or gd_strbuf"
  return ": use gd_mem_alloc, gd_mem_free or an arena (src/base/mem.h)"
}

function check_include(line,    target, parts) {
  target = line
  sub(/^[ \t]*#[ \t]*include[ \t]*"/, "", target)
  sub(/".*/, "", target)
  if (target == "gd_version.h")
    return
  split(target, parts, "/")
  if (!(parts[1] in rank))
    say("\"" target "\" is not relative to src/: write \"<folder>/<file>\"")
  else if (rank[parts[1]] > rank[folder])
    say("src/" folder " may not include from src/" parts[1] ": it comes later in the flow")
}

FNR == 1 {
  in_comment = 0
  guard = ""
  in_src = FILENAME ~ /^src\//
  split(FILENAME, path, "/")
  folder = in_src ? path[2] : ""
  if (in_src && !(folder in rank))
    say("folder src/" folder " is not in the order of tools/lint_c.awk")
  if (FILENAME ~ /\.h$/) {
    guard = FILENAME
    sub(/^src\//, "", guard)
    sub(/^include\/gpudays\//, "", guard)
    gsub(/[^A-Za-z0-9]/, "_", guard)
    guard = "GD_" toupper(guard)
  }
}

{
  columns = $0
  gsub(/[\200-\277]/, "", columns)
  if (length(columns) > 100)
    say("line has " length(columns) " columns, 100 are allowed")
  if ($0 ~ /[ \t]$/)
    say("blanks at the end of the line")
}

# The first directive of a header is its guard.
guard != "" && /^[ \t]*#/ {
  if ($0 !~ ("^#ifndef " guard "$"))
    say("the header guard should be " guard)
  guard = ""
}

in_src {
  code = code_of($0)
  if (/^[ \t]*#[ \t]*include[ \t]*"/)
    check_include($0)
  check_banned(code)
}
