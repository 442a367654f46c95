/*
 * What can be typed: the commands and the options, each in one table. The parser, the help of every
 * command, the manual page and the completion of shells all read these two tables; an option is
 * added by one row and one field.
 */
#ifndef GD_CLI_OPTIONS_H
#define GD_CLI_OPTIONS_H

#include <stddef.h>

#include "base/status.h"
#include "export/export.h"
#include "money/money.h"
#include "store/store.h"
#include "trial/choose.h"

struct gd_cli;

/* GD_COMMAND_NONE is `gpudays` itself: what --version and --help may stand alone with. */
enum gd_command_id {
  GD_COMMAND_NONE,
  GD_COMMAND_MODELS,
  GD_COMMAND_GPUS,
  GD_COMMAND_ESTIMATE,
  GD_COMMAND_PLAN,
  GD_COMMAND_COST,
  GD_COMMAND_BENCH,
  GD_COMMAND_RESULTS,
  GD_COMMAND_BEST,
  GD_COMMAND_EXPORT,
  GD_COMMAND_REPORT,
  GD_COMMAND_CALIBRATE,
  GD_COMMAND_FIT,
  GD_COMMAND_ACCURACY,
  GD_COMMAND_PUBLISHED,
  GD_COMMAND_WHY,
  GD_COMMAND_TOKENS,
  GD_COMMAND_TRAIN,
  GD_COMMAND_SAMPLE,
  GD_COMMAND_EVALUATE,
  GD_COMMAND_RUNS,
  GD_COMMAND_WATCH,
  GD_COMMAND_SURVEY,
  GD_COMMAND_VERIFY,
  GD_COMMAND_DOCTOR,
  GD_COMMAND_SCHEMA,
  GD_COMMAND_COMPLETION,
  GD_COMMAND_HELP,
  GD_COMMAND_COUNT
};

struct gd_command {
  const char *name;
  const char *arguments; /* for the usage line: "MODEL..." */
  int least, most;       /* how many arguments; most -1: any number */
  const char *summary;   /* one line of `gpudays help` */
  const char *about;     /* what --help says under the usage line; lines of up to 80 columns */
  const char *example;
  enum gd_status (*run)(struct gd_cli *cli, struct gd_error *err);
};

/* By id; GD_COMMAND_NONE has no name. */
extern const struct gd_command gd_commands[GD_COMMAND_COUNT];

/* A number of which zero is a value. */
struct gd_cli_number {
  bool given;
  double value;
};

