/*
 * Money: what machines of the catalogue cost for a training run, and which one to take. A table of
 * options (one a machine) comes out of a model, a source of days and terms; choosing, fronts and
 * the paragraph for a grant proposal work on that table. Formulas: docs/cost.md, after Sec. 4.1 of
 * the paper. Nothing here prints; src/cli and src/report show it.
 *
 *   struct gd_money_table table = {0};
 *   struct gd_money_asked asked = {.hw = &hw, .paper = &paper, .store = store, .model = &model};
 *   GD_TRY(gd_money_terms_default(&hw, NULL, &asked.terms, err));
 *   GD_TRY(gd_money_table_make(&asked, &table, err));
 *   struct gd_money_advice advice;
 *   gd_money_advise(&table, &(struct gd_money_limits){.budget_usd = 40000}, &advice);
 *   gd_money_table_deinit(&table);
 */
#ifndef GD_MONEY_MONEY_H
#define GD_MONEY_MONEY_H

#include "base/strbuf.h"
#include "hw/gpu_spec.h"
#include "hw/hw.h"
#include "model/model.h"
#include "money/calendar.h"
#include "paper/paper.h"
#include "search/stand_in.h"
#include "store/store.h"

#define GD_MONEY_HOURS_A_YEAR  8760.0 /* 365 days */
#define GD_MONEY_HOURS_A_MONTH 730.0  /* a twelfth of that */

/* MFU of the fastest trial of each model in results/h200.csv, lowest and highest, in percent;
 * tests/cli/test_cost.sh holds them against the file. */
#define GD_MONEY_H200_MFU_LOW  39
#define GD_MONEY_H200_MFU_HIGH 65

/* --- terms --------------------------------------------------------------------------------- */

/* A figure that an answer rests on, with where it comes from. */
struct gd_money_figure {
  double value;
  char source[256]; /* "--pue", "Table 6 of ..., 2024-09-21" */
};

struct gd_money_terms {
  struct gd_money_figure life_years;  /* that hardware is used for */
  struct gd_money_figure utilisation; /* of a GPU's board power, while it trains; where power is
                                         known, this is not asked unless the user gave it */
  bool utilisation_given;
  struct gd_money_figure pue;                   /* energy of the building / of the machine */
  struct gd_money_figure usd_per_kwh;           /* electricity */
  struct gd_money_figure g_co2_per_kwh;         /* of its making */
  struct gd_money_figure mfu;                   /* of GD_TIMES_ANALYTIC */
  struct gd_money_figure rent_usd_per_gpu_hour; /* value 0: the catalogue's, by GPU */
  bool owned; /* the machines are there and paid: nothing to buy or to rent, only electricity */
  struct gd_queue queue; /* all zero: the machine is free, and stays so */
};
/*
 * Those of the catalogue, and for the rest those that docs/cost.md argues for. energy names a
 * record of the catalogue's; NULL: its usual one.
 */
enum gd_status gd_money_terms_default(struct gd_hw *hw, const char *energy,
                                      struct gd_money_terms *terms,
                                      struct gd_error *err) GD_MUST_USE;

/* Figures that a user may say. */
enum gd_money_term {
  GD_MONEY_USD_PER_KWH,
  GD_MONEY_PUE,
  GD_MONEY_UTILISATION,
  GD_MONEY_G_CO2_PER_KWH,
  GD_MONEY_MFU,
  GD_MONEY_USD_PER_GPU_HOUR,
  GD_MONEY_TERM_COUNT
};
/* Takes the place of what was assumed; source: where it comes from, "--pue". */
void gd_money_terms_set(struct gd_money_terms *terms, enum gd_money_term term, double value,
                        const char *source);
/*
 * A rent as a user says it: USD a GPU-hour above 0, 1000 at most, which goes into the terms, or
 * else a part of a provider's name, which is left in *provider. GD_BAD_INPUT for any other number.
 */
enum gd_status gd_money_terms_set_rent(struct gd_money_terms *terms, const char *text,
                                       const char **provider, struct gd_error *err) GD_MUST_USE;

/* --- days ---------------------------------------------------------------------------------- */

