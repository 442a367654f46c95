/*
 * Formatting for people and for programs; see show.h; tables are in show_table.c. Nothing here
 * writes to a stream: everything is appended to a string that main() writes.
 */
#include "cli/show.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/csv.h"
#include "base/json.h"
#include "cli/cli.h"

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

/* Longer lines are hard to read; shorter ones where nothing says how wide the terminal is. */
enum { PARAGRAPH_MOST = 100, PARAGRAPH_USUAL = 80 };

void gd_show_wrap(struct gd_strbuf *out, int column, int hang, int columns, const char *text) {
  for (bool first = true; *text; first = false) {
    int length = (int)strcspn(text, " ");
    if (!first && column + 1 + length > columns) {
      gd_strbuf_printf(out, "\n%*s", hang, "");
      column = hang;
    } else if (!first) {
      gd_strbuf_append(out, " ");
      column++;
    }
    gd_strbuf_printf(out, "%.*s", length, text);
    column += length;
    text += length;
    text += strspn(text, " ");
  }
  gd_strbuf_append(out, "\n");
}

void gd_show_paragraph(struct gd_strbuf *out, int indent, const char *text) {
  const int terminal = gd_show_columns();
  const int columns = terminal <= 0               ? PARAGRAPH_USUAL
                      : terminal > PARAGRAPH_MOST ? PARAGRAPH_MOST
                                                  : terminal;
  gd_strbuf_printf(out, "%*s", indent, "");
  gd_show_wrap(out, indent, indent + 2, columns, text);
}

void gd_show_buffer(struct gd_strbuf *out, int indent, struct gd_strbuf *line) {
  if (line->text && !line->failed)
    gd_show_paragraph(out, indent, line->text);
  out->failed = out->failed || line->failed;
  gd_strbuf_deinit(line);
}

/* Where a line goes on: behind "  name  " or, without such a name, two deeper than it begins. */
static int hanging(const char *line, int length) {
  int indent = (int)strspn(line, " "), at = indent;
  while (at + 1 < length && !(line[at] == ' ' && line[at + 1] == ' '))
    at++;
  int value = at + 1 < length ? at + (int)strspn(line + at, " ") : 0;
  return value > 0 && value <= gd_show_columns() / 3 ? value : indent + 2;
}

/* Bytes from here on that take no room of their own: an escape, or the rest of a letter. */
static int unseen(const char *at) {
  if (at[0] == '\033' && at[1] == '[')
    return (int)strcspn(at, "m") + (strchr(at, 'm') != NULL);
  return ((unsigned char)*at & 0xc0) == 0x80;
}

/* How many bytes of a line have room: all, or up to the last blank before that many columns, or up
   to the first blank where there is none. What follows the blank begins with `word`. */
static int room_of(const char *line, int length, int from, int columns, const char *word) {
  int blank = 0, column = 0;
  for (int at = 0; at < length;) {
    int skip = unseen(line + at);
    if (!skip && at >= from && line[at] == ' ' && line[at - 1] != ' ' &&
        strncmp(line + at + 1, word, strlen(word)) == 0) {
      if (column > columns && blank > 0)
        return blank;
      blank = at;
    }
    column += !skip;
    at += skip ? skip : 1;
  }
  return column <= columns || blank == 0 ? length : blank;
}

static bool is_command(const char *text) {
  static const char command[] = "gpudays ";
  return strncmp(text, command, sizeof command - 1) == 0;
}

/* One line, which may be too long. */
static void fold_line(struct gd_strbuf *out, const char *line, int length) {
  const int columns = gd_show_columns(), hang = hanging(line, length);
  const bool typed = is_command(line + strspn(line, " ")) ||
                     (hang < length && is_command(line + hang)); /* alone, or behind its name */
  int indent = 0;
  while (length > 0) {
    int from = indent > 0 ? 1 : hang > 0 ? hang : 1;
    int end = room_of(line, length, from, columns - indent, "");
    if (end < length && typed) { /* before an option, if that is room enough; and the backslash */
      int room = columns - indent - 2;
      end = room_of(line, length, from, room, "--");
      end = end > room ? room_of(line, length, from, room, "") : end;
    }
    gd_strbuf_printf(out, "%*s%.*s%s\n", indent, "", end, line, typed && end < length ? " \\" : "");
    while (end < length && line[end] == ' ')
      end++;
    line += end;
    length -= end;
    indent = hang;
  }
}

