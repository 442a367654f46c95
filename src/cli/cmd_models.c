/*
 * `gpudays models [MODEL]`: sizes, FLOPs and recipes. The counts are taken from the graph that
 * would be trained, never from a formula.
 */
#include <stdio.h>

#include "cli/cli.h"
#include "cli/show_model.h"
#include "cli/show_trial.h"
#include "hw/estimate.h"
#include "model/presets.h"

/* A model and what its graph says; error is set instead when a preset cannot be read. */
struct entry {
  const char *name;
  struct gd_model model;
  struct gd_model_facts facts;
  const char *const *hub; /* names on Hugging Face */
  int n_hub;
  struct gd_error error;
};

static enum gd_status read_entry(struct gd_cli *cli, const char *name, struct entry *entry,
                                 struct gd_error *err) {
  entry->name = name;
  GD_TRY(gd_cli_load_model(cli, name, &entry->model, err));
  if (entry->model.preset)
    GD_TRY(gd_preset_hub_names(entry->model.name, &cli->arena, &entry->hub, &entry->n_hub, err));
  if (cli->options.precision_given)
    entry->model.recipe.precision = cli->options.precision;
  return gd_model_facts(&entry->model, entry->model.recipe.precision, &entry->facts, err);
}

/* null where a model has no such thing. */
static void set_size(struct gd_show_object *to, const char *key, int64_t value, bool has) {
  if (has)
    gd_show_set_int(to, key, value);
  else
    gd_show_set_null(to, key);
}

/* What train does with the images of a preset that says so. */
static void set_images(struct gd_show_object *to, const struct gd_model *model) {
  const struct gd_image_training *images = &model->images;
  gd_show_set_known_text(to, "augment", images->augment);
  gd_show_set_known_text(to, "normalize", images->normalize);
  if (images->augment[0]) {
    gd_show_set_real(to, "label_smoothing", images->label_smoothing);
    gd_show_set_real(to, "train_drop_path", images->drop_path);
  } else {
    gd_show_set_null(to, "label_smoothing");
    gd_show_set_null(to, "train_drop_path");
  }
}

static void set_hub(struct gd_show_object *to, const struct entry *entry) {
  json_t *names = json_array();
  for (int i = 0; i < entry->n_hub; i++)
    json_array_append_new(names, json_string(entry->hub[i]));
  gd_show_set(to, "hub", names);
}

static void set_entry(struct gd_cli *cli, struct gd_show_object *to, const struct entry *entry) {
  const struct gd_recipe *recipe = &entry->model.recipe;
  const struct gd_family *family = entry->model.family;
  int64_t classes = family->classes(&entry->model);
  gd_show_begin(to);
  gd_show_set_text(to, "name", entry->model.name);
  gd_show_set_text(to, "family", entry->model.family->title);
  gd_show_set_int(to, "parameters", entry->facts.parameters);
  gd_show_set_real(to, "train_flops", entry->facts.train_flops);
  gd_show_set_real(to, "flops_per_step", entry->facts.flops_per_step);
  gd_show_set_int(to, "batch", recipe->batch);
  gd_show_set_int(to, "steps", recipe->steps);
  set_size(to, "seq", recipe->seq, recipe->seq > 1); /* convolutions have none */
  gd_show_set_text(to, "precision", gd_precision_name(recipe->precision));
  gd_show_set_text(to, "optimizer", gd_optimizer_name(recipe->optimizer));
  gd_show_set_real(to, "lr", recipe->lr);
  gd_show_set_real(to, "min_lr", recipe->min_lr);
  gd_show_set_real(to, "beta1", recipe->beta1);
  gd_show_set_real(to, "beta2", recipe->beta2);
  gd_show_set_real(to, "eps", recipe->eps);
  gd_show_set_real(to, "weight_decay", recipe->weight_decay);
  gd_show_set_bool(to, "decoupled_decay", gd_recipe_decouples(recipe));
  gd_show_set_real(to, "max_grad_norm", recipe->max_grad_norm);
  gd_show_set_text(to, "schedule", gd_schedule_name(recipe->schedule));
  gd_show_set_int(to, "warmup_steps", recipe->warmup_steps);
  if (family->images)
    gd_show_set_real(to, "drop_path", recipe->drop_path);
  else
    gd_show_set_null(to, "drop_path");
  set_images(to, &entry->model);
  set_size(to, "vocab", classes, !family->images);
  set_size(to, "image_height", entry->facts.height, family->images);
  set_size(to, "image_width", entry->facts.width, family->images);
  set_size(to, "classes", classes, family->images);
  set_hub(to, entry);
  gd_show_set_assumed(to, cli, &entry->model);
}

