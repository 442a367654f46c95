/*
 * What `gpudays cost` answers, as data: for one model over the machines of a table, or for all
 * presets within a budget and a deadline.
 */
#ifndef GD_MONEY_ANSWER_H
#define GD_MONEY_ANSWER_H

#include "money/money.h"

/* --- one model ----------------------------------------------------------------------------- */

/* What is nearest to the limits where nothing is within them. */
struct gd_money_near {
  struct gd_money_way way; /* option NULL: nothing has days, whatever the limits */
  bool cheapest; /* the least that is spent, within the days that are asked for; else the fastest */
  const struct gd_money_option *buy; /* a machine, where way is a rent and one limit is asked for */
};

struct gd_money_answer {
  bool known;     /* some machine has days */
  int infeasible; /* machines on which the model cannot be trained */
  int unknown;    /* machines of which the source says nothing */
  struct gd_money_advice advice;
  const struct gd_money_option *chosen, *rented; /* to buy, to rent; NULL: none within the limits */
  const struct gd_money_option *possible;        /* chosen as if impossible days were not there */
  int chosen_of; /* machines to buy that it is chosen among; with a budget, whatever their days */
  /* Where advice has no option: what is in time by the lower end of its interval, and of these the
     one whose upper end comes first. */
  struct gd_money_way at_risk;
  int deadlines[GD_DEADLINE_NO + 1];                /* machines with days, by what they are */
  struct gd_money_near near;                        /* where advice has no option */
  struct gd_money_reach reach_bought, reach_rented; /* with a budget and days */
};
/* It points into the table. */
void gd_money_answer(const struct gd_money_table *table, const struct gd_money_limits *limits,
                     struct gd_money_answer *answer);

/* Other prices, and other days, that an answer is tried at: for gd_money_advise_scaled. */
struct gd_money_variant {
  const char *name; /* "half the rent" */
  struct gd_money_scales scales;
};
extern const struct gd_money_variant gd_money_variants[];
extern const int gd_money_variant_count;

/* --- all presets --------------------------------------------------------------------------- */

/* A preset, and what gd_money_advise says of it within the limits, of each way. */
struct gd_money_preset {
  struct gd_model model;
  struct gd_money_table table;
  struct gd_money_advice advice[2]; /* to buy, to rent */
};

struct gd_money_presets {
  struct gd_money_preset *list; /* by the FLOPs of their runs */
  int count;
};
/*
 * Prices every preset within a budget and a deadline; asked->model is not looked at. begin is told
 * of each before it begins. A preset that cannot be read is left out: `gpudays models` tells of it.
 * Deinitialise it also after a failure.
 */
enum gd_status
gd_money_presets_make(const struct gd_money_asked *asked, const struct gd_money_limits *limits,
                      void (*begin)(void *user, const char *name, int number, int count),
                      void *user, struct gd_money_presets *presets,
                      struct gd_error *err) GD_MUST_USE;
void gd_money_presets_deinit(struct gd_money_presets *presets); /* safe on a zeroed one */

/* The preset with the most FLOPs that can be trained, rented or bought; NULL: none. */
const struct gd_money_preset *gd_money_presets_largest(const struct gd_money_presets *presets,
                                                       bool rented);
/* The parameters of a model that trains on 20 tokens each, and these tokens, in so many days at the
   rate that the upper end of what is advised for that preset leaves: C = 6 N 20 N. */
double gd_money_presets_size(const struct gd_money_preset *preset, bool rented, double days,
                             double *tokens);
/* A table that rests on all terms that any of them rests on; there must be a preset. */
const struct gd_money_table *gd_money_presets_terms(const struct gd_money_presets *presets);

#endif
