/*
 * One file of the catalogue into records: {"kind": "gpu", ...} or {"records": [{...}, ...]}. What a
 * kind has is a table of its fields; a field in no table is an error, and so is a figure without
 * source and date. Files are in the units of datasheets (GiB, GB/s, TFLOP/s, Gb/s, us), so that a
 * figure can be compared with its source; records are in bytes and seconds.
 */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/strbuf.h"
#include "hw/hw_int.h"
#include "model/config.h"

enum { NAME_BYTES = 64, FIGURES_MOST = 16 };

struct text {
  const char *key;
  size_t offset; /* of a const char * */
  bool optional;
};

enum form { REAL, WHOLE, BYTES }; /* double, int, int64_t */

struct figure {
  const char *key;
  double low, high; /* as the file has it */
  double scale;     /* to what the record has */
  size_t offset;
  enum form form;
  bool optional;
};

struct reader;
struct kind {
  const char *name, *title;
  const struct text *texts;
  const struct figure *figures;
  const char *others[6];   /* fields that `read` reads itself */
  const char *figure_else; /* the one among them that is a figure and needs a source */
  enum gd_status (*read)(struct reader *reader, struct gd_error *err);
};

struct reader {
  struct gd_hw *hw;
  const struct gd_json *json;
  json_t *object;
  const struct kind *kind;
  const char *file;
  struct gd_hw_read *read;
};

static enum gd_status no_memory(struct gd_error *err) {
  return gd_nomem(err, "while reading hardware records");
}

/* --- names --------------------------------------------------------------------------------- */

bool gd_hw_same_name(const char *a, const char *b) {
  for (;; a++, b++) {
    bool joins = strchr("-_ ", *a) && strchr("-_ ", *b) && *a && *b;
    if (!joins && tolower((unsigned char)*a) != tolower((unsigned char)*b))
      return false;
    if (!*a)
      return true;
  }
}

static const char *const topology_names[] = {
    [GD_TOPOLOGY_BUS] = "bus", [GD_TOPOLOGY_PAIRS] = "pairs", [GD_TOPOLOGY_SWITCH] = "switch"};
static const char *const peak_names[GD_PEAK_COUNT] = {[GD_PEAK_FP32] = "fp32",
                                                      [GD_PEAK_TF32] = "tf32",
                                                      [GD_PEAK_FP16] = "fp16",
                                                      [GD_PEAK_BF16] = "bf16"};

const char *gd_topology_name(enum gd_topology topology) {
  return topology_names[topology];
}

const char *gd_peak_name(enum gd_peak peak) {
  GD_ASSERT(peak < GD_PEAK_COUNT);
  return peak_names[peak];
}

/* --- fields -------------------------------------------------------------------------------- */

struct keys {
  const char *list[48];
  int count;
};

static void add_key(struct keys *keys, const char *key) {
  GD_ASSERT(keys->count < (int)(sizeof keys->list / sizeof *keys->list));
  keys->list[keys->count++] = key;
}

static void keys_of(const struct kind *kind, struct keys *keys) {
  *keys = (struct keys){0};
  add_key(keys, "kind");
  for (const struct text *text = kind->texts; text->key; text++)
    add_key(keys, text->key);
  for (const struct figure *figure = kind->figures; figure->key; figure++)
    add_key(keys, figure->key);
  for (const char *const *other = kind->others; *other; other++)
    add_key(keys, *other);
  add_key(keys, "sources");
  add_key(keys, "source");
  add_key(keys, "date");
}

static enum gd_status read_text(struct reader *reader, const json_t *object, const char *key,
                                const char **to, struct gd_error *err) {
  const char *text;
  GD_TRY(gd_json_string(reader->json, object, key, &text, err));
  if (text[0] == '\0')
    return gd_json_mismatch(reader->json, object, key, "a text that is not empty", err);
  *to = gd_arena_copy_string(&reader->hw->arena, text);
  return *to ? GD_OK : no_memory(err);
}

