/*
 * `gpudays calibrate learn`, `load` and `list`: calibrations that are kept. `calibrate` alone
 * measures (cmd_calibrate.c).
 */
#ifndef GD_CLI_CALIBRATIONS_H
#define GD_CLI_CALIBRATIONS_H

#include "cli/cli.h"

/* The verb is the first argument. GD_BAD_INPUT for another one. */
enum gd_status gd_cmd_calibrations(struct gd_cli *cli, struct gd_error *err) GD_MUST_USE;

#endif