/* Where the days of a run come from. */
enum gd_times {
  GD_TIMES_AUTO, /* the first of the following that has an answer, paper excepted */
  GD_TIMES_MEASURED,
  GD_TIMES_PREDICTED, /* the best of a few methods; of all where none of these fits */
  GD_TIMES_ANALYTIC,  /* FLOPs / (GPUs x peak x terms.mfu); memory is not looked at */
  GD_TIMES_PAPER,     /* Table 1 */
  GD_TIMES_COUNT
};
const char *gd_times_name(enum gd_times times); /* "auto", "measured", ... */
bool gd_times_parse(const char *text, enum gd_times *times);

/* What physics says of a time: the FLOPs of the run over what the GPUs could do in it. */
enum gd_physics {
  GD_PHYSICS_FINE,
  GD_PHYSICS_DOUBTFUL,   /* 80 to 100 % of the peak */
  GD_PHYSICS_IMPOSSIBLE, /* more than the peak */
};
enum gd_physics gd_physics_of(double share);

enum gd_time_state {
  GD_TIME_UNKNOWN,    /* the source says nothing of this machine */
  GD_TIME_INFEASIBLE, /* it says that the model cannot be trained there */
  GD_TIME_KNOWN
};

struct gd_time {
  enum gd_time_state state;
  enum gd_times times;              /* which source answered: never AUTO */
  double days, days_low, days_high; /* KNOWN; low and high equal days where no interval is known */
  double share;                     /* of the GPUs' peak that these days need; 0: not known */
  double gpu_power_w; /* of a board, measured or predicted as the days were; 0: not known */
  struct {
    int nodes, cards;        /* of each node */
    const char *name, *like; /* NULL name: one node; like: the machine that has it so, or NULL */
    bool assumed;
  } network;        /* of a prediction */
  char method[128]; /* "free-lunch+zero1"; empty: the source does not say */
  char source[840]; /* "Table 1 of the paper", "measured 2024-05-04 on ..." */
};

/* Of a stand-in for a size (search/stand_in.h). */
struct gd_stand_in_answer gd_stand_in_answer_of(const struct gd_time *time);

/* --- options ------------------------------------------------------------------------------- */

/* What a training run consists of. */
struct gd_money_work {
  int64_t parameters;
  double tokens; /* images of a model of images */
  double flops_per_step, train_flops;
};
/* Counted on the model's graph, as `gpudays models` does. */
enum gd_status gd_money_work_of(const struct gd_model *model, struct gd_money_work *work,
                                struct gd_error *err) GD_MUST_USE;

/* One machine, and what the run costs on it. What is not known is NaN. */
struct gd_money_option {
  const struct gd_machine *machine;
  const struct gd_gpu *gpu;
  const struct gd_rent *rent; /* the cheapest offer of that GPU, or NULL */
  struct gd_time time;
  double checkpoint_bytes;     /* of the model; 0: not known */
  struct gd_calendar calendar; /* when it is done, with time.days of computing */
  double hardware_usd;         /* of the whole machine */
  double experiment_usd;       /* hardware_usd x days / life: Sec. 4.1 */
  double power_w;              /* at the wall of the building: PUE included */
  double energy_kwh, energy_usd, co2_kg;
  double rent_usd_per_hour; /* of as many GPUs */
  double rent_usd;          /* of the run */
  double break_even_months; /* of use, after which buying is cheaper; INFINITY: never */
  bool owned;               /* terms.owned: hardware_usd is 0, and there is no rent */
  bool hardware_front;      /* no other is cheaper to buy and as fast, or faster at its price */
  bool experiment_front;    /* the same with experiment_usd */
};

/*
 * Whose days are predicted, where it is not this engine: report/stack_days.h. Of one machine's
 * GPUs, the fastest method that fits; the state of a time stays GD_TIME_UNKNOWN where nothing is
 * said. It is called by one thread at a time.
 */
struct gd_money_stack {
  const char *name; /* of data/stacks */
  enum gd_status (*predict)(void *user, const struct gd_model *model,
                            const struct gd_target *target, struct gd_time *time,
                            struct gd_error *err);
  void *user;
};

