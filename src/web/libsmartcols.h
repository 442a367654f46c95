/*
 * As much of libsmartcols as cli/show_table.c calls, for a system without it: web_tables.c. Columns
 * are as wide as their widest cell.
 */
#ifndef GD_WEB_LIBSMARTCOLS_H
#define GD_WEB_LIBSMARTCOLS_H

#include <stddef.h>
#include <stdio.h>

enum { SCOLS_FL_RIGHT = 1 << 0 };
enum { SCOLS_TERMFORCE_NEVER = 1 };

struct libscols_table;
struct libscols_line;
struct libscols_column;

struct libscols_table *scols_new_table(void);
void scols_unref_table(struct libscols_table *table);
/* name stays the caller's, and must live as long as the table. */
struct libscols_column *scols_table_new_column(struct libscols_table *table, const char *name,
                                               double hint, int flags);
struct libscols_line *scols_table_new_line(struct libscols_table *table,
                                           struct libscols_line *parent);
/* Copies the text. */
int scols_line_set_data(struct libscols_line *line, size_t column, const char *text);
int scols_table_set_stream(struct libscols_table *table, FILE *stream);
int scols_table_set_column_separator(struct libscols_table *table, const char *text);
int scols_table_enable_nowrap(struct libscols_table *table, int on);
int scols_table_set_termforce(struct libscols_table *table, int force);
int scols_print_table(struct libscols_table *table);

#endif