/* Names are typed, and are parts of other names and of files. */
static enum gd_status read_name(struct reader *reader, const char *key, const char **to,
                                struct gd_error *err) {
  GD_TRY(read_text(reader, reader->object, key, to, err));
  size_t length = strspn(*to, "abcdefghijklmnopqrstuvwxyz0123456789.-");
  if ((*to)[length] || length >= NAME_BYTES)
    return gd_json_mismatch(reader->json, reader->object, key,
                            "a name of small letters, digits, '.' and '-'", err);
  return GD_OK;
}

static enum gd_status read_figure(struct reader *reader, const json_t *object,
                                  const struct figure *figure, void *record, struct gd_error *err) {
  void *to = (char *)record + figure->offset;
  double value = 0;
  if (figure->optional && !gd_json_has(object, figure->key))
    return GD_OK;
  if (figure->form == WHOLE && figure->scale == 1) {
    int64_t whole;
    GD_TRY(gd_json_int(reader->json, object, figure->key, (int64_t)figure->low,
                       (int64_t)figure->high, &whole, err));
    value = (double)whole;
  } else {
    GD_TRY(
        gd_json_number(reader->json, object, figure->key, figure->low, figure->high, &value, err));
  }
  value *= figure->scale;
  switch (figure->form) {
  case REAL: *(double *)to = value; break;
  case WHOLE: *(int *)to = (int)lround(value); break;
  case BYTES: *(int64_t *)to = (int64_t)llround(value); break;
  }
  return GD_OK;
}

static enum gd_status read_fields(struct reader *reader, void *record, struct gd_error *err) {
  struct keys keys;
  char what[NAME_BYTES];
  keys_of(reader->kind, &keys);
  snprintf(what, sizeof what, "a record of kind %s", reader->kind->name);
  GD_TRY(gd_config_keys(reader->json, reader->object, what, keys.list, keys.count, err));
  for (const struct text *text = reader->kind->texts; text->key; text++) {
    const char **to = (const char **)((char *)record + text->offset);
    bool name = strcmp(text->key, "name") == 0;
    if (text->optional && !gd_json_has(reader->object, text->key))
      continue;
    GD_TRY(name ? read_name(reader, "name", to, err)
                : read_text(reader, reader->object, text->key, to, err));
  }
  for (const struct figure *figure = reader->kind->figures; figure->key; figure++)
    GD_TRY(read_figure(reader, reader->object, figure, record, err));
  return GD_OK;
}

static enum gd_status read_topology(struct reader *reader, enum gd_topology *topology,
                                    struct gd_error *err) {
  const char *text;
  GD_TRY(gd_json_string(reader->json, reader->object, "topology", &text, err));
  for (int i = 0; i < (int)(sizeof topology_names / sizeof *topology_names); i++)
    if (strcmp(text, topology_names[i]) == 0) {
      *topology = (enum gd_topology)i;
      return GD_OK;
    }
  return gd_json_mismatch(reader->json, reader->object, "topology", "bus, pairs or switch", err);
}

static enum gd_status read_in_paper(struct reader *reader, bool *in_paper, struct gd_error *err) {
  if (!gd_json_has(reader->object, "in_paper"))
    return GD_OK;
  return gd_json_bool(reader->json, reader->object, "in_paper", in_paper, err);
}

/* --- sources ------------------------------------------------------------------------------- */

const struct gd_cite *gd_cite_of(const struct gd_cite *cites, int n_cites, const char *field) {
  for (int i = 0; i < n_cites; i++)
    if (strcmp(cites[i].field, field) == 0)
      return &cites[i];
  return NULL;
}

