/*
 * Readers of option values: the column `parse` of the option table. Each reads the text (NULL for a
 * switch) into the field that the row names, or says what was expected: GD_BAD_INPUT.
 */
#ifndef GD_CLI_OPTION_VALUES_H
#define GD_CLI_OPTION_VALUES_H

#include "cli/options.h"

typedef enum gd_status gd_value_reader(const struct gd_option *option, const char *text,
                                       struct gd_cli_options *options, struct gd_error *err);

/* Into the field at option->target. */
gd_value_reader gd_value_switch, gd_value_text, gd_value_int;
gd_value_reader gd_value_seconds;   /* a number of them, without a unit */
gd_value_reader gd_value_time;      /* 90s, 1.5m, 2h, 1d: seconds */
gd_value_reader gd_value_step_time; /* 350ms, 1.2s: seconds */
gd_value_reader gd_value_count;     /* 300B, 1.5T */
gd_value_reader gd_value_bytes;     /* 2GiB, 512MiB */
/* Into a struct gd_cli_number: from low on, above low, and dollars (40k). */
gd_value_reader gd_value_number, gd_value_above, gd_value_usd;

/* Into fields of their own. */
gd_value_reader gd_value_backend, gd_value_precision, gd_value_optimizer, gd_value_micro_batch;
gd_value_reader gd_value_times, gd_value_peaks, gd_value_stack, gd_value_format;
gd_value_reader gd_value_explain, gd_value_every, gd_value_counts;
gd_value_reader gd_value_id, gd_value_status, gd_value_sort, gd_value_since;

#endif