struct gd_money_limits; /* below */
struct gd_money_asked {
  struct gd_hw *hw;
  const struct gd_paper *paper;
  struct gd_store *store; /* NULL: nothing is measured */
  const struct gd_model *model;
  /* A size alone: what is counted of it, and whose days are predicted in its place; model is the
     nearest of those, under its name. NULL: model is what it says. */
  const struct gd_outline *outline;
  const struct gd_stand_ins *stand_ins;
  enum gd_times times;
  const struct gd_money_stack *stack; /* of predicted days; NULL: this engine */
  /* A budget and days: leave out machines that gd_money_advise cannot take within them, to buy or
   * to rent, even if their GPUs reach their peak. Its advice of either stays the same, and is found
   * sooner. NULL: all machines. */
  const struct gd_money_limits *within;
  struct gd_money_terms terms;
  const char *machines;           /* names joined by commas; NULL: all of the catalogue */
  const struct gd_gpu_spec *gpus; /* these alone, whatever holds them; a count of 0: 1, 2, 4, 8 */
  int n_gpus;                     /* 0: all */
  const char *provider;           /* of rented GPUs: a part of its name; NULL: whoever asks least */
  /* Told of how many machines days are predicted; may be NULL. eta_s below 0: not known. */
  void (*progress)(void *user, const char *what, double done, double eta_s);
  void *progress_user;
  struct gd_money_shared *shared; /* set inside src/money: what several tables have in common */
};

struct gd_money_table {
  struct gd_arena arena;
  const struct gd_model *model;
  struct gd_money_terms terms;
  struct gd_money_work work;
  enum gd_times times;
  const char *stack;               /* whose days are predicted: "own", or a name of data/stacks */
  struct gd_money_option *options; /* by hardware_usd, then days; those without a price last */
  int count;
  char left_out[192]; /* measured devices that the catalogue does not have; empty: none */
};
/*
 * One option a machine that is for sale, and for GPUs that can only be rented one each of 1, 2, 4
 * and 8. GD_BAD_INPUT for a machine or a provider that is not in the catalogue. The table borrows
 * hw and model. Deinitialise it also after a failure.
 */
enum gd_status gd_money_table_make(const struct gd_money_asked *asked, struct gd_money_table *table,
                                   struct gd_error *err) GD_MUST_USE;
void gd_money_table_deinit(struct gd_money_table *table); /* safe on a zeroed one */

/* --- arithmetic ---------------------------------------------------------------------------- */

/* Everything of an option that follows from machine, GPU, rent, time and terms, its calendar too.
 */
void gd_money_price(const struct gd_money_terms *terms, struct gd_money_option *option);
/* What a machine costs that runs without pause for so many months: bought, and rented. */
/* The power of a GPU's board that an option's energy rests on, and how it is known: "measured by
   NVML", "modelled", or "board power in full" where neither is. */
double gd_money_gpu_w(const struct gd_money_terms *terms, const struct gd_money_option *option,
                      const char **how);
double gd_money_own_usd(const struct gd_money_terms *terms, const struct gd_money_option *option,
                        double months);
double gd_money_rent_usd(const struct gd_money_option *option, double months);
/*
 * on[i]: no other point is at most as large in both and smaller in one. Equal points are on the
 * front together; points that are not finite never are.
 */
void gd_money_front(const double *x, const double *y, int count, bool *on);

/* --- choosing ------------------------------------------------------------------------------ */

enum gd_money_ways { GD_MONEY_ANY, GD_MONEY_BUY, GD_MONEY_RENT };

/*
 * Days are those of the calendar, and within the limit where the upper end of their interval is:
 * GD_DEADLINE_LIKELY. So is a rent, which the days make, within a budget; the price of a machine is
 * what it is. The paper's days are held against limits as they are printed.
 */
struct gd_money_limits {
  double budget_usd, days; /* 0: none */
  bool at_risk;            /* the lower end of the intervals is enough */
  bool possible;           /* leave out days that physics does not allow: gd_physics_of */
  enum gd_money_ways ways; /* of gd_money_advise */
};
/* Of an option whose days are known. */
enum gd_deadline gd_money_deadline(const struct gd_money_option *option, double limit_days);
/* The rent of a run, and the interval that its days give it; low is NaN where none is known. */
struct gd_money_range {
  double low, high;
};
struct gd_money_range gd_money_rent_range(const struct gd_money_option *option);
/* The same of a budget: GD_DEADLINE_NONE without one, or without a price. */
enum gd_deadline gd_money_budget(const struct gd_money_option *option, bool rented,
                                 double budget_usd);