/* 2024, 2024-09 or 2024-09-21. */
static bool is_date(const char *text) {
  static const char shape[] = "dddd-dd-dd";
  size_t length = strlen(text);
  if (length != 4 && length != 7 && length != 10)
    return false;
  for (size_t i = 0; i < length; i++)
    if (shape[i] == 'd' ? !isdigit((unsigned char)text[i]) : text[i] != '-')
      return false;
  bool month = length < 7 || (strncmp(text + 5, "01", 2) >= 0 && strncmp(text + 5, "12", 2) <= 0);
  bool day = length < 10 || (strncmp(text + 8, "01", 2) >= 0 && strncmp(text + 8, "31", 2) <= 0);
  return month && day;
}

static enum gd_status read_source(struct reader *reader, const json_t *object, struct gd_cite *cite,
                                  struct gd_error *err) {
  GD_TRY(read_text(reader, object, "source", &cite->source, err));
  GD_TRY(read_text(reader, object, "date", &cite->date, err));
  if (!is_date(cite->date))
    return gd_json_mismatch(reader->json, object, "date",
                            "a date such as 2024, 2024-09 or 2024-09-21", err);
  return GD_OK;
}

static bool names_field(const json_t *fields, const char *key) {
  size_t i;
  json_t *value;
  json_array_foreach(fields, i, value) {
    if (json_is_string(value) && strcmp(json_string_value(value), key) == 0)
      return true;
  }
  return false;
}

/* The entry of "sources" that is for the field: one that names it, else one for all the others. */
static const json_t *source_of(const struct reader *reader, const char *key) {
  const json_t *sources = json_object_get(reader->object, "sources"), *rest = NULL;
  size_t i;
  json_t *source;
  if (!sources)
    return gd_json_has(reader->object, "source") ? reader->object : NULL;
  json_array_foreach(sources, i, source) {
    const json_t *fields = json_object_get(source, "fields");
    if (fields && names_field(fields, key))
      return source;
    if (!fields && !rest)
      rest = source;
  }
  return rest;
}

static enum gd_status check_fields(struct reader *reader, json_t *source, struct gd_error *err) {
  const json_t *fields = json_object_get(source, "fields");
  size_t i;
  json_t *value;
  if (!fields)
    return GD_OK;
  if (!json_is_array(fields) || json_array_size(fields) == 0)
    return gd_json_mismatch(reader->json, source, "fields", "a list of names of figures", err);
  json_array_foreach(fields, i, value) {
    const char *key = json_string_value(value);
    bool figure = key && reader->kind->figure_else && strcmp(key, reader->kind->figure_else) == 0;
    for (const struct figure *f = reader->kind->figures; key && f->key; f++)
      figure = figure || strcmp(key, f->key) == 0;
    if (!figure || !gd_json_has(reader->object, key))
      return gd_json_mismatch(reader->json, source, "fields", "names of figures of this record",
                              err);
  }
  return GD_OK;
}

static enum gd_status check_sources(struct reader *reader, struct gd_error *err) {
  static const struct keys keys = {{"fields", "source", "date"}, 3};
  const json_t *sources = json_object_get(reader->object, "sources");
  size_t i;
  json_t *source;
  if (!sources)
    return GD_OK;
  if (!json_is_array(sources) || gd_json_has(reader->object, "source"))
    return gd_json_mismatch(reader->json, reader->object, "sources",
                            "a list of sources, or \"source\" and \"date\" instead of it", err);
  json_array_foreach(sources, i, source) {
    if (!json_is_object(source))
      return gd_json_mismatch(reader->json, reader->object, "sources",
                              "objects with \"source\", \"date\" and perhaps \"fields\"", err);
    GD_TRY(gd_config_keys(reader->json, source, "an entry of sources", keys.list, keys.count, err));
    GD_TRY(check_fields(reader, source, err));
  }
  return GD_OK;
}

