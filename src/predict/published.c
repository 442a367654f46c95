/*
 * Reading published rows; see published.h. The fit is published_fit.c.
 */
#define _POSIX_C_SOURCE 200809L
#include "predict/published_int.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/csv.h"
#include "base/embedded.h"
#include "base/file.h"
#include "base/json.h"
#include "base/paths.h"

void gd_published_deinit(struct gd_published *published) {
  for (int i = 0; i < published->n_works; i++)
    gd_stack_works_deinit(&published->works[i]);
  gd_stacks_deinit(&published->stacks);
  gd_hw_deinit(&published->hw);
  gd_arena_deinit(&published->arena);
  *published = (struct gd_published){0};
}

enum { MOST_ROWS = 8192, PATH_BYTES = 4096, MOST_BYTES = 16 << 20 };

/* --- reading -------------------------------------------------------------------------------- */

static const char *const column_names[GD_ROW_COLUMNS] = {"id",
                                                         "source",
                                                         "stack",
                                                         "gpu",
                                                         "count",
                                                         "model",
                                                         "seq",
                                                         "micro_batch",
                                                         "batch",
                                                         "method",
                                                         "precision",
                                                         "attention",
                                                         "gradient_bytes",
                                                         "network_gbit_per_node",
                                                         "per_gpu",
                                                         "unit",
                                                         "note"};

/* Those from here on, up to PER_GPU and after it, may be missing. */
static bool is_optional(enum gd_published_column column) {
  return column >= GD_ROW_ATTENTION && column != GD_ROW_PER_GPU;
}

struct reader {
  struct gd_published *to;
  struct gd_csv csv;
  bool own;         /* rows of the user's */
  const char *skip; /* the file of the user's that is not read, since it is to be replaced */
  int columns[GD_ROW_COLUMNS];
  const json_t *models;
  struct key {
    const char *model;
    int64_t seq, micro_batch;
    enum gd_precision precision;
    int stack;
    bool flash;
  } * keys; /* of the works */
};

static const char *cell(const struct reader *r, int row, enum gd_published_column column) {
  return r->columns[column] < 0 ? "" : gd_csv_cell(&r->csv, row, r->columns[column]);
}

static enum gd_status read_number(const struct reader *r, int row, enum gd_published_column column,
                                  double low, double high, double *to, struct gd_error *err) {
  *to = 0;
  if (!cell(r, row, column)[0])
    return GD_OK;
  return gd_csv_number(&r->csv, row, r->columns[column], low, high, to, err);
}

static enum gd_status read_count(const struct reader *r, int row, enum gd_published_column column,
                                 int64_t *to, struct gd_error *err) {
  double value;
  GD_TRY(gd_csv_number(&r->csv, row, r->columns[column], 1, 1e9, &value, err));
  *to = (int64_t)value;
  return (double)*to < value
             ? gd_csv_mismatch(&r->csv, row, r->columns[column], "a whole number", err)
             : GD_OK;
}

static enum gd_status copy(struct reader *r, int row, enum gd_published_column column,
                           const char **to, struct gd_error *err) {
  *to = gd_arena_copy_string(&r->to->arena, cell(r, row, column));
  return *to ? GD_OK : gd_nomem(err, "while reading published throughput");
}

/* "owner/name file": owner/name is the source, whose rows count as one. */
static int source_of(struct gd_published *to, const char *text) {
  size_t length = strcspn(text, " ");
  for (int i = 0; i < to->n_sources; i++)
    if (strcspn(to->sources[i], " ") == length && strncmp(to->sources[i], text, length) == 0)
      return i;
  to->sources[to->n_sources] = text;
  return to->n_sources++;
}

/* A configuration of data/published/models.json, else a preset or a path. */
static enum gd_status load_model(const struct reader *r, const struct gd_published_row *row,
                                 struct gd_model *model, struct gd_error *err) {
  const json_t *config = json_object_get(r->models, row->model);
  if (!config) {
    if (strchr(row->model, '/') && row->model[0] != '/')
      return gd_fail(
          err, GD_BAD_INPUT,
          "\"%s\" is a path from the current folder, which is not kept; give the full path",
          row->model);
    GD_TRY(gd_model_load(row->model, model, err));
  } else {
    struct gd_json json = {.root = json_deep_copy(config)};
    memcpy(json.file, "published/models.json", sizeof "published/models.json");
    if (!json.root)
      return gd_nomem(err, "while reading published throughput");
    bool positions = row->seq > 0 && !gd_json_has(config, "n_positions") &&
                     strcmp(json_string_value(json_object_get(config, "model_type")), "gpt2") == 0;
    if (positions)
      json_object_set_new(json.root, "n_positions", json_integer(row->seq));
    enum gd_status status = gd_model_parse(&json, model, err);
    gd_json_deinit(&json);
    if (status != GD_OK)
      return status;
  }
  if (row->seq > 0)
    model->recipe.seq = row->seq;
  model->recipe.precision = row->precision;
  model->recipe.batch = row->batch;
  return GD_OK;
}