void gd_show_fold(struct gd_strbuf *out) {
  struct gd_strbuf folded = {0};
  if (gd_show_columns() <= 0 || gd_show_is_wide() || !out->text || out->failed)
    return;
  for (const char *line = out->text; *line;) {
    int length = (int)strcspn(line, "\n");
    if (length > gd_show_columns())
      fold_line(&folded, line, length);
    else
      gd_strbuf_printf(&folded, "%.*s%s", length, line, line[length] ? "\n" : "");
    line += length + (line[length] == '\n');
  }
  if (folded.failed || !folded.text) {
    gd_strbuf_deinit(&folded);
    return;
  }
  gd_strbuf_deinit(out);
  *out = folded;
}

void gd_show_bold(struct gd_cli *cli, const char *text) {
  gd_strbuf_printf(&cli->out, "%s%s%s", cli->bold ? "\033[1m" : "", text,
                   cli->bold ? "\033[0m" : "");
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

void gd_show_set_text_or_null(struct gd_show_object *to, const char *key, const char *text) {
  if (text)
    gd_show_set_text(to, key, text);
  else
    gd_show_set_null(to, key);
}

void gd_show_set_known_text(struct gd_show_object *to, const char *key, const char *text) {
  gd_show_set_text_or_null(to, key, text && text[0] ? text : NULL);
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

/* The columns of a row by name, "inner.key" of what nests, and nothing nests deeper than two. */
static bool flatten(json_t *row, json_t *to) {
  const char *key, *inner_key;
  json_t *value, *inner;
  bool ok = to != NULL;
  json_object_foreach(row, key, value) {
    if (!json_is_object(value)) {
      ok = ok && (!is_column(value) || json_object_set(to, key, value) == 0);
      continue;
    }
    json_object_foreach(value, inner_key, inner) {
      char name[256];
      snprintf(name, sizeof name, "%s.%s", key, inner_key);
      ok = ok && (!is_column(inner) || json_object_set(to, name, inner) == 0);
    }
  }
  return ok;
}

static void append_names(struct gd_strbuf *out, json_t *columns) {
  const char *name, *comma = "";
  json_t *any;
  json_object_foreach(columns, name, any) {
    gd_strbuf_printf(out, "%s%s", comma, name);
    comma = ",";
  }
  gd_strbuf_append(out, "\n");
}

/* The values of a row under those names; what it does not have is empty. */
static bool append_values(struct gd_strbuf *out, json_t *columns, json_t *row) {
  const char *name, *comma = "";
  json_t *any, *flat = json_object();
  bool ok = flatten(row, flat);
  json_object_foreach(columns, name, any) {
    const json_t *value = json_object_get(flat, name);
    gd_strbuf_append(out, comma);
    if (value)
      append_value(out, value);
    comma = ",";
  }
  gd_strbuf_append(out, "\n");
  json_decref(flat);
  return ok;
}

enum gd_status gd_show_csv_row(struct gd_strbuf *out, struct gd_show_object *row, bool first,
                               struct gd_error *err) {
  json_t *columns = json_object();
  bool ok = !row->failed && flatten(row->object, columns);
  if (ok && first)
    append_names(out, columns);
  ok = ok && append_values(out, columns, row->object);
  json_decref(columns);
  json_decref(row->object);
  *row = (struct gd_show_object){0};
  return ok ? GD_OK : gd_nomem(err, "while printing CSV");
}

enum gd_status gd_show_csv(struct gd_strbuf *out, struct gd_show_object *rows,
                           struct gd_error *err) {
  json_t *columns = json_object(), *row; /* of all: what one row has another may lack */
  bool ok = !rows->failed;
  size_t i;
  json_array_foreach(rows->object, i, row) {
    ok = ok && flatten(row, columns);
  }
  if (ok && json_array_size(rows->object) > 0)
    append_names(out, columns);
  json_array_foreach(rows->object, i, row) {
    ok = ok && append_values(out, columns, row);
  }
  json_decref(columns);
  json_decref(rows->object);
  *rows = (struct gd_show_object){0};
  return ok ? GD_OK : gd_nomem(err, "while printing CSV");
}