static enum gd_status cite(struct reader *reader, const char *key, struct gd_cite *to,
                           struct gd_error *err) {
  const json_t *source = source_of(reader, key);
  if (!source)
    return gd_fail(err, GD_BAD_INPUT,
                   "%s: %s has no source; add \"source\" and \"date\" to the record, or an entry "
                   "of \"sources\" with it among its \"fields\"",
                   reader->json->file, key);
  to->field = gd_arena_copy_string(&reader->hw->arena, key);
  return to->field ? read_source(reader, source, to, err) : no_memory(err);
}

/* Source and date of every figure that the record has. */
static enum gd_status read_cites(struct reader *reader, const struct gd_cite **cites, int *n_cites,
                                 struct gd_error *err) {
  const struct kind *kind = reader->kind;
  struct gd_cite *list = gd_arena_alloc(&reader->hw->arena, FIGURES_MOST, sizeof *list);
  int n = 0;
  if (!list)
    return no_memory(err);
  GD_TRY(check_sources(reader, err));
  for (const struct figure *figure = kind->figures; figure->key; figure++) {
    GD_ASSERT(n < FIGURES_MOST);
    if (gd_json_has(reader->object, figure->key))
      GD_TRY(cite(reader, figure->key, &list[n++], err));
  }
  GD_ASSERT(n < FIGURES_MOST);
  if (kind->figure_else && gd_json_has(reader->object, kind->figure_else))
    GD_TRY(cite(reader, kind->figure_else, &list[n++], err));
  *cites = list;
  *n_cites = n;
  return GD_OK;
}

/* --- lists --------------------------------------------------------------------------------- */

/*
 * A list with the record in place `at`, or at its end. Always a copy: what callers hold of the old
 * one stays as it was.
 */
static enum gd_status put(struct reader *reader, void **list, int *count, size_t size, int at,
                          const void *record, struct gd_error *err) {
  int n = at < *count ? *count : *count + 1;
  char *fresh = gd_arena_alloc(&reader->hw->arena, (size_t)n, size);
  if (!fresh)
    return no_memory(err);
  if (*count > 0)
    memcpy(fresh, *list, (size_t)*count * size);
  memcpy(fresh + (size_t)at * size, record, size);
  *list = fresh;
  *count = n;
  return GD_OK;
}

static enum gd_status put_price(struct reader *reader, const struct gd_price *price,
                                struct gd_error *err) {
  struct gd_hw *hw = reader->hw;
  int at = 0;
  while (at < hw->n_prices && !gd_hw_same_name(hw->prices[at].gpu, price->gpu))
    at++;
  return put(reader, (void **)&hw->prices, &hw->n_prices, sizeof *price, at, price, err);
}

/* Remembers the first name of a kind, and what the file holds. */
static enum gd_status note(struct reader *reader, const char **first, const char *name,
                           struct gd_error *err) {
  GD_ASSERT(reader->read);
  if (first && !*first)
    *first = name;
  const char *before = reader->read->what;
  reader->read->what = gd_arena_printf(&reader->hw->arena, "%s%s%s %s", before ? before : "",
                                       before ? ", " : "", reader->kind->title, name);
  return reader->read->what ? GD_OK : no_memory(err);
}

/* Puts a record, whose first field is its name, in place of one of the same name or at the end.
   first: the field of reader->read that keeps the first name of the kind. */
static enum gd_status put_named(struct reader *reader, void **list, int *count, size_t size,
                                const void *record, const char **first, struct gd_error *err) {
  const char *name = *(const char *const *)record;
  int at = 0;
  GD_ASSERT(name); /* a required text */
  while (at < *count &&
         strcmp(*(const char *const *)((const char *)*list + (size_t)at * size), name) != 0)
    at++;
  GD_TRY(put(reader, list, count, size, at, record, err));
  return note(reader, first, name, err);
}

/* --- kinds --------------------------------------------------------------------------------- */

#define AT(type, field) offsetof(struct type, field)