bool gd_money_within(const struct gd_money_option *option, const struct gd_money_limits *limits);
/*
 * The machine to buy: with a budget the fastest that it buys, of equals the cheapest; with days
 * alone the cheapest that is in time, of equals the fastest; without limits the lowest cost of the
 * run, energy included. NULL: none is within the limits. With both limits the days do not exclude:
 * how much can be trained in them is gd_money_reach's answer.
 */
const struct gd_money_option *gd_money_choose(const struct gd_money_table *table,
                                              const struct gd_money_limits *limits);
/* What costs least to rent for the run, within the days; the budget is for the rent then. */
const struct gd_money_option *gd_money_choose_rented(const struct gd_money_table *table,
                                                     const struct gd_money_limits *limits);
/* The nearest that there is when none is within the limits: the cheapest, or the fastest. */
const struct gd_money_option *gd_money_nearest(const struct gd_money_table *table,
                                               const struct gd_money_limits *limits);

/* What can be done for one run: rent a machine for its days, or buy one. */
struct gd_money_way {
  const struct gd_money_option *option; /* NULL: none */
  bool rented;
  double usd; /* of the run: its rent, or the machine and the run's electricity */
};

/* What is spent on one run: its rent, or the machine and the run's electricity. */
double gd_money_run_usd(const struct gd_money_option *option, bool rented);
/* All limits hold. A budget is for the machine or for its rent; electricity is not in it. */
bool gd_money_way_within(const struct gd_money_option *option, bool rented,
                         const struct gd_money_limits *limits);

/* Nearly equal: what is up to 5 % more. Much better: at most half. Not much more: up to twice. */
#define GD_MONEY_NEAR 1.05
#define GD_MONEY_MUCH 0.5
#define GD_MONEY_MOST 2.0

/*
 * Which way to take. With a budget the fastest way within it, of equals the cheapest; else the way
 * on which the least is spent, of equals the fastest. Where another is nearly as good in that and
 * much better in the other of the two, dollars or days, it is taken instead.
 */
struct gd_money_advice {
  const struct gd_money_option *option; /* NULL: nothing is within the limits */
  bool rented;
  double usd; /* as a way's */
  int ways;   /* within the limits: machines that can be rented, and machines that can be bought */
  bool near;  /* not the first by the rule, but nearly, and much better otherwise */
  struct gd_money_way cheapest; /* within the limits */
  struct gd_money_way fastest;  /* likewise; without a budget of those up to twice the cheapest */
  /* Rented: the machine whose purchase is the first to be cheaper than the cheapest rent within the
   * limits when the run is repeated. */
  const struct gd_money_option *rent; /* that is compared with */
  const struct gd_money_option *buy;  /* NULL: none is, within its life */
  double buy_runs;                    /* from so many runs on; a whole number */
  int for_sale;                       /* machines with days, whatever they cost */
  int compared;                       /* of these in time */
};
void gd_money_advise(const struct gd_money_table *table, const struct gd_money_limits *limits,
                     struct gd_money_advice *advice);

/* Factors on what advice rests on; all 1: as in the table. */
struct gd_money_scales {
  double rent, hardware, electricity, days;
};
/* The advice at other prices, or at other days. It points to a copy in the table's arena. */
enum gd_status gd_money_advise_scaled(struct gd_money_table *table,
                                      const struct gd_money_limits *limits,
                                      const struct gd_money_scales *scales,
                                      struct gd_money_advice *advice,
                                      struct gd_error *err) GD_MUST_USE;

/* How much of the run a budget and a deadline allow. */
struct gd_money_reach {
  const struct gd_money_option *option; /* NULL: none */
  double days;                          /* of training: the limit, or what the money lasts */
  double share;                         /* of the run, in those days; above 1: more than all */
  double usd;                           /* spent: the machine, or its rent */
};
/* Both limits must be given. Bought: hardware within the budget. Rented: as long as it lasts. */
void gd_money_reach_bought(const struct gd_money_table *table, const struct gd_money_limits *limits,
                           struct gd_money_reach *reach);
void gd_money_reach_rented(const struct gd_money_table *table, const struct gd_money_limits *limits,
                           struct gd_money_reach *reach);

/* --- words --------------------------------------------------------------------------------- */

/*
 * The compute paragraph of a grant proposal that follows the advice, then its assumptions, as plain
 * text in lines of up to 80 columns. advice->option must be there.
 */
void gd_money_paragraph(const struct gd_money_table *table, const struct gd_money_advice *advice,
                        struct gd_strbuf *out);

#endif
