/*
 * What several subcommands do with their options: loading a model with the recipe the user asked
 * for, and the options of a trial.
 */
#define _GNU_SOURCE /* realpath */
#include "cli/cli.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/embedded.h"
#include "base/file.h"
#include "base/switches.h"
#include "cli/show.h"
#include "comm/comm.h"
#include "pass/pass.h"
#include "store/store.h"

const char *gd_cli_file(const char *output) {
  bool named = output && strcmp(output, "-") != 0 && strcmp(output, "/dev/stdout") != 0;
  return named ? output : NULL;
}

struct protecting {
  struct gd_cli *cli;
  struct gd_file_protected *list;
  int count;
};

static void protect(struct protecting *to, const char *path, const char *ending, const char *what) {
  size_t size = strlen(path) + strlen(ending) + 1;
  char *text = gd_arena_alloc(&to->cli->arena, size, 1);
  if (!text)
    return;
  snprintf(text, size, "%s%s", path, ending);
  to->list[to->count++] = (struct gd_file_protected){.path = text, .what = what};
}

/* A model's name is no file, but where there is one of that name it is the model. */
static void protect_input(struct protecting *to, const char *path) {
  static const char what[] = "a file that this command reads";
  if (!path || !path[0] || gd_file_is_missing(path))
    return;
  protect(to, path, "", what);
  protect(to, path, "/config.json", what);
}

/* SQLite's files lie next to the database itself, not next to a link to it. */
static void protect_store(struct protecting *to, const char *path) {
  static const char *const endings[] = {"-wal", "-shm", "-journal"};
  char whole[PATH_MAX];
  protect(to, path, "", "the store of results");
  for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
    protect(to, realpath(path, whole) ? whole : path, endings[i], "a part of the store of results");
}

enum gd_status gd_cli_protect(struct gd_cli *cli, struct gd_error *err) {
  enum { STORE = 4, INPUTS = 2 };
  const struct gd_cli_options *options = &cli->options;
  const char *const read[] = {options->survey, options->gpu, options->slurm_config,
                              options->tokenizer};
  enum { READ = sizeof read / sizeof *read };
  struct protecting to = {.cli = cli};
  char store[GD_STORE_PATH];
  to.list = gd_arena_alloc(&cli->arena, STORE + INPUTS * (READ + (size_t)cli->n_arguments),
                           sizeof *to.list);
  if (!to.list)
    return gd_nomem(err, "before the command");
  if (gd_store_find_path(options->store, store, NULL) == GD_OK)
    protect_store(&to, store);
  for (int i = 0; i < READ; i++)
    protect_input(&to, read[i]);
  bool writes = cli->command->run == gd_cmd_results || cli->command == &gd_command_trial ||
                cli->command == &gd_command_rank; /* what their arguments name */
  for (int i = 0; i < cli->n_arguments && !writes; i++)
    protect_input(&to, cli->arguments[i]);
  gd_file_protect(to.list, to.count);
  return GD_OK;
}

const char *gd_cli_embedded(const char *path) {
  const struct gd_embedded_file *file = gd_embedded_find(path);
  return file ? file->text : NULL;
}

/* `--explain recompte`: neither a pass, so that it was taken for a model, nor a model. */
static enum gd_status no_pass(const char *name, struct gd_error *err) {
  struct gd_strbuf passes = {0};
  char clean[64];
  gd_pass_list(&passes);
  enum gd_status status = gd_fail(
      err, GD_BAD_INPUT,
      "\"%s\" after --explain is neither a pass nor a model; passes are %s, and 'passes' is "
      "all of them",
      gd_json_excerpt(clean, sizeof clean, name), passes.failed ? "" : passes.text);
  gd_strbuf_deinit(&passes);
  return status;
}

enum gd_status gd_cli_be_deterministic(const char *how, struct gd_error *err) {
  return setenv("GPUDAYS_DETERMINISTIC", how, 1) == 0 ? GD_OK : gd_nomem(err, "at the start");
}

const char *gd_cli_determinism(void) {
  const char *value = gd_env("GPUDAYS_DETERMINISTIC");
  return value && strcmp(value, "0") != 0 ? value : "";
}

enum gd_status gd_cli_load_model(const struct gd_cli *cli, const char *name, struct gd_model *model,
                                 struct gd_error *err) {
  const struct gd_cli_options *options = &cli->options;
  struct gd_error unknown = {0};
  enum gd_status status = gd_model_load(name, model, &unknown);
  if (status == GD_BAD_INPUT && name == options->not_a_pass && gd_file_is_missing(name))
    return no_pass(name, err);
  if (status != GD_OK) {
    gd_fail_at(err, status, unknown.file, unknown.line, "%s", unknown.text);
    return status;
  }
  const struct gd_recipe_change change = {
      .seq = options->seq,
      .batch = options->batch,
      .steps = options->steps,
      .tokens = options->tokens,
      .optimizer = options->optimizer_given ? &options->optimizer : NULL,
      .drop_path = options->drop_path.given ? &options->drop_path.value : NULL};
  return gd_model_change_recipe(model, &change, err);
}

