/*
 * A program in Python that trains: data/export/train.py with the model, the settings that
 * `--format hf` writes and the way to start it filled in. Lines between #if NAME and #end stay
 * where NAME holds; @NAME@ becomes a text.
 *
 * The text is a program, so nothing from outside gets into it but as a name without special
 * characters, a number, or JSON that has no apostrophe, inside of a raw string.
 */
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/embedded.h"
#include "export/export_int.h"
#include "train/run_settings.h"

enum { MOST_TEXTS = 24, MOST_NESTED = 8 };

struct script {
  const struct gd_export_point *point;
  bool causal, images, adam, deepspeed;
  int n_texts;
  struct {
    const char *name;
    struct gd_strbuf text;
  } texts[MOST_TEXTS];
};

/* The text that @NAME@ becomes, to be filled in. */
static struct gd_strbuf *text_of(struct script *script, const char *name) {
  GD_ASSERT(script->n_texts < MOST_TEXTS);
  script->texts[script->n_texts].name = name;
  return &script->texts[script->n_texts++].text;
}

/* --- what is filled in --------------------------------------------------------------------- */

/* JSON says every apostrophe otherwise, which ends a string of Python. */
static void put_json(struct gd_strbuf *out, const char *json) {
  for (; json && *json; json++)
    if (*json == '\'')
      gd_strbuf_append(out, "\\u0027");
    else
      gd_strbuf_append_bytes(out, json, 1);
  while (out->length > 0 && out->text[out->length - 1] == '\n')
    out->text[--out->length] = '\0';
}

/* A word of a command in a docstring: what ends that or begins an escape is left out. */
static void put_plain(struct gd_strbuf *out, const char *text) {
  for (; text && *text; text++)
    gd_strbuf_printf(out, "%c",
                     isalnum((unsigned char)*text) || strchr(" ._-+/:,=", *text) ? *text : '_');
}

/* Sentences of a docstring, folded at blanks. */
static void put_folded(struct gd_strbuf *out, const char *text) {
  enum { WIDTH = 100 };
  for (size_t column = 0; *text;) {
    size_t length = strcspn(text, " ");
    if (column > 0 && column + 1 + length > WIDTH)
      column = 0;
    gd_strbuf_append(out, column > 0 ? " " : "\n");
    gd_strbuf_append_bytes(out, text, length);
    column += length + (column > 0);
    text += length + (text[length] == ' ');
  }
}

/* What somebody who compares it with the answer of `gpudays plan`, or with its method, wonders
 * about. */
static void put_differences(const struct gd_export_point *point, struct gd_strbuf *out) {
  const char *why = gd_export_why_not_compiled(point);
  struct gd_strbuf text = {0};
  if (point->from->software) {
    gd_strbuf_append(&text, "It is planned by the memory and speed of ");
    put_plain(&text, point->from->software);
    gd_strbuf_append(&text, ": without --stack gpudays plan answers for gpudays' own engine, which "
                            "may have another micro-batch.");
  }
  if (why)
    gd_strbuf_printf(&text, "%storch_compile is false: %s.", text.length ? " " : "", why);
  if (text.failed)
    out->failed = true;
  else if (text.length)
    put_folded(out, text.text);
  gd_strbuf_deinit(&text);
}

/* How it was planned, and by which command. */
static void put_about(const struct script *script, struct gd_strbuf *out) {
  const struct gd_export_point *point = script->point;
  const struct gd_export *from = point->from;
  const struct gd_recipe *recipe = point->recipe;
  char days[96], batch[32], seq[32], steps[32];
  gd_strbuf_append(out, "Written by\n    gpudays export ");
  put_plain(out, from->argument ? from->argument : point->name);
  put_plain(out, from->options);
  gd_strbuf_append(out, " --format train.py\n");
  gd_strbuf_printf(out, "%s ", point->measured ? "Measured by" : "Planned for");
  put_plain(out, from->software ? from->software : "the engine of gpudays");
  gd_strbuf_printf(out, ": %s, %s, gradient accumulation %" PRId64 " x micro-batch %" PRId64,
                   point->trial->method, gd_precision_name(point->trial->precision),
                   point->accumulation, point->micro_batch);
  gd_strbuf_printf(out, "%s;\na step has %s ", point->ranks > 1 ? " per GPU" : "",
                   gd_format_count(batch, sizeof batch, recipe->batch));
  if (script->images)
    gd_strbuf_append(out, "images");
  else
    gd_strbuf_printf(out, "sequences of %s tokens", gd_format_count(seq, sizeof seq, recipe->seq));
  gd_strbuf_printf(out, ", the run %s steps", gd_format_count(steps, sizeof steps, recipe->steps));
  if (point->timed)
    gd_strbuf_printf(out, ": %s, %s", gd_export_say_days(point, days, sizeof days),
                     point->measured ? "measured" : "predicted");
  gd_strbuf_append(out, ".");
  put_differences(point, out);
}

