/*
 * Reads the CSV files of data/paper out of the program. Each has a table of its columns here: name,
 * kind and where the value goes in the struct; one function reads them all. What is wrong in a file
 * is an error with its line and column, as in a user's file, because people correct these by hand.
 */
#include "paper/paper.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "base/csv.h"
#include "base/embedded.h"

enum kind {
  KIND_TEXT,
  KIND_INT,   /* an empty cell is 0 */
  KIND_REAL,  /* an empty cell is 0 */
  KIND_MILLI, /* thousandths; an empty cell is 0 */
  KIND_MIB,   /* MiB, stored as bytes; an empty cell is 0 */
  KIND_FLAG,  /* 0 or 1 */
};

struct field {
  const char *name;
  enum kind kind;
  size_t offset;
};

struct file {
  const char *path; /* in data/ */
  const struct field *fields;
  int n_fields;
  size_t row_bytes;
};

#define FIELD(type, name, kind) \
  { #name, kind, offsetof(struct type, name) }
#define FILE_OF(path, fields, type) \
  { path, fields, (int)(sizeof(fields) / sizeof(fields)[0]), sizeof(struct type) }

static const struct field days_fields[] = {
    FIELD(gd_paper_days, table, KIND_INT), FIELD(gd_paper_days, model, KIND_TEXT),
    FIELD(gd_paper_days, gpu, KIND_TEXT),  FIELD(gd_paper_days, count, KIND_INT),
    FIELD(gd_paper_days, days, KIND_REAL),
};
static const struct field setting_fields[] = {
    FIELD(gd_paper_setting, model, KIND_TEXT),
    FIELD(gd_paper_setting, gpu, KIND_TEXT),
    FIELD(gd_paper_setting, count, KIND_INT),
    FIELD(gd_paper_setting, free_lunch, KIND_FLAG),
    FIELD(gd_paper_setting, checkpointing, KIND_FLAG),
    FIELD(gd_paper_setting, sharding, KIND_TEXT),
    FIELD(gd_paper_setting, offloading, KIND_FLAG),
    FIELD(gd_paper_setting, micro_batch, KIND_INT),
    FIELD(gd_paper_setting, accumulation, KIND_INT),
};
static const struct field recipe_fields[] = {
    FIELD(gd_paper_recipe, model, KIND_TEXT),     FIELD(gd_paper_recipe, family, KIND_TEXT),
    FIELD(gd_paper_recipe, size, KIND_TEXT),      FIELD(gd_paper_recipe, parameters, KIND_REAL),
    FIELD(gd_paper_recipe, seq, KIND_INT),        FIELD(gd_paper_recipe, vocab, KIND_INT),
    FIELD(gd_paper_recipe, image, KIND_INT),      FIELD(gd_paper_recipe, classes, KIND_INT),
    FIELD(gd_paper_recipe, batch, KIND_INT),      FIELD(gd_paper_recipe, steps, KIND_INT),
    FIELD(gd_paper_recipe, precision, KIND_TEXT), FIELD(gd_paper_recipe, optimizer, KIND_TEXT),
};
/* Read into recipes of their own, then joined by model. */
static const struct field flops_fields[] = {
    FIELD(gd_paper_recipe, model, KIND_TEXT),
    FIELD(gd_paper_recipe, train_flops, KIND_REAL),
};
static const struct field gpu_fields[] = {
    FIELD(gd_paper_gpu, gpu, KIND_TEXT),       FIELD(gd_paper_gpu, title, KIND_TEXT),
    FIELD(gd_paper_gpu, memory_gb, KIND_REAL), FIELD(gd_paper_gpu, flops, KIND_REAL),
    FIELD(gd_paper_gpu, usd, KIND_REAL),       FIELD(gd_paper_gpu, quote, KIND_TEXT),
};
static const struct field part_fields[] = {
    FIELD(gd_paper_part, gpus, KIND_INT),
    FIELD(gd_paper_part, part, KIND_TEXT),
    FIELD(gd_paper_part, detail, KIND_TEXT),
    FIELD(gd_paper_part, usd, KIND_REAL),
};
static const struct field original_fields[] = {
    FIELD(gd_paper_original, model, KIND_TEXT), FIELD(gd_paper_original, size, KIND_TEXT),
    FIELD(gd_paper_original, gpus, KIND_INT),   FIELD(gd_paper_original, gpu, KIND_TEXT),
    FIELD(gd_paper_original, days, KIND_REAL),
};
static const struct field statement_fields[] = {
    FIELD(gd_paper_statement, id, KIND_TEXT),    FIELD(gd_paper_statement, where, KIND_TEXT),
    FIELD(gd_paper_statement, value, KIND_REAL), FIELD(gd_paper_statement, unit, KIND_TEXT),
    FIELD(gd_paper_statement, text, KIND_TEXT),
};
static const struct field megatron_fields[] = {
    FIELD(gd_megatron_row, model, KIND_TEXT),
    FIELD(gd_megatron_row, layers, KIND_INT),
    FIELD(gd_megatron_row, hidden, KIND_INT),
    FIELD(gd_megatron_row, heads, KIND_INT),
    FIELD(gd_megatron_row, gpus, KIND_INT),
    FIELD(gd_megatron_row, data_parallel, KIND_INT),
    FIELD(gd_megatron_row, model_parallel, KIND_INT),
    FIELD(gd_megatron_row, zero_stage, KIND_INT),
    FIELD(gd_megatron_row, offload, KIND_FLAG),
    FIELD(gd_megatron_row, batch, KIND_INT),
    {"iteration_ms", KIND_MILLI, offsetof(struct gd_megatron_row, iteration_s)},
    FIELD(gd_megatron_row, samples_per_s, KIND_REAL),
    {"gpu0_mib", KIND_MIB, offsetof(struct gd_megatron_row, memory_bytes[0])},
    {"gpu1_mib", KIND_MIB, offsetof(struct gd_megatron_row, memory_bytes[1])},
    {"gpu2_mib", KIND_MIB, offsetof(struct gd_megatron_row, memory_bytes[2])},
    {"gpu3_mib", KIND_MIB, offsetof(struct gd_megatron_row, memory_bytes[3])},
    {"gpu4_mib", KIND_MIB, offsetof(struct gd_megatron_row, memory_bytes[4])},
    {"gpu5_mib", KIND_MIB, offsetof(struct gd_megatron_row, memory_bytes[5])},
    {"gpu6_mib", KIND_MIB, offsetof(struct gd_megatron_row, memory_bytes[6])},
    {"gpu7_mib", KIND_MIB, offsetof(struct gd_megatron_row, memory_bytes[7])},
    FIELD(gd_megatron_row, note, KIND_TEXT),
};
static const struct field note_fields[] = {
    FIELD(gd_paper_note, table, KIND_INT), FIELD(gd_paper_note, model, KIND_TEXT),
    FIELD(gd_paper_note, gpu, KIND_TEXT),  FIELD(gd_paper_note, count, KIND_INT),
    FIELD(gd_paper_note, note, KIND_TEXT),
};
static const struct field source_fields[] = {
    FIELD(gd_paper_source, file, KIND_TEXT),
    FIELD(gd_paper_source, source, KIND_TEXT),
    FIELD(gd_paper_source, date, KIND_TEXT),
    FIELD(gd_paper_source, note, KIND_TEXT),
};

static const struct file days_file = FILE_OF("paper/days.csv", days_fields, gd_paper_days);
static const struct file settings_file =
    FILE_OF("paper/settings.csv", setting_fields, gd_paper_setting);
static const struct file recipes_file =
    FILE_OF("paper/recipes.csv", recipe_fields, gd_paper_recipe);
static const struct file flops_file = FILE_OF("paper/flops.csv", flops_fields, gd_paper_recipe);
static const struct file gpus_file = FILE_OF("paper/gpus.csv", gpu_fields, gd_paper_gpu);
static const struct file parts_file = FILE_OF("paper/parts.csv", part_fields, gd_paper_part);
static const struct file originals_file =
    FILE_OF("paper/originals.csv", original_fields, gd_paper_original);
static const struct file statements_file =
    FILE_OF("paper/statements.csv", statement_fields, gd_paper_statement);
static const struct file megatron_file =
    FILE_OF("paper/megatron.csv", megatron_fields, gd_megatron_row);
static const struct file notes_file = FILE_OF("paper/notes.csv", note_fields, gd_paper_note);
static const struct file sources_file =
    FILE_OF("paper/sources.csv", source_fields, gd_paper_source);

/* --- reading -------------------------------------------------------------------------------- */

static enum gd_status out_of_memory(struct gd_error *err) {
  return gd_nomem(err, "while reading the paper's numbers");
}

static enum gd_status read_number(const struct gd_csv *csv, int row, int column,
                                  const struct field *field, char *to, struct gd_error *err) {
  double value = 0, high = field->kind == KIND_FLAG ? 1 : 1e30;
  bool whole = field->kind == KIND_FLAG || field->kind == KIND_INT;
  if (whole && field->kind == KIND_INT)
    high = 1e9;
  if (gd_csv_cell(csv, row, column)[0] || field->kind == KIND_FLAG)
    GD_TRY(gd_csv_number(csv, row, column, 0, high, &value, err));
  if (whole && value != (double)(int)value)
    return gd_csv_mismatch(csv, row, column, "a whole number", err);
  switch (field->kind) {
  case KIND_INT: *(int *)(void *)to = (int)value; break;
  case KIND_FLAG: *(bool *)(void *)to = value != 0; break;
  case KIND_REAL: *(double *)(void *)to = value; break;
  case KIND_MILLI: *(double *)(void *)to = value / 1e3; break;
  case KIND_MIB: *(double *)(void *)to = value * 1048576.0; break;
  case KIND_TEXT: break;
  }
  return GD_OK;
}

static enum gd_status read_rows(struct gd_paper *paper, const struct gd_csv *csv,
                                const struct file *file, char *rows, struct gd_error *err) {
  for (int f = 0; f < file->n_fields; f++) {
    const struct field *field = &file->fields[f];
    int column = gd_csv_column(csv, field->name);
    if (column < 0)
      return gd_fail(err, GD_BAD_INPUT, "%s has no column '%s'", file->path, field->name);
    for (int row = 0; row < csv->rows; row++) {
      char *to = rows + (size_t)row * file->row_bytes + field->offset;
      if (field->kind != KIND_TEXT) {
        GD_TRY(read_number(csv, row, column, field, to, err));
        continue;
      }
      char *copy = gd_arena_copy_string(&paper->arena, gd_csv_cell(csv, row, column));
      if (!copy)
        return out_of_memory(err);
      *(const char **)(void *)to = copy;
    }
  }
  return GD_OK;
}

static enum gd_status read_file(struct gd_paper *paper, const struct file *file, void **rows,
                                int *count, struct gd_error *err) {
  const struct gd_embedded_file *embedded = gd_embedded_find(file->path);
  if (!embedded)
    return gd_fail(err, GD_INTERNAL, "data/%s is not in this program; build it again", file->path);
  struct gd_csv csv = {0};
  enum gd_status status = gd_csv_parse(&csv, file->path, embedded->text, embedded->length, err);
  if (status == GD_OK) {
    *rows = gd_arena_alloc(&paper->arena, (size_t)csv.rows, file->row_bytes);
    *count = csv.rows;
    status = *rows ? read_rows(paper, &csv, file, *rows, err) : out_of_memory(err);
  }
  gd_csv_deinit(&csv);
  return status;
}

static enum gd_status join_flops(struct gd_paper *paper, struct gd_error *err) {
  void *rows = NULL;
  int count = 0;
  GD_TRY(read_file(paper, &flops_file, &rows, &count, err));
  const struct gd_paper_recipe *flops = rows;
  for (int i = 0; i < paper->n_recipes; i++)
    for (int j = 0; j < count; j++)
      if (strcmp(paper->recipes[i].model, flops[j].model) == 0)
        paper->recipes[i].train_flops = flops[j].train_flops;
  return GD_OK;
}

static void find_extremes(struct gd_megatron_row *row) {
  row->memory_low_bytes = row->memory_high_bytes = row->memory_bytes[0];
  for (int gpu = 1; gpu < row->gpus && gpu < 8; gpu++) {
    row->memory_low_bytes = fmin(row->memory_low_bytes, row->memory_bytes[gpu]);
    row->memory_high_bytes = fmax(row->memory_high_bytes, row->memory_bytes[gpu]);
  }
}

static enum gd_status read_files(struct gd_paper *paper, struct gd_error *err) {
  void *rows = NULL;
  GD_TRY(read_file(paper, &days_file, &rows, &paper->n_days, err));
  paper->days = rows;
  GD_TRY(read_file(paper, &settings_file, &rows, &paper->n_settings, err));
  paper->settings = rows;
  GD_TRY(read_file(paper, &recipes_file, &rows, &paper->n_recipes, err));
  paper->recipes = rows;
  GD_TRY(read_file(paper, &gpus_file, &rows, &paper->n_gpus, err));
  paper->gpus = rows;
  GD_TRY(read_file(paper, &parts_file, &rows, &paper->n_parts, err));
  paper->parts = rows;
  GD_TRY(read_file(paper, &originals_file, &rows, &paper->n_originals, err));
  paper->originals = rows;
  GD_TRY(read_file(paper, &statements_file, &rows, &paper->n_statements, err));
  paper->statements = rows;
  GD_TRY(read_file(paper, &megatron_file, &rows, &paper->n_megatron, err));
  paper->megatron = rows;
  for (int i = 0; i < paper->n_megatron; i++)
    find_extremes(&paper->megatron[i]);
  GD_TRY(read_file(paper, &notes_file, &rows, &paper->n_notes, err));
  paper->notes = rows;
  GD_TRY(read_file(paper, &sources_file, &rows, &paper->n_sources, err));
  paper->sources = rows;
  return join_flops(paper, err);
}

static enum gd_status fill_shares(struct gd_paper *paper, struct gd_error *err) {
  for (int i = 0; i < paper->n_days; i++) {
    struct gd_paper_days *cell = &paper->days[i];
    const struct gd_paper_recipe *recipe = gd_paper_find_recipe(paper, cell->model);
    const struct gd_paper_gpu *gpu = gd_paper_find_gpu(paper, cell->gpu);
    if (!recipe || !gpu)
      return gd_fail(err, GD_BAD_INPUT, "paper/days.csv names '%s' on '%s', which is not in %s",
                     cell->model, cell->gpu, recipe ? "paper/gpus.csv" : "paper/recipes.csv");
    if (cell->days > 0)
      cell->share = gd_paper_analytic_days(recipe, gpu, cell->count) / cell->days;
  }
  return GD_OK;
}

enum gd_status gd_paper_load(struct gd_paper *paper, struct gd_error *err) {
  *paper = (struct gd_paper){0};
  enum gd_status status = read_files(paper, err);
  if (status == GD_OK)
    status = fill_shares(paper, err);
  if (status != GD_OK)
    gd_paper_deinit(paper);
  return status;
}

void gd_paper_deinit(struct gd_paper *paper) {
  gd_arena_deinit(&paper->arena);
  *paper = (struct gd_paper){0};
}

/* --- looking up ----------------------------------------------------------------------------- */

const struct gd_paper_days *gd_paper_find(const struct gd_paper *paper, enum gd_paper_table table,
                                          const char *model, const char *gpu, int count) {
  for (int i = 0; i < paper->n_days; i++) {
    const struct gd_paper_days *cell = &paper->days[i];
    if (cell->table == (int)table && cell->count == count && strcmp(cell->model, model) == 0 &&
        strcmp(cell->gpu, gpu) == 0)
      return cell;
  }
  return NULL;
}

const struct gd_paper_setting *
gd_paper_find_setting(const struct gd_paper *paper, const char *model, const char *gpu, int count) {
  for (int i = 0; i < paper->n_settings; i++) {
    const struct gd_paper_setting *row = &paper->settings[i];
    if (row->count == count && strcmp(row->model, model) == 0 && strcmp(row->gpu, gpu) == 0)
      return row;
  }
  return NULL;
}

const struct gd_paper_recipe *gd_paper_find_recipe(const struct gd_paper *paper,
                                                   const char *model) {
  for (int i = 0; i < paper->n_recipes; i++)
    if (strcmp(paper->recipes[i].model, model) == 0)
      return &paper->recipes[i];
  return NULL;
}

const struct gd_paper_gpu *gd_paper_find_gpu(const struct gd_paper *paper, const char *gpu) {
  for (int i = 0; i < paper->n_gpus; i++)
    if (strcmp(paper->gpus[i].gpu, gpu) == 0)
      return &paper->gpus[i];
  return NULL;
}

const struct gd_paper_statement *gd_paper_find_statement(const struct gd_paper *paper,
                                                         const char *id) {
  for (int i = 0; i < paper->n_statements; i++)
    if (strcmp(paper->statements[i].id, id) == 0)
      return &paper->statements[i];
  return NULL;
}

/* --- what follows from them ----------------------------------------------------------------- */

double gd_paper_analytic_days(const struct gd_paper_recipe *recipe, const struct gd_paper_gpu *gpu,
                              int count) {
  /* Figure 9 (b) is for 16-bit recipes; half of it for the others. */
  double flops_per_s = strcmp(recipe->precision, "fp32") == 0 ? gpu->flops / 2 : gpu->flops;
  return recipe->train_flops / (flops_per_s * count) / 86400.0;
}

double gd_paper_system_usd(const struct gd_paper *paper, int gpus) {
  double usd = 0;
  for (int i = 0; i < paper->n_parts; i++)
    if (paper->parts[i].gpus == gpus)
      usd += paper->parts[i].usd;
  return usd;
}
