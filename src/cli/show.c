/*
 * Formatting for people and for programs; see show.h. Nothing here writes to a stream: everything
 * is appended to a string that main() writes.
 */
#include "cli/show.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/csv.h"
#include "base/json.h"
#include "cli/cli.h"

enum { COLUMNS = 80 };

/* --- numbers ------------------------------------------------------------------------------- */

struct unit {
  double least_s; /* from here on */
  double scale_s;
  const char *name;
};
/* A unit takes over where the one before would show more than about a hundred. */
static const struct unit units[] = {
    {0, 1e-6, "us"},  {1e-3, 1e-3, "ms"}, {1, 1, "s"},
    {120, 60, "min"}, {7200, 3600, "h"},  {172800, 86400, "days"},
};

static const struct unit *unit_of(double seconds) {
  const struct unit *unit = &units[0];
  for (size_t i = 1; i < sizeof units / sizeof *units; i++)
    if (seconds >= units[i].least_s)
      unit = &units[i];
  return unit;
}

const char *gd_show_seconds(char *text, size_t size, double seconds) {
  char number[GD_SHOW_TEXT];
  const struct unit *unit = unit_of(seconds);
  gd_format_digits(number, sizeof number, seconds / unit->scale_s, 3);
  snprintf(text, size, "%s %s", number, unit->name);
  return text;
}

const char *gd_show_power(char *text, size_t size, double value) {
  char mantissa[GD_SHOW_TEXT];
  snprintf(mantissa, sizeof mantissa, "%.1e", value);
  char *e = strchr(mantissa, 'e');
  if (!e) { /* not finite */
    snprintf(text, size, "%s", mantissa);
    return text;
  }
  *e = '\0';
  const char *power = e + 1;
  bool minus = *power == '-';
  while (*power == '+' || *power == '-' || (*power == '0' && power[1] != '\0'))
    power++;
  snprintf(text, size, "%se%s%s", mantissa, minus ? "-" : "", power);
  return text;
}

const char *gd_show_rate(char *text, size_t size, double flops_per_s) {
  static const char *const prefixes[] = {"", "k", "M", "G", "T", "P", "E"};
  char number[GD_SHOW_TEXT];
  size_t i = 0;
  while (flops_per_s >= 999.5 && i + 1 < sizeof prefixes / sizeof *prefixes) {
    flops_per_s /= 1000;
    i++;
  }
  gd_format_digits(number, sizeof number, flops_per_s, 3);
  snprintf(text, size, "%s %sFLOP/s", number, prefixes[i]);
  return text;
}

void gd_show_duration(struct gd_show_duration *shown, double days, double low_days,
                      double high_days) {
  const double seconds = days * 86400, low_s = low_days * 86400, high_s = high_days * 86400;
  char number[GD_SHOW_TEXT], low[GD_SHOW_TEXT], high[GD_SHOW_TEXT];
  const struct unit *unit = unit_of(seconds);
  double scale = unit->scale_s, width = (high_s - low_s) / 2 / scale;
  int decimals = gd_format_decimals(seconds / scale, 3),
      most = gd_format_decimals(seconds / scale, 5);
  /* A tight interval earns more digits than three, up to its own first one. */
  int earned = width > 0 ? gd_format_decimals(width, 1) : decimals;
  if (earned > decimals)
    decimals = earned < most ? earned : most;
  gd_format_number(number, sizeof number, seconds / scale, decimals);
  snprintf(shown->value, sizeof shown->value, "%s %s", number, unit->name);
  double years = seconds / 86400 / 365.25;
  if (years >= 1) {
    gd_format_digits(low, sizeof low, years, 2);
    snprintf(shown->value, sizeof shown->value, "%s %s (%s years)", number, unit->name, low);
  }
  gd_format_number(low, sizeof low, low_s / scale, decimals);
  gd_format_number(high, sizeof high, high_s / scale, decimals);
  snprintf(shown->interval, sizeof shown->interval, "%s - %s", low, high);
}