static void put_launch(const struct gd_export_point *point, struct gd_strbuf *out) {
  int64_t nodes = point->trial->nodes > 1 ? point->trial->nodes : 1;
  if (point->ranks == 1)
    gd_strbuf_append(out, "python3");
  else if (nodes == 1)
    gd_strbuf_printf(out, "torchrun --nproc-per-node=%" PRId64, point->ranks);
  else
    gd_strbuf_printf(out,
                     "torchrun --nnodes=%" PRId64 " --nproc-per-node=%" PRId64
                     " --rdzv-backend=c10d --rdzv-endpoint=HOST:29500",
                     nodes, point->ranks / nodes);
}

/* The line that starts it, and what else does. */
static void put_start(struct script *script, const char *data, struct gd_strbuf *out) {
  const struct gd_export_point *point = script->point;
  int64_t nodes = point->trial->nodes > 1 ? point->trial->nodes : 1;
  gd_strbuf_append(out, "    ");
  put_launch(point, out);
  gd_strbuf_printf(out, " train.py %s\n\n", data);
  if (nodes > 1)
    gd_strbuf_printf(out,
                     "The last one on each of the %" PRId64 " nodes, HOST being one of them; "
                     "'gpudays export --format sbatch'\nwrites a job of SLURM that does it.",
                     nodes);
  else if (point->ranks > 1)
    gd_strbuf_printf(out,
                     "'accelerate launch --multi_gpu --num_processes=%" PRId64
                     "' in place of torchrun does the same.",
                     point->ranks);
  else
    gd_strbuf_append(out, "'accelerate launch' in place of python3 does the same.");
}

static enum gd_status put_settings(const struct script *script, struct gd_strbuf *out,
                                   struct gd_error *err) {
  struct gd_strbuf json = {0};
  enum gd_status status = gd_export_hf(script->point, &json, err);
  if (status == GD_OK)
    put_json(out, json.text);
  gd_strbuf_deinit(&json);
  return status;
}

/* The mask is a token of the user's tokenizer, which only two vocabularies tell. */
static void put_mask(const struct script *script, int64_t classes, struct gd_strbuf *out) {
  int64_t mask = gd_run_usual_mask(classes);
  gd_strbuf_printf(out, "%" PRId64, mask >= 0 ? mask : classes - 1);
  if (mask < 0 && !script->causal && !script->images)
    gd_strbuf_printf(script->point->notes,
                     "which token masks is not known of a vocabulary of %" PRId64
                     ": MASK_TOKEN is the last one; set it to your tokenizer's\n",
                     classes);
}

static enum gd_status fill(struct script *script, struct gd_error *err) {
  const struct gd_export_point *point = script->point;
  const struct gd_model *model = point->from->model;
  const char *attention = gd_export_attention(point);
  int64_t classes = model->family->classes(model);
  char place[160];
  gd_export_say_place(point, place, sizeof place);
  gd_strbuf_append(text_of(script, "MODEL"), point->name);
  gd_strbuf_append(text_of(script, "NAME"), point->name);
  gd_strbuf_append(text_of(script, "PLACE"), place);
  put_about(script, text_of(script, "ABOUT"));
  gd_strbuf_append(text_of(script, "PACKAGES"), script->deepspeed ? " deepspeed" : "");
  put_launch(point, text_of(script, "LAUNCH"));
  put_start(script, script->images ? "FOLDER" : "train.bin", text_of(script, "START"));
  gd_strbuf_printf(text_of(script, "GPUS"), "%" PRId64, point->ranks);
  gd_strbuf_printf(text_of(script, "BATCH"), "%" PRId64, point->recipe->batch);
  gd_strbuf_printf(text_of(script, "SEQ"), "%" PRId64, point->recipe->seq);
  gd_strbuf_printf(text_of(script, "CLASSES"), "%" PRId64, classes);
  put_mask(script, classes, text_of(script, "MASK"));
  gd_strbuf_append(text_of(script, "NO_DECAY"), /* as the family has it, and its authors */
                   model->family == &gd_family_mamba ? "\"A_log\", \".D\"" : "");
  gd_strbuf_append(text_of(script, "AUTO"), script->images   ? "AutoModelForImageClassification"
                                            : script->causal ? "AutoModelForCausalLM"
                                                             : "AutoModelForMaskedLM");
  gd_strbuf_printf(text_of(script, "ATTENTION"),
                   attention ? ", \"attn_implementation\": \"%s\"" : "%s",
                   attention ? attention : "");
  gd_strbuf_append(text_of(script, "DATA_HELP"),
                   script->images ? "a folder of images for each class" : "a file of token ids");
  put_json(text_of(script, "CONFIG"), point->from->config);
  return put_settings(script, text_of(script, "SETTINGS"), err);
}

