/*
 * The table of commands, the table of options, and the parser over both. What a value means is
 * decided here and nowhere else; whether it makes sense for a model is the library's business.
 */
#define _POSIX_C_SOURCE 200809L
#include "cli/options.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/json.h"
#include "cli/cli.h"

/* --- commands ------------------------------------------------------------------------------ */

const struct gd_command gd_commands[GD_COMMAND_COUNT] = {
    [GD_COMMAND_MODELS] =
        {"models", "[MODEL]", 0, 1, "models that are known: sizes, FLOPs, recipes",
         "Lists the presets, or shows one model: a preset, a Hugging Face config.json,\n"
         "or the folder that holds one.",
         "gpudays models pythia-160m", gd_cmd_models},
    [GD_COMMAND_GPUS] =
        {"gpus", "[GPU]", 0, 1, "GPUs that are known: peaks, memory, links, prices",
         "Lists the GPUs of the catalogue, or shows one with its machines and prices, and\n"
         "where every figure comes from. --check reads a file of your own.",
         "gpudays gpus a100", gd_cmd_gpus},
    [GD_COMMAND_ESTIMATE] =
        {"estimate", "[MODEL...]", 0, -1, "days at the peak of given GPUs: a lower bound",
         "Divides training FLOPs by the peak of the GPUs: Section 3.1 of the paper.\n"
         "Without arguments: the paper's nine models on its four GPUs.",
         "gpudays estimate pythia-1b --gpu a100 --count 4", gd_cmd_estimate},
    [GD_COMMAND_PLAN] =
        {"plan", "MODEL...", 1, -1, "memory by category and micro-batch, before a run",
         "Plans training without running it: exact bytes, micro-batch, and predicted time;\n"
         "on this machine, or on the GPUs of --gpu. Exit 1 when the model does not fit.",
         "gpudays plan pythia-160m --device-memory 8GiB", gd_cmd_plan},
    [GD_COMMAND_BENCH] =
        {"bench", "MODEL...", 1, -1, "measured here: step time, memory, days to train",
         "Measures training steps on this machine and tells how long the run would take.",
         "gpudays bench pythia-14m", gd_cmd_bench},
    [GD_COMMAND_RESULTS] =
        {"results", "[VERB FILE]", 0, 2, "trials that were measured, here or by others",
         "Lists the trials in the database of results. 'results save FILE' writes all of\n"
         "them to a file, 'results load FILE' adds those of another lab's, or of a table\n"
         "that 'results --csv' printed. A FILE of - is standard output or input.",
         "gpudays results --model 'pythia-*' --sort days", gd_cmd_results},
    [GD_COMMAND_BEST] = {"best", "MODEL", 1, 1, "the fastest way to train it that was measured",
                         "Shows the best trial of a model on each device and number of ranks.\n"
                         "Exit 1 when there is none.",
                         "gpudays best pythia-14m", gd_cmd_best},
    [GD_COMMAND_EXPORT] =
        {"export", "MODEL", 1, 1, "the best trial as settings for other tools",
         "Prints the best trial that is stored, or the point of --methods, for a tool.\n"
         "Exit 1 when there is none.",
         "gpudays export pythia-14m --format hf -o args.json", gd_cmd_export},
    [GD_COMMAND_SURVEY] =
        {"survey", "[FILE]", 0, 1, "answers to the compute survey: checked, counted, drawn",
         "Counts the answers in a CSV file; with -o DIR, draws Figures 1 and 8 from them.\n"
         "Exit 2 when the file does not answer the questions, with all that is wrong.",
         "gpudays survey answers.csv -o figures", gd_cmd_survey},
    [GD_COMMAND_COST] =
        {"cost", "[MODEL]", 0, 1, "machines to buy or rent: dollars, days, energy",
         "Compares the machines of the catalogue for a run, and takes one. Without MODEL:\n"
         "which presets --budget and --days allow. Exit 1 when nothing is within them.",
         "gpudays cost pythia-1b --budget 40000", gd_cmd_cost},
    [GD_COMMAND_REPORT] =
        {"report", "", 0, 0, "tables and figures of the paper beside what was measured",
         "Writes a page (index.html) that needs no network, and beside it every table and\n"
         "figure as CSV, SVG and PNG.",
         "gpudays report -o out", gd_cmd_report},
    [GD_COMMAND_VERIFY] =
        {"verify", "DIR", 1, 1, "numerics against a Hugging Face reference",
         "Compares loss, gradients and training losses with those stored in DIR.\n"
         "Exit 1 past the bounds.",
         "gpudays verify tests/reference/neox-parallel", gd_cmd_verify},
    [GD_COMMAND_CALIBRATE] =
        {"calibrate", "", 0, 0, "measures this machine, so that times can be predicted",
         "Measures products, memory and links of this machine in about a minute, keeps\n"
         "their rates, and checks predictions made from them on steps it has not seen.",
         "gpudays calibrate", gd_cmd_calibrate},
    [GD_COMMAND_ACCURACY] =
        {"accuracy", "[FILE...]", 0, -1, "predicted against measured, and against the paper",
         "Compares predictions with the trials of the database, or of files that\n"
         "'gpudays results --csv' wrote, and with the paper's Tables 1 and 4 by parameters\n"
         "that were fitted without the GPU or the models in question.",
         "gpudays accuracy results/h200.csv -o docs/accuracy.md", gd_cmd_accuracy},
    [GD_COMMAND_DOCTOR] = {"doctor", "", 0, 0, "what was found here, what is missing",
                           "Says what this machine offers and measures its peak FLOP/s.",
                           "gpudays doctor", gd_cmd_doctor},
    [GD_COMMAND_COMPLETION] =
        {"completion", "SHELL", 1, -1, "a script for bash, zsh or fish: complete by Tab",
         "Prints the script that completes commands, options and values of gpudays.\n"
         "An installed gpudays needs no more; otherwise the shell reads it when it starts.",
         "source <(gpudays completion bash)", gd_cmd_completion},
    [GD_COMMAND_HELP] = {"help", "[COMMAND]", 0, 1, "the commands, or the options of one of them",
                         "Shows all commands, or one command's options.", "gpudays help bench",
                         gd_cmd_help},
};

