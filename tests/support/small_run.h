/*
 * A small model of tests/reference, built with or without some passes, planned and run on a fixed
 * batch whose labels are partly ignored: what tests of passes compare before and after.
 *
 *   struct small_run a, b;
 *   small_start(&a, &(struct small_setup){.reference = "gpt2-a", .backend = "cpu"});
 *   small_start(&b, &(struct small_setup){.reference = "gpt2-a", .backend = "cpu",
 *                                         .after = gd_pass_accumulate});
 *   small_pass(&a), small_pass(&b);
 *   assert_true(small_worst_gradient(&a, &b, NULL) < 1e-6);
 *   small_stop(&a), small_stop(&b);
 */
#ifndef GD_TESTS_SUPPORT_SMALL_RUN_H
#define GD_TESTS_SUPPORT_SMALL_RUN_H

#include "exec/run.h"
#include "pass/pass.h"

struct small_setup {
  const char *reference; /* a folder of tests/reference, or the text of a config.json */
  const char *backend;
  int threads; /* 0: as many as there are */
  enum gd_precision precision;
  int64_t micro_batch;                                                    /* 0: 3 */
  int64_t seq;                                                            /* 0: 11 */
  bool trims;                                                             /* of struct gd_graph */
  bool all_ignored;                                                       /* no label counts */
  enum gd_status (*before)(struct gd_graph *graph, struct gd_error *err); /* autodiff; NULL */
  enum gd_status (*after)(struct gd_pass_ctx *ctx, struct gd_graph *graph);
};

struct small_run {
  struct gd_model model;
  struct gd_graph graph;
  struct gd_plan plan;
  struct gd_backend *backend;
  struct gd_run run;
  struct gd_error err;
};

/* The references there are, one of each family and kind of head; ends with NULL. */
extern const char *const small_references[];

void small_start(struct small_run *s, const struct small_setup *setup); /* fails the test */
void small_stop(struct small_run *s);

/* One pass over the batch; returns its loss. Gradients add up from pass to pass. */
double small_pass(struct small_run *s);

/*
 * The largest ||g - r|| / max(||r||, 1e-4 ||all r||) over parameters, g of a and r of b, and its
 * name where asked for. 0: the same bits.
 */
double small_worst_gradient(struct small_run *a, struct small_run *b, const char **name);

#endif
