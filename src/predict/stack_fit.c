/*
 * The fit of stack_paper.h: Gauss-Newton with Levenberg's damping over the logarithms of what
 * parameters are above the least that they can be. Residuals are logarithms of predicted over
 * measured days; beyond 15 % they count linearly (Huber's loss), since single cells of the tables
 * are off by two or more. A weak pull to the starting values keeps in place what the cells at hand
 * say nothing about.
 */
#include <math.h>
#include <string.h>

#include "predict/stack_paper.h"

enum { N = GD_STACK_PARAMETERS, ROUNDS = 30, TRIES = 8 };
static const double huber = 0.15, pull = 0.15, step = 1e-3, enough = 1e-6;

struct problem {
  const struct gd_stack *stack;
  const struct gd_stack_leave *leave;
  double start[N];
};

static bool counts(const struct problem *problem, const struct gd_stack_cell *cell) {
  return cell->group == GD_STACK_FITTED && !gd_stack_leaves_out(problem->leave, cell);
}

/* Coordinates of the fit: logarithms of what a parameter is above its least value. */
static double value_of(int parameter, double x) {
  return gd_stack_parameter((enum gd_stack_parameter)parameter)->least + exp(x);
}

static double start_of(int parameter) {
  const struct gd_stack_parameter_info *info =
      gd_stack_parameter((enum gd_stack_parameter)parameter);
  return log(info->start - info->least);
}

static void to_fit(const double *x, struct gd_stack_fit *fit) {
  for (int i = 0; i < N; i++)
    fit->value[i] = value_of(i, x[i]);
}

enum residual { DAYS, CHOICE, RESIDUALS };
static const double choice_weight = 0.2;

/* 0 where the model finds no room: nothing to learn from. */
static double residual(const struct gd_stack_cell *cell, const struct gd_stack_fit *fit,
                       enum residual which) {
  struct gd_stack_answer answer;
  double regret = gd_stack_cell_regret(cell, fit);
  if (which == CHOICE)
    return regret > 0 ? choice_weight * log(1 + regret) : 0;
  gd_stack_cell_predict(cell, fit, &answer);
  return answer.feasible ? log(answer.days / cell->paper->days) : 0;
}

static double loss(const struct problem *problem, const double *x) {
  struct gd_stack_fit fit = {0};
  double sum = 0;
  to_fit(x, &fit);
  for (int i = 0; i < problem->stack->n_cells; i++) {
    const struct gd_stack_cell *cell = &problem->stack->cells[i];
    if (!counts(problem, cell))
      continue;
    for (int which = 0; which < RESIDUALS; which++) {
      double r = fabs(residual(cell, &fit, (enum residual)which));
      sum += r < huber ? r * r / 2 : huber * (r - huber / 2);
    }
  }
  for (int i = 0; i < N; i++)
    sum += pull * (x[i] - problem->start[i]) * (x[i] - problem->start[i]) / 2;
  return sum;
}

/* Normal equations at x: a dx = -g. */
static void linearise(const struct problem *problem, const double *x, double a[N][N], double *g) {
  struct gd_stack_fit at = {0}, moved[N];
  memset(a, 0, sizeof(double[N][N]));
  to_fit(x, &at);
  for (int i = 0; i < N; i++) {
    moved[i] = at;
    moved[i].value[i] = value_of(i, x[i] + step);
    a[i][i] = pull;
    g[i] = pull * (x[i] - problem->start[i]);
  }
  for (int c = 0; c < RESIDUALS * problem->stack->n_cells; c++) {
    const struct gd_stack_cell *cell = &problem->stack->cells[c / RESIDUALS];
    const enum residual which = (enum residual)(c % RESIDUALS);
    double derivative[N];
    if (!counts(problem, cell))
      continue;
    double r = residual(cell, &at, which), weight = fabs(r) > huber ? huber / fabs(r) : 1;
    for (int i = 0; i < N; i++)
      derivative[i] = (residual(cell, &moved[i], which) - r) / step;
    for (int i = 0; i < N; i++) {
      g[i] += weight * derivative[i] * r;
      for (int j = 0; j < N; j++)
        a[i][j] += weight * derivative[i] * derivative[j];
    }
  }
}

/* Gauss's elimination; a is positive definite, so no pivot is small. */
static void solve(double a[N][N], const double *g, double damping, double *dx) {
  double m[N][N + 1];
  for (int i = 0; i < N; i++) {
    for (int j = 0; j < N; j++)
      m[i][j] = a[i][j] * (i == j ? 1 + damping : 1);
    m[i][N] = -g[i];
  }
  for (int k = 0; k < N; k++)
    for (int i = k + 1; i < N; i++) {
      double factor = m[i][k] / m[k][k];
      for (int j = k; j <= N; j++)
        m[i][j] -= factor * m[k][j];
    }
  for (int i = N - 1; i >= 0; i--) {
    dx[i] = m[i][N];
    for (int j = i + 1; j < N; j++)
      dx[i] -= m[i][j] * dx[j];
    dx[i] /= m[i][i];
  }
}

/* One step downhill; false: none was found, or it gained too little. */
static bool improve(const struct problem *problem, double *x, double *best, double *damping) {
  double a[N][N], g[N], dx[N], next[N];
  linearise(problem, x, a, g);
  for (int try = 0; try < TRIES; try++) {
    solve(a, g, *damping, dx);
    for (int i = 0; i < N; i++)
      next[i] = x[i] + dx[i];
    double value = loss(problem, next);
    if (value < *best) {
      bool more = *best - value > enough;
      memcpy(x, next, sizeof next);
      *best = value;
      *damping = fmax(*damping / 5, 1e-6);
      return more;
    }
    *damping *= 5;
  }
  return false;
}

void gd_stack_fit(const struct gd_stack *stack, const struct gd_stack_leave *leave,
                  struct gd_stack_fit *fit) {
  struct problem problem = {.stack = stack, .leave = leave};
  double x[N], damping = 1e-2;
  for (int i = 0; i < N; i++)
    x[i] = problem.start[i] = start_of(i);
  double best = loss(&problem, x);
  for (int round = 0; round < ROUNDS && improve(&problem, x, &best, &damping); round++)
    continue;
  *fit = (struct gd_stack_fit){0};
  to_fit(x, fit);
  for (int i = 0; i < stack->n_cells; i++)
    fit->cells += counts(&problem, &stack->cells[i]);
}