/* --- reading one value --------------------------------------------------------------------- */

static enum gd_status bad_value(const struct gd_option *option, const char *text,
                                const char *expected, struct gd_error *err) {
  char clean[64];
  return gd_fail(err, GD_BAD_INPUT, "--%s is \"%s\"; expected %s", option->name,
                 gd_json_excerpt(clean, sizeof clean, text), expected);
}

static void *field(const struct gd_option *option, struct gd_cli_options *options) {
  return (char *)options + option->target;
}

static enum gd_status parse_switch(const struct gd_option *option, const char *text,
                                   struct gd_cli_options *options, struct gd_error *err) {
  (void)text;
  (void)err;
  *(bool *)field(option, options) = true;
  return GD_OK;
}

static enum gd_status parse_int(const struct gd_option *option, const char *text,
                                struct gd_cli_options *options, struct gd_error *err) {
  char expected[96];
  if (gd_parse_int(text, option->low, option->high, field(option, options)))
    return GD_OK;
  snprintf(expected, sizeof expected, "a whole number from %" PRId64 " to %" PRId64, option->low,
           option->high);
  return bad_value(option, text, expected, err);
}

static enum gd_status parse_seconds(const struct gd_option *option, const char *text,
                                    struct gd_cli_options *options, struct gd_error *err) {
  char expected[96], *end;
  errno = 0;
  double value = strtod(text, &end);
  bool number = (isdigit((unsigned char)text[0]) || text[0] == '.') && *end == '\0' && errno == 0;
  if (number && value > 0 && value <= (double)option->high) {
    *(double *)field(option, options) = value;
    return GD_OK;
  }
  snprintf(expected, sizeof expected, "seconds above 0, %" PRId64 " at most", option->high);
  return bad_value(option, text, expected, err);
}

static bool is_number(const char *text, double *value, char **end) {
  errno = 0;
  *value = strtod(text, end);
  return (isdigit((unsigned char)text[0]) || text[0] == '.') && errno == 0;
}

/* Keeps a number that its parser found good, unless it is too large. */
static enum gd_status set_number(const struct gd_option *option, const char *text, double value,
                                 bool good, const char *above, struct gd_cli_options *options,
                                 struct gd_error *err) {
  char expected[96];
  if (good && value <= (double)option->high) {
    *(struct gd_cli_number *)field(option, options) = (struct gd_cli_number){true, value};
    return GD_OK;
  }
  snprintf(expected, sizeof expected, "a number %s %" PRId64 " to %" PRId64, above, option->low,
           option->high);
  return bad_value(option, text, expected, err);
}

static enum gd_status parse_number(const struct gd_option *option, const char *text,
                                   struct gd_cli_options *options, struct gd_error *err) {
  char *end;
  double value;
  bool good = is_number(text, &value, &end) && *end == '\0' && value >= (double)option->low;
  return set_number(option, text, value, good, "from", options, err);
}

static enum gd_status parse_above(const struct gd_option *option, const char *text,
                                  struct gd_cli_options *options, struct gd_error *err) {
  char *end;
  double value;
  bool good = is_number(text, &value, &end) && *end == '\0' && value > (double)option->low;
  return set_number(option, text, value, good, "above", options, err);
}