/* --- one model ----------------------------------------------------------------------------- */

/* What train does with the images, of a preset that says so. */
static void append_images(struct gd_strbuf *out, const struct gd_image_training *images) {
  if (!images->augment[0])
    return;
  gd_strbuf_printf(out, "  augment     %s\n", images->augment);
  if (images->label_smoothing > 0)
    gd_strbuf_printf(out, "  smoothing   %g of a label\n", images->label_smoothing);
  if (images->drop_path > 0)
    gd_strbuf_printf(out, "  drop path   %g at the last block, of train\n", images->drop_path);
  gd_strbuf_printf(out, "  pixels      normalized as %s\n", images->normalize);
}

static void append_summary(struct gd_cli *cli, const struct entry *entry) {
  const struct gd_recipe *recipe = &entry->model.recipe;
  char a[GD_SHOW_TEXT], b[3 * GD_SHOW_TEXT];
  struct gd_strbuf *out = &cli->out;
  double tokens_per_step = (double)recipe->batch * (double)recipe->seq;
  gd_show_bold(cli, entry->model.name);
  gd_strbuf_printf(out, ", %s, %s parameters\n", entry->model.family->title,
                   gd_format_count(a, sizeof a, entry->facts.parameters));
  gd_strbuf_printf(out, "  training    %s steps of %s\n",
                   gd_format_count(a, sizeof a, recipe->steps),
                   gd_show_step_size(b, sizeof b, &entry->model));
  if (entry->model.family->images)
    gd_strbuf_printf(out, "  images      %lld x %lld pixels, %s classes\n",
                     (long long)entry->facts.height, (long long)entry->facts.width,
                     gd_format_count(a, sizeof a, entry->model.family->classes(&entry->model)));
  else
    gd_strbuf_printf(out, "  vocabulary  %s\n",
                     gd_format_count(a, sizeof a, entry->model.family->classes(&entry->model)));
  if (!entry->model.family->images)
    gd_strbuf_printf(out, "  tokens      %s, %s a step\n",
                     gd_show_power(a, sizeof a, tokens_per_step * (double)recipe->steps),
                     gd_format_number(b, sizeof b, tokens_per_step, 0));
  gd_strbuf_printf(out, "  FLOPs       %s, %s a step\n",
                   gd_show_power(a, sizeof a, entry->facts.train_flops),
                   gd_show_power(b, sizeof b, entry->facts.flops_per_step));
  gd_strbuf_printf(out, "  precision   %s\n", gd_precision_name(recipe->precision));
  gd_strbuf_printf(out, "  optimizer   %s, betas %g and %g, eps %g, %s %g\n",
                   gd_optimizer_name(recipe->optimizer), recipe->beta1, recipe->beta2, recipe->eps,
                   gd_recipe_decay_name(recipe), recipe->weight_decay);
  gd_strbuf_printf(out, "  lr          %g to %g, %s, after %s steps of warm-up\n", recipe->lr,
                   recipe->schedule == GD_SCHEDULE_CONSTANT ? recipe->lr : recipe->min_lr,
                   gd_schedule_name(recipe->schedule),
                   gd_format_count(a, sizeof a, recipe->warmup_steps));
  if (recipe->max_grad_norm > 0)
    gd_strbuf_printf(out, "  clipping    gradient norm %g\n", recipe->max_grad_norm);
  else
    gd_strbuf_append(out, "  clipping    none\n");
  if (recipe->drop_path > 0)
    gd_strbuf_printf(out, "  drop path   %g at the last block\n", recipe->drop_path);
  append_images(out, &entry->model.images);
  for (int i = 0; i < entry->n_hub; i++)
    gd_strbuf_printf(out, "%s%s", i == 0 ? "  hub         " : ", ", entry->hub[i]);
  if (entry->n_hub > 0)
    gd_strbuf_append(out, "\n");
}

static enum gd_status show_one(struct gd_cli *cli, struct gd_error *err) {
  struct entry entry = {0};
  struct gd_show_object object, rows;
  GD_TRY(read_entry(cli, cli->arguments[0], &entry, err));
  if (!cli->options.json && !cli->options.csv) {
    append_summary(cli, &entry);
    gd_show_assumed(cli, &entry.model);
    return GD_OK;
  }
  set_entry(cli, &object, &entry);
  if (cli->options.json)
    return gd_show_json(&cli->out, &object, err);
  rows = (struct gd_show_object){.object = json_array()};
  gd_show_append(&rows, &object);
  return gd_show_csv(&cli->out, &rows, err);
}