static const struct text gpu_texts[] = {
    {"name", AT(gd_gpu, name), false},
    {"title", AT(gd_gpu, title), false},
    {"architecture", AT(gd_gpu, architecture), false},
    {"class", AT(gd_gpu, class_name), false},
    {0},
};
static const struct figure gpu_figures[] = {
    {"compute_capability", 1, 99, 10, AT(gd_gpu, compute_capability), WHOLE, false},
    {"multiprocessors", 1, 100000, 1, AT(gd_gpu, multiprocessors), WHOLE, false},
    {"memory_gib", 0.5, 1e5, 1024.0 * 1024 * 1024, AT(gd_gpu, memory_bytes), BYTES, false},
    {"memory_gb_per_s", 1, 1e6, 1e9, AT(gd_gpu, memory_bytes_per_s), REAL, false},
    {"paper_tflops", 1, 1e6, 1e12, AT(gd_gpu, paper_flops), REAL, true},
    {"host_link_gb_per_s", 0.1, 1e5, 1e9, AT(gd_gpu, host_link_bytes_per_s), REAL, false},
    {"peer_link_gb_per_s", 0, 1e5, 1e9, AT(gd_gpu, peer_link_bytes_per_s), REAL, false},
    {"power_w", 1, 1e5, 1, AT(gd_gpu, power_w), REAL, false},
    {"usd", 1, 1e7, 1, AT(gd_gpu, usd), REAL, true},
    {0},
};

static enum gd_status read_aliases(struct reader *reader, struct gd_gpu *gpu,
                                   struct gd_error *err) {
  const json_t *aliases = json_object_get(reader->object, "aliases");
  struct gd_strbuf joined = {0};
  bool fine = !aliases || json_is_array(aliases);
  size_t i;
  json_t *value;
  json_array_foreach(aliases, i, value) {
    const char *alias = json_string_value(value);
    fine = fine && alias && alias[0] && !strchr(alias, ',');
    gd_strbuf_printf(&joined, "%s%s", i ? "," : "", fine ? alias : "");
  }
  gpu->aliases = gd_arena_copy_string(&reader->hw->arena, joined.text ? joined.text : "");
  bool failed = joined.failed || !gpu->aliases;
  gd_strbuf_deinit(&joined);
  if (!fine)
    return gd_json_mismatch(reader->json, reader->object, "aliases",
                            "a list of names without commas", err);
  return failed ? no_memory(err) : GD_OK;
}

static enum gd_status read_rates(struct reader *reader, struct gd_gpu *gpu, struct gd_error *err) {
  json_t *rates = json_object_get(reader->object, "tflops");
  struct keys keys = {0};
  if (!json_is_object(rates))
    return gd_json_mismatch(reader->json, reader->object, "tflops",
                            "an object with fp32, tf32, fp16 and bf16", err);
  for (int i = 0; i < GD_PEAK_COUNT; i++)
    add_key(&keys, peak_names[i]);
  GD_TRY(gd_config_keys(reader->json, rates, "tflops", keys.list, keys.count, err));
  for (int i = 0; i < GD_PEAK_COUNT; i++) {
    struct figure figure = {peak_names[i], 0, 1e6, 1e12, AT(gd_gpu, flops[0]), REAL, false};
    figure.offset += (size_t)i * sizeof gpu->flops[0];
    GD_TRY(read_figure(reader, rates, &figure, gpu, err));
  }
  if (gpu->flops[GD_PEAK_FP32] <= 0)
    return gd_json_mismatch(reader->json, rates, "fp32", "a rate above 0", err);
  return GD_OK;
}

