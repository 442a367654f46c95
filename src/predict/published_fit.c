/*
 * The fit of published.h: Gauss-Newton with Levenberg's damping over the logarithms of the
 * parameters. Residuals are logarithms of predicted over published rates, in units of what such
 * figures scatter by; beyond one unit they count linearly (Huber's loss). Every source weighs the
 * same, and within a source every GPU. Parameters are pulled to what is expected of them, as weakly
 * as that is uncertain.
 */
#include <math.h>
#include <string.h>

#include "predict/published.h"

enum { N_GPU = GD_GPU_PARAMETERS, LOCAL = N_GPU + GD_STACK_FITTED_COUNT, ROUNDS = 12, TRIES = 6 };
enum { N_MOST = N_GPU + GD_STACK_FITTED_COUNT * GD_PUBLISHED_STACKS };
static const double scatter = 0.08;      /* of published figures of one setting */
static const double gemm_scatter = 0.04; /* of GEMMs that were looked for on purpose */
static const double source_weight = 12;  /* a source counts as so many rows */
static const double stack_width[GD_STACK_FITTED_COUNT] = {0.2, 0.6};
static const double difference = 1e-3, enough = 1e-3;

struct problem {
  const struct gd_published *published;
  const struct gd_published_leave *leave;
  struct gd_published_fit start; /* what is expected */
  double *weights;               /* by row; 0: left out */
  bool *first_of_gpu;            /* by row: no row before it is of its source and GPU */
  int n;                         /* parameters */
};

static double *value_at(struct gd_published_fit *fit, int i) {
  if (i < N_GPU)
    return &fit->gpu.value[i];
  return &fit->stack[(i - N_GPU) / GD_STACK_FITTED_COUNT][(i - N_GPU) % GD_STACK_FITTED_COUNT];
}

static double width_at(int i) {
  return i < N_GPU ? gd_gpu_parameter((enum gd_gpu_parameter)i)->width
                   : stack_width[(i - N_GPU) % GD_STACK_FITTED_COUNT];
}

/* Of the rows of its source and GPU, the first that counts? */
static bool first_of_gpu(const struct problem *p, int row) {
  const struct gd_published_row *rows = p->published->rows;
  for (int i = 0; i < row; i++)
    if (p->weights[i] > 0 && rows[i].group == rows[row].group &&
        strcmp(rows[i].gpu_name, rows[row].gpu_name) == 0)
      return false;
  return true;
}

static void set_weights(struct problem *p) {
  const struct gd_published *published = p->published;
  const struct gd_published_row *rows = published->rows;
  bool *first = p->first_of_gpu;
  for (int i = 0; i < published->count; i++) {
    p->weights[i] = !gd_published_left_out(published, p->leave, &rows[i]);
    first[i] = p->weights[i] > 0 && first_of_gpu(p, i);
  }
  for (int i = 0; i < published->count; i++) {
    int alike = 0, gpus = 0;
    for (int k = 0; k < published->count; k++)
      if (p->weights[k] > 0 && rows[k].group == rows[i].group) {
        alike += strcmp(rows[k].gpu_name, rows[i].gpu_name) == 0;
        gpus += first[k];
      }
    if (p->weights[i] > 0)
      p->weights[i] = source_weight / alike / gpus;
  }
}

static double row_residual(const struct problem *p, int i, const struct gd_published_fit *fit) {
  const struct gd_published_row *row = &p->published->rows[i];
  return log(gd_published_predict(p->published, row, fit, NULL) / row->per_gpu) / scatter;
}

static bool gemm_counts(const struct problem *p, int i) {
  return !gd_published_gemm_left_out(p->leave, &p->published->gemms[i]);
}

static double gemm_residual(const struct problem *p, int i, const struct gd_gpu_fit *fit) {
  const struct gd_published_gemm *gemm = &p->published->gemms[i];
  struct gd_gpu_model model;
  gd_gpu_model_make(gemm->gpu, fit, &model);
  return log(gd_gpu_model_gemm_flops(&model, 8192, 8192, 8192) / gemm->flops) / gemm_scatter;
}