/* Where options land. Zero is "not given" unless said otherwise. */
struct gd_cli_options {
  /* Switches first and enums behind them: no gaps. */
  bool help, version, json, csv, quiet, wide, explain, profile, fresh, retry_failed, no_store, man;
  bool precision_given, optimizer_given, format_given;
  bool slurm, simulate, fast, total, text, yes;
  bool no_predictions;               /* of report */
  bool paper_peaks;                  /* --peaks paper */
  bool questions, template;          /* of survey; the latter of accuracy add too */
  bool decode, special, split_lines; /* of tokens */
  enum gd_micro_batch micro_batch;
  enum gd_precision precision;
  enum gd_optimizer optimizer;
  enum gd_trial_status status; /* what filter.status points to */
  enum gd_export_format format;
  enum gd_times times;
  const char *backend;      /* "cpu" when not given */
  const char *stack;        /* NULL: this engine */
  const char *methods;      /* NULL: naive, and of export the best */
  const char *without;      /* passes to switch off, joined by commas */
  const char *explain_pass; /* "passes", or the name of one; NULL: --explain shows the plan */
  const char *not_a_pass;   /* the word after --explain, where it was taken for an argument */
  int64_t threads;
  const char *calibration;
  int64_t micro_batch_size;
  int64_t device_memory_bytes, host_memory_bytes;
  int64_t seq, batch, steps, tokens, params;
  int64_t seed;
  double sample_seconds;
  int64_t ranks;
  double rank_timeout; /* seconds; likewise the next two */
  double time_limit, trial_timeout;
  int64_t nodes;
  const char *machine, *network; /* of the catalogue, that hold and join what gpu names */
  const char *slurm_config, *slurm_device, *slurm_dir;
  const char *store;             /* the database's file */
  const char *models;            /* names joined by commas: further arguments */
  struct gd_store_filter filter; /* of results; its ranks are above */
  char since[32];                /* what filter.since points to */
  const char *output;            /* a file, instead of stdout; of report a folder */
  double job_time;               /* seconds */
  const char *gpu;    /* a record of the catalogue; of estimate several, joined by commas */
  int64_t count;      /* how many of them, also where --gpu says it: 4x3090 */
  const char *counts; /* "1,2,4,8": several of them; NULL: one */
  const struct gd_gpu_spec *gpus; /* all that --gpu names */
  int n_gpus;
  const char *check;                     /* a file of records to validate */
  struct gd_cli_number budget_usd, days; /* of cost, likewise what follows */
  struct gd_cli_number kwh_usd, pue, utilisation, co2, mfu;
  const char *rent, *energy;
  bool own;
  struct gd_cli_number usd_per_hour, gpu_usd;
  double wall_limit, queue_wait; /* seconds */
  int64_t jobs;
  int64_t synthetic;  /* answers of survey to invent */
  const char *survey; /* of report: a file of answers */
  const char *runs;   /* of report: a folder of runs, or a run */
  /* of train */
  bool dry_run, job_status;
  bool deterministic; /* of bench, too */
  struct gd_cli_number epochs;
  bool once; /* of watch */
  const char *data, *eval, *schedule, *betas;
  const char *augment, *normalize; /* of images, likewise what follows */
  struct gd_cli_number label_smoothing, drop_path;
  int64_t data_threads;
  struct gd_cli_number lr, min_lr, warmup, weight_decay, clip, mask_token;
  struct gd_cli_number checkpoint_every; /* steps; below 0: seconds */
  int64_t keep, eval_every, token_bytes, retries, check_hardware;
  struct gd_cli_number decay;
  const char *init;
  /* of sample and evaluate */
  const char *prompt;
  int64_t length, samples;
  struct gd_cli_number temperature, top_p;
  /* of why */
  const char *log;
  int64_t tokens_per_s;
  struct gd_cli_number samples_per_s;
  double step_time; /* seconds */
  /* of tokens */
  const char *tokenizer, *eos, *field, *tokens_format;
  struct gd_cli_number validation;
};

struct gd_option {
  const char *name;     /* without the dashes */
  const char *argument; /* "SIZE"; "[PASS]": may be left out; NULL: a switch */
  unsigned commands;    /* bit per enum gd_command_id */
  char letter;          /* "-h"; 0: none */
  bool common;          /* help names it on one line with its like */
  const char *help;     /* up to 56 columns */
  /* Reads text (NULL for a switch) into the options; target is the offset of the field. */
  enum gd_status (*parse)(const struct gd_option *option, const char *text,
                          struct gd_cli_options *options, struct gd_error *err);
  size_t target;
  int64_t low, high; /* of numbers */
};

enum { GD_OPTIONS_MOST = 160 };
extern const struct gd_option gd_option_table[];
extern const int gd_option_count; /* at most GD_OPTIONS_MOST */
/*
 * The option that "--name", "--name=value" or "-x" asks for, or NULL; its name as it stands there
 * and how long that is, in either case.
 */
const struct gd_option *gd_option_find(const char *argument, const char **name, size_t *length);

/*
 * Fills cli->command (NULL: none was named), cli->options, cli->arguments. Options may stand
 * anywhere; "--" ends them. GD_BAD_INPUT or GD_UNSUPPORTED for what cannot be read.
 */
enum gd_status gd_options_parse(int argc, char **argv, struct gd_cli *cli,
                                struct gd_error *err) GD_MUST_USE;
/* The command of that name, or GD_BAD_INPUT with the nearest one. */
enum gd_status gd_command_find(const char *name, enum gd_command_id *id,
                               struct gd_error *err) GD_MUST_USE;

#endif