static enum gd_status read_gpu(struct reader *reader, struct gd_error *err) {
  static const char *const classes[] = {"desktop", "workstation", "datacenter"};
  struct gd_hw *hw = reader->hw;
  struct gd_gpu gpu = {.file = reader->file};
  GD_TRY(read_fields(reader, &gpu, err));
  GD_ASSERT(gpu.name && gpu.class_name); /* required texts */
  GD_TRY(read_topology(reader, &gpu.topology, err));
  GD_TRY(read_aliases(reader, &gpu, err));
  GD_TRY(read_rates(reader, &gpu, err));
  if (strcmp(gpu.class_name, classes[0]) != 0 && strcmp(gpu.class_name, classes[1]) != 0 &&
      strcmp(gpu.class_name, classes[2]) != 0)
    return gd_json_mismatch(reader->json, reader->object, "class",
                            "desktop, workstation or datacenter", err);
  GD_TRY(read_cites(reader, &gpu.cites, &gpu.n_cites, err));
  if (gpu.usd > 0) {
    struct gd_price price = {.gpu = gpu.name, .usd = gpu.usd, .n_cites = 1, .file = gpu.file};
    price.cites = gd_cite_of(gpu.cites, gpu.n_cites, "usd");
    GD_TRY(put_price(reader, &price, err));
  }
  return put_named(reader, (void **)&hw->gpus, &hw->n_gpus, sizeof gpu, &gpu, &reader->read->gpu,
                   err);
}

static const struct text machine_texts[] = {
    {"name", AT(gd_machine, name), false},
    {"title", AT(gd_machine, title), false},
    {"gpu", AT(gd_machine, gpu), false},
    {"network", AT(gd_machine, network), true},
    {0},
};
static const struct figure machine_figures[] = {
    {"count", 1, 1024, 1, AT(gd_machine, count), WHOLE, false},
    {"cpus", 1, 1e5, 1, AT(gd_machine, cpus), WHOLE, false},
    {"host_memory_gib", 1, 1e6, 1024.0 * 1024 * 1024, AT(gd_machine, host_memory_bytes), BYTES,
     false},
    {"network_cards", 1, 1024, 1, AT(gd_machine, network_cards), WHOLE, true},
    {"power_w", 0, 1e6, 1, AT(gd_machine, power_w), REAL, false},
    {"usd", 1, 1e9, 1, AT(gd_machine, usd), REAL, true},
    {0},
};

static enum gd_status read_machine(struct reader *reader, struct gd_error *err) {
  struct gd_hw *hw = reader->hw;
  struct gd_machine machine = {.file = reader->file};
  GD_TRY(read_fields(reader, &machine, err));
  GD_TRY(read_topology(reader, &machine.topology, err));
  GD_TRY(read_in_paper(reader, &machine.in_paper, err));
  GD_TRY(read_cites(reader, &machine.cites, &machine.n_cites, err));
  return put_named(reader, (void **)&hw->stated, &hw->n_stated, sizeof machine, &machine,
                   &reader->read->machine, err);
}

static const struct text build_texts[] = {
    {"name", AT(gd_build, name), false},
    {"title", AT(gd_build, title), false},
    {0},
};
static const struct figure build_figures[] = {
    {"count", 1, 1024, 1, AT(gd_build, count), WHOLE, false},
    {"cpus", 1, 1e5, 1, AT(gd_build, cpus), WHOLE, false},
    {"host_memory_gib", 1, 1e6, 1024.0 * 1024 * 1024, AT(gd_build, host_memory_bytes), BYTES,
     false},
    {"power_w", 0, 1e6, 1, AT(gd_build, power_w), REAL, false},
    {0},
};

