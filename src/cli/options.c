/*
 * The parser of the command line over the tables of option_table.c: finds what was meant, and
 * checks what can only be judged once everything was read.
 */
#include "cli/options.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "cli/cli.h"
#include "hw/gpu_spec.h"

/* --- finding what was meant ---------------------------------------------------------------- */

/* How far a typed word is from a name: nothing when it is the beginning of it. */
static int distance_to(const char *typed, size_t length, const char *name) {
  char word[64];
  if (length == 0 || length >= sizeof word)
    return INT_MAX;
  snprintf(word, sizeof word, "%.*s", (int)length, typed);
  return strncmp(word, name, length) == 0 ? 0 : gd_edit_distance(word, name);
}

/* A suggestion further off than this is a guess. */
static bool is_near(int distance, size_t length) {
  return distance <= (length < 6 ? 2 : 3);
}

enum gd_status gd_command_find(const char *name, enum gd_command_id *id, struct gd_error *err) {
  char clean[64];
  int nearest = 0, best = INT_MAX;
  for (int i = 1; i < GD_COMMAND_COUNT; i++) {
    if (strcmp(name, gd_commands[i].name) == 0) {
      *id = (enum gd_command_id)i;
      return GD_OK;
    }
    int distance = distance_to(name, strlen(name), gd_commands[i].name);
    if (distance < best) {
      best = distance;
      nearest = i;
    }
  }
  gd_json_excerpt(clean, sizeof clean, name);
  if (is_near(best, strlen(name)))
    return gd_fail(err, GD_BAD_INPUT,
                   "unknown command \"%s\"; did you mean %s? ('gpudays help' lists all)", clean,
                   gd_commands[nearest].name);
  return gd_fail(err, GD_BAD_INPUT, "unknown command \"%s\"; 'gpudays help' lists those there are",
                 clean);
}

static bool taken_by(const struct gd_option *option, enum gd_command_id id) {
  return (option->commands & 1u << id) != 0;
}

static enum gd_status unknown_option(const char *argument, const char *name, size_t length,
                                     enum gd_command_id id, struct gd_error *err) {
  char clean[64];
  const struct gd_option *nearest = NULL;
  int best = INT_MAX;
  for (int i = 0; i < gd_option_count; i++) {
    int distance = distance_to(name, length, gd_option_table[i].name);
    if (distance < best && (id == GD_COMMAND_NONE || taken_by(&gd_option_table[i], id))) {
      best = distance;
      nearest = &gd_option_table[i];
    }
  }
  gd_json_excerpt(clean, sizeof clean, argument);
  const char *blank = id == GD_COMMAND_NONE ? "" : " ", *command = id ? gd_commands[id].name : "";
  if (nearest && is_near(best, length))
    return gd_fail(err, GD_BAD_INPUT,
                   "unknown option \"%s\"; did you mean --%s? ('gpudays help%s%s' lists all)",
                   clean, nearest->name, blank, command);
  return gd_fail(err, GD_BAD_INPUT,
                 "unknown option \"%s\"; 'gpudays help%s%s' lists those there "
                 "are",
                 clean, blank, command);
}

static enum gd_status foreign_option(const struct gd_option *option, enum gd_command_id id,
                                     struct gd_error *err) {
  char names[128] = "";
  size_t length = 0;
  for (int i = 1; i < GD_COMMAND_COUNT; i++)
    if (taken_by(option, (enum gd_command_id)i) && length < sizeof names)
      length += (size_t)snprintf(names + length, sizeof names - length, "%s%s", length ? ", " : "",
                                 gd_commands[i].name);
  if (id == GD_COMMAND_NONE)
    return gd_fail(err, GD_BAD_INPUT, "--%s needs a command: %s", option->name, names);
  if (!names[0])
    return gd_fail(err, GD_BAD_INPUT, "--%s is not an option of %s; it stands alone: gpudays --%s",
                   option->name, gd_commands[id].name, option->name);
  for (int i = 0; i < gd_option_count;
       i++) /* --device of another command was --device-memory here */
    if (taken_by(&gd_option_table[i], id) &&
        strncmp(option->name, gd_option_table[i].name, strlen(option->name)) == 0)
      return gd_fail(err, GD_BAD_INPUT, "--%s is not an option of %s; did you mean --%s?",
                     option->name, gd_commands[id].name, gd_option_table[i].name);
  return gd_fail(err, GD_BAD_INPUT, "--%s is not an option of %s; it belongs to %s", option->name,
                 gd_commands[id].name, names);
}

