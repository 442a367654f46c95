/*
 * The table of exit codes; see exit_code.h.
 */
#include "base/exit_code.h"

const struct gd_exit_row gd_exits[GD_EXIT_COUNT] = {
    [GD_EXIT_FINE] = {"fine", "", GD_OK},
    [GD_EXIT_NO] = {"the answer is no", "it does not fit, the numbers are off", GD_MISMATCH},
    [GD_EXIT_USAGE] = {"usage",
                       "an unknown command, option or model, a file that cannot be read as one",
                       GD_BAD_INPUT},
    [GD_EXIT_ENVIRONMENT] = {"environment",
                             "no memory, a full disk, no permission, a rank that died",
                             GD_ENVIRONMENT},
    [GD_EXIT_INTERNAL] = {"internal", "a bug of gpudays", GD_INTERNAL},
};

enum gd_exit gd_exit_of(enum gd_status status) {
  static const enum gd_exit codes[] = {
      [GD_OK] = GD_EXIT_FINE,
      [GD_BAD_INPUT] = GD_EXIT_USAGE,
      [GD_UNSUPPORTED] = GD_EXIT_USAGE,
      [GD_NOMEM_DEVICE] = GD_EXIT_NO,
      [GD_NOMEM_HOST] = GD_EXIT_NO,
      [GD_MISMATCH] = GD_EXIT_NO,
      [GD_ENVIRONMENT] = GD_EXIT_ENVIRONMENT,
      [GD_INTERNAL] = GD_EXIT_INTERNAL,
  };
  GD_ASSERT((unsigned)status < sizeof codes / sizeof *codes);
  return codes[status];
}

enum gd_status gd_exit_status(int code) {
  return code >= 0 && code < GD_EXIT_COUNT ? gd_exits[code].status : GD_INTERNAL;
}
