/*
 * The manual page: the hand-written sections of docs/gpudays.1.in, which travels in the program,
 * and the entries of the tables of commands and options between them.
 *
 * In that file `.\"@commands` and `.\"@options` stand for the entries of a table. What an entry has
 * to say beyond the table's line follows there as `.\"@about NAME` and lines of roff; `.\"@end`
 * ends these.
 */
#ifndef GD_CLI_MANUAL_H
#define GD_CLI_MANUAL_H

#include "base/status.h"
#include "base/strbuf.h"

/* Appends the page, ready for man(1). GD_INTERNAL when the file says something about a command or
   an option that is in no table. */
enum gd_status gd_manual_print(struct gd_strbuf *out, struct gd_error *err) GD_MUST_USE;

#endif