/* --- the parser ---------------------------------------------------------------------------- */

struct parser {
  int argc;
  char **argv;
  int at; /* next argument */
  enum gd_command_id id;
  const struct gd_option **seen; /* checked against the command at the end; cli->given */
  int n_seen;
};

const struct gd_option *gd_option_find(const char *argument, const char **name, size_t *length) {
  bool is_long = argument[1] == '-';
  *name = argument + (is_long ? 2 : 1);
  *length = is_long ? strcspn(*name, "=") : strlen(*name);
  for (int i = 0; i < gd_option_count; i++) {
    const struct gd_option *option = &gd_option_table[i];
    bool same = is_long
                    ? strlen(option->name) == *length && strncmp(option->name, *name, *length) == 0
                    : *length == 1 && option->letter == (*name)[0];
    if (same)
      return option;
  }
  return NULL;
}

static enum gd_status read_option(struct parser *parser, const char *argument,
                                  struct gd_cli_options *options, struct gd_error *err) {
  const char *name, *value = NULL;
  size_t length;
  const struct gd_option *option = gd_option_find(argument, &name, &length);
  if (!option)
    return unknown_option(argument, name, length, parser->id, err);
  if (argument[1] == '-' && name[length] == '=')
    value = name + length + 1;
  if (!option->argument && value)
    return gd_fail(err, GD_BAD_INPUT, "--%s takes no value", option->name);
  bool optional = option->argument && option->argument[0] == '[';
  if (optional && !value && parser->at < parser->argc) {
    /* The next word is its value only if it can be: it may be an argument of the command. */
    struct gd_cli_options scratch = *options;
    options->not_a_pass = parser->argv[parser->at];
    if (option->parse(option, parser->argv[parser->at], &scratch, NULL) == GD_OK)
      value = parser->argv[parser->at++];
  } else if (option->argument && !optional && !value) {
    if (parser->at >= parser->argc)
      return gd_fail(err, GD_BAD_INPUT, "--%s needs a value: --%s %s", option->name, option->name,
                     option->argument);
    value = parser->argv[parser->at++];
  }
  bool again = false;
  for (int i = 0; i < parser->n_seen; i++)
    again = again || parser->seen[i] == option;
  if (again && strcmp(option->name, "data") == 0) /* of others the last one counts */
    return gd_fail(err, GD_BAD_INPUT,
                   "--data is given twice; further files stand behind the first: --data A B");
  if (!again)
    parser->seen[parser->n_seen++] = option;
  return option->parse(option, value, options, err);
}

static enum gd_status check_arguments(const struct gd_cli *cli, struct gd_error *err) {
  const struct gd_command *command = cli->command;
  char clean[64];
  if (cli->n_arguments < command->least)
    return gd_fail(err, GD_BAD_INPUT, "%s needs an argument: gpudays %s %s, such as '%s'",
                   command->name, command->name, command->arguments, command->example);
  if (command->most >= 0 && cli->n_arguments > command->most)
    return gd_fail(err, GD_BAD_INPUT,
                   "unexpected argument \"%s\"; 'gpudays help %s' shows the "
                   "usage",
                   gd_json_excerpt(clean, sizeof clean, cli->arguments[command->most]),
                   command->name);
  bool words = command->run == gd_cmd_completion; /* the one to complete may be empty */
  for (int i = 0; i < cli->n_arguments && !words; i++)
    if (!cli->arguments[i][0])
      return gd_fail(err, GD_BAD_INPUT, "an argument is empty: gpudays %s %s, such as '%s'",
                     command->name, command->arguments, command->example);
  return GD_OK;
}