/* --- lines --------------------------------------------------------------------------------- */

void gd_show_paragraph(struct gd_strbuf *out, int indent, const char *text) {
  int column = indent;
  bool first = true;
  gd_strbuf_printf(out, "%*s", indent, "");
  while (*text) {
    int length = (int)strcspn(text, " ");
    if (!first && column + 1 + length > COLUMNS) {
      gd_strbuf_printf(out, "\n%*s", indent + 2, "");
      column = indent + 2;
    } else if (!first) {
      gd_strbuf_append(out, " ");
      column++;
    }
    gd_strbuf_printf(out, "%.*s", length, text);
    column += length;
    text += length;
    text += strspn(text, " ");
    first = false;
  }
  gd_strbuf_append(out, "\n");
}

void gd_show_buffer(struct gd_strbuf *out, int indent, struct gd_strbuf *line) {
  if (line->text && !line->failed)
    gd_show_paragraph(out, indent, line->text);
  out->failed = out->failed || line->failed;
  gd_strbuf_deinit(line);
}

void gd_show_bold(struct gd_cli *cli, const char *text) {
  gd_strbuf_printf(&cli->out, "%s%s%s", cli->bold ? "\033[1m" : "", text,
                   cli->bold ? "\033[0m" : "");
}

/* --- tables -------------------------------------------------------------------------------- */

const char *gd_show_cell(struct gd_cli *cli, const char *format, ...) {
  char text[512];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  const char *cell = gd_arena_copy_string(&cli->arena, text);
  if (!cell)
    cli->out.failed = true;
  return cell;
}

const char *gd_show_count_cell(struct gd_cli *cli, int64_t count) {
  char text[GD_SHOW_TEXT];
  return gd_show_cell(cli, "%s", gd_format_count(text, sizeof text, count));
}

const char *gd_show_bytes_cell(struct gd_cli *cli, int64_t bytes) {
  char text[GD_SHOW_TEXT];
  return gd_show_cell(cli, "%s", gd_format_bytes(text, sizeof text, bytes));
}

const char *gd_show_seconds_cell(struct gd_cli *cli, double seconds) {
  char text[GD_SHOW_TEXT];
  return gd_show_cell(cli, "%s", gd_show_seconds(text, sizeof text, seconds));
}

const char **gd_show_row(struct gd_show_rows *rows) {
  size_t width = (size_t)rows->n_columns;
  GD_ASSERT(rows->n_columns <= GD_SHOW_COLUMNS);
  if (rows->count == rows->capacity) {
    int capacity = rows->capacity > 0 ? 2 * rows->capacity : 16;
    const char **cells = gd_arena_alloc(&rows->cli->arena, (size_t)capacity * width, sizeof *cells);
    if (!cells) {
      rows->cli->out.failed = true;
      return rows->spare;
    }
    for (size_t i = 0; i < (size_t)rows->count * width; i++)
      cells[i] = rows->cells[i];
    rows->cells = cells;
    rows->capacity = capacity;
  }
  return rows->cells + (size_t)rows->count++ * width;
}

enum gd_status gd_show_rows(struct gd_show_rows *rows, int indent, struct gd_error *err) {
  return gd_show_table(&rows->cli->out, indent, rows->columns, rows->n_columns, rows->cells,
                       rows->count, err);
}

/* --- JSON as text: what jansson writes, without a call for every comma --------------------------
 */

static void append_line(struct gd_strbuf *out, int indent) {
  static const char line[] = "\n                                        ";
  GD_ASSERT((size_t)indent + 1 < sizeof line);
  gd_strbuf_append_bytes(out, line, (size_t)indent + 1);
}

