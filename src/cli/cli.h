/*
 * The program around the library: what every subcommand gets and fills. Subcommands (cmd_*.c) parse
 * nothing and print nothing themselves: they append to cli->out, which main() writes in one go, so
 * that a full disk is noticed and an error never comes after half an answer.
 */
#ifndef GD_CLI_CLI_H
#define GD_CLI_CLI_H

#include "base/mem.h"
#include "base/strbuf.h"
#include "cli/options.h"
#include "store/store_best.h"

struct gd_comm;

struct gd_cli {
  const struct gd_command *command; /* NULL: none was named */
  struct gd_cli_options options;
  const char **arguments; /* what is neither command nor option; in the arena */
  int n_arguments;
  const struct gd_option **given; /* options, each once; in the arena */
  int n_given;
  bool verbatim;        /* the output is for another tool: its lines stay as long as they are */
  bool bold;            /* stdout is a terminal that may be coloured */
  bool colour;          /* stderr may be coloured */
  bool progress;        /* stderr is a terminal, and not --quiet */
  int rank;             /* of this process in its job; 0 outside one */
  struct gd_comm *comm; /* NULL until gd_launch_join; main() closes it */
  struct gd_arena arena;
  struct gd_strbuf out;   /* for stdout */
  struct gd_strbuf notes; /* lines for stderr, where stdout is a file of its own */
};

/*
 * The subcommands. "The answer is no" (infeasible, numbers off) is an error status with its
 * sentence, after the table or the JSON was appended to cli->out.
 */
enum gd_status gd_cmd_models(struct gd_cli *cli, struct gd_error *err);
enum gd_status gd_cmd_gpus(struct gd_cli *cli, struct gd_error *err);
enum gd_status gd_cmd_estimate(struct gd_cli *cli, struct gd_error *err);
enum gd_status gd_cmd_plan(struct gd_cli *cli, struct gd_error *err);
enum gd_status gd_cmd_bench(struct gd_cli *cli, struct gd_error *err);
enum gd_status gd_cmd_train(struct gd_cli *cli, struct gd_error *err);
struct gd_trained;
/* gd_trained_find; says on stderr which damaged checkpoints it left out. */
enum gd_status gd_cli_find_trained(struct gd_cli *cli, const char *path, struct gd_trained *trained,
                                   struct gd_error *err) GD_MUST_USE;
enum gd_status gd_cmd_sample(struct gd_cli *cli, struct gd_error *err);
enum gd_status gd_cmd_evaluate(struct gd_cli *cli, struct gd_error *err);
enum gd_status gd_cmd_runs(struct gd_cli *cli, struct gd_error *err);
enum gd_status gd_cmd_watch(struct gd_cli *cli, struct gd_error *err);
enum gd_status gd_cmd_fit(struct gd_cli *cli, struct gd_error *err);
enum gd_status gd_cmd_accuracy(struct gd_cli *cli, struct gd_error *err);
enum gd_status gd_cmd_published(struct gd_cli *cli, struct gd_error *err);
enum gd_status gd_cmd_why(struct gd_cli *cli, struct gd_error *err);
enum gd_status gd_cmd_results(struct gd_cli *cli, struct gd_error *err);
enum gd_status gd_cmd_best(struct gd_cli *cli, struct gd_error *err);
enum gd_status gd_cmd_export(struct gd_cli *cli, struct gd_error *err);
enum gd_status gd_cmd_survey(struct gd_cli *cli, struct gd_error *err);
enum gd_status gd_cmd_tokens(struct gd_cli *cli, struct gd_error *err);
enum gd_status gd_cmd_cost(struct gd_cli *cli, struct gd_error *err);
enum gd_status gd_cmd_report(struct gd_cli *cli, struct gd_error *err);
enum gd_status gd_cmd_verify(struct gd_cli *cli, struct gd_error *err);
enum gd_status gd_cmd_calibrate(struct gd_cli *cli, struct gd_error *err);
enum gd_status gd_cmd_doctor(struct gd_cli *cli, struct gd_error *err);
enum gd_status gd_cmd_schema(struct gd_cli *cli, struct gd_error *err);
enum gd_status gd_cmd_completion(struct gd_cli *cli, struct gd_error *err);
enum gd_status gd_cmd_help(struct gd_cli *cli, struct gd_error *err);
enum gd_status gd_cmd_version(struct gd_cli *cli, struct gd_error *err);

/*
 * The command that the search gives its trials' processes (search/child.h); it is in no table.
 * gd_cmd_trial_parse takes the place of gd_options_parse where the command line is one of it.
 */
extern const struct gd_command gd_command_trial, gd_command_rank;
bool gd_cmd_trial_parse(int argc, char **argv, struct gd_cli *cli);

/* The file that -o names; NULL where it names none, or stdout ("-" or /dev/stdout). */
const char *gd_cli_file(const char *output);
/* What no command may write over, for gd_file_protect: the store with SQLite's files next to it,
   and the files that the command reads. The list is in the arena. */
enum gd_status gd_cli_protect(struct gd_cli *cli, struct gd_error *err) GD_MUST_USE;
/* The text of a file under data/ that travels in the program, or NULL. */
const char *gd_cli_embedded(const char *path);
/* Loads a model and applies --seq, --batch, --steps, --tokens, --optimizer to it. */
/* Sets GPUDAYS_DETERMINISTIC for this process and those it starts; --deterministic is "kept". */
enum gd_status gd_cli_be_deterministic(const char *how, struct gd_error *err) GD_MUST_USE;
/* How it is set; "": it is not. */
const char *gd_cli_determinism(void);
enum gd_status gd_cli_load_model(const struct gd_cli *cli, const char *name, struct gd_model *model,
                                 struct gd_error *err) GD_MUST_USE;
/*
 * The options of this command line that make the recipe another one than the model's own, each with
 * a blank before it: " --batch 64 --seq 256". For every command that a sentence suggests. size:
 * GD_CLI_RECIPE_TEXT is enough.
 */
enum { GD_CLI_RECIPE_TEXT = 224 };
const char *gd_cli_recipe_options(const struct gd_cli *cli, char *text, size_t size);
/* What gd_best_query is asked by this command line; it borrows all of its arguments. */
struct gd_best_asked gd_cli_best_asked(struct gd_cli *cli, const struct gd_model *model,
                                       const struct gd_store_filter *filter,
                                       char recipe[GD_CLI_RECIPE_TEXT]);
/*
 * The methods that --methods lists, in the arena: names joined by commas, of which `all` is the
 * search space of as many ranks as there are. usual: the list where none is given.
 */
enum gd_status gd_cli_methods(struct gd_cli *cli, const char *usual, struct gd_method **methods,
                              int *count, struct gd_error *err) GD_MUST_USE;
/* Whether an option of that name is on the command line. */
bool gd_cli_was_given(const struct gd_cli *cli, const char *name);
/* --json or --csv. */
bool gd_cli_for_programs(const struct gd_cli *cli);
/* What --backend says, or the fastest that works here. */
const char *gd_cli_backend(const struct gd_cli *cli);
/* Writes cli->out and empties it. main does so at the end, when a command has its whole answer; a
   command whose output has no bound does it on the way. */
enum gd_status gd_cli_write(struct gd_cli *cli, struct gd_error *err) GD_MUST_USE;
/* That of --precision; NULL: it was not given. */
const enum gd_precision *gd_cli_precision(const struct gd_cli *cli);
/* The options of a trial; they borrow from cli. */
void gd_cli_trial_options(const struct gd_cli *cli, const struct gd_method *method,
                          struct gd_trial_options *options);

#endif
