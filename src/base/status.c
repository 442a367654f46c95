/*
 * The error record: the first failure wins, because it is the cause and the rest are consequences.
 */
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/strbuf.h"

void gd_fail_at(struct gd_error *err, enum gd_status status, const char *file, int line,
                const char *format, ...) {
  if (err && err->status == GD_OK) {
    va_list args;
    err->status = status;
    err->file = file;
    err->line = line;
    va_start(args, format);
    vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
    gd_text_clean(err->text); /* sentences quote what others wrote: names, paths, answers */
    for (char *at = err->text; (at = strpbrk(at, "\n\t")); at++)
      *at = ' ';
  }
}

_Noreturn void gd_assert_failed(const char *expr, const char *file, int line) {
  fprintf(stderr, "gpudays: internal error: %s is false at %s:%d\n", expr, file, line);
  abort();
}

const char *gd_status_name(enum gd_status status) {
  switch (status) {
  case GD_OK: return "ok";
  case GD_BAD_INPUT: return "bad input";
  case GD_UNSUPPORTED: return "unsupported";
  case GD_NOMEM_DEVICE: return "does not fit in device memory";
  case GD_NOMEM_HOST: return "does not fit in host memory";
  case GD_MISMATCH: return "mismatch";
  case GD_ENVIRONMENT: return "environment";
  case GD_INTERNAL: return "internal";
  }
  return "unknown";
}