/* Nothing nests deeper than a few levels. */
static void dump(struct gd_strbuf *out, json_t *value, int indent) {
  const char *key;
  json_t *inner;
  size_t i;
  bool first = true;
  switch (json_typeof(value)) {
  case JSON_STRING: gd_json_append_text(out, json_string_value(value)); break;
  case JSON_INTEGER: gd_json_append_int(out, (int64_t)json_integer_value(value)); break;
  case JSON_REAL: gd_json_append_real(out, json_real_value(value)); break;
  case JSON_TRUE: gd_strbuf_append(out, "true"); break;
  case JSON_FALSE: gd_strbuf_append(out, "false"); break;
  case JSON_NULL: gd_strbuf_append(out, "null"); break;
  case JSON_ARRAY:
    gd_strbuf_append_bytes(out, "[", 1);
    json_array_foreach(value, i, inner) {
      gd_strbuf_append_bytes(out, ",", first ? 0 : 1);
      append_line(out, indent + 2);
      dump(out, inner, indent + 2);
      first = false;
    }
    if (!first)
      append_line(out, indent);
    gd_strbuf_append_bytes(out, "]", 1);
    break;
  case JSON_OBJECT:
    gd_strbuf_append_bytes(out, "{", 1);
    json_object_foreach(value, key, inner) {
      gd_strbuf_append_bytes(out, ",", first ? 0 : 1);
      append_line(out, indent + 2);
      gd_json_append_text(out, key);
      gd_strbuf_append_bytes(out, ": ", 2);
      dump(out, inner, indent + 2);
      first = false;
    }
    if (!first)
      append_line(out, indent);
    gd_strbuf_append_bytes(out, "}", 1);
    break;
  }
}

/* --- JSON ---------------------------------------------------------------------------------- */

void gd_show_begin(struct gd_show_object *to) {
  *to = (struct gd_show_object){.object = json_object()};
  to->failed = !to->object;
}

void gd_show_begin_text(struct gd_show_object *to, struct gd_strbuf *out, int indent) {
  *to = (struct gd_show_object){.out = out, .indent = indent};
  gd_strbuf_append_bytes(out, "{", 1);
}

void gd_show_begin_csv(struct gd_show_object *to, struct gd_strbuf *out) {
  *to = (struct gd_show_object){.out = out, .csv = true};
}

enum gd_status gd_show_end_text(struct gd_show_object *to, struct gd_error *err) {
  if (to->any && !to->csv)
    append_line(to->out, to->indent);
  gd_strbuf_append_bytes(to->out, to->csv ? "\n" : "}", 1);
  return to->failed || to->out->failed ? gd_nomem(err, "while printing JSON") : GD_OK;
}

/* What comes before a value that is written at once. Keys are words: no sign of them is special to
   JSON. */
static void append_key(struct gd_show_object *to, const char *key) {
  if (to->csv) {
    gd_strbuf_append_bytes(to->out, ",", to->any ? 1 : 0);
  } else {
    size_t length = strlen(key), indent = (size_t)to->indent + 2;
    char *at = gd_strbuf_room(to->out, length + indent + 6), *from = at;
    if (!at)
      return;
    if (to->any)
      *at++ = ',';
    *at++ = '\n';
    memset(at, ' ', indent);
    at += indent;
    *at++ = '"';
    memcpy(at, key, length);
    at += length;
    memcpy(at, "\": ", 4);
    to->out->length += (size_t)(at + 3 - from);
  }
  to->any = true;
}

static bool is_column(const json_t *value);
static void append_value(struct gd_strbuf *out, const json_t *value);

void gd_show_set(struct gd_show_object *to, const char *key, json_t *value) {
  GD_ASSERT(!to->csv || !json_is_object(value));
  if (to->out && value) {
    bool shown = !to->csv || is_column(value);
    if (shown)
      append_key(to, key);
    if (shown && to->csv)
      append_value(to->out, value);
    else if (shown)
      dump(to->out, value, to->indent + 2);
    json_decref(value);
  } else if (to->out || json_object_set_new(to->object, key, value) != 0) {
    to->failed = true;
  }
}

static bool is_ascii(const char *text) {
  while (*text > 0)
    text++;
  return !*text;
}