/* What a row says of itself, and what its model is, agree. */
static enum gd_status check_kind(const struct reader *r, int at, const struct gd_published_row *row,
                                 const struct gd_model *model, struct gd_error *err) {
  const bool images = model->family->images;
  const char *unit = images ? "images/s" : "tokens/s";
  if (images && row->seq > 0)
    return gd_csv_mismatch(&r->csv, at, r->columns[GD_ROW_SEQ],
                           "nothing, since its model takes images", err);
  if (!images && row->seq == 0)
    return gd_csv_mismatch(&r->csv, at, r->columns[GD_ROW_SEQ], "the tokens of a sequence", err);
  if (cell(r, at, GD_ROW_UNIT)[0] && strcmp(cell(r, at, GD_ROW_UNIT), unit) != 0)
    return gd_csv_mismatch(&r->csv, at, r->columns[GD_ROW_UNIT], unit, err);
  if (row->batch / row->target.count < row->micro_batch)
    return gd_csv_mismatch(&r->csv, at, r->columns[GD_ROW_BATCH],
                           "the samples of a step on all GPUs, a micro-batch of each at least",
                           err);
  if (row->batch % row->target.count)
    return gd_csv_mismatch(&r->csv, at, r->columns[GD_ROW_BATCH],
                           "samples that can be shared out evenly among the GPUs", err);
  const char *attention = cell(r, at, GD_ROW_ATTENTION);
  if (attention[0] && strcmp(attention, "scores") != 0 && strcmp(attention, "flash") != 0)
    return gd_csv_mismatch(&r->csv, at, r->columns[GD_ROW_ATTENTION],
                           "scores where they are written to memory, else flash or nothing", err);
  return GD_OK;
}

static enum gd_status say_doubt(const struct reader *r, int at,
                                const struct gd_published_doubt *doubt, struct gd_error *err) {
  return gd_csv_mismatch(&r->csv, at, r->columns[doubt->column], doubt->expected, err);
}

/* What no computer does is no measurement. */
static enum gd_status check_possible(const struct reader *r, int at,
                                     const struct gd_published_row *row,
                                     const struct gd_model *model, bool flash,
                                     struct gd_error *err) {
  struct gd_published_doubt doubt;
  bool has = true;
  if (r->own) /* those of the program are tested */
    GD_TRY(gd_published_has_memory(row, model, flash, &has, &doubt, err));
  if (!has || !gd_published_has_rate(row, &r->to->works[row->works],
                                     model->family->images ? "images/s" : "tokens/s", &doubt))
    return say_doubt(r, at, &doubt, err);
  return GD_OK;
}

static bool same_key(const struct key *a, const struct key *b) {
  return a->seq == b->seq && a->micro_batch == b->micro_batch && a->precision == b->precision &&
         a->stack == b->stack && a->flash == b->flash && strcmp(a->model, b->model) == 0;
}

static enum gd_status find_works(struct reader *r, const struct gd_published_row *row,
                                 const struct gd_model *model, bool flash, int *works,
                                 struct gd_error *err) {
  struct key key = {.model = row->model,
                    .seq = row->seq,
                    .micro_batch = row->micro_batch,
                    .precision = row->precision,
                    .stack = row->stack,
                    .flash = flash};
  for (*works = 0; *works < r->to->n_works; ++*works)
    if (same_key(&r->keys[*works], &key))
      return GD_OK;
  GD_TRY(gd_stack_works_make(row->facts, model, row->precision, row->micro_batch, flash,
                             !gd_method_is_naive(&row->method), &r->to->works[*works], err));
  r->keys[r->to->n_works++] = key;
  return GD_OK;
}