/* --- all models ---------------------------------------------------------------------------- */

static enum gd_status show_table(struct gd_cli *cli, const struct entry *entries, int count,
                                 struct gd_error *err) {
  static const struct gd_show_column columns[] = {
      {"MODEL", false, 0}, {"FAMILY", false, 4}, {"PARAMETERS", true, 0},
      {"SEQ", true, 2},    {"BATCH", true, 2},   {"STEPS", true, 1},
      {"PREC", false, 5},  {"OPT", false, 6},    {"FLOPS", true, 1},
  };
  struct gd_show_rows rows = GD_SHOW_ROWS(cli, columns);
  char text[GD_SHOW_TEXT];
  for (int i = 0; i < count; i++) {
    const struct gd_recipe *recipe = &entries[i].model.recipe;
    const int64_t numbers[] = {entries[i].facts.parameters, recipe->seq, recipe->batch,
                               recipe->steps};
    if (entries[i].error.status != GD_OK)
      continue;
    const char **row = gd_show_row(&rows);
    row[0] = entries[i].model.name;
    row[1] = entries[i].model.family->title;
    for (int j = 0; j < 4; j++)
      row[2 + j] =
          j == 1 && entries[i].model.family->images ? "-" : gd_show_count_cell(cli, numbers[j]);
    row[6] = gd_precision_name(recipe->precision);
    row[7] = gd_optimizer_name(recipe->optimizer);
    row[8] =
        gd_show_cell(cli, "%s", gd_show_power(text, sizeof text, entries[i].facts.train_flops));
  }
  GD_TRY(gd_show_rows(&rows, 0, err));
  for (int i = 0; i < count; i++)
    if (entries[i].error.status != GD_OK)
      gd_strbuf_printf(&cli->out, "note: %s cannot be read: %s\n", entries[i].name,
                       entries[i].error.text);
  return GD_OK;
}

static enum gd_status show_objects(struct gd_cli *cli, const struct entry *entries, int count,
                                   struct gd_error *err) {
  struct gd_show_object root, models = {.object = json_array()}, broken = {.object = json_array()};
  for (int i = 0; i < count; i++) {
    struct gd_show_object object;
    if (entries[i].error.status == GD_OK) {
      set_entry(cli, &object, &entries[i]);
      gd_show_append(&models, &object);
    } else {
      gd_show_begin(&object);
      gd_show_set_text(&object, "name", entries[i].name);
      gd_show_set_text(&object, "reason", entries[i].error.text);
      gd_show_append(&broken, &object);
    }
  }
  if (cli->options.csv) {
    json_decref(broken.object);
    return gd_show_csv(&cli->out, &models, err);
  }
  gd_show_begin(&root);
  gd_show_set_object(&root, "models", &models);
  gd_show_set_object(&root, "unreadable", &broken);
  return gd_show_json(&cli->out, &root, err);
}

enum gd_status gd_cmd_models(struct gd_cli *cli, struct gd_error *err) {
  const char *const *names;
  int count;
  if (cli->options.check && cli->n_arguments > 0)
    return gd_fail(err, GD_BAD_INPUT, "--check names the model itself; leave out %s",
                   cli->arguments[0]);
  if (cli->options.check)
    return gd_show_fields(cli, cli->options.check, err);
  if (cli->n_arguments > 0)
    return show_one(cli, err);
  GD_TRY(gd_model_list(&cli->arena, &names, &count, err));
  struct entry *entries = gd_arena_alloc(&cli->arena, (size_t)count + 1, sizeof *entries);
  if (!entries)
    return gd_nomem(err, "while listing models");
  for (int i = 0; i < count; i++) {
    struct gd_error *error = &entries[i].error;
    enum gd_status status = read_entry(cli, names[i], &entries[i], error);
    /* One broken file of the user's must not hide the others. */
    if (status != GD_OK && status != GD_BAD_INPUT && status != GD_UNSUPPORTED)
      return gd_fail(err, status, "%s: %s", names[i], error->text);
  }
  return cli->options.json || cli->options.csv ? show_objects(cli, entries, count, err)
                                               : show_table(cli, entries, count, err);
}
