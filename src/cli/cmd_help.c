/*
 * `gpudays help`, `--help` of a command, `--version`: all of it out of the tables of options.c.
 * Each page of a command fits a terminal of 24 lines and 80 columns, but for plan, results, bench
 * and train.
 */
#include <stdio.h>
#include <string.h>

#include "base/exit_code.h"
#include "cli/cli.h"
#include "cli/manual.h"
#include "cli/show.h"
#include "gd_version.h"
#include "pass/pass.h"

enum { LEFT_COLUMNS = 20 }; /* "--device-memory SIZE" */

static void append_option(struct gd_strbuf *out, const struct gd_option *option) {
  char left[64], letter[8] = "";
  if (option->letter)
    snprintf(letter, sizeof letter, "-%c, ", option->letter);
  snprintf(left, sizeof left, "%s--%s%s%s", letter, option->name, option->argument ? " " : "",
           option->argument ? option->argument : "");
  gd_strbuf_printf(out, "  %-*s  %s\n", LEFT_COLUMNS, left, option->help);
}

/* Of the list of commands, each before the first of its group. */
static const char *const headings[GD_COMMAND_COUNT] = {
    [GD_COMMAND_MODELS] = "Before a run",
    [GD_COMMAND_BENCH] = "Measured",
    [GD_COMMAND_TOKENS] = "The run itself",
    [GD_COMMAND_SURVEY] = "More",
};

static void append_overview(struct gd_strbuf *out) {
  gd_strbuf_append(out, "Usage: gpudays COMMAND [ARGUMENT...] [OPTION...]\n"
                        "How long does pre-training take? Start here: gpudays bench pythia-14m\n");
  for (int i = 1; i < GD_COMMAND_COUNT; i++) {
    char left[64];
    if (headings[i])
      gd_strbuf_printf(out, "\n%s\n", headings[i]);
    snprintf(left, sizeof left, "%s %s", gd_commands[i].name, gd_commands[i].arguments);
    gd_strbuf_printf(out, "  %-*s  %s\n", LEFT_COLUMNS, left, gd_commands[i].summary);
  }
  gd_strbuf_append(out, "\nEverywhere:");
  for (int i = 0; i < gd_option_count; i++)
    if (gd_option_table[i].common && gd_option_table[i].letter)
      gd_strbuf_printf(out, " -%c|--%s", gd_option_table[i].letter, gd_option_table[i].name);
    else if (gd_option_table[i].common)
      gd_strbuf_printf(out, " --%s", gd_option_table[i].name);
  gd_strbuf_append(out,
                   "\nMODEL is a preset or a path to a Hugging Face config.json or its folder.\n"
                   "Exit:");
  for (int i = 0; i < GD_EXIT_COUNT; i++)
    gd_strbuf_printf(out, " %d %s%s", i, gd_exits[i].word, i + 1 < GD_EXIT_COUNT ? "," : ".\n");
}

/* What changes the recipe is told by `models`; elsewhere its names stand together. */
static bool is_recipe(const struct gd_option *option, enum gd_command_id id) {
  return id != GD_COMMAND_MODELS && (option->commands & 1u << GD_COMMAND_MODELS) &&
         (option->commands & 1u << id) && !option->common;
}

static bool is_everywhere(const struct gd_option *option, enum gd_command_id id) {
  return (option->commands & 1u << id) && option->common;
}

static void append_names(struct gd_strbuf *out, enum gd_command_id id,
                         bool (*is_one)(const struct gd_option *option, enum gd_command_id id)) {
  const char *separator = "";
  for (int i = 0; i < gd_option_count; i++)
    if (is_one(&gd_option_table[i], id)) {
      gd_strbuf_printf(out, "%s--%s", separator, gd_option_table[i].name);
      separator = ", ";
    }
}

/* Of train, which has too many options for one list. */
static const struct group {
  const char *heading;
  const char *names[16];
} train_groups[] = {
    {"Data", {"data", "eval", "eval-every", "samples", "tokenizer", "mask-token", "token-bytes"}},
    {"How long", {"epochs", "steps", "tokens", "time-limit"}},
    {"The recipe, instead of the model's own",
     {"seq", "batch", "precision", "optimizer", "lr", "min-lr", "schedule", "warmup", "decay",
      "betas", "weight-decay", "clip"}},
    {"The run", {"output", "init", "seed", "dry-run", "store"}},
    {"How it is computed",
     {"methods", "micro-batch", "backend", "threads", "ranks", "device-memory", "host-memory",
      "deterministic"}},
    {"Checkpoints, and what goes wrong",
     {"checkpoint-every", "keep", "retries", "rank-timeout", "check-hardware"}},
    {"Images", {"augment", "normalize", "label-smoothing", "drop-path", "data-threads"}},
    {"SLURM", {"slurm", "job-status", "job-time", "nodes", "slurm-config", "slurm-device"}},
};
enum { TRAIN_GROUPS = sizeof train_groups / sizeof *train_groups, GROUP_NAMES = 16 };