/* What it trains, and whether that can be. */
static enum gd_status read_model(struct reader *r, int at, struct gd_published_row *row,
                                 struct gd_error *err) {
  struct gd_model model;
  struct gd_published_doubt doubt;
  GD_TRY(load_model(r, row, &model, err));
  GD_TRY(check_kind(r, at, row, &model, err));
  if (!gd_published_has_precision(row, &doubt))
    return say_doubt(r, at, &doubt, err);
  row->kind = gd_family_kind(model.family);
  bool scores = strcmp(cell(r, at, GD_ROW_ATTENTION), "scores") == 0;
  bool flash = !scores && gd_stack_has_flash(row->facts, &model, gd_method_is_naive(&row->method));
  GD_TRY(find_works(r, row, &model, flash, &row->works, err));
  return check_possible(r, at, row, &model, flash, err);
}

static int fold_of(const char *model) {
  unsigned hash = 5381;
  for (; *model; model++)
    hash = hash * 33 + (unsigned char)*model;
  return (int)(hash % GD_PUBLISHED_FOLDS);
}

/* A row that is there twice would count twice. */
static enum gd_status read_id(struct reader *r, int at, struct gd_published_row *row,
                              struct gd_error *err) {
  const char *id = cell(r, at, GD_ROW_ID);
  bool known = !id[0];
  for (int i = 0; i < r->to->count && !known; i++)
    known = strcmp(r->to->rows[i].id, id) == 0;
  if (known)
    return gd_csv_mismatch(&r->csv, at, r->columns[GD_ROW_ID], "an id that no other row has", err);
  return copy(r, at, GD_ROW_ID, &row->id, err);
}

/* This engine's rates are trials, and the paper's have tables of their own. */
static enum gd_status read_stack(struct reader *r, int at, struct gd_published_row *row,
                                 struct gd_error *err) {
  const struct gd_stacks *stacks = &r->to->stacks;
  struct gd_strbuf names = {0};
  if (gd_stacks_find(stacks, cell(r, at, GD_ROW_STACK), &row->facts, NULL) == GD_OK &&
      !row->facts->own && !row->facts->paper) {
    row->stack = (int)(row->facts - stacks->all);
    return GD_OK;
  }
  gd_strbuf_append(&names, "one of");
  for (int i = 0; i < stacks->count; i++)
    if (!stacks->all[i].own && !stacks->all[i].paper)
      gd_strbuf_printf(&names, "%s %s", names.length > 6 ? "," : "", stacks->all[i].name);
  enum gd_status status = gd_csv_mismatch(&r->csv, at, r->columns[GD_ROW_STACK],
                                          names.text ? names.text : "a stack", err);
  gd_strbuf_deinit(&names);
  return status;
}

static enum gd_status read_row(struct reader *r, int at, struct gd_error *err) {
  struct gd_published *to = r->to;
  struct gd_published_row *row = &to->rows[to->count];
  double network, value;
  int64_t count;
  *row = (struct gd_published_row){0};
  GD_TRY(read_id(r, at, row, err));
  GD_TRY(copy(r, at, GD_ROW_SOURCE, &row->source, err));
  GD_TRY(copy(r, at, GD_ROW_GPU, &row->gpu_name, err));
  GD_TRY(copy(r, at, GD_ROW_MODEL, &row->model, err));
  GD_TRY(copy(r, at, GD_ROW_NOTE, &row->note, err));
  row->group = source_of(to, row->source);
  GD_TRY(read_stack(r, at, row, err));
  if (cell(r, at, GD_ROW_SEQ)[0])
    GD_TRY(read_count(r, at, GD_ROW_SEQ, &row->seq, err));
  GD_TRY(read_count(r, at, GD_ROW_COUNT, &count, err));
  GD_TRY(read_count(r, at, GD_ROW_MICRO_BATCH, &row->micro_batch, err));
  GD_TRY(read_count(r, at, GD_ROW_BATCH, &row->batch, err));
  GD_TRY(gd_method_parse(cell(r, at, GD_ROW_METHOD), &row->method, err));
  if (!gd_precision_parse(cell(r, at, GD_ROW_PRECISION), &row->precision))
    return gd_csv_mismatch(&r->csv, at, r->columns[GD_ROW_PRECISION], "fp32, bf16 or fp16", err);
  GD_TRY(read_number(r, at, GD_ROW_GRADIENT_BYTES, 1, 8, &row->gradient_bytes, err));
  GD_TRY(read_number(r, at, GD_ROW_NETWORK, 0.1, 1e6, &network, err));
  GD_TRY(gd_csv_number(&r->csv, at, r->columns[GD_ROW_PER_GPU], 1e-6, 1e12, &value, err));
  row->per_gpu = value;
  GD_TRY(gd_hw_target(&to->hw, row->gpu_name, (int)count, 0, NULL, NULL, &row->target, err));
  row->gpu_name = row->target.gpu->name;
  if (network > 0 && row->target.nodes > 1) {
    /* Nodes of such networks have a card a GPU. */
    row->target.network_cards = row->target.count / row->target.nodes;
    row->network = (struct gd_network){.name = "stated",
                                       .title = "stated",
                                       .bytes_per_s = network * 1.25e8 / row->target.network_cards,
                                       .latency_s = 5e-6};
    row->target.network = &row->network;
  }
  row->fold = fold_of(row->model);
  GD_TRY(read_model(r, at, row, err));
  to->count++;
  return GD_OK;
}

