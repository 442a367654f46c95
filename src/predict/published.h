/*
 * Training throughput that others measured and published (data/published): what the GPU model and
 * the stacks are fitted to, and judged by. A fit can leave out a GPU, a source, a stack or some of
 * the models; every source weighs the same in it, however many rows it has.
 *
 *   struct gd_published published = {0};
 *   struct gd_published_fit fit;
 *   GD_TRY(gd_published_load(&published, err));
 *   GD_TRY(gd_published_fit(&published, &(struct gd_published_leave){.gpu = "h100"}, NULL, &fit,
 * err)); double per_gpu = gd_published_predict(&published, &published.rows[0], &fit);
 *   gd_published_deinit(&published);
 */
#ifndef GD_PREDICT_PUBLISHED_H
#define GD_PREDICT_PUBLISHED_H

#include "predict/stack_step.h"

struct gd_published_row {
  const char *id, *source, *gpu_name, *model, *note;
  int group; /* of its source: rows of one repository or page are one source */
  const struct gd_stack_facts *facts;
  int stack; /* its number in the stacks */
  struct gd_target target;
  struct gd_network network; /* where the row states one */
  struct gd_method method;
  enum gd_precision precision;
  int64_t seq, micro_batch, batch; /* seq 0: images */
  double gradient_bytes;           /* 0: as the stack has it */
  double per_gpu;                  /* tokens or images a second */
  const char *kind;                /* of its model: gd_family_kind */
  int works;                       /* number of its ops in gd_published.works */
  int fold;                        /* rows of one model are in one */
};

/* A GEMM's best rate on a GPU, in 16 bits. */
struct gd_published_gemm {
  const struct gd_gpu *gpu;
  double flops;
};

enum { GD_PUBLISHED_FOLDS = 5 };

struct gd_published {
  struct gd_arena arena;
  struct gd_hw hw;
  struct gd_stacks stacks;
  struct gd_published_row *rows;
  int count;
  const char **sources;
  int n_sources;
  struct gd_stack_works *works;
  int n_works;
  struct gd_published_gemm *gemms;
  int n_gemms;
};

/* The rows inside the program, and those that the user added ($XDG_DATA_HOME/gpudays/published). */
enum gd_status gd_published_load(struct gd_published *published, struct gd_error *err) GD_MUST_USE;
/* Those of one file alone: what is wrong in it, or an id that another row has, is GD_BAD_INPUT that
   names file and line. */
enum gd_status gd_published_load_file(struct gd_published *published, const char *path,
                                      struct gd_error *err) GD_MUST_USE;
/* The columns of such a file, and a row to replace. */
void gd_published_template(struct gd_strbuf *out);
/* Puts such a file where gd_published_load finds it, whole or not at all; *to, of `size` bytes,
   becomes its path. A file of the same name is replaced, unless a row of it would be lost. */
enum gd_status gd_published_keep(const char *path, char *to, size_t size,
                                 struct gd_error *err) GD_MUST_USE;
void gd_published_deinit(struct gd_published *published); /* safe on a zeroed one */

/* What a fit must not see; NULL and -1: nothing is left out. */
struct gd_published_leave {
  const char *gpu, *architecture, *stack;
  int source, fold; /* counted from 1; 0: none */
};
bool gd_published_left_out(const struct gd_published *published,
                           const struct gd_published_leave *leave,
                           const struct gd_published_row *row);
bool gd_published_gemm_left_out(const struct gd_published_leave *leave,
                                const struct gd_published_gemm *gemm);

enum { GD_PUBLISHED_STACKS = 64 };
struct gd_published_fit {
  struct gd_gpu_fit gpu;
  double stack[GD_PUBLISHED_STACKS][GD_STACK_FITTED_COUNT];
  int rows;                            /* that it was fitted to */
  int stack_rows[GD_PUBLISHED_STACKS]; /* of each stack */
};
/* from: a fit to begin with; NULL: what is expected. */
enum gd_status gd_published_fit(const struct gd_published *published,
                                const struct gd_published_leave *leave,
                                const struct gd_published_fit *from, struct gd_published_fit *fit,
                                struct gd_error *err) GD_MUST_USE;

/* What `gpudays fit` has kept, as a fit. */
enum gd_status gd_published_kept_fit(const struct gd_published *published,
                                     struct gd_published_fit *fit,
                                     struct gd_error *err) GD_MUST_USE;

/* Tokens or images a second and GPU; *step, which may be NULL, is the step behind it. */
double gd_published_predict(const struct gd_published *published,
                            const struct gd_published_row *row, const struct gd_published_fit *fit,
                            struct gd_stack_step *step);

#endif