/* Appends " --name COUNT", with the largest suffix that leaves it whole. */
static void append_count(char *text, size_t size, const char *name, int64_t count) {
  static const char suffixes[] = "KMBT";
  size_t length = strlen(text);
  int thousands = 0;
  for (; count >= 1000 && count % 1000 == 0 && thousands < 4; thousands++)
    count /= 1000;
  if (count > 0)
    snprintf(text + length, size - length, " --%s %lld%.*s", name, (long long)count, thousands > 0,
             suffixes + (thousands > 0 ? thousands - 1 : 0));
}

static void append_value(char *text, size_t size, const char *name, const char *value) {
  size_t length = strlen(text);
  snprintf(text + length, size - length, " --%s %s", name, value);
}

const char *gd_cli_recipe_options(const struct gd_cli *cli, char *text, size_t size) {
  const struct gd_cli_options *options = &cli->options;
  const struct {
    const char *name;
    int64_t value;
  } sizes[] = {{"batch", options->batch}, {"seq", options->seq}, {"steps", options->steps}};
  text[0] = '\0';
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    char value[24];
    snprintf(value, sizeof value, "%lld", (long long)sizes[i].value);
    if (sizes[i].value)
      append_value(text, size, sizes[i].name, value);
  }
  append_count(text, size, "tokens", options->tokens);
  if (options->precision_given)
    append_value(text, size, "precision", gd_precision_name(options->precision));
  if (options->optimizer_given)
    append_value(text, size, "optimizer", gd_optimizer_name(options->optimizer));
  if (options->drop_path.given) {
    char value[24];
    snprintf(value, sizeof value, "%g", options->drop_path.value);
    append_value(text, size, "drop-path", value);
  }
  return text;
}

struct gd_best_asked gd_cli_best_asked(struct gd_cli *cli, const struct gd_model *model,
                                       const struct gd_store_filter *filter,
                                       char recipe[GD_CLI_RECIPE_TEXT]) {
  return (struct gd_best_asked){.model = model,
                                .precision = gd_cli_precision(cli),
                                .filter = filter,
                                .argument = cli->arguments[0],
                                .recipe_options =
                                    gd_cli_recipe_options(cli, recipe, GD_CLI_RECIPE_TEXT),
                                .notes = &cli->notes};
}

/* How many ranks work, or are planned for. */
static int ranks_of(const struct gd_cli *cli) {
  if (cli->comm)
    return gd_comm_size(cli->comm);
  return cli->options.ranks > 1 ? (int)cli->options.ranks : 1;
}

enum gd_status gd_cli_methods(struct gd_cli *cli, const char *usual, struct gd_method **methods,
                              int *count, struct gd_error *err) {
  const char *list = cli->options.methods ? cli->options.methods : usual;
  return gd_method_parse_list(list, ranks_of(cli) > 1, cli->options.without, &cli->arena, methods,
                              count, err);
}

bool gd_cli_was_given(const struct gd_cli *cli, const char *name) {
  for (int i = 0; i < cli->n_given; i++)
    if (strcmp(cli->given[i]->name, name) == 0)
      return true;
  return false;
}

bool gd_cli_for_programs(const struct gd_cli *cli) {
  return cli->options.json || cli->options.csv;
}

const char *gd_cli_backend(const struct gd_cli *cli) {
  return cli->options.backend ? cli->options.backend : gd_backend_default();
}

const enum gd_precision *gd_cli_precision(const struct gd_cli *cli) {
  return cli->options.precision_given ? &cli->options.precision : NULL;
}

void gd_cli_trial_options(const struct gd_cli *cli, const struct gd_method *method,
                          struct gd_trial_options *trial) {
  const struct gd_cli_options *options = &cli->options;
  *trial = (struct gd_trial_options){
      .backend = gd_cli_backend(cli),
      .threads = (int)options->threads,
      .method = *method,
      .ranks = ranks_of(cli),
      .nodes = options->nodes > 1 ? (int)options->nodes : 1,
      .comm = ranks_of(cli) > 1 ? cli->comm : NULL,
      .micro_batch = options->micro_batch,
      .micro_batch_size = options->micro_batch_size,
      .precision = gd_cli_precision(cli),
      .device_limit_bytes = options->device_memory_bytes,
      .host_limit_bytes = options->host_memory_bytes,
      .seed = (uint64_t)options->seed,
      .sample_seconds = options->sample_seconds,
      .profile = options->profile,
  };
}

enum gd_status gd_cli_write(struct gd_cli *cli, struct gd_error *err) {
  struct gd_strbuf *out = &cli->out;
  if (!gd_cli_for_programs(cli) && !cli->verbatim)
    gd_show_fold(out);
  gd_strbuf_clean(out, cli->options.json);
  if (out->failed)
    return gd_nomem(err, "while printing");
  errno = 0;
  if ((out->length > 0 && fwrite(out->text, 1, out->length, stdout) != out->length) ||
      fflush(stdout) != 0)
    return gd_fail(err, GD_ENVIRONMENT, "cannot write the output: %s",
                   errno ? strerror(errno) : "unknown error");
  out->length = 0;
  return GD_OK;
}