static double huber(double r) {
  r = fabs(r);
  return r < 1 ? r * r / 2 : r - 0.5;
}

static double pull(const struct problem *p, struct gd_published_fit *fit, int i) {
  struct gd_published_fit start = p->start;
  return log(*value_at(fit, i) / *value_at(&start, i)) / width_at(i);
}

static double loss(const struct problem *p, struct gd_published_fit *fit) {
  double sum = 0;
  for (int i = 0; i < p->published->count; i++)
    if (p->weights[i] > 0)
      sum += p->weights[i] * huber(row_residual(p, i, fit));
  for (int i = 0; i < p->published->n_gemms; i++)
    if (gemm_counts(p, i))
      sum += huber(gemm_residual(p, i, &fit->gpu));
  for (int i = 0; i < p->n; i++) {
    double r = pull(p, fit, i);
    sum += r * r / 2;
  }
  return sum;
}

struct normal {
  double (*a)[N_MOST + 1], *g, *dx;
};

/* One residual and its derivatives by the parameters at places[0..n). */
static void add_residual(struct normal *normal, double r, double weight, const int *places,
                         const double *derivative, int n) {
  double w = weight * (fabs(r) > 1 ? 1 / fabs(r) : 1);
  for (int i = 0; i < n; i++) {
    normal->g[places[i]] += w * derivative[i] * r;
    for (int j = 0; j < n; j++)
      normal->a[places[i]][places[j]] += w * derivative[i] * derivative[j];
  }
}

static void add_rows(const struct problem *p, struct gd_published_fit *fit, struct normal *normal) {
  for (int i = 0; i < p->published->count; i++) {
    int places[LOCAL], stack = p->published->rows[i].stack;
    double derivative[LOCAL];
    if (p->weights[i] <= 0)
      continue;
    double r = row_residual(p, i, fit);
    for (int k = 0; k < LOCAL; k++) {
      places[k] = k < N_GPU ? k : N_GPU + stack * GD_STACK_FITTED_COUNT + k - N_GPU;
      derivative[k] = 0;
      if (k < N_GPU && !gd_gpu_uses(p->published->rows[i].target.gpu, (enum gd_gpu_parameter)k))
        continue;
      double *value = value_at(fit, places[k]), kept = *value;
      *value = kept * exp(difference);
      derivative[k] = (row_residual(p, i, fit) - r) / difference;
      *value = kept;
    }
    add_residual(normal, r, p->weights[i], places, derivative, LOCAL);
  }
}

static void add_gemms(const struct problem *p, struct gd_published_fit *fit,
                      struct normal *normal) {
  for (int i = 0; i < p->published->n_gemms; i++) {
    int places[N_GPU];
    double derivative[N_GPU];
    if (!gemm_counts(p, i))
      continue;
    double r = gemm_residual(p, i, &fit->gpu);
    for (int k = 0; k < N_GPU; k++) {
      struct gd_gpu_fit moved = fit->gpu;
      places[k] = k;
      derivative[k] = 0;
      if (!gd_gpu_uses(p->published->gemms[i].gpu, (enum gd_gpu_parameter)k))
        continue;
      moved.value[k] *= exp(difference);
      derivative[k] = (gemm_residual(p, i, &moved) - r) / difference;
    }
    add_residual(normal, r, 1, places, derivative, N_GPU);
  }
}

static void linearise(const struct problem *p, struct gd_published_fit *fit,
                      struct normal *normal) {
  for (int i = 0; i < p->n; i++) {
    double width = width_at(i);
    memset(normal->a[i], 0, sizeof normal->a[i]);
    normal->a[i][i] = 1 / (width * width);
    normal->g[i] = pull(p, fit, i) / width;
  }
  add_rows(p, fit, normal);
  add_gemms(p, fit, normal);
}