static enum gd_status read_parts(struct reader *reader, struct gd_build *build,
                                 struct gd_error *err) {
  static const struct keys keys = {{"part", "detail", "usd"}, 3};
  static const struct figure usd = {"usd", 0, 1e8, 1, AT(gd_part, usd), REAL, false};
  const json_t *list = json_object_get(reader->object, "parts");
  size_t i, n = json_array_size(list);
  json_t *value;
  if (n == 0)
    return gd_json_mismatch(reader->json, reader->object, "parts",
                            "a list of objects with \"part\", \"detail\" and \"usd\"", err);
  struct gd_part *parts = gd_arena_alloc(&reader->hw->arena, n, sizeof *parts);
  if (!parts)
    return no_memory(err);
  json_array_foreach(list, i, value) {
    if (!json_is_object(value))
      return gd_json_mismatch(reader->json, reader->object, "parts", "a list of objects", err);
    GD_TRY(gd_config_keys(reader->json, value, "a part", keys.list, keys.count, err));
    GD_TRY(read_text(reader, value, "part", &parts[i].part, err));
    GD_TRY(read_text(reader, value, "detail", &parts[i].detail, err));
    GD_TRY(read_figure(reader, value, &usd, &parts[i], err));
    build->usd += parts[i].usd;
  }
  build->parts = parts;
  build->n_parts = (int)n;
  return GD_OK;
}

static enum gd_status read_build(struct reader *reader, struct gd_error *err) {
  struct gd_hw *hw = reader->hw;
  struct gd_build build = {.file = reader->file};
  int at = 0;
  GD_TRY(read_fields(reader, &build, err));
  GD_ASSERT(build.name); /* required texts */
  GD_TRY(read_topology(reader, &build.topology, err));
  GD_TRY(read_in_paper(reader, &build.in_paper, err));
  GD_TRY(read_parts(reader, &build, err));
  GD_TRY(read_cites(reader, &build.cites, &build.n_cites, err));
  while (at < hw->n_builds &&
         (strcmp(hw->builds[at].name, build.name) != 0 || hw->builds[at].count != build.count))
    at++;
  GD_TRY(put(reader, (void **)&hw->builds, &hw->n_builds, sizeof build, at, &build, err));
  return note(reader, NULL, build.name, err);
}

static const struct text network_texts[] = {
    {"name", AT(gd_network, name), false},
    {"title", AT(gd_network, title), false},
    {0},
};
static const struct figure network_figures[] = {
    {"gbit_per_s", 0.01, 1e5, 1e9 / 8, AT(gd_network, bytes_per_s), REAL, false},
    {"latency_us", 0, 1e6, 1e-6, AT(gd_network, latency_s), REAL, false},
    {0},
};

static enum gd_status read_network(struct reader *reader, struct gd_error *err) {
  struct gd_hw *hw = reader->hw;
  struct gd_network network = {.file = reader->file};
  GD_TRY(read_fields(reader, &network, err));
  GD_TRY(read_cites(reader, &network.cites, &network.n_cites, err));
  return put_named(reader, (void **)&hw->networks, &hw->n_networks, sizeof network, &network,
                   &reader->read->network, err);
}

static const struct text price_texts[] = {{"gpu", AT(gd_price, gpu), false}, {0}};
static const struct figure price_figures[] = {
    {"usd", 1, 1e7, 1, AT(gd_price, usd), REAL, false},
    {0},
};

static enum gd_status read_price(struct reader *reader, struct gd_error *err) {
  struct gd_price price = {.file = reader->file};
  GD_TRY(read_fields(reader, &price, err));
  GD_TRY(read_cites(reader, &price.cites, &price.n_cites, err));
  GD_TRY(put_price(reader, &price, err));
  return note(reader, NULL, price.gpu, err);
}

static const struct text rent_texts[] = {
    {"gpu", AT(gd_rent, gpu), false},
    {"provider", AT(gd_rent, provider), false},
    {0},
};
static const struct figure rent_figures[] = {
    {"usd_per_gpu_hour", 0, 1e5, 1, AT(gd_rent, usd_per_gpu_hour), REAL, false},
    {0},
};