/* Whatever is wrong with a row, the sentence begins with where it is. */
static enum gd_status read_named_row(struct reader *r, int at, struct gd_error *err) {
  struct gd_error why = {0};
  enum gd_status status = read_row(r, at, &why);
  if (status == GD_OK)
    return GD_OK;
  if (strncmp(why.text, r->csv.file, strlen(r->csv.file)) == 0)
    gd_fail_at(err, status, why.file, why.line, "%s", why.text);
  else
    gd_fail_at(err, status, why.file, why.line, "%s, line %d: %s", r->csv.file, r->csv.lines[at],
               why.text);
  return status;
}

static enum gd_status read_rows(struct reader *r, struct gd_error *err) {
  GD_TRY(gd_csv_check_names(&r->csv, err));
  for (int i = 0; i < GD_ROW_COLUMNS; i++) {
    r->columns[i] = gd_csv_column(&r->csv, column_names[i]);
    if (r->columns[i] < 0 && !is_optional((enum gd_published_column)i))
      return gd_fail(err, GD_BAD_INPUT,
                     "%s has no column '%s'; 'gpudays accuracy add --template' prints them",
                     r->csv.file, column_names[i]);
  }
  if (r->to->count + r->csv.rows > MOST_ROWS)
    return gd_fail(err, GD_BAD_INPUT, "%s: more than %d rows in all; leave some out", r->csv.file,
                   MOST_ROWS);
  for (int i = 0; i < r->csv.rows; i++)
    GD_TRY(read_named_row(r, i, err));
  return GD_OK;
}

void gd_published_template(struct gd_strbuf *out) {
  for (int i = 0; i < GD_ROW_COLUMNS; i++)
    gd_strbuf_printf(out, "%s%s", i ? "," : "", column_names[i]);
  gd_strbuf_append(out, "\nlab-1,our cluster,pytorch-compile,a100,8,gpt2,1024,32,512,free-lunch,"
                        "bf16,,,,,tokens/s,an example without its rate: put yours here\n");
}

static enum gd_status read_path(struct reader *r, const char *path, struct gd_error *err) {
  enum gd_status status = gd_csv_load(&r->csv, path, err);
  r->own = true;
  if (status == GD_OK)
    status = read_rows(r, err);
  gd_csv_deinit(&r->csv);
  return status;
}

static enum gd_status read_folder(struct reader *r, struct gd_error *err) {
  char folder[PATH_BYTES - 300], path[PATH_BYTES];
  enum gd_status status = GD_OK;
  DIR *open = gd_path_data("published", folder, sizeof folder) ? opendir(folder) : NULL;
  for (const struct dirent *entry; open && status == GD_OK && (entry = readdir(open));) {
    size_t length = strlen(entry->d_name);
    if (length < 5 || strcmp(entry->d_name + length - 4, ".csv") != 0 ||
        (r->skip && strcmp(entry->d_name, r->skip) == 0))
      continue;
    snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
    status = read_path(r, path, err);
  }
  if (open)
    closedir(open);
  return status;
}

static enum gd_status read_embedded(struct reader *r, struct gd_error *err) {
  const struct gd_embedded_file *rows = gd_embedded_find("published/rows.csv");
  GD_ASSERT(rows);
  enum gd_status status = gd_csv_parse(&r->csv, rows->path, rows->text, rows->length, err);
  if (status == GD_OK)
    status = read_rows(r, err);
  gd_csv_deinit(&r->csv);
  return status;
}

