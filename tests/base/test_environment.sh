#!/usr/bin/env bash
# The environment is read in one place: lint refuses getenv elsewhere in src/, and a variable of
# gpudays without a row in switches.def.
set -euo pipefail
cd "$TMPDIR"
mkdir -p src/base src/cli
cp "$GD_SOURCE_DIR/src/base/switches.def" src/base/
cat >src/cli/some.c <<'END'
static const char *a(void) {
  return gd_env("GPUDAYS_DB"); /* getenv("HOME") in a comment is none */
}
static const char *b(void) {
  return getenv("HOME");
}
static const char *c(void) {
  return gd_env("GPUDAYS_NO_SUCH");
}
END
awk -f "$GD_SOURCE_DIR/tools/lint_c.awk" src/cli/some.c >found
diff - found <<'END'
src/cli/some.c:5: getenv() is banned in src/: use gd_env (src/base/switches.h)
src/cli/some.c:8: GPUDAYS_NO_SUCH has no row in src/base/switches.def
END
