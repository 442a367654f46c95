/*
 * ref kernels of attention. The rules of ref.c hold: the formula in the comment, in double, without
 * tricks. Scores are recomputed wherever they are needed; sums over columns go a few at a time,
 * because a kernel has no memory of its own.
 *
 * Letters: B batch, N heads, M key heads, T sequence, D head size. Head n reads key head n M / N.
 */
#include <math.h>

#include "backend/ref/ref_int.h"
#include "base/rng.h"

enum { COLUMNS = 64 }; /* summed at a time */

struct problem {
  const struct gd_attr_attention *attr;
  const struct gd_view *q, *k, *v;
  const int32_t *seed; /* NULL: no dropout */
  int64_t batch, heads, key_heads, steps, size;
};

static struct problem problem_of(const struct gd_kernel_args *args, uint32_t first, uint32_t seed) {
  const struct gd_view *q = &args->in[first], *k = &args->in[first + 1];
  return (struct problem){.attr = &args->attr->attention,
                          .q = q,
                          .k = k,
                          .v = &args->in[first + 2],
                          .seed = args->n_in > seed ? args->in[seed].data : NULL,
                          .batch = q->dims[0],
                          .heads = q->dims[1],
                          .key_heads = k->dims[1],
                          .steps = q->dims[2],
                          .size = q->dims[3]};
}

/* First element of row t of head n; of the key head that serves it. */
static int64_t query_at(const struct problem *p, int64_t b, int64_t n, int64_t t) {
  return ((b * p->heads + n) * p->steps + t) * p->size;
}

static int64_t key_at(const struct problem *p, int64_t b, int64_t n, int64_t t) {
  int64_t m = n / (p->heads / p->key_heads);
  return ((b * p->key_heads + m) * p->steps + t) * p->size;
}

static double dot(const struct gd_view *x, int64_t x_at, const struct gd_view *y, int64_t y_at,
                  int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++)
    sum += get(x, x_at + i) * get(y, y_at + i);
  return sum;
}

/* s_ij = scale q_i . k_j. */
static double score(const struct problem *p, int64_t b, int64_t n, int64_t i, int64_t j) {
  return (double)p->attr->scale *
         dot(p->q, query_at(p, b, n, i), p->k, key_at(p, b, n, j), p->size);
}

/* Keys that query i sees. */
static int64_t keys_seen(const struct problem *p, int64_t i) {
  return p->attr->causal ? i + 1 : p->steps;
}

/* What gd_ref_dropout multiplies element [b, n, i, j] of the weights by: 0 or 1 / (1 - p). */
static double kept(const struct problem *p, int64_t b, int64_t n, int64_t i, int64_t j) {
  if (!p->seed)
    return 1;
  int64_t sample = p->heads * p->steps * p->steps;
  uint64_t g = (uint64_t)(((b * p->heads + n) * p->steps + i) * p->steps + j) +
               (uint64_t)p->seed[2] * (uint64_t)sample;
  uint64_t stream = (uint64_t)p->attr->stream << 32 | (uint32_t)p->seed[1];
  double probability = (double)p->attr->probability;
  bool keep =
      gd_rng_dropout((uint32_t)p->seed[0], stream, g) >= gd_rng_dropout_threshold(probability);
  return keep ? gd_rng_dropout_scale(probability) : 0;
}

/* lse_i = log sum_j exp(s_ij), out_i = sum_j kept_ij exp(s_ij - lse_i) v_j. */
void gd_ref_attention(const struct gd_kernel_args *args) {
  const struct problem p = problem_of(args, 0, 3);
  const struct gd_view *out = &args->out[0], *lse = &args->out[1];
  for (int64_t r = 0; r < p.batch * p.heads * p.steps; r++) {
    int64_t i = r % p.steps, n = r / p.steps % p.heads, b = r / p.steps / p.heads;
    double max = -(double)INFINITY, sum = 0;
    for (int64_t j = 0; j < keys_seen(&p, i); j++)
      max = fmax(max, score(&p, b, n, i, j));
    for (int64_t j = 0; j < keys_seen(&p, i); j++)
      sum += exp(score(&p, b, n, i, j) - max);
    double total = max + log(sum);
    put(lse, r, total);
    for (int64_t d = 0; d < p.size; d += COLUMNS) {
      double sums[COLUMNS] = {0};
      int64_t columns = p.size - d < COLUMNS ? p.size - d : COLUMNS;
      for (int64_t j = 0; j < keys_seen(&p, i); j++) {
        double weight = kept(&p, b, n, i, j) * exp(score(&p, b, n, i, j) - total);
        for (int64_t c = 0; c < columns; c++)
          sums[c] += weight * get(p.v, key_at(&p, b, n, j) + d + c);
      }
      for (int64_t c = 0; c < columns; c++)
        put(out, r * p.size + d + c, sums[c]);
    }
  }
}