static enum gd_status read_gemms(struct gd_published *to, struct gd_error *err) {
  const struct gd_embedded_file *file = gd_embedded_find("published/gemm.csv");
  struct gd_csv csv = {0};
  GD_ASSERT(file);
  enum gd_status status = gd_csv_parse(&csv, "published/gemm.csv", file->text, file->length, err);
  int gpu = gd_csv_column(&csv, "gpu"), flops = gd_csv_column(&csv, "tflops");
  to->gemms = gd_arena_alloc(&to->arena, (size_t)csv.rows + 1, sizeof *to->gemms);
  if (status == GD_OK && !to->gemms)
    status = gd_nomem(err, "while reading published GEMMs");
  for (int i = 0; i < csv.rows && status == GD_OK; i++) {
    struct gd_published_gemm *one = &to->gemms[i];
    status = gd_hw_gpu(&to->hw, gd_csv_cell(&csv, i, gpu), &one->gpu, err);
    if (status == GD_OK)
      status = gd_csv_number(&csv, i, flops, 0.01, 1e6, &one->flops, err);
    one->flops *= 1e12;
    to->n_gemms = i + 1;
  }
  gd_csv_deinit(&csv);
  return status;
}

static enum gd_status make_room(struct reader *r, struct gd_error *err) {
  struct gd_published *to = r->to;
  to->rows = gd_arena_alloc(&to->arena, MOST_ROWS, sizeof *to->rows);
  to->sources = gd_arena_alloc(&to->arena, MOST_ROWS, sizeof *to->sources);
  to->works = gd_arena_alloc(&to->arena, MOST_ROWS, sizeof *to->works);
  r->keys = gd_arena_alloc(&to->arena, MOST_ROWS, sizeof *r->keys);
  if (!to->rows || !to->sources || !to->works || !r->keys)
    return gd_nomem(err, "while reading published throughput");
  return GD_OK;
}

static const char *name_of(const char *path) {
  return strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
}

/* Those of the program and of the user; with a path the rows of that file alone, which has been
   held against all others. */
static enum gd_status load(struct gd_published *to, const char *path, struct gd_error *err) {
  const struct gd_embedded_file *models = gd_embedded_find("published/models.json");
  struct gd_json json = {0};
  struct reader r = {.to = to, .skip = path ? name_of(path) : NULL};
  GD_ASSERT(models);
  GD_TRY(gd_hw_load(&to->hw, err));
  GD_TRY(gd_stacks_load(&to->stacks, err));
  GD_TRY(read_gemms(to, err));
  GD_TRY(make_room(&r, err));
  GD_TRY(gd_json_parse(&json, models->path, models->text, models->length, err));
  r.models = json_object_get(json.root, "models");
  enum gd_status status = read_embedded(&r, err);
  if (status == GD_OK)
    status = read_folder(&r, err);
  int others = to->count;
  if (status == GD_OK && path)
    status = read_path(&r, path, err);
  if (path) {
    to->rows += others;
    to->count -= others;
  }
  gd_json_deinit(&json);
  return status;
}

enum gd_status gd_published_load(struct gd_published *published, struct gd_error *err) {
  *published = (struct gd_published){0};
  enum gd_status status = load(published, NULL, err);
  if (status != GD_OK)
    gd_published_deinit(published);
  return status;
}

enum gd_status gd_published_load_file(struct gd_published *published, const char *path,
                                      struct gd_error *err) {
  *published = (struct gd_published){0};
  enum gd_status status = load(published, path, err);
  if (status == GD_OK && published->count == 0)
    status = gd_fail(err, GD_BAD_INPUT, "%s has no rows", path);
  if (status != GD_OK)
    gd_published_deinit(published);
  return status;
}

/* Whether a line of the text begins as that one does, up to its first comma. */
static bool has_id(const char *text, const char *line, size_t length) {
  for (const char *at = text; at; at = strchr(at, '\n'), at = at ? at + 1 : NULL)
    if (strncmp(at, line, length) == 0)
      return true;
  return false;
}

