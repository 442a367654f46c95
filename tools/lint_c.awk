# Text checks on .c, .h, .inc, .def, .cu and .cuh files, for tools/lint. Plain POSIX awk; prints
# "file:line: message".
#   - banned functions in src/ (comments and strings do not count)
#   - getenv outside of src/base/switches.c, and GPUDAYS_ names without a row in switches.def
#   - include direction: a file includes from its own folder or from folders earlier in `order`
#     Sub-folders have an order too (`suborder`, of backend and of backend/cuda): a file includes from its
#     own, from those before it and from the folder they are in, which includes from none of them
#   - header guards GD_<FOLDER>_<FILE>_H, src/ left out of the name
#   - comparisons of op kinds outside the files that rewrite or merge a given pattern of ops
#   - lines over 100 columns in .c and .h files (UTF-8 counts as one column per character)

BEGIN {
  order = "base data ir model codegen pass plan hw paper comm backend exec trial store predict search train plot money survey export report api cli web"
  count = split(order, names, " ")
  for (i = 1; i <= count; i++)
    rank[names[i]] = i
  suborder["backend"] = "ref cpu cuda"
  suborder["backend/cuda"] = "kernels runtime lib gemm pointwise attention scan"
  for (name in suborder) {
    count = split(suborder[name], names, " ")
    for (i = 1; i <= count; i++)
      subrank[name "/" names[i]] = i
  }
  banned = "malloc calloc realloc free aligned_alloc posix_memalign strdup strndup asprintf " \
           "vasprintf atoi atol atoll atof strcpy strcat sprintf vsprintf gets exit"
  banned_count = split(banned, banned_names, " ")
  # Files that look for given ops by purpose. Everywhere else a fact of an op is a column of
  # src/ir/ops.def, so that a new op needs no change there.
  patterns = "^src/pass/(kernels_[a-z]*|pass_accumulate|pass_offload|pass_shard)\\.c$" \
             "|^src/backend/cuda/gemm/gemm_(epilogue|group)\\.c$" \
             "|^src/backend/cuda/pointwise/op_(fused|update)\\.c$"
  while ((getline row < "src/base/switches.def") > 0)
    if (row ~ /^GD_SWITCH\(/) {
      sub(/^GD_SWITCH\(/, "", row)
      sub(/,.*/, "", row)
      switches[row] = 1
    }
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

function check_op_kinds(code) {
  if (FILENAME !~ patterns && code ~ /([=!]= *GD_OP_[a-z]|case GD_OP_[a-z])/)
    say("compares an op's kind: ask gd_op_info() for a column of src/ir/ops.def, or declare the " \
        "file in tools/lint_c.awk")
}

# The environment is read in one place, and every variable of gpudays has a row there.
function check_environment(line, code,    name) {
  if (FILENAME ~ /^src\/base\/switches\./)
    return
  if (code ~ /(^|[^A-Za-z0-9_])(secure_)?getenv[ \t]*\(/)
    say("getenv() is banned in src/: use gd_env (src/base/switches.h)")
  while (match(line, /"GPUDAYS_[A-Z0-9_]*[A-Z0-9]"/)) {
    name = substr(line, RSTART + 9, RLENGTH - 10)
    if (!(name in switches))
      say("GPUDAYS_" name " has no row in src/base/switches.def")
    line = substr(line, RSTART + RLENGTH)
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
  if (FILENAME ~ /\.cuh?$/) { # NVRTC finds what is embedded with it, by name
    if (target !~ /^[a-z0-9_]+\.cuh$/)
      say("\"" target "\" is no header of the kernels: they include \"<file>.cuh\" alone")
    return
  }
  if (!(parts[1] in rank))
    say("\"" target "\" is not relative to src/: write \"<folder>/<file>\"")
  else if (rank[parts[1]] > rank[folder])
    say("src/" folder " may not include from src/" parts[1] ": it comes later in the flow")
  else if (parts[1] == folder)
    check_level(folder, 2, parts)
}

# Both files are in src/<parent>: the order of its sub-folders, and then of theirs.
function check_level(parent, depth, parts,    from, to) {
  if (!(parent in suborder))
    return
  from = path[depth + 1] ~ /\./ ? "" : parent "/" path[depth + 1]
  to = parts[depth] ~ /\./ ? "" : parent "/" parts[depth]
  if (from != "" && !(from in subrank))
    say("folder src/" from " is not in the suborder of tools/lint_c.awk")
  else if (from != "" && to != "" && subrank[to] > subrank[from])
    say("src/" from " may not include from src/" to ": it comes later")
  else if (from == "" && to != "")
    say("src/" parent " may not include from its sub-folder src/" to)
  else if (from != "" && from == to)
    check_level(from, depth + 1, parts)
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
  if (length(columns) > 100 && FILENAME ~ /\.[ch]$/)
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
  check_op_kinds(code)
  check_environment($0, code)
}
