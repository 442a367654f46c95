/*
 * Assumptions and fields of a model; see show_model.h.
 */
#include "cli/show_model.h"

#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "model/fields.h"

/* --- what was assumed ---------------------------------------------------------------------- */

enum { LINES = 5 };
struct assumption {
  const char *field, *option; /* option: what says it instead */
  double value;
  const char *text, *from;
};

static void add(struct assumption *list, int *count, struct assumption one) {
  list[(*count)++] = one;
}

/* --precision and the like take the place of what was assumed. */
static int find_assumptions(struct gd_cli *cli, const struct gd_model *model,
                            struct assumption list[LINES]) {
  const struct gd_recipe *recipe = &model->recipe;
  const bool images = model->family->images;
  double samples = (double)recipe->steps * (double)recipe->batch;
  double tokens = samples * (double)recipe->seq;
  char text[GD_SHOW_TEXT];
  int count = 0;
  if (model->assumed & GD_ASSUMED_STEPS)
    add(list, &count,
        images ? (struct assumption){"images", "--steps", samples,
                                     gd_show_power(text, sizeof text, samples),
                                     "100,000 steps: there is no rule for images"}
               : (struct assumption){"tokens", "--tokens", tokens,
                                     gd_show_power(text, sizeof text, tokens),
                                     "20 a parameter, as Chinchilla: arXiv:2203.15556"});
  if (count)
    list[0].text = gd_show_cell(cli, "%s %s", text, list[0].field);
  if (model->assumed & GD_ASSUMED_BATCH)
    add(list, &count,
        (struct assumption){"batch", "--batch", (double)recipe->batch,
                            gd_show_cell(cli, "batch %lld", (long long)recipe->batch),
                            "usual at a billion parameters"});
  if ((model->assumed & GD_ASSUMED_SEQ) && !images)
    add(list, &count,
        (struct assumption){"seq", "--seq", (double)recipe->seq,
                            gd_show_cell(cli, "sequence %lld", (long long)recipe->seq),
                            "the usual one, or all positions that the model has"});
  if ((model->assumed & GD_ASSUMED_LR) && !cli->options.lr.given)
    add(list, &count,
        (struct assumption){"lr", "--lr of train", recipe->lr,
                            gd_show_cell(cli, "learning rate %g", recipe->lr),
                            "no time depends on it"});
  if ((model->assumed & GD_ASSUMED_PRECISION) && !cli->options.precision_given)
    add(list, &count,
        (struct assumption){"precision", "--precision", (double)0,
                            gd_precision_name(recipe->precision), "the usual one"});
  return count;
}

void gd_show_assumed(struct gd_cli *cli, const struct gd_model *model) {
  struct assumption list[LINES];
  struct gd_strbuf line = {0};
  int count = find_assumptions(cli, model, list);
  if (count > 0)
    gd_strbuf_append(&line, "assumed, as no recipe says it: ");
  for (int i = 0; i < count; i++)
    gd_strbuf_printf(&line, "%s%s (%s; %s)", i ? ", " : "", list[i].text, list[i].from,
                     list[i].option);
  if (count > 0)
    gd_show_buffer(&cli->out, 2, &line);
  if (model->unknown[0])
    gd_show_paragraph(&cli->out, 2,
                      gd_show_cell(cli,
                                   "note: not known, and not used, are these fields of the "
                                   "configuration: %s ('gpudays models --check FILE' lists all)",
                                   model->unknown));
}

void gd_show_set_unknown(struct gd_show_object *to, const char *names) {
  json_t *list = json_array();
  while (names[0]) {
    size_t length = strcspn(names, ",");
    json_array_append_new(list, json_stringn_nocheck(names, length));
    names += length + strspn(names + length, ", ");
  }
  gd_show_set(to, "unknown_fields", list);
}