/* Gauss's elimination in place; the matrix is positive definite, so no pivot is small. */
static void solve(struct normal *normal, int n, double damping, double (*m)[N_MOST + 1]) {
  for (int i = 0; i < n; i++) {
    memcpy(m[i], normal->a[i], sizeof m[i]);
    m[i][i] *= 1 + damping;
    m[i][n] = -normal->g[i];
  }
  for (int k = 0; k < n; k++)
    for (int i = k + 1; i < n; i++) {
      double factor = m[i][k] / m[k][k];
      for (int j = k; factor != 0 && j <= n; j++)
        m[i][j] -= factor * m[k][j];
    }
  for (int i = n - 1; i >= 0; i--) {
    normal->dx[i] = m[i][n];
    for (int j = i + 1; j < n; j++)
      normal->dx[i] -= m[i][j] * normal->dx[j];
    normal->dx[i] /= m[i][i];
  }
}

/* One step downhill; false: none was found, or it gained too little. */
static bool improve(const struct problem *p, struct gd_published_fit *fit, double *best,
                    double *damping, struct normal *normal, double (*m)[N_MOST + 1]) {
  linearise(p, fit, normal);
  for (int try = 0; try < TRIES; try++) {
    struct gd_published_fit next = *fit;
    solve(normal, p->n, *damping, m);
    for (int i = 0; i < p->n; i++)
      *value_at(&next, i) *= exp(fmax(-0.5, fmin(0.5, normal->dx[i])));
    double value = loss(p, &next);
    if (value < *best) {
      bool more = *best - value > enough * *best;
      *fit = next;
      *best = value;
      *damping = fmax(*damping / 5, 1e-6);
      return more;
    }
    *damping *= 5;
  }
  return false;
}

static void set_start(struct problem *p) {
  const struct gd_stacks *stacks = &p->published->stacks;
  gd_gpu_fit_start(&p->start.gpu);
  for (int i = 0; i < stacks->count; i++)
    for (int k = 0; k < GD_STACK_FITTED_COUNT; k++) {
      double start = stacks->all[i].start[k];
      p->start.stack[i][k] = start > 0 ? start : 1;
    }
}

enum gd_status gd_published_fit(const struct gd_published *published,
                                const struct gd_published_leave *leave,
                                const struct gd_published_fit *from, struct gd_published_fit *fit,
                                struct gd_error *err) {
  struct problem p = {.published = published, .leave = leave};
  struct gd_arena arena = {0};
  struct normal normal;
  double damping = 1e-3;
  GD_ASSERT(published->stacks.count <= GD_PUBLISHED_STACKS);
  p.n = N_GPU + GD_STACK_FITTED_COUNT * published->stacks.count;
  p.weights = gd_arena_alloc(&arena, (size_t)published->count + 1, sizeof *p.weights);
  p.first_of_gpu = gd_arena_alloc(&arena, (size_t)published->count + 1, sizeof *p.first_of_gpu);
  normal.a = gd_arena_alloc(&arena, N_MOST, sizeof *normal.a);
  normal.g = gd_arena_alloc(&arena, N_MOST, sizeof *normal.g);
  normal.dx = gd_arena_alloc(&arena, N_MOST, sizeof *normal.dx);
  double(*m)[N_MOST + 1] = gd_arena_alloc(&arena, N_MOST, sizeof *m);
  if (!p.weights || !p.first_of_gpu || !normal.a || !normal.g || !normal.dx || !m) {
    gd_arena_deinit(&arena);
    return gd_nomem(err, "while fitting published throughput");
  }
  set_start(&p);
  set_weights(&p);
  *fit = from ? *from : p.start;
  /* A stack without rows has what its file says, whatever the fit began with. */
  memset(fit->stack_rows, 0, sizeof fit->stack_rows);
  fit->rows = 0;
  for (int i = 0; i < published->count; i++)
    if (p.weights[i] > 0) {
      fit->stack_rows[published->rows[i].stack]++;
      fit->rows++;
    }
  for (int i = 0; i < published->stacks.count; i++)
    if (fit->stack_rows[i] == 0)
      memcpy(fit->stack[i], p.start.stack[i], sizeof fit->stack[i]);
  double best = loss(&p, fit);
  for (int round = 0; round < ROUNDS && improve(&p, fit, &best, &damping, &normal, m); round++)
    continue;
  gd_arena_deinit(&arena);
  return GD_OK;
}