/* Names of folders may hold any bytes; what is not UTF-8 becomes '?'. */
void gd_show_set_text(struct gd_show_object *to, const char *key, const char *text) {
  if (to->out && is_ascii(text)) { /* almost always */
    append_key(to, key);
    if (to->csv)
      gd_csv_append_cell(to->out, text);
    else
      gd_json_append_text(to->out, text);
    return;
  }
  json_t *value = json_string(text);
  if (!value) {
    struct gd_strbuf clean = {0};
    gd_strbuf_append(&clean, text);
    for (size_t i = 0; i < clean.length; i++)
      if ((unsigned char)clean.text[i] >= 0x80)
        clean.text[i] = '?';
    value = clean.text ? json_string(clean.text) : NULL;
    gd_strbuf_deinit(&clean);
  }
  gd_show_set(to, key, value);
}

void gd_show_set_int(struct gd_show_object *to, const char *key, int64_t value) {
  if (!to->out) {
    gd_show_set(to, key, json_integer(value));
    return;
  }
  append_key(to, key);
  gd_json_append_int(to->out, value);
}

void gd_show_set_bool(struct gd_show_object *to, const char *key, bool value) {
  gd_show_set(to, key, json_boolean(value));
}

void gd_show_set_real(struct gd_show_object *to, const char *key, double value) {
  if (!to->out || !isfinite(value)) {
    gd_show_set(to, key, isfinite(value) ? json_real(value) : json_null());
    return;
  }
  append_key(to, key);
  if (to->csv)
    gd_csv_append_number(to->out, value);
  else
    gd_json_append_real(to->out, value);
}

void gd_show_set_null(struct gd_show_object *to, const char *key) {
  gd_show_set(to, key, json_null());
}

void gd_show_set_positive(struct gd_show_object *object, const char *key, double value) {
  if (value > 0)
    gd_show_set_real(object, key, value);
  else
    gd_show_set_null(object, key);
}

void gd_show_set_reals(struct gd_show_object *to, const char *key, const double *values,
                       int count) {
  if (to->csv) /* has no columns of numbers by the dozen */
    return;
  if (!to->out || count == 0) {
    json_t *list = json_array();
    for (int i = 0; i < count; i++)
      if (json_array_append_new(list, json_real(values[i])) != 0)
        to->failed = true;
    gd_show_set(to, key, list);
    return;
  }
  append_key(to, key);
  for (int i = 0; i < count; i++) {
    gd_strbuf_append_bytes(to->out, i ? "," : "[", 1);
    append_line(to->out, to->indent + 4);
    gd_json_append_real(to->out, values[i]);
  }
  append_line(to->out, to->indent + 2);
  gd_strbuf_append_bytes(to->out, "]", 1);
}

void gd_show_begin_inside(struct gd_show_object *child, struct gd_show_object *parent,
                          const char *key) {
  if (!parent->out) {
    gd_show_begin(child);
    return;
  }
  *child = *parent;
  child->indent += 2;
  if (parent->csv) /* a row goes on */
    return;
  append_key(parent, key);
  gd_strbuf_append_bytes(parent->out, "{", 1);
  child->any = false;
}

void gd_show_set_object(struct gd_show_object *to, const char *key, struct gd_show_object *child) {
  if (!child->out) {
    gd_show_set(to, key, child->object);
  } else if (to->csv) {
    to->any = child->any;
  } else {
    if (child->any)
      append_line(to->out, child->indent);
    gd_strbuf_append_bytes(to->out, "}", 1);
  }
  to->failed = to->failed || child->failed;
  *child = (struct gd_show_object){0};
}

void gd_show_append(struct gd_show_object *array, struct gd_show_object *child) {
  if (json_array_append_new(array->object, child->object) != 0)
    array->failed = true;
  array->failed = array->failed || child->failed;
  *child = (struct gd_show_object){0};
}