void gd_show_set_assumed(struct gd_show_object *to, struct gd_cli *cli,
                         const struct gd_model *model) {
  struct assumption list[LINES];
  struct gd_show_object rows = {.object = json_array()};
  int count = find_assumptions(cli, model, list);
  for (int i = 0; i < count; i++) {
    struct gd_show_object row;
    gd_show_begin(&row);
    gd_show_set_text(&row, "field", list[i].field);
    if (list[i].value > 0)
      gd_show_set_real(&row, "value", list[i].value);
    else
      gd_show_set_text(&row, "value", list[i].text);
    gd_show_set_text(&row, "from", list[i].from);
    gd_show_append(&rows, &row);
  }
  gd_show_set_object(to, "assumed", &rows);
  gd_show_set_unknown(to, model->unknown);
}

/* --- every field --------------------------------------------------------------------------- */

static void set_fields(struct gd_show_object *root, const struct gd_fields *fields) {
  struct gd_show_object list = {.object = json_array()};
  for (int i = 0; i < fields->count; i++) {
    const struct gd_field *field = &fields->list[i];
    struct gd_show_object row;
    gd_show_begin(&row);
    gd_show_set_text(&row, "field", field->name);
    gd_show_set_text(&row, "value", field->value);
    gd_show_set_text(&row, "use", gd_field_use_name(field->use));
    if (field->why)
      gd_show_set_text(&row, "why", field->why);
    else
      gd_show_set_null(&row, "why");
    gd_show_append(&list, &row);
  }
  gd_show_set_object(root, "fields", &list);
}

static enum gd_status show_objects(struct gd_cli *cli, const struct gd_fields *fields,
                                   struct gd_error *err) {
  struct gd_show_object root;
  gd_show_begin(&root);
  gd_show_set_text_or_null(&root, "model_type", fields->model_type);
  gd_show_set_text_or_null(&root, "family", fields->family);
  for (int i = 0; i < GD_FIELD_USE_COUNT; i++)
    gd_show_set_int(&root, gd_field_use_name((enum gd_field_use)i), fields->of[i]);
  gd_show_set_text_or_null(&root, "problem", fields->problem);
  set_fields(&root, fields);
  return gd_show_json(&cli->out, &root, err);
}

static enum gd_status show_table(struct gd_cli *cli, const struct gd_fields *fields,
                                 struct gd_error *err) {
  static const struct gd_show_column columns[] = {
      {"FIELD", false, 0}, {"VALUE", false, 0}, {"USE", false, 0}, {"WHY", false, 0}};
  struct gd_show_rows rows = GD_SHOW_ROWS(cli, columns);
  for (int i = 0; i < fields->count; i++) {
    const char **row = gd_show_row(&rows);
    row[0] = fields->list[i].name;
    row[1] = fields->list[i].value;
    row[2] = gd_field_use_name(fields->list[i].use);
    row[3] = fields->list[i].why;
  }
  GD_TRY(gd_show_rows(&rows, 0, err));
  gd_strbuf_printf(&cli->out, "\n%s: %d used, %d ignored, %d unsupported, %d unknown\n",
                   fields->family ? fields->family : "no family that is built here",
                   fields->of[GD_FIELD_USED], fields->of[GD_FIELD_IGNORED],
                   fields->of[GD_FIELD_UNSUPPORTED], fields->of[GD_FIELD_UNKNOWN]);
  if (fields->of[GD_FIELD_UNKNOWN] > 0)
    gd_show_paragraph(&cli->out, 0,
                      "unknown: nothing here reads it; if it changes the model, the answers are of "
                      "a model without it");
  if (fields->problem)
    gd_show_paragraph(&cli->out, 0, fields->problem);
  return GD_OK;
}

enum gd_status gd_show_fields(struct gd_cli *cli, const char *path, struct gd_error *err) {
  struct gd_fields fields;
  GD_TRY(gd_fields_read(path, &fields, err));
  enum gd_status status = (cli->options.json ? show_objects : show_table)(cli, &fields, err);
  int refused = fields.of[GD_FIELD_UNSUPPORTED];
  if (status == GD_OK && (refused > 0 || fields.problem))
    status = gd_fail(err, GD_MISMATCH, "%s cannot be trained here: %s", path,
                     fields.problem ? fields.problem
                     : refused == 1 ? "one field is not supported"
                                    : "several fields are not supported");
  gd_fields_deinit(&fields);
  return status;
}