/* What another command explains, so that help fits a screen: options of a command in one line. */
static const struct fold {
  enum gd_command_id in, of;
  const char *names[8];
} folds[] = {
    {GD_COMMAND_COST, GD_COMMAND_PLAN, {"count", "stack", "machine"}},
    {GD_COMMAND_PLAN, GD_COMMAND_COST, {"days", "wall-limit", "queue-wait", "jobs"}},
    {GD_COMMAND_EXPORT,
     GD_COMMAND_PLAN,
     {"count", "nodes", "machine", "network", "device-memory", "host-memory", "micro-batch"}},
};
enum { FOLDS = sizeof folds / sizeof *folds, FOLD_NAMES = 8 };

static bool is_folded(const struct gd_option *option, enum gd_command_id id) {
  for (int i = 0; i < FOLDS; i++)
    for (int k = 0; folds[i].in == id && k < FOLD_NAMES && folds[i].names[k]; k++)
      if (strcmp(option->name, folds[i].names[k]) == 0)
        return true;
  return false;
}

static void append_folds(struct gd_strbuf *out, enum gd_command_id id) {
  for (int i = 0; i < FOLDS; i++) {
    struct gd_strbuf line = {0};
    if (folds[i].in != id)
      continue;
    gd_strbuf_printf(&line, "as of %s: ", gd_commands[folds[i].of].name);
    for (int k = 0; k < FOLD_NAMES && folds[i].names[k]; k++)
      gd_strbuf_printf(&line, "%s--%s", k ? ", " : "", folds[i].names[k]);
    gd_show_buffer(out, 2, &line);
  }
}

static bool is_in_group(const struct gd_option *option) {
  for (int i = 0; i < TRAIN_GROUPS; i++)
    for (int k = 0; k < GROUP_NAMES && train_groups[i].names[k]; k++)
      if (strcmp(option->name, train_groups[i].names[k]) == 0)
        return true;
  return false;
}

static void append_groups(struct gd_strbuf *out) {
  const char *name;
  size_t length;
  char argument[64];
  for (int i = 0; i < TRAIN_GROUPS; i++) {
    gd_strbuf_printf(out, "%s%s\n", i ? "\n" : "", train_groups[i].heading);
    for (int k = 0; k < GROUP_NAMES && train_groups[i].names[k]; k++) {
      snprintf(argument, sizeof argument, "--%s", train_groups[i].names[k]);
      append_option(out, gd_option_find(argument, &name, &length));
    }
  }
  gd_strbuf_append(out, "\nMore\n");
  for (int i = 0; i < gd_option_count; i++)
    if ((gd_option_table[i].commands & 1u << GD_COMMAND_TRAIN) && !gd_option_table[i].common &&
        !is_in_group(&gd_option_table[i]))
      append_option(out, &gd_option_table[i]);
}

static void append_folded(struct gd_strbuf *out, enum gd_command_id id, const char *command,
                          bool (*is_one)(const struct gd_option *option, enum gd_command_id id)) {
  struct gd_strbuf line = {0};
  gd_strbuf_printf(&line, "as of %s: ", command);
  append_names(&line, id, is_one);
  gd_show_buffer(out, 2, &line);
}

static void append_options(struct gd_strbuf *out, enum gd_command_id id) {
  int n_recipe = 0;
  for (int i = 0; i < gd_option_count; i++)
    n_recipe += is_recipe(&gd_option_table[i], id);
  bool folded = n_recipe > 2;
  for (int i = 0; i < gd_option_count; i++)
    if ((gd_option_table[i].commands & 1u << id) && !gd_option_table[i].common &&
        !(folded && is_recipe(&gd_option_table[i], id)) && !is_folded(&gd_option_table[i], id))
      append_option(out, &gd_option_table[i]);
  if (folded)
    append_folded(out, id, "models", is_recipe);
  append_folds(out, id);
}

static void append_command(struct gd_strbuf *out, enum gd_command_id id) {
  const struct gd_command *command = &gd_commands[id];
  gd_strbuf_printf(out, "Usage: gpudays %s%s%s [OPTION...]\n%s\n\n", command->name,
                   command->arguments[0] ? " " : "", command->arguments, command->about);
  if (id == GD_COMMAND_TRAIN)
    append_groups(out);
  else
    append_options(out, id);
  gd_strbuf_append(out, "  as everywhere: ");
  append_names(out, id, is_everywhere);
  gd_strbuf_printf(out, " (see 'gpudays help')\n\nExample: %s\n", command->example);
}

/* --- methods and passes: the tables of src/pass ---------------------------------------------- */