/* A file may be kept again with more rows, or with others of the same ids; no row may be lost. */
static enum gd_status check_kept(const char *to, const struct gd_strbuf *rows,
                                 struct gd_error *err) {
  struct gd_strbuf kept = {0};
  if (gd_file_is_missing(to))
    return GD_OK;
  enum gd_status status = gd_file_read(to, MOST_BYTES, &kept, err);
  const char *line = status == GD_OK && kept.text ? strchr(kept.text, '\n') : NULL;
  line = line ? line + 1 : NULL; /* behind the header */
  for (; line && *line && status == GD_OK;
       line = strchr(line, '\n'), line = line ? line + 1 : NULL) {
    size_t length = strcspn(line, ",\n");
    if (line[length] == ',' && !has_id(rows->text ? rows->text : "", line, length + 1))
      status = gd_fail(err, GD_BAD_INPUT,
                       "%s has the row %.*s, which would be lost; give this file another name, or "
                       "remove that one first",
                       to, (int)(length < 60 ? length : 60), line);
  }
  gd_strbuf_deinit(&kept);
  return status;
}

enum gd_status gd_published_keep(const char *path, char *to, size_t size, struct gd_error *err) {
  char folder[PATH_BYTES - 300];
  const char *name = name_of(path);
  size_t length = strlen(name);
  struct gd_strbuf text = {0};
  if (!gd_path_data("published", folder, sizeof folder))
    return gd_fail(err, GD_ENVIRONMENT,
                   "there is no folder to keep rows in; set HOME or XDG_DATA_HOME");
  if (length < 5 || length > 200 || strcmp(name + length - 4, ".csv") != 0)
    return gd_fail(err, GD_BAD_INPUT, "%s: rows are kept by name; give it one that ends in .csv",
                   path);
  GD_TRY(gd_file_make_folder(folder, err));
  enum gd_status status = gd_file_read(path, MOST_BYTES, &text, err);
  snprintf(to, size, "%s/%s", folder, name);
  if (status == GD_OK)
    status = check_kept(to, &text, err);
  if (status == GD_OK)
    status = gd_file_write(to, text.text ? text.text : "", text.length, err);
  gd_strbuf_deinit(&text);
  return status;
}

enum gd_status gd_published_kept_fit(const struct gd_published *published,
                                     struct gd_published_fit *fit, struct gd_error *err) {
  *fit = (struct gd_published_fit){0};
  GD_TRY(gd_gpu_fit_load(&fit->gpu, err));
  for (int i = 0; i < published->stacks.count; i++)
    memcpy(fit->stack[i], published->stacks.all[i].value, sizeof fit->stack[i]);
  return GD_OK;
}

bool gd_published_left_out(const struct gd_published *published,
                           const struct gd_published_leave *leave,
                           const struct gd_published_row *row) {
  (void)published;
  return leave && ((leave->gpu && strcmp(leave->gpu, row->gpu_name) == 0) ||
                   (leave->architecture &&
                    strcmp(leave->architecture, row->target.gpu->architecture) == 0) ||
                   (leave->stack && strcmp(leave->stack, row->facts->name) == 0) ||
                   (leave->source > 0 && leave->source - 1 == row->group) ||
                   (leave->fold > 0 && leave->fold - 1 == row->fold));
}

bool gd_published_gemm_left_out(const struct gd_published_leave *leave,
                                const struct gd_published_gemm *gemm) {
  return leave &&
         ((leave->gpu && strcmp(leave->gpu, gemm->gpu->name) == 0) ||
          (leave->architecture && strcmp(leave->architecture, gemm->gpu->architecture) == 0));
}

double gd_published_predict(const struct gd_published *published,
                            const struct gd_published_row *row, const struct gd_published_fit *fit,
                            struct gd_stack_step *step) {
  struct gd_gpu_model gpu;
  struct gd_stack_step own;
  const double *value = fit->stack[row->stack];
  gd_gpu_model_make(row->target.gpu, &fit->gpu, &gpu);
  struct gd_stack_run run = {.facts = row->facts,
                             .works = &published->works[row->works],
                             .gpu = &gpu,
                             .target = &row->target,
                             .method = row->method,
                             .accumulation = (double)row->batch /
                                             (double)(row->micro_batch * row->target.count),
                             .gradient_bytes = row->gradient_bytes,
                             .value = {value[GD_STACK_TRAFFIC], value[GD_STACK_HOST]}};
  if (run.accumulation < 1)
    run.accumulation = 1;
  gd_stack_step(&run, step ? step : &own);
  double tokens = (double)row->batch * (row->seq > 0 ? (double)row->seq : 1) / row->target.count;
  return tokens / (step ? step : &own)->seconds;
}