/* --- the program --------------------------------------------------------------------------- */

static const char *find_program(void) {
  const struct gd_embedded_file *file = gd_embedded_find("export/train.py");
  return file ? file->text : "";
}

static bool holds(const struct script *script, const char *name, size_t length) {
  const struct {
    const char *name;
    bool holds;
  } all[] = {{"tokens", !script->images},
             {"images", script->images},
             {"causal", script->causal && !script->images},
             {"masked", !script->causal && !script->images},
             {"adam", script->adam},
             {"deepspeed", script->deepspeed}};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    if (strlen(all[i].name) == length && strncmp(all[i].name, name, length) == 0)
      return all[i].holds;
  GD_ASSERT(!"a condition of data/export/train.py");
  return false;
}

/* The text of @NAME@ at `at`, and how long that is there; NULL: it is something else. */
static const struct gd_strbuf *find_text(const struct script *script, const char *at,
                                         size_t *length) {
  for (int i = 0; i < script->n_texts; i++) {
    const char *name = script->texts[i].name;
    *length = strlen(name) + 2;
    if (strncmp(at + 1, name, *length - 2) == 0 && at[*length - 1] == '@')
      return &script->texts[i].text;
  }
  return NULL;
}

static void put_line(const struct script *script, const char *line, size_t length,
                     struct gd_strbuf *out) {
  for (const char *at = line, *end = line + length; at < end;) {
    size_t taken = 1;
    const struct gd_strbuf *text = *at == '@' ? find_text(script, at, &taken) : NULL;
    if (text)
      gd_strbuf_append_bytes(out, text->text ? text->text : "", text->length);
    else
      gd_strbuf_append_bytes(out, at, taken = 1);
    at += taken;
  }
  gd_strbuf_append(out, "\n");
}

static void put_program(const struct script *script, struct gd_strbuf *out) {
  int depth = 0, left_out = MOST_NESTED; /* the depth from which on nothing is written */
  for (const char *at = find_program(); *at;) {
    size_t length = strcspn(at, "\n");
    if (strncmp(at, "#if ", 4) == 0) {
      depth++;
      if (depth < left_out && !holds(script, at + 4, length - 4))
        left_out = depth;
    } else if (length == 4 && strncmp(at, "#end", 4) == 0) {
      if (depth-- == left_out)
        left_out = MOST_NESTED;
    } else if (depth < left_out)
      put_line(script, at, length, out);
    at += length + (at[length] == '\n');
  }
  GD_ASSERT(depth == 0);
}

enum gd_status gd_export_train_py(const struct gd_export_point *point, struct gd_strbuf *out,
                                  struct gd_error *err) {
  const struct gd_recipe *recipe = point->recipe;
  struct script script = {.point = point,
                          .images = point->from->model->family->images,
                          .deepspeed = gd_export_is_deepspeed(&point->method),
                          .adam = !gd_recipe_decouples(recipe) && recipe->weight_decay > 0 &&
                                  !gd_export_is_deepspeed(&point->method)};
  GD_TRY(gd_model_is_causal(point->from->model, &script.causal, err));
  enum gd_status status = fill(&script, err);
  bool failed = false;
  for (int i = 0; i < script.n_texts; i++)
    failed = failed || script.texts[i].text.failed;
  if (status == GD_OK && failed)
    status = gd_nomem(err, "while exporting");
  if (status == GD_OK)
    put_program(&script, out);
  for (int i = 0; i < script.n_texts; i++)
    gd_strbuf_deinit(&script.texts[i].text);
  return status;
}