/* 40000, 40k and 0.04M are the same sum. */
static enum gd_status parse_usd(const struct gd_option *option, const char *text,
                                struct gd_cli_options *options, struct gd_error *err) {
  char *end;
  double value;
  bool good = is_number(text, &value, &end);
  if (good && *end && !end[1]) {
    int letter = tolower((unsigned char)*end);
    value *= letter == 'k' ? 1e3 : letter == 'm' ? 1e6 : 1;
    end += letter == 'k' || letter == 'm';
  }
  if (!good || *end || !(value > 0 && value <= (double)option->high))
    return bad_value(option, text, "dollars above 0 such as 40000, 40k or 1.5M", err);
  *(struct gd_cli_number *)field(option, options) = (struct gd_cli_number){true, value};
  return GD_OK;
}

static enum gd_status parse_times(const struct gd_option *option, const char *text,
                                  struct gd_cli_options *options, struct gd_error *err) {
  char expected[96] = "";
  size_t length = 0;
  if (gd_times_parse(text, &options->times))
    return GD_OK;
  for (int i = 0; i < GD_TIMES_COUNT && length < sizeof expected; i++)
    length += (size_t)snprintf(expected + length, sizeof expected - length, "%s%s",
                               i == 0                    ? ""
                               : i + 1 == GD_TIMES_COUNT ? " or "
                                                         : ", ",
                               gd_times_name((enum gd_times)i));
  return bad_value(option, text, expected, err);
}

/* A number and nothing else: what it counts can only be guessed. */
static bool is_bare(const char *text) {
  char *end;
  double value;
  return is_number(text, &value, &end) && *end == '\0';
}

static enum gd_status no_unit(const struct gd_option *option, const char *text,
                              const char *const units[3], struct gd_error *err) {
  char clean[64];
  gd_json_excerpt(clean, sizeof clean, text);
  return gd_fail(err, GD_BAD_INPUT, "--%s is \"%s\", without a unit; write %s%s, %s%s or %s%s",
                 option->name, clean, clean, units[0], clean, units[1], clean, units[2]);
}