/* p_ij = exp(s_ij - lse_i); ds_ij = p_ij (kept_ij dout_i . v_j - dout_i . out_i): the gradient of
   softmax, since sum_j kept_ij p_ij dout_i . v_j = dout_i . out_i. */
static void weight_and_dscore(const struct gd_kernel_args *args, const struct problem *p, int64_t b,
                              int64_t n, int64_t i, int64_t j, double *weight, double *dscore) {
  int64_t at = query_at(p, b, n, i);
  double keep = kept(p, b, n, i, j);
  double probability = exp(score(p, b, n, i, j) - get(&args->in[5], at / p->size));
  *weight = keep * probability;
  *dscore = probability * (keep * dot(&args->in[0], at, p->v, key_at(p, b, n, j), p->size) -
                           dot(&args->in[0], at, &args->in[4], at, p->size));
}

/* dq_i = scale sum_j ds_ij k_j. */
static void queries_grad(const struct gd_kernel_args *args, const struct problem *p) {
  for (int64_t r = 0; r < p->batch * p->heads * p->steps; r++) {
    int64_t i = r % p->steps, n = r / p->steps % p->heads, b = r / p->steps / p->heads;
    for (int64_t d = 0; d < p->size; d += COLUMNS) {
      double sums[COLUMNS] = {0}, weight, dscore;
      int64_t columns = p->size - d < COLUMNS ? p->size - d : COLUMNS;
      for (int64_t j = 0; j < keys_seen(p, i); j++) {
        weight_and_dscore(args, p, b, n, i, j, &weight, &dscore);
        for (int64_t c = 0; c < columns; c++)
          sums[c] += dscore * get(p->k, key_at(p, b, n, j) + d + c);
      }
      for (int64_t c = 0; c < columns; c++)
        put(&args->out[0], r * p->size + d + c, (double)p->attr->scale * sums[c]);
    }
  }
}

/* dk_j = scale sum_ni ds_ij q_i, dv_j = sum_ni kept_ij p_ij dout_i, n over the heads it serves. */
static void keys_grad(const struct gd_kernel_args *args, const struct problem *p) {
  int64_t group = p->heads / p->key_heads;
  for (int64_t r = 0; r < p->batch * p->key_heads * p->steps; r++) {
    int64_t j = r % p->steps, m = r / p->steps % p->key_heads, b = r / p->steps / p->key_heads;
    for (int64_t d = 0; d < p->size; d += COLUMNS) {
      double sums_k[COLUMNS] = {0}, sums_v[COLUMNS] = {0}, weight, dscore;
      int64_t columns = p->size - d < COLUMNS ? p->size - d : COLUMNS;
      for (int64_t n = m * group; n < (m + 1) * group; n++)
        for (int64_t i = p->attr->causal ? j : 0; i < p->steps; i++) {
          weight_and_dscore(args, p, b, n, i, j, &weight, &dscore);
          for (int64_t c = 0; c < columns; c++) {
            sums_k[c] += dscore * get(p->q, query_at(p, b, n, i) + d + c);
            sums_v[c] += weight * get(&args->in[0], query_at(p, b, n, i) + d + c);
          }
        }
      for (int64_t c = 0; c < columns; c++) {
        put(&args->out[1], r * p->size + d + c, (double)p->attr->scale * sums_k[c]);
        put(&args->out[2], r * p->size + d + c, sums_v[c]);
      }
    }
  }
}

void gd_ref_attention_grad(const struct gd_kernel_args *args) {
  const struct problem p = problem_of(args, 1, 6);
  queries_grad(args, &p);
  keys_grad(args, &p);
}
