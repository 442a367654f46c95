/*
 * The answer of `plan` and `bench` for one model on given hardware: time, speed, settings, memory,
 * cost, the next command and how far to trust it, a line each; of several as a table. An answer is
 * plain data with texts in the arena of the command, so that what it was made from can go.
 */
#ifndef GD_CLI_ANSWER_H
#define GD_CLI_ANSWER_H

#include "cli/predicting.h"
#include "money/calendar.h"
#include "report/stack_plan.h"
#include "search/remedies.h"

struct gd_answer {
  const char *model, *method;
  const char *place;    /* "4 x RTX 3090 24 GB" */
  const char *gpu;      /* "RTX 3090 24 GB"; NULL: this machine */
  int count;            /* of them */
  const char *software; /* "gpudays' own engine" */
  const char *stack;    /* "own", or a name of data/stacks */
  bool images;          /* samples are images, not tokens */
  bool cpu;             /* of a CPU: its parts are ranks, not GPUs */
  bool fits;
  const char *lacks;                /* where it does not: what it needs and has */
  double days, days_low, days_high; /* 0: not predicted, likewise what follows */
  const char *interval_of;          /* "95 %: "; NULL: the interval of a prediction */
  struct gd_calendar calendar;      /* when that is done */
  double limit_days;                /* --days; 0: none */
  double per_s, per_gpu_per_s;      /* tokens, or images */
  double mfu, hfu;
  enum gd_precision precision;
  int64_t micro_batch;
  double peak_bytes, limit_bytes;
  const char *clock;     /* what the paper's clock shows of it; or NULL */
  const char *run;       /* "143,000 steps of 1,024 x 2,049 tokens: 3.0e11 tokens"; or NULL */
  const char *settings;  /* "gradient accumulation 16 x micro-batch 16 per GPU" */
  const char *words;     /* the method in words */
  const char *mfu_words; /* MFU with its peak; NULL: the figure alone */
  const char *step;      /* what it consists of, and its times; or NULL */
  const char *memory;    /* by category; NULL: that is not known */
  const char *why;       /* why this method, where a simpler one does not fit; or NULL */
  const char *predicted; /* of a measured one: what was predicted; NULL: nothing was */
  const char *next, *trust;
  const char
      *elsewhere; /* the command that exports a plan for other software; NULL: of no target */
  /* of a target whose days are known; else NaN and NULL */
  double rent_usd, rent_usd_per_gpu_hour, hardware_usd, experiment_usd;
  double energy_kwh, energy_usd, co2_kg;
  const char *provider, *machine; /* who rents it out; what is bought */
  int machines;
};

/* Of a planned point; among: the points that it was chosen from, itself too. */
enum gd_status gd_answer_of_point(struct gd_cli *cli, struct gd_predicting *p,
                                  const struct gd_point *point, const struct gd_point *among,
                                  int count, struct gd_answer *answer,
                                  struct gd_error *err) GD_MUST_USE;
/* Of one that was measured here, or simulated. */
void gd_answer_of_trial(struct gd_cli *cli, const struct gd_predicting *p,
                        const struct gd_point *point, struct gd_answer *answer);
/* Of a row of another software. */
enum gd_status gd_answer_of_stack(struct gd_cli *cli, struct gd_stack_plan *plan,
                                  const struct gd_stack_row *row, struct gd_answer *answer,
                                  struct gd_error *err) GD_MUST_USE;

/* "4 x RTX 3090 24 GB"; gpus false: ranks. */
const char *gd_answer_place(struct gd_cli *cli, const char *device, int count, bool gpus);

void gd_answer_append(struct gd_cli *cli, const struct gd_answer *answer);
/* A row for each. */
enum gd_status gd_answer_table(struct gd_cli *cli, const struct gd_answer *answers, int count,
                               struct gd_error *err) GD_MUST_USE;
/* Where -o is given: whether a file can come of it; comparing: there are several answers. */
enum gd_status gd_answer_may_draw(const struct gd_cli *cli, bool comparing,
                                  struct gd_error *err) GD_MUST_USE;
/* A picture of them, or its figures, as the file of -o. */
enum gd_status gd_answer_draw(struct gd_cli *cli, const struct gd_answer *answers, int count,
                              struct gd_error *err) GD_MUST_USE;
/* Whether the answer's days may be within --days; *late: why not, of the first that is not. */
void gd_answer_note_deadline(const struct gd_answer *answer, bool *in_time, struct gd_error *late);
/* What an answer adds to the object of its trial: null where it is not known. */
void gd_answer_object(struct gd_show_object *to, const struct gd_answer *answer);

/* "--gpu 4x3090", with the nodes, machine and network that were asked for. */
const char *gd_answer_hardware(struct gd_cli *cli, const char *gpu, int count);
/* The limits and the micro-batch that were asked for, " --device-memory 8GiB". */
const char *gd_answer_limits(struct gd_cli *cli);
/* For a point that fits nowhere. */
enum gd_status gd_answer_find_remedies(struct gd_cli *cli, struct gd_predicting *p,
                                       const struct gd_points_asked *asked,
                                       const struct gd_point *point, struct gd_remedies *remedies,
                                       struct gd_error *err) GD_MUST_USE;
/* The command that plans with a remedy. */
const char *gd_answer_remedy_command(struct gd_cli *cli, const struct gd_point *point,
                                     const struct gd_target *target,
                                     const struct gd_remedy *remedy);
/* What to do where nothing fits: a line each with its command; or an array of them. */
void gd_answer_remedies(struct gd_cli *cli, const struct gd_point *point,
                        const struct gd_target *target, const struct gd_remedies *remedies);
void gd_answer_remedy_objects(struct gd_cli *cli, struct gd_show_object *to,
                              const struct gd_point *point, const struct gd_target *target,
                              const struct gd_remedies *remedies);

#endif