/* Hardware of the catalogue. */
static enum gd_status check_gpu(const struct gd_cli *cli, struct gd_error *err) {
  const struct gd_cli_options *options = &cli->options;
  bool cost = cli->command == &gd_commands[GD_COMMAND_COST];
  bool tokens = cli->command == &gd_commands[GD_COMMAND_TOKENS]; /* has a count of its own */
  const char *without = options->count && !tokens   ? "count"
                        : options->machine && !cost ? "machine"
                        : options->network          ? "network"
                                                    : NULL;
  if (!options->gpu && without)
    return gd_fail(err, GD_BAD_INPUT, "--%s needs --gpu, which names the hardware", without);
  if (options->gpu && options->ranks)
    return gd_fail(err, GD_BAD_INPUT, "--gpu counts its ranks by --count; leave out --ranks");
  if (options->gpu && options->backend)
    return gd_fail(err, GD_BAD_INPUT, "--gpu is planned for CUDA; leave out --backend");
  if (options->gpu && cli->command == &gd_commands[GD_COMMAND_BENCH] && !options->simulate &&
      !options->slurm)
    return gd_fail(err, GD_BAD_INPUT,
                   "bench measures this machine; --gpu needs --simulate, which predicts, or "
                   "--slurm, whose jobs run on that GPU");
  if (options->simulate && (options->fast || options->slurm))
    return gd_fail(err, GD_BAD_INPUT, "--simulate measures nothing; leave out --%s",
                   options->fast ? "fast" : "slurm");
  return GD_OK;
}

static enum gd_status check_slurm(const struct gd_cli_options *options, struct gd_error *err) {
  int64_t ranks = options->ranks > 0 ? options->ranks : 1;
  bool spread = options->nodes > 1 && !options->gpu; /* with --gpu it is gd_hw_target that checks */
  const char *without = spread                  ? "nodes"
                        : options->slurm_config ? "slurm-config"
                        : options->slurm_device ? "slurm-device"
                        : options->slurm_dir    ? "slurm-dir"
                                                : NULL;
  if (!options->slurm && spread)
    return gd_fail(err, GD_BAD_INPUT,
                   "--nodes needs --gpu, whose machines they are, or --slurm, which starts the "
                   "trials as jobs");
  if (!options->slurm && options->job_status)
    return gd_fail(err, GD_BAD_INPUT, "--job-status needs --slurm, whose jobs it shows");
  if (!options->slurm && without)
    return gd_fail(err, GD_BAD_INPUT, "--%s needs --slurm, which starts the trials as jobs",
                   without);
  if (options->slurm && options->no_store)
    return gd_fail(err, GD_BAD_INPUT,
                   "--slurm collects results in the store; leave out --no-store");
  if (spread && ranks % options->nodes)
    return gd_fail(err, GD_BAD_INPUT,
                   "%" PRId64 " rank%s cannot be spread evenly over %" PRId64
                   " nodes; choose --ranks as a multiple of --nodes",
                   ranks, ranks == 1 ? "" : "s", options->nodes);
  return GD_OK;
}

static bool is_among(const char *name, const char *const *names, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (strcmp(name, names[i]) == 0)
      return true;
  return false;
}

/* What other software has no use for: to leave it out without a word would be an answer to another
   question. */