static enum gd_status read_rent(struct reader *reader, struct gd_error *err) {
  struct gd_hw *hw = reader->hw;
  struct gd_rent rent = {.file = reader->file};
  int at = 0;
  GD_TRY(read_fields(reader, &rent, err));
  GD_ASSERT(rent.gpu && rent.provider); /* required texts */
  GD_TRY(read_cites(reader, &rent.cites, &rent.n_cites, err));
  while (at < hw->n_rents && (!gd_hw_same_name(hw->rents[at].gpu, rent.gpu) ||
                              strcmp(hw->rents[at].provider, rent.provider) != 0))
    at++;
  GD_TRY(put(reader, (void **)&hw->rents, &hw->n_rents, sizeof rent, at, &rent, err));
  return note(reader, NULL, rent.gpu, err);
}

static const struct text energy_texts[] = {
    {"name", AT(gd_energy, name), false},
    {"title", AT(gd_energy, title), false},
    {0},
};
static const struct figure energy_figures[] = {
    {"usd_per_kwh", 0, 100, 1, AT(gd_energy, usd_per_kwh), REAL, false},
    {"pue", 1, 10, 1, AT(gd_energy, pue), REAL, false},
    {"g_co2_per_kwh", 0, 5000, 1, AT(gd_energy, g_co2_per_kwh), REAL, false},
    {0},
};

static enum gd_status read_energy(struct reader *reader, struct gd_error *err) {
  struct gd_hw *hw = reader->hw;
  struct gd_energy energy = {.file = reader->file};
  GD_TRY(read_fields(reader, &energy, err));
  GD_TRY(read_cites(reader, &energy.cites, &energy.n_cites, err));
  return put_named(reader, (void **)&hw->energies, &hw->n_energies, sizeof energy, &energy,
                   &reader->read->energy, err);
}

static const struct kind kinds[] = {
    {"gpu", "GPU", gpu_texts, gpu_figures, {"aliases", "tflops", "topology"}, "tflops", read_gpu},
    {"machine",
     "machine",
     machine_texts,
     machine_figures,
     {"topology", "in_paper"},
     NULL,
     read_machine},
    {"build",
     "build",
     build_texts,
     build_figures,
     {"topology", "in_paper", "parts"},
     "parts",
     read_build},
    {"network", "network", network_texts, network_figures, {0}, NULL, read_network},
    {"price", "price of", price_texts, price_figures, {0}, NULL, read_price},
    {"rent", "rent of", rent_texts, rent_figures, {0}, NULL, read_rent},
    {"energy", "energy", energy_texts, energy_figures, {0}, NULL, read_energy},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* --- files --------------------------------------------------------------------------------- */

static enum gd_status read_record(struct reader *reader, json_t *object, struct gd_error *err) {
  const char *name;
  reader->object = object;
  GD_TRY(gd_json_string(reader->json, object, "kind", &name, err));
  for (int i = 0; i < KINDS; i++)
    if (strcmp(name, kinds[i].name) == 0) {
      reader->kind = &kinds[i];
      reader->read->n_records++;
      return kinds[i].read(reader, err);
    }
  return gd_json_mismatch(reader->json, object, "kind",
                          "gpu, machine, build, network, price, rent or energy", err);
}

enum gd_status gd_hw_read(struct gd_hw *hw, const struct gd_json *json, struct gd_hw_read *read,
                          struct gd_error *err) {
  static const struct keys keys = {{"records"}, 1};
  struct reader reader = {.hw = hw, .json = json, .read = read};
  json_t *records = json_object_get(json->root, "records"), *record;
  size_t i;
  *read = (struct gd_hw_read){0};
  reader.file = gd_arena_copy_string(&hw->arena, json->file);
  if (!reader.file)
    return no_memory(err);
  if (!records)
    return read_record(&reader, json->root, err);
  GD_TRY(gd_config_keys(json, json->root, "a file of records", keys.list, keys.count, err));
  if (json_array_size(records) == 0)
    return gd_json_mismatch(json, json->root, "records", "a list of records", err);
  json_array_foreach(records, i, record) {
    if (!json_is_object(record))
      return gd_json_mismatch(json, json->root, "records", "a list of objects", err);
    GD_TRY(read_record(&reader, record, err));
  }
  return GD_OK;
}