/* 90s, 1.5m, 2h and 1d. */
static enum gd_status parse_time(const struct gd_option *option, const char *text,
                                 struct gd_cli_options *options, struct gd_error *err) {
  static const struct {
    char letter;
    double seconds;
  } units[] = {{'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86400}};
  char *end;
  double value;
  if (is_bare(text) && strtod(text, NULL) > 0)
    return no_unit(option, text, (const char *const[]){"s", "m (minutes)", "h"}, err);
  bool number = is_number(text, &value, &end);
  for (size_t i = 0; number && i < sizeof units / sizeof *units; i++)
    if (*end == units[i].letter && end[1] == '\0') {
      value *= units[i].seconds;
      end++;
    }
  if (!number || *end || !(value > 0 && value <= (double)option->high))
    return bad_value(option, text, "a time above 0 such as 90s, 10m, 2h or 1d", err);
  *(double *)field(option, options) = value;
  return GD_OK;
}

/* 300e9, 300B and 0.3T are the same count. */
static enum gd_status parse_count(const struct gd_option *option, const char *text,
                                  struct gd_cli_options *options, struct gd_error *err) {
  static const char suffixes[] = "KMBT";
  char *end;
  errno = 0;
  double value = strtod(text, &end);
  bool number = isdigit((unsigned char)text[0]) && errno == 0;
  const char *suffix = number && *end ? strchr(suffixes, toupper((unsigned char)*end)) : NULL;
  if (suffix) {
    for (const char *s = suffixes; s <= suffix; s++)
      value *= 1000;
    end++;
  }
  if (!number || *end || !(value >= 1 && value < 1e18))
    return bad_value(option, text, "a count such as 300B, 1.5T or 2000000", err);
  *(int64_t *)field(option, options) = (int64_t)value;
  return GD_OK;
}

static enum gd_status parse_bytes(const struct gd_option *option, const char *text,
                                  struct gd_cli_options *options, struct gd_error *err) {
  int64_t bytes;
  if (is_bare(text) && strtod(text, NULL) > 0)
    return no_unit(option, text, (const char *const[]){"GiB", "MiB", "B (bytes)"}, err);
  if (!gd_parse_bytes(text, &bytes) || bytes == 0)
    return bad_value(option, text, "a size above 0 such as 2GiB, 512MiB or 4096B", err);
  *(int64_t *)field(option, options) = bytes;
  return GD_OK;
}

static enum gd_status parse_backend(const struct gd_option *option, const char *text,
                                    struct gd_cli_options *options, struct gd_error *err) {
  const struct gd_backend_ops *ops;
  if (gd_backend_find(text, &ops, NULL) != GD_OK)
    return bad_value(option, text, "cpu, cuda or ref", err);
  options->backend = ops->name;
  return GD_OK;
}

static enum gd_status parse_precision(const struct gd_option *option, const char *text,
                                      struct gd_cli_options *options, struct gd_error *err) {
  if (!gd_precision_parse(text, &options->precision))
    return bad_value(option, text, "fp32, bf16 or fp16", err);
  options->precision_given = true;
  return GD_OK;
}

static enum gd_status parse_optimizer(const struct gd_option *option, const char *text,
                                      struct gd_cli_options *options, struct gd_error *err) {
  if (!gd_optimizer_parse(text, &options->optimizer))
    return bad_value(option, text, "adam or adamw", err);
  options->optimizer_given = true;
  return GD_OK;
}

static enum gd_status parse_micro_batch(const struct gd_option *option, const char *text,
                                        struct gd_cli_options *options, struct gd_error *err) {
  if (strcmp(text, "auto") == 0)
    options->micro_batch = GD_MICRO_BATCH_AUTO;
  else if (strcmp(text, "pow2") == 0)
    options->micro_batch = GD_MICRO_BATCH_POW2;
  else if (strcmp(text, "max") == 0)
    options->micro_batch = GD_MICRO_BATCH_MAX;
  else if (gd_parse_int(text, option->low, option->high, &options->micro_batch_size))
    options->micro_batch = GD_MICRO_BATCH_FIXED;
  else
    return bad_value(option, text, "auto, pow2, max or a whole number from 1", err);
  return GD_OK;
}

static enum gd_status parse_peaks(const struct gd_option *option, const char *text,
                                  struct gd_cli_options *options, struct gd_error *err) {
  options->paper_peaks = strcmp(text, "paper") == 0;
  if (!options->paper_peaks && strcmp(text, "datasheet") != 0)
    return bad_value(option, text, "datasheet or paper", err);
  return GD_OK;
}

static enum gd_status parse_status(const struct gd_option *option, const char *text,
                                   struct gd_cli_options *options, struct gd_error *err) {
  if (!gd_trial_status_parse(text, &options->status) || options->status == GD_TRIAL_PLANNED)
    return bad_value(option, text,
                     "ok, infeasible, failed or implausible (--pending for those to come)", err);
  options->filter.status = &options->status;
  return GD_OK;
}

static enum gd_status parse_sort(const struct gd_option *option, const char *text,
                                 struct gd_cli_options *options, struct gd_error *err) {
  char expected[128] = "";
  size_t length = 0;
  if (gd_store_sort_parse(text, &options->filter.sort))
    return GD_OK;
  for (int i = 0; i < GD_STORE_SORT_COUNT && length < sizeof expected; i++)
    length += (size_t)snprintf(expected + length, sizeof expected - length, "%s%s",
                               i == 0                         ? ""
                               : i + 1 == GD_STORE_SORT_COUNT ? " or "
                                                              : ", ",
                               gd_store_sort_name((enum gd_store_sort)i));
  return bad_value(option, text, expected, err);
}

static enum gd_status parse_format(const struct gd_option *option, const char *text,
                                   struct gd_cli_options *options, struct gd_error *err) {
  if (!gd_export_parse(text, &options->format))
    return bad_value(option, text, "hf, deepspeed, torchtitan or sbatch", err);
  options->format_given = true;
  return GD_OK;
}

/* A day of the calendar, or so many hours or days back; times in the store sort as text. */
static enum gd_status parse_since(const struct gd_option *option, const char *text,
                                  struct gd_cli_options *options, struct gd_error *err) {
  static const char shape[] = "dddd-dd-ddTdd:dd:dd";
  size_t length = strlen(text), i = 0;
  char *end;
  long back = strtol(text, &end, 10);
  if (isdigit((unsigned char)text[0]) && back >= 0 && back < 100000 && end[0] && !end[1] &&
      strchr("hd", end[0])) {
    time_t then = time(NULL) - back * (end[0] == 'h' ? 3600 : 86400);
    struct tm utc;
    gmtime_r(&then, &utc);
    strftime(options->since, sizeof options->since, "%Y-%m-%dT%H:%M:%S", &utc);
    options->filter.since = options->since;
    return GD_OK;
  }
  while (i < length && i < strlen(shape) &&
         (shape[i] == 'd' ? isdigit((unsigned char)text[i]) != 0 : text[i] == shape[i]))
    i++;
  bool month = length >= 7 && (strncmp(text + 5, "01", 2) < 0 || strncmp(text + 5, "12", 2) > 0);
  if (i != length || (length != 4 && length != 7 && length != 10 && length != 16 && length != 19) ||
      month)
    return bad_value(option, text, "a day such as 2024-05-31, or 24h or 7d for the last of them",
                     err);
  snprintf(options->since, sizeof options->since, "%s", text);
  options->filter.since = options->since;
  return GD_OK;
}

static enum gd_status parse_stack(const struct gd_option *option, const char *text,
                                  struct gd_cli_options *options, struct gd_error *err) {
  options->paper_stack = strcmp(text, "paper") == 0;
  if (!options->paper_stack && strcmp(text, "gpudays") != 0)
    return bad_value(option, text, "gpudays or paper", err);
  return GD_OK;
}

/* Which methods there are is the library's answer. */
static enum gd_status parse_text(const struct gd_option *option, const char *text,
                                 struct gd_cli_options *options, struct gd_error *err) {
  (void)err;
  *(const char **)field(option, options) = text;
  return GD_OK;
}

/* --- options ------------------------------------------------------------------------------- */

#define ON(command)   (1u << GD_COMMAND_##command)
#define ON_TRIALS     (ON(PLAN) | ON(BENCH))
#define ON_RUNS       (ON_TRIALS | ON(VERIFY))
#define ON_DEVICES    (ON_RUNS | ON(CALIBRATE))
#define ON_RECIPES    (ON(MODELS) | ON_TRIALS)
#define ON_SIZES      (ON_RECIPES | ON(ESTIMATE))
#define ON_STORE      (ON(RESULTS) | ON(BEST))
#define ON_CHOICE     (ON_STORE | ON(EXPORT))
#define EVERYWHERE    ((1u << GD_COMMAND_COUNT) - 1)
#define TARGET(name)  offsetof(struct gd_cli_options, name)
#define MOST_A_RECIPE 1000000000 /* as in a recipe's file; one token has no next one to learn */

static const struct gd_option options_table[] = {
    {"backend", "NAME", ON_DEVICES, 0, false,
     "cuda (default with a GPU), cpu, or ref: plain and slow", parse_backend, 0, 0, 0},
    {"threads", "N", ON_DEVICES | ON(DOCTOR), 0, false,
     "threads to run with; with --gpu its CPUs, default 4", parse_int, TARGET(threads), 1, 4096},
    {"precision", "NAME", ON_SIZES | ON(VERIFY) | ON(BEST) | ON(EXPORT), 0, false,
     "fp32, bf16 or fp16; default: the recipe's, verify: fp32", parse_precision, 0, 0, 0},
    {"gpu", "NAME", ON_TRIALS | ON(ESTIMATE), 0, false,
     "of 'gpudays gpus', or a file; none need be here", parse_text, TARGET(gpu), 0, 0},
    {"count", "N", ON_TRIALS | ON(ESTIMATE), 0, false,
     "how many GPUs; default 1, of estimate 1, 2, 4 and 8", parse_int, TARGET(count), 1, 1000000},
    {"stack", "NAME", ON(PLAN), 0, false, "gpudays (default), or paper: PyTorch with DeepSpeed",
     parse_stack, 0, 0, 0},
    {"peaks", "NAME", ON(ESTIMATE), 0, false, "datasheet (default) or paper: those of its Figure 9",
     parse_peaks, 0, 0, 0},
    {"check", "FILE", ON(GPUS), 0, false, "validate a file of GPUs, machines, networks or prices",
     parse_text, TARGET(check), 0, 0},
    {"methods", "LIST", ON_RUNS | ON(EXPORT), 0, false,
     "naive (default), free-lunch, all, free-lunch+ckpt+zero1", parse_text, TARGET(methods), 0, 0},
    {"micro-batch", "SIZE", ON_TRIALS | ON(EXPORT), 0, false,
     "auto (default), pow2 or max of what fits; or a number", parse_micro_batch, 0, 1,
     MOST_A_RECIPE},
    {"device-memory", "SIZE", ON_TRIALS | ON(EXPORT), 0, false,
     "limit such as 8GiB; default: what is there", parse_bytes, TARGET(device_memory_bytes), 0, 0},
    {"host-memory", "SIZE", ON_TRIALS | ON(EXPORT), 0, false, "limit for what stays in host memory",
     parse_bytes, TARGET(host_memory_bytes), 0, 0},
    {"seq", "N", ON_SIZES | ON(BEST) | ON(EXPORT) | ON(COST), 0, false,
     "tokens a sequence, instead of the recipe's", parse_int, TARGET(seq), 2, MOST_A_RECIPE},
    {"batch", "N", ON_SIZES | ON(BEST) | ON(EXPORT) | ON(COST), 0, false,
     "sequences a training step, instead of the recipe's", parse_int, TARGET(batch), 1,
     MOST_A_RECIPE},
    {"steps", "N", ON_SIZES | ON(BEST) | ON(EXPORT) | ON(COST), 0, false,
     "training steps of the run, instead of the recipe's", parse_int, TARGET(steps), 1,
     MOST_A_RECIPE},
    {"tokens", "COUNT", ON_SIZES | ON(BEST) | ON(EXPORT) | ON(COST), 0, false,
     "tokens of the run, such as 300B, instead of --steps", parse_count, TARGET(tokens), 0, 0},
    {"optimizer", "NAME", ON_RECIPES | ON(BEST) | ON(EXPORT), 0, false,
     "adam or adamw, instead of the recipe's", parse_optimizer, 0, 0, 0},
    {"seed", "N", ON(BENCH) | ON(EXPORT) | ON(SURVEY), 0, false, "of what is random; default 0",
     parse_int, TARGET(seed), 0, INT64_MAX},
    {"sample-seconds", "S", ON(BENCH), 0, false,
     "time passes and updates for S seconds each at most", parse_seconds, TARGET(sample_seconds), 0,
     86400},
    {"ranks", "N", ON_TRIALS | ON_CHOICE | ON(CALIBRATE), 0, false,
     "ranks to train on, each a process; bench starts them", parse_int, TARGET(ranks), 1, 4096},
    {"rank-timeout", "S", ON(BENCH) | ON(CALIBRATE), 0, false,
     "most seconds of silence, on GPUs of a pass; default 300", parse_seconds, TARGET(rank_timeout),
     0, 1000000},
    {"slurm", NULL, ON(BENCH), 0, false, "submit each trial as a job of SLURM, and wait for them",
     parse_switch, TARGET(slurm), 0, 0},
    {"nodes", "K", ON_TRIALS, 0, false, "with --gpu or --slurm; default: as few as hold the GPUs",
     parse_int, TARGET(nodes), 1, 4096},
    {"machine", "NAME", ON_TRIALS | ON(COST), 0, false,
     "that holds the GPUs; cost: these alone, by commas", parse_text, TARGET(machine), 0, 0},
    {"network", "NAME", ON_TRIALS, 0, false,
     "with --gpu: between nodes, of those 'gpudays gpus' lists", parse_text, TARGET(network), 0, 0},
    {"simulate", NULL, ON(BENCH), 0, false, "predict instead of measuring; nothing is stored",
     parse_switch, TARGET(simulate), 0, 0},
    {"fast", NULL, ON(BENCH), 0, false, "measure only what prediction cannot exclude", parse_switch,
     TARGET(fast), 0, 0},
    {"slurm-config", "FILE", ON(BENCH), 0, false,
     "what jobs ask for; default: the user's slurm.json", parse_text, TARGET(slurm_config), 0, 0},
    {"slurm-device", "NAME", ON(BENCH), 0, false,
     "section of slurm.json; default: the GPU or backend", parse_text, TARGET(slurm_device), 0, 0},
    {"slurm-dir", "DIR", ON(BENCH), 0, false, "folder that nodes share; default: beside the store",
     parse_text, TARGET(slurm_dir), 0, 0},
    {"models", "LIST", ON(BENCH), 0, false, "further models, joined by commas", parse_text,
     TARGET(models), 0, 0},
    {"fresh", NULL, ON(BENCH), 0, false, "measure also what is in the store", parse_switch,
     TARGET(fresh), 0, 0},
    {"retry-failed", NULL, ON(BENCH), 0, false,
     "measure again what has failed, whatever the reason", parse_switch, TARGET(retry_failed), 0,
     0},
    {"store", "FILE", ON(BENCH) | ON_CHOICE | ON(COST) | ON(REPORT) | ON(ACCURACY), 0, false,
     "results; default $GPUDAYS_DB or the user's data folder", parse_text, TARGET(store), 0, 0},
    {"no-store", NULL, ON(BENCH) | ON(REPORT), 0, false, "read no results and keep none",
     parse_switch, TARGET(no_store), 0, 0},
    {"time-limit", "TIME", ON(BENCH) | ON(CALIBRATE), 0, false,
     "end the search after 90s, 10m, 2h; it can go on", parse_time, TARGET(time_limit), 0,
     31536000},
    {"trial-timeout", "TIME", ON(BENCH), 0, false, "a trial that takes longer failed; default 1h",
     parse_time, TARGET(trial_timeout), 0, 31536000},
    {"profile", NULL, ON(BENCH), 0, false, "show where the time of a step goes, by kind of op",
     parse_switch, TARGET(profile), 0, 0},
    {"explain", NULL, ON(PLAN), 0, false, "print the graph and the place of every tensor",
     parse_switch, TARGET(explain), 0, 0},
    {"model", "NAME", ON(RESULTS), 0, false, "of this model; * and ? stand for any letters",
     parse_text, TARGET(filter.model), 0, 0},
    {"method", "NAME", ON(RESULTS), 0, false, "of this method; * and ? likewise", parse_text,
     TARGET(filter.method), 0, 0},
    {"device", "NAME", ON_CHOICE, 0, false, "on a device with this in its name", parse_text,
     TARGET(filter.device), 0, 0},
    {"host", "NAME", ON_CHOICE, 0, false, "measured on this machine; * and ? likewise", parse_text,
     TARGET(filter.host), 0, 0},
    {"status", "NAME", ON(RESULTS), 0, false, "ok, infeasible, failed or implausible", parse_status,
     0, 0, 0},
    {"since", "TIME", ON_CHOICE, 0, false, "measured since 2024-05-31, or in the last 24h or 7d",
     parse_since, 0, 0, 0},
    {"sort", "KEY", ON(RESULTS), 0, false, "time, days, model, method, device, status, mfu, memory",
     parse_sort, 0, 0, 0},
    {"reverse", NULL, ON(RESULTS), 0, false, "the other way round", parse_switch,
     TARGET(filter.reverse), 0, 0},
    {"limit", "N", ON(RESULTS), 0, false, "at most N rows", parse_int, TARGET(filter.limit), 1,
     INT64_MAX},
    {"pending", NULL, ON(RESULTS), 0, false, "trials that a search has yet to measure",
     parse_switch, TARGET(filter.pending), 0, 0},
    {"history", NULL, ON(RESULTS), 0, false, "also what later trials superseded", parse_switch,
     TARGET(filter.history), 0, 0},
    {"total", NULL, ON(RESULTS), 0, false, "counts and hours instead of a list", parse_switch,
     TARGET(total), 0, 0},
    {"format", "NAME", ON(EXPORT), 0, false, "hf, deepspeed, torchtitan or sbatch", parse_format, 0,
     0, 0},
    {"output", "PATH", ON(EXPORT) | ON(REPORT) | ON(SURVEY) | ON(CALIBRATE) | ON(ACCURACY), 'o',
     false, "where to write: a file, or a folder of figures", parse_text, TARGET(output), 0, 0},
    {"calibration", "FILE", ON(ACCURACY), 0, false,
     "write the errors of its device's trials into it", parse_text, TARGET(calibration), 0, 0},
    {"survey", "FILE", ON(REPORT), 0, false, "answers to draw Figures 1 and 8 from", parse_text,
     TARGET(survey), 0, 0},
    {"no-predictions", NULL, ON(REPORT), 0, false, "only the paper and what was measured",
     parse_switch, TARGET(no_predictions), 0, 0},
    {"job-time", "TIME", ON(EXPORT), 0, false, "sbatch: limit of one job; default 1d", parse_time,
     TARGET(job_time), 0, 31536000},
    {"questions", NULL, ON(SURVEY), 0, false, "print the questions and their answers", parse_switch,
     TARGET(questions), 0, 0},
    {"template", NULL, ON(SURVEY), 0, false, "print the first line of a file of answers",
     parse_switch, TARGET(template), 0, 0},
    {"synthetic", "N", ON(SURVEY), 0, false, "invent N answers, marked as synthetic", parse_int,
     TARGET(synthetic), 1, 100000},
    {"budget", "USD", ON(COST), 0, false, "for the machine, or its rent: 40000, 40k", parse_usd,
     TARGET(budget_usd), 0, 1000000000000},
    {"days", "N", ON(COST), 0, false, "days in which the run must end", parse_above, TARGET(days),
     0, 1000000},
    {"times", "SOURCE", ON(COST), 0, false, "of days: auto, measured, predicted, analytic or paper",
     parse_times, 0, 0, 0},
    {"rent", "OFFER", ON(COST), 0, false, "a provider's name, or USD a GPU-hour; default: least",
     parse_text, TARGET(rent), 0, 0},
    {"energy", "NAME", ON(COST), 0, false, "the grid: us (default), eu, or one of yours",
     parse_text, TARGET(energy), 0, 0},
    {"kwh-usd", "USD", ON(COST), 0, false, "price of electricity, instead of the grid's",
     parse_number, TARGET(kwh_usd), 0, 100},
    {"co2", "GRAMS", ON(COST), 0, false, "CO2 a kWh, instead of the grid's", parse_number,
     TARGET(co2), 0, 10000},
    {"pue", "X", ON(COST), 0, false, "energy of the building over the machine's", parse_number,
     TARGET(pue), 1, 10},
    {"utilisation", "X", ON(COST), 0, false, "share of a GPU's board power drawn; default 1",
     parse_above, TARGET(utilisation), 0, 1},
    {"mfu", "X", ON(COST), 0, false, "--times analytic: share of the peak; default 0.4",
     parse_above, TARGET(mfu), 0, 1},
    {"text", NULL, ON(COST), 0, false, "the compute paragraph of a grant proposal", parse_switch,
     TARGET(text), 0, 0},
    {"man", NULL, ON(HELP), 0, false, "print the manual page; gpudays help --man | man -l -",
     parse_switch, TARGET(man), 0, 0},
    {"json", NULL, EVERYWHERE, 0, true, "print JSON, for programs", parse_switch, TARGET(json), 0,
     0},
    {"csv", NULL, ON_SIZES | ON(GPUS) | ON(SURVEY) | ON(COST) | ON_STORE | ON(ACCURACY) | ON(HELP),
     0, true, "print the table as CSV", parse_switch, TARGET(csv), 0, 0},
    {"quiet", NULL, EVERYWHERE, 'q', true, "no progress line", parse_switch, TARGET(quiet), 0, 0},
    {"help", NULL, EVERYWHERE, 'h', true, "show help of gpudays or of a command", parse_switch,
     TARGET(help), 0, 0},
    {"version", NULL, ON(NONE), 'V', true, "show the version", parse_switch, TARGET(version), 0, 0},
};
enum { OPTION_COUNT = sizeof options_table / sizeof *options_table };

const struct gd_option *gd_options(int *count) {
  *count = OPTION_COUNT;
  return options_table;
}

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
  for (int i = 0; i < OPTION_COUNT; i++) {
    int distance = distance_to(name, length, options_table[i].name);
    if (distance < best && (id == GD_COMMAND_NONE || taken_by(&options_table[i], id))) {
      best = distance;
      nearest = &options_table[i];
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
  for (int i = 0; i < OPTION_COUNT; i++) /* --device of another command was --device-memory here */
    if (taken_by(&options_table[i], id) &&
        strncmp(option->name, options_table[i].name, strlen(option->name)) == 0)
      return gd_fail(err, GD_BAD_INPUT, "--%s is not an option of %s; did you mean --%s?",
                     option->name, gd_commands[id].name, options_table[i].name);
  return gd_fail(err, GD_BAD_INPUT, "--%s is not an option of %s; it belongs to %s", option->name,
                 gd_commands[id].name, names);
}

/* --- the parser ---------------------------------------------------------------------------- */

struct parser {
  int argc;
  char **argv;
  int at; /* next argument */
  enum gd_command_id id;
  const struct gd_option *seen[OPTION_COUNT]; /* checked against the command at the end */
  int n_seen;
};

const struct gd_option *gd_option_find(const char *argument, const char **name, size_t *length) {
  bool is_long = argument[1] == '-';
  *name = argument + (is_long ? 2 : 1);
  *length = is_long ? strcspn(*name, "=") : strlen(*name);
  for (int i = 0; i < OPTION_COUNT; i++) {
    const struct gd_option *option = &options_table[i];
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
  if (option->argument && !value) {
    if (parser->at >= parser->argc)
      return gd_fail(err, GD_BAD_INPUT, "--%s needs a value: --%s %s", option->name, option->name,
                     option->argument);
    value = parser->argv[parser->at++];
  }
  bool again = false;
  for (int i = 0; i < parser->n_seen; i++)
    again = again || parser->seen[i] == option;
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
  return GD_OK;
}

/* Hardware of the catalogue. */
static enum gd_status check_gpu(const struct gd_cli *cli, struct gd_error *err) {
  const struct gd_cli_options *options = &cli->options;
  bool cost = cli->command == &gd_commands[GD_COMMAND_COST];
  const char *without = options->count              ? "count"
                        : options->machine && !cost ? "machine"
                        : options->network          ? "network"
                                                    : NULL;
  if (!options->gpu && without)
    return gd_fail(err, GD_BAD_INPUT, "--%s needs --gpu, which names what there are so many of",
                   without);
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
  GD_TRY(check_gpu(cli, err));
  GD_TRY(check_slurm(&cli->options, err));
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
  return gd_fail(err, GD_ENVIRONMENT, "out of memory while reading the command line");
}

enum gd_status gd_options_parse(int argc, char **argv, struct gd_cli *cli, struct gd_error *err) {
  struct parser parser = {.argc = argc, .argv = argv, .at = 1};
  bool options_end = false;
  cli->arguments = gd_arena_alloc(&cli->arena, (size_t)argc + 1, sizeof *cli->arguments);
  if (!cli->arguments)
    return gd_fail(err, GD_ENVIRONMENT, "out of memory while reading the command line");
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
  if (cli->options.models)
    GD_TRY(append_models(cli, err));
  return check_all(&parser, cli, err);
}