static enum gd_status check_stack(const struct parser *parser, const struct gd_cli *cli,
                                  struct gd_error *err) {
  static const char *const of_engine[] = {"without", "explain", "calibration"};
  static const char *const of_others[] = {"precision", "threads"}; /* the paper's are settled */
  const char *stack = cli->options.stack;
  bool paper = stack && strcmp(stack, "paper") == 0;
  for (int i = 0; i < parser->n_seen && stack; i++)
    if (is_among(parser->seen[i]->name, of_engine, sizeof of_engine / sizeof *of_engine) ||
        (paper && is_among(parser->seen[i]->name, of_others, sizeof of_others / sizeof *of_others)))
      return gd_fail(err, GD_BAD_INPUT,
                     "--stack %s predicts other software, which settles that itself; leave out "
                     "--%s",
                     stack, parser->seen[i]->name);
  return GD_OK;
}

/* What can only be judged once everything was read. */
static enum gd_status check_all(const struct parser *parser, const struct gd_cli *cli,
                                struct gd_error *err) {
  bool alone = cli->options.help || cli->options.version;
  if (!cli->command && !alone)
    return gd_fail(err, GD_BAD_INPUT, "no command was given; 'gpudays help' lists those there are");
  for (int i = 0; i < parser->n_seen; i++)
    if (!taken_by(parser->seen[i], parser->id))
      return foreign_option(parser->seen[i], parser->id, err);
  if (cli->options.json && cli->options.csv)
    return gd_fail(err, GD_BAD_INPUT, "--json and --csv exclude each other; choose one");
  if (cli->options.no_store &&
      (cli->options.fresh || cli->options.retry_failed || cli->options.store))
    return gd_fail(err, GD_BAD_INPUT, "--no-store uses no results; leave out --%s",
                   cli->options.fresh          ? "fresh"
                   : cli->options.retry_failed ? "retry-failed"
                                               : "store");
  if (cli->options.without &&
      (cli->options.slurm || cli->options.fresh || cli->options.retry_failed || cli->options.store))
    return gd_fail(err, GD_BAD_INPUT,
                   "trials of --without are not stored, because they lack a pass of their method; "
                   "leave out --%s",
                   cli->options.slurm          ? "slurm"
                   : cli->options.fresh        ? "fresh"
                   : cli->options.retry_failed ? "retry-failed"
                                               : "store");
  GD_TRY(check_gpu(cli, err));
  GD_TRY(check_slurm(&cli->options, err));
  GD_TRY(check_stack(parser, cli, err));
  return alone ? GD_OK : check_arguments(cli, err);
}

/* --models A,B is A B. */
static enum gd_status append_models(struct gd_cli *cli, struct gd_error *err) {
  const char *list = cli->options.models;
  size_t most = (size_t)cli->n_arguments + 1;
  for (const char *at = list; *at; at++)
    most += *at == ',';
  const char **arguments = gd_arena_alloc(&cli->arena, most, sizeof *arguments);
  for (int i = 0; i < cli->n_arguments && arguments; i++)
    arguments[i] = cli->arguments[i];
  cli->arguments = arguments;
  for (; arguments; list++) {
    size_t length = strcspn(list, ",");
    char *name = gd_arena_printf(&cli->arena, "%.*s", (int)length, list);
    if (!name)
      break;
    if (!name[0])
      return gd_fail(err, GD_BAD_INPUT, "--models has an empty name; join names by one comma each");
    arguments[cli->n_arguments++] = name;
    list += length;
    if (*list == '\0')
      return GD_OK;
  }
  return gd_nomem(err, "while reading the command line");
}