static int append_dump(const char *data, size_t length, void *user) {
  struct gd_strbuf *out = user;
  gd_strbuf_append_bytes(out, data, length);
  return out->failed ? -1 : 0;
}

enum gd_status gd_show_json_inside(struct gd_strbuf *out, struct gd_show_object *object, int indent,
                                   struct gd_error *err) {
  bool ok = !object->failed && object->object;
  if (ok)
    dump(out, object->object, indent);
  json_decref(object->object);
  *object = (struct gd_show_object){0};
  return ok ? GD_OK : gd_nomem(err, "while printing JSON");
}

enum gd_status gd_show_json(struct gd_strbuf *out, struct gd_show_object *object,
                            struct gd_error *err) {
  bool ok =
      !object->failed && json_dump_callback(object->object, append_dump, out, JSON_INDENT(2)) == 0;
  json_decref(object->object);
  *object = (struct gd_show_object){0};
  gd_strbuf_append(out, "\n");
  return ok ? GD_OK : gd_nomem(err, "while printing JSON");
}

/* --- CSV ----------------------------------------------------------------------------------- */

static bool is_column(const json_t *value) {
  return !json_is_array(value) || json_is_string(json_array_get(value, 0));
}

static void append_value(struct gd_strbuf *out, const json_t *value) {
  struct gd_strbuf words = {0};
  size_t i;
  json_t *word;
  switch (json_typeof(value)) {
  case JSON_STRING: gd_csv_append_cell(out, json_string_value(value)); break;
  case JSON_INTEGER: gd_strbuf_printf(out, "%" PRId64, (int64_t)json_integer_value(value)); break;
  case JSON_REAL: gd_csv_append_number(out, json_real_value(value)); break;
  case JSON_TRUE: gd_strbuf_append(out, "true"); break;
  case JSON_FALSE: gd_strbuf_append(out, "false"); break;
  case JSON_ARRAY:
    json_array_foreach(value, i, word) {
      gd_strbuf_printf(&words, "%s%s", i ? " " : "", json_string_value(word));
    }
    gd_csv_append_cell(out, words.text ? words.text : "");
    gd_strbuf_deinit(&words);
    break;
  case JSON_NULL:
  case JSON_OBJECT: break;
  }
}

/* One line: the names of the columns, or the values. Nothing nests deeper than two. */
static void append_row(struct gd_strbuf *out, json_t *row, bool names) {
  const char *key, *inner_key, *comma = "";
  json_t *value, *inner;
  json_object_foreach(row, key, value) {
    if (json_is_object(value)) {
      json_object_foreach(value, inner_key, inner) {
        if (!is_column(inner))
          continue;
        gd_strbuf_append(out, comma);
        if (names)
          gd_strbuf_printf(out, "%s.%s", key, inner_key);
        else
          append_value(out, inner);
        comma = ",";
      }
    } else if (is_column(value)) {
      gd_strbuf_append(out, comma);
      if (names)
        gd_strbuf_append(out, key);
      else
        append_value(out, value);
      comma = ",";
    }
  }
  gd_strbuf_append(out, "\n");
}

enum gd_status gd_show_csv_row(struct gd_strbuf *out, struct gd_show_object *row, bool first,
                               struct gd_error *err) {
  bool ok = !row->failed;
  if (ok && first)
    append_row(out, row->object, true);
  if (ok)
    append_row(out, row->object, false);
  json_decref(row->object);
  *row = (struct gd_show_object){0};
  return ok ? GD_OK : gd_nomem(err, "while printing CSV");
}

enum gd_status gd_show_csv(struct gd_strbuf *out, struct gd_show_object *rows,
                           struct gd_error *err) {
  bool ok = !rows->failed;
  size_t i;
  json_t *row;
  json_array_foreach(rows->object, i, row) {
    if (i == 0)
      append_row(out, row, true);
    append_row(out, row, false);
  }
  json_decref(rows->object);
  *rows = (struct gd_show_object){0};
  return ok ? GD_OK : gd_nomem(err, "while printing CSV");
}
