/*
 * The record of a trial: what was asked, planned and measured, as --json shows it and as the store
 * keeps it; and where it came from. It is plain data: src/search fills it, src/cli prints it.
 *
 * As text it is one line of JSON with every number exact, for whatever is not a database: a result
 * that a trial's own process or a cluster job hands over, and the files that labs exchange.
 *
 *   struct gd_strbuf line = {0};
 *   GD_TRY(gd_record_print(&trial, &line, err));
 *   GD_TRY(gd_record_parse("pipe of the trial", line.text, (int64_t)line.length, &copy, err));
 *   gd_strbuf_deinit(&line);
 */
#ifndef GD_STORE_RECORD_H
#define GD_STORE_RECORD_H

#include "base/csv.h"
#include "base/strbuf.h"
#include "trial/trial.h"

/* --- provenance ---------------------------------------------------------------------------- */

/* Where and when it was measured (the trial knows by which gpudays); texts that are not known are
 * empty. */
struct gd_provenance {
  char time[32];    /* UTC, "2024-05-01T12:00:00.123Z": sorts as text */
  char host[256];   /* its name */
  char system[128]; /* "Debian GNU/Linux 12 (bookworm)" */
  char kernel[128]; /* "Linux 6.1.0-18-amd64" */
  char cpu[128];    /* as /proc/cpuinfo calls it */
  char clocks[64];  /* of the CPU, "800-3500 MHz" */
  char driver[256]; /* of the GPU, and libraries; empty on a CPU */
};
/* This machine, now, for a trial on that backend ("cuda" has a driver). What cannot be found out
 * stays empty: it never fails. */
void gd_provenance_here(const char *backend, struct gd_provenance *provenance);

/* --- as text ------------------------------------------------------------------------------- */

/* Appends one line without its newline: {"status":"ok","reason":"",...}. */
enum gd_status gd_record_print(const struct gd_trial *trial, struct gd_strbuf *out,
                               struct gd_error *err) GD_MUST_USE;
/*
 * Reads such a line; label names it in messages. A field that is missing, unknown, of another type
 * or too long: GD_BAD_INPUT with the field's name. *trial is untouched then.
 */
enum gd_status gd_record_parse(const char *label, const char *text, int64_t length,
                               struct gd_trial *trial, struct gd_error *err) GD_MUST_USE;

/*
 * Reads a row of the table that `results --csv` prints. Everything that takes published trials
 * reads them with this. GD_BAD_INPUT, with line and column, for a column that is missing and for
 * numbers that cannot be, alone or together. provenance may be NULL.
 */
enum gd_status gd_record_read_csv(const struct gd_csv *csv, int row, struct gd_trial *trial,
                                  struct gd_provenance *provenance, bool *superseded,
                                  struct gd_error *err) GD_MUST_USE;

/* The same for where it came from: {"time":"2024-05-01T12:00:00.123Z","host":...}. */
enum gd_status gd_provenance_print(const struct gd_provenance *provenance, struct gd_strbuf *out,
                                   struct gd_error *err) GD_MUST_USE;
enum gd_status gd_provenance_parse(const char *label, const char *text, int64_t length,
                                   struct gd_provenance *provenance,
                                   struct gd_error *err) GD_MUST_USE;

#endif