/* --count 1,2,4: each GPU that --gpu names, so many times. */
static enum gd_status read_counts(struct gd_cli *cli, struct gd_error *err) {
  struct gd_cli_options *options = &cli->options;
  int kinds = options->n_gpus, n = 1, at = 0;
  for (const char *text = options->counts; *text; text++)
    n += *text == ',';
  struct gd_gpu_spec *gpus = gd_arena_alloc(&cli->arena, (size_t)kinds * (size_t)n, sizeof *gpus);
  if (!gpus)
    return gd_nomem(err, "while reading the command line");
  for (int kind = 0; kind < kinds; kind++) {
    const char *text = options->counts;
    for (int i = 0; i < n; i++) {
      char one[24];
      int64_t count;
      size_t length = strcspn(text, ",");
      snprintf(one, sizeof one, "%.*s", (int)length, text);
      if (!gd_parse_int(one, 1, GD_GPU_SPEC_MOST, &count))
        return gd_fail(err, GD_BAD_INPUT,
                       "--count expects whole numbers from 1 to %d, joined by commas, and not "
                       "\"%s\"",
                       (int)GD_GPU_SPEC_MOST, options->counts);
      gpus[at++] = (struct gd_gpu_spec){.name = options->gpus[kind].name, .count = (int)count};
      text += length + (text[length] == ',');
    }
  }
  options->gpus = gpus;
  options->n_gpus = at;
  return GD_OK;
}

/* "4x3090" is --gpu 3090 --count 4. */
static enum gd_status read_gpus(struct gd_cli *cli, struct gd_error *err) {
  struct gd_cli_options *options = &cli->options;
  struct gd_gpu_spec *gpus;
  bool counted = false;
  GD_TRY(gd_gpu_specs_parse(options->gpu, &cli->arena, &gpus, &options->n_gpus, err));
  options->gpus = gpus;
  for (int i = 0; i < options->n_gpus; i++)
    counted = counted || gpus[i].count > 0;
  if (counted && options->count > 0)
    return gd_fail(err, GD_BAD_INPUT, "--gpu %s says how many; leave out --count", options->gpu);
  if (options->counts)
    GD_TRY(read_counts(cli, err));
  if (options->n_gpus == 1) {
    options->gpu = gpus[0].name;
    options->count = counted ? gpus[0].count : options->count;
    return GD_OK;
  }
  if (cli->command == &gd_commands[GD_COMMAND_PLAN] ||
      cli->command == &gd_commands[GD_COMMAND_COST])
    return GD_OK;
  if (cli->command != &gd_commands[GD_COMMAND_ESTIMATE])
    return gd_fail(err, GD_BAD_INPUT, "--gpu %s are %d kinds of GPU; name one", options->gpu,
                   options->n_gpus);
  return counted || options->counts
             ? gd_fail(err, GD_BAD_INPUT,
                       "estimate takes several GPUs by name and how many by --count; --gpu is "
                       "\"%s\"",
                       options->gpu)
             : GD_OK;
}

enum gd_status gd_options_parse(int argc, char **argv, struct gd_cli *cli, struct gd_error *err) {
  struct parser parser = {.argc = argc, .argv = argv, .at = 1};
  bool options_end = false;
  cli->arguments = gd_arena_alloc(&cli->arena, (size_t)argc + 1, sizeof *cli->arguments);
  parser.seen = cli->given = gd_arena_alloc(&cli->arena, GD_OPTIONS_MOST, sizeof(void *));
  if (!cli->arguments || !cli->given)
    return gd_nomem(err, "while reading the command line");
  while (parser.at < argc) {
    const char *argument = argv[parser.at++];
    if (!options_end && strcmp(argument, "--") == 0) {
      options_end = true;
    } else if (!options_end && argument[0] == '-' && argument[1] != '\0') {
      GD_TRY(read_option(&parser, argument, &cli->options, err));
    } else if (!cli->command) {
      GD_TRY(gd_command_find(argument, &parser.id, err));
      cli->command = &gd_commands[parser.id];
    } else {
      cli->arguments[cli->n_arguments++] = argument;
    }
  }
  cli->n_given = parser.n_seen;
  if (cli->options.models)
    GD_TRY(append_models(cli, err));
  if (cli->options.gpu)
    GD_TRY(read_gpus(cli, err));
  else if (cli->options.counts)
    return gd_fail(err, GD_BAD_INPUT, "--count %s is several numbers; name the GPUs with --gpu",
                   cli->options.counts);
  return check_all(&parser, cli, err);
}