static void append_methods(struct gd_strbuf *out) {
  gd_strbuf_append(out, "A method is parts joined by +, such as free-lunch+ckpt+zero1.\n"
                        "--methods all: the points that are worth a trial, 12 or 22.\n\n"
                        "  naive       op by op, as written\n"
                        "  free-lunch  ");
  gd_method_list_parts(out, GD_GROUP_FREE_LUNCH, "and");
  gd_strbuf_append(out, "\n");
  for (int i = 0; i < GD_METHOD_PART_COUNT; i++) {
    const struct gd_method_part *part = gd_method_row((enum gd_method_part_id)i);
    gd_strbuf_printf(out, "  %-10s  %s%s\n", part->name, part->doc,
                     part->numerics == GD_NUMERICS_CHANGED ? "; changes the numerics" : "");
  }
  gd_strbuf_append(out, "\nOf zero1 to fsdp3 a method has one at most; offload needs one.\n");
}

static void append_passes(struct gd_strbuf *out) {
  int count;
  const struct gd_pass *passes = gd_passes(&count);
  gd_strbuf_append(out,
                   "Passes over the graph, in order. --without PASS,PASS switches some off;\n"
                   "gpudays plan MODEL --methods M --explain PASS shows what one changes.\n\n");
  for (int i = 0; i < count; i++)
    gd_strbuf_printf(out, "  %-10s  %s\n", passes[i].name, passes[i].doc);
}

/* --- for programs: the tables themselves --------------------------------------------------- */

static void set_commands(struct gd_show_object *to, const struct gd_option *option) {
  json_t *names = json_array();
  for (int i = 0; i < GD_COMMAND_COUNT; i++)
    if ((option->commands & 1u << i) &&
        json_array_append_new(names, json_string(i ? gd_commands[i].name : "gpudays")) != 0)
      to->failed = true;
  gd_show_set(to, "commands", names);
}

static struct gd_show_object option_rows(void) {
  struct gd_show_object rows = {.object = json_array()};
  for (int i = 0; i < gd_option_count; i++) {
    struct gd_show_object row;
    gd_show_begin(&row);
    gd_show_set_text(&row, "name", gd_option_table[i].name);
    gd_show_set_text(&row, "letter", (char[]){gd_option_table[i].letter, '\0'});
    gd_show_set_text(&row, "argument",
                     gd_option_table[i].argument ? gd_option_table[i].argument : "");
    set_commands(&row, &gd_option_table[i]);
    gd_show_set_text(&row, "help", gd_option_table[i].help);
    gd_show_append(&rows, &row);
  }
  return rows;
}

static enum gd_status show_tables(struct gd_cli *cli, struct gd_error *err) {
  struct gd_show_object root, options = option_rows(), commands = {.object = json_array()};
  if (cli->options.csv) {
    json_decref(commands.object);
    return gd_show_csv(&cli->out, &options, err);
  }
  for (int i = 1; i < GD_COMMAND_COUNT; i++) {
    struct gd_show_object row;
    gd_show_begin(&row);
    gd_show_set_text(&row, "name", gd_commands[i].name);
    gd_show_set_text(&row, "arguments", gd_commands[i].arguments);
    gd_show_set_text(&row, "help", gd_commands[i].summary);
    gd_show_append(&commands, &row);
  }
  gd_show_begin(&root);
  gd_show_set_object(&root, "commands", &commands);
  gd_show_set_object(&root, "options", &options);
  return gd_show_json(&cli->out, &root, err);
}

enum gd_status gd_cmd_help(struct gd_cli *cli, struct gd_error *err) {
  enum gd_command_id id = GD_COMMAND_NONE;
  if (cli->options.json || cli->options.csv)
    return show_tables(cli, err);
  cli->verbatim = true; /* it has its lines */
  if (cli->options.man)
    return gd_manual_print(&cli->out, err);
  /* `help bench` names the command as an argument, `bench --help` is it. */
  if (cli->command != &gd_commands[GD_COMMAND_HELP] && cli->command)
    id = (enum gd_command_id)(cli->command - gd_commands);
  else if (cli->n_arguments > 0 && strcmp(cli->arguments[0], "methods") == 0)
    return append_methods(&cli->out), GD_OK;
  else if (cli->n_arguments > 0 && strcmp(cli->arguments[0], "passes") == 0)
    return append_passes(&cli->out), GD_OK;
  else if (cli->n_arguments > 0)
    GD_TRY(gd_command_find(cli->arguments[0], &id, err));
  else if (cli->options.help && cli->command)
    id = GD_COMMAND_HELP;
  if (id == GD_COMMAND_NONE)
    append_overview(&cli->out);
  else
    append_command(&cli->out, id);
  return GD_OK;
}

enum gd_status gd_cmd_version(struct gd_cli *cli, struct gd_error *err) {
  struct gd_show_object version;
  if (!cli->options.json) {
    gd_strbuf_printf(&cli->out, "gpudays %s (%s)\n", GD_VERSION, GD_SOURCE);
    return GD_OK;
  }
  gd_show_begin(&version);
  gd_show_set_text(&version, "gpudays", GD_VERSION);
  gd_show_set_text(&version, "commit", GD_COMMIT);
  gd_show_set_text(&version, "source", GD_SOURCE);
  return gd_show_json(&cli->out, &version, err);
}
