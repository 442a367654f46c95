/*
 * Tables to roff; see manual.h.
 */
#include "cli/manual.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/exit_code.h"
#include "base/switches.h"
#include "cli/cli.h"

/* What the page's file has between `.\"@commands`, `@options`, `@exits` or `@switches` and
 * `.\"@end`. */
struct region {
  const char *text;
  size_t length;
  int used; /* how many of its parts an entry has asked for */
};

static const char about_mark[] = ".\\\"@about ", end_mark[] = ".\\\"@end\n";

/* --- text ---------------------------------------------------------------------------------- */

static void append_char(struct gd_strbuf *out, char c) {
  gd_strbuf_append(out, (char[]){c, '\0'});
}

/* Plain text as roff: a dash that can be copied, no escape, a blank for the end of a line. */
static void append_plain(struct gd_strbuf *out, const char *text) {
  if (text[0] == '.' || text[0] == '\'')
    gd_strbuf_append(out, "\\&");
  for (; *text; text++)
    if (*text == '-')
      gd_strbuf_append(out, "\\-");
    else if (*text == '\\')
      gd_strbuf_append(out, "\\e");
    else
      append_char(out, *text == '\n' ? ' ' : *text);
}

static void append_sentence(struct gd_strbuf *out, const char *text) {
  size_t length = strlen(text);
  append_plain(out, text);
  gd_strbuf_append(out, length > 0 && text[length - 1] == '.' ? "\n" : ".\n");
}

/* "[MODEL]" with its words slanted. */
static void append_arguments(struct gd_strbuf *out, const char *text) {
  for (const char *at = text; *at; at++) {
    bool word = isupper((unsigned char)*at), before = at > text && isupper((unsigned char)at[-1]);
    if (word != before)
      gd_strbuf_append(out, word ? "\\fI" : "\\fR");
    append_char(out, *at);
    if (word && !at[1])
      gd_strbuf_append(out, "\\fR");
  }
}

/* --- entries ------------------------------------------------------------------------------- */

/* What the file says beyond the table about this name. */
static void append_about(struct gd_strbuf *out, struct region *region, const char *name) {
  const char *end = region->text + region->length;
  for (const char *at = region->text; at < end;) {
    size_t length = strcspn(at, "\n") + 1;
    const char *rest = at + strlen(about_mark);
    bool begins = strncmp(at, about_mark, strlen(about_mark)) == 0;
    at += length;
    if (!begins || strncmp(rest, name, strlen(name)) != 0 || rest[strlen(name)] != '\n')
      continue;
    region->used++;
    for (; at < end && strncmp(at, about_mark, strlen(about_mark)) != 0; at += length) {
      length = strcspn(at, "\n") + 1;
      gd_strbuf_printf(out, "%.*s", (int)length, at);
    }
  }
}

static void append_command(struct gd_strbuf *out, struct region *region,
                           const struct gd_command *command) {
  gd_strbuf_printf(out, command->arguments[0] ? ".TP\n.BR %s \" " : ".TP\n.B %s", command->name);
  append_arguments(out, command->arguments);
  gd_strbuf_append(out, command->arguments[0] ? "\"\n" : "\n");
  append_sentence(out, command->summary);
  append_sentence(out, command->about);
  append_about(out, region, command->name);
}

static void append_option(struct gd_strbuf *out, struct region *region,
                          const struct gd_option *option) {
  const char *separator = "Commands: ";
  gd_strbuf_append(out, ".TP\n");
  if (option->letter)
    gd_strbuf_printf(out, ".BR \\-%c \", \" \\-\\-", option->letter);
  else
    gd_strbuf_append(out, option->argument ? ".BR \\-\\-" : ".B \\-\\-");
  append_plain(out, option->name);
  if (option->argument) {
    gd_strbuf_append(out, " \" ");
    append_arguments(out, option->argument);
    gd_strbuf_append(out, "\"");
  }
  gd_strbuf_append(out, "\n");
  append_sentence(out, option->help);
  append_about(out, region, option->name);
  gd_strbuf_append(out, ".br\n");
  for (int i = 0; i < GD_COMMAND_COUNT; i++)
    if (option->commands & 1u << i) {
      gd_strbuf_printf(out, "%s%s", separator, i ? gd_commands[i].name : "gpudays");
      separator = ", ";
    }
  gd_strbuf_append(out, ".\n");
}

static void append_switch(struct gd_strbuf *out, const struct gd_switch *row) {
  char values[128];
  if (row->kind != GD_SWITCH_TUNING && row->kind != GD_SWITCH_PLACE)
    return;
  gd_strbuf_printf(out, ".TP\n.BR %s \" (\\fI", row->name);
  append_plain(out, gd_switch_values(row, values, sizeof values));
  gd_strbuf_append(out, "\\fR)\"\n");
  append_sentence(out, row->about);
  gd_strbuf_append(out, "Default: ");
  append_sentence(out, row->unset);
}

static void append_exit(struct gd_strbuf *out, int code) {
  gd_strbuf_printf(out, ".TP\n.B %d\n", code);
  append_plain(out, gd_exits[code].word);
  gd_strbuf_append(out, gd_exits[code].meaning[0] ? ": " : "");
  append_plain(out, gd_exits[code].meaning);
  gd_strbuf_append(out, "\n");
}

/* --- the page ------------------------------------------------------------------------------ */

static int count_parts(const struct region *region) {
  int count = 0;
  const char *end = region->text + region->length, *at = region->text;
  while ((at = strstr(at, about_mark)) && at < end) {
    count++;
    at += strlen(about_mark);
  }
  return count;
}

static enum gd_status append_table(struct gd_strbuf *out, const char *table, struct region *region,
                                   struct gd_error *err) {
  if (strcmp(table, "commands") == 0) {
    for (int i = 1; i < GD_COMMAND_COUNT; i++)
      append_command(out, region, &gd_commands[i]);
  } else if (strcmp(table, "switches") == 0) {
    for (int i = 0; i < gd_switch_count; i++)
      append_switch(out, &gd_switches[i]);
  } else if (strcmp(table, "exits") == 0) {
    for (int i = 0; i < GD_EXIT_COUNT; i++)
      append_exit(out, i);
  } else {
    for (int i = 0; i < gd_option_count; i++)
      append_option(out, region, &gd_option_table[i]);
  }
  return region->used == count_parts(region)
             ? GD_OK
             : gd_fail(err, GD_INTERNAL,
                       "the manual page says something about %s that are not in the table", table);
}

enum gd_status gd_manual_print(struct gd_strbuf *out, struct gd_error *err) {
  static const char *const tables[] = {"commands", "options", "exits", "switches"};
  const char *at = gd_cli_embedded("../docs/gpudays.1.in");
  GD_ASSERT(at);
  for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
    char mark[32];
    snprintf(mark, sizeof mark, ".\\\"@%s\n", tables[i]);
    const char *begin = strstr(at, mark), *end = begin ? strstr(begin, end_mark) : NULL;
    GD_ASSERT(begin && end);
    struct region region = {.text = begin + strlen(mark)};
    region.length = (size_t)(end - region.text);
    gd_strbuf_printf(out, "%.*s", (int)(begin - at), at);
    GD_TRY(append_table(out, tables[i], &region, err));
    at = end + strlen(end_mark);
  }
  gd_strbuf_append(out, at);
  return GD_OK;
}
