/*
 * The ref backend: one short function an op, plain C, one thread, sums and intermediate values in
 * double, any dtype; a value is rounded once, where it is stored. Every other backend is tested
 * against these functions, so they follow the formula in their comment word by word and know no
 * trick. Slow on purpose.
 *
 * Letters: C columns (the last dim), R rows (everything before it), V vocabulary.
 */
#include <math.h>
#include <string.h>

#include "backend/ref/ref_int.h"

/* --- shapes -------------------------------------------------------------------------------- */

/* out = in_0 | in_1 | ...: dim 0 is the slowest, so the parts follow each other in memory. */
void gd_ref_concat(const struct gd_kernel_args *args) {
  int64_t at = 0;
  for (uint32_t i = 0; i < args->n_in; i++) {
    move(&args->out[0], at, &args->in[i], 0, args->in[i].elements);
    at += args->in[i].elements;
  }
}

/* y[i_0, i_1, ...] = x[j] where j[perm[d]] = i_d. */
void gd_ref_transpose(const struct gd_kernel_args *args) {
  const struct gd_view *x = &args->in[0], *y = &args->out[0];
  int64_t strides[GD_MAX_RANK]; /* of x, in elements */
  int64_t stride = 1;
  for (uint32_t d = x->rank; d-- > 0;) {
    strides[d] = stride;
    stride *= x->dims[d];
  }
  for (int64_t i = 0; i < y->elements; i++) {
    int64_t rest = i, from = 0;
    for (uint32_t d = y->rank; d-- > 0;) {
      from += rest % y->dims[d] * strides[args->attr->transpose.perm[d]];
      rest /= y->dims[d];
    }
    move(y, i, x, from, 1);
  }
}

/* --- forward ------------------------------------------------------------------------------- */

/* y[r, :] = table[ids[r], :]. */
void gd_ref_embed(const struct gd_kernel_args *args) {
  const struct gd_view *table = &args->in[0], *ids = &args->in[1];
  int64_t columns = gd_view_columns(table);
  for (int64_t r = 0; r < ids->elements; r++)
    move(&args->out[0], r * columns, table, get_index(ids, r) * columns, columns);
}

/*
 * y[b,i,j] = alpha * sum_k op(a)[b,i,k] op(b)[b,k,j] + bias[j]. A rank-2 b that meets an
 * untransposed a serves every leading index of a: these are then so many more rows.
 */
void gd_ref_matmul(const struct gd_kernel_args *args) {
  const struct gd_attr_matmul *attr = &args->attr->matmul;
  const struct gd_view *a = &args->in[0], *b = &args->in[1];
  const struct gd_view *bias = args->n_in > 2 && args->in[2].data ? &args->in[2] : NULL;
  int64_t m = a->dims[a->rank - (attr->trans_a ? 1 : 2)];
  int64_t k = a->dims[a->rank - (attr->trans_a ? 2 : 1)];
  int64_t n = b->dims[b->rank - (attr->trans_b ? 2 : 1)];
  int64_t batches = 1;
  for (uint32_t d = 0; d + 2 < a->rank; d++)
    batches *= a->dims[d];
  bool one_b = b->rank == 2;
  for (int64_t batch = 0; batch < batches; batch++) {
    int64_t a_at = batch * m * k, b_at = one_b ? 0 : batch * k * n, y_at = batch * m * n;
    for (int64_t i = 0; i < m; i++)
      for (int64_t j = 0; j < n; j++) {
        double sum = 0;
        for (int64_t l = 0; l < k; l++)
          sum += get(a, a_at + (attr->trans_a ? l * m + i : i * k + l)) *
                 get(b, b_at + (attr->trans_b ? j * k + l : l * n + j));
        put_out(args, 0, y_at + i * n + j, (double)attr->alpha * sum + (bias ? get(bias, j) : 0.0));
      }
  }
}

/* y[i] = a[i] + b[i mod elements(b)]: b has the trailing dims of a. */
void gd_ref_add(const struct gd_kernel_args *args) {
  const struct gd_view *a = &args->in[0], *b = &args->in[1];
  for (int64_t i = 0; i < a->elements; i++)
    put(&args->out[0], i, get(a, i) + get(b, i % b->elements));
}

/*
 * mean = sum(x) / C, rstd = 1 / sqrt(sum((x - mean)^2) / C + eps), y = (x - mean) rstd w + b
 * (Ba, Kiros, Hinton, "Layer normalization", arXiv:1607.06450, eq. 4).
 */
void gd_ref_layernorm(const struct gd_kernel_args *args) {
  const struct gd_view *x = &args->in[0], *weight = &args->in[1];
  const struct gd_view *bias = args->n_in > 2 && args->in[2].data ? &args->in[2] : NULL;
  int64_t columns = gd_view_columns(x), rows = gd_view_rows(x);
  for (int64_t r = 0; r < rows; r++) {
    int64_t at = r * columns;
    double sum = 0, squares = 0;
    for (int64_t j = 0; j < columns; j++)
      sum += get(x, at + j);
    double mean = sum / (double)columns;
    for (int64_t j = 0; j < columns; j++)
      squares += (get(x, at + j) - mean) * (get(x, at + j) - mean);
    double rstd = 1.0 / sqrt(squares / (double)columns + (double)args->attr->norm.eps);
    for (int64_t j = 0; j < columns; j++)
      put(&args->out[0], at + j,
          (get(x, at + j) - mean) * rstd * get(weight, j) + (bias ? get(bias, j) : 0.0));
    put(&args->out[1], r, mean);
    put(&args->out[2], r, rstd);
  }
}

/*
 * The pair (a, b) = (x[i], x[i + R/2]) of position t turns by the angle whose cosine and sine are
 * table[t, i] and table[t, i + R/2]; dims from R on are copied (Su et al., arXiv:2104.09864, in
 * the half-split order of GPT-NeoX).
 */
void gd_ref_rope(const struct gd_kernel_args *args) {
  const struct gd_view *x = &args->in[0], *table = &args->in[1], *y = &args->out[0];
  int64_t rotary = args->attr->rope.rotary, half = rotary / 2;
  int64_t columns = gd_view_columns(x), rows = gd_view_rows(x), positions = x->dims[x->rank - 2];
  double sign = args->attr->rope.inverse ? -1 : 1;
  for (int64_t r = 0; r < rows; r++) {
    int64_t at = r * columns, angle_at = r % positions * rotary;
    for (int64_t i = 0; i < half; i++) {
      double a = get(x, at + i), b = get(x, at + i + half);
      double cosine = get(table, angle_at + i), sine = sign * get(table, angle_at + i + half);
      put(y, at + i, a * cosine - b * sine);
      put(y, at + i + half, b * cosine + a * sine);
    }
    for (int64_t i = rotary; i < columns; i++)
      put(y, at + i, get(x, at + i));
  }
}

/* Columns of row r that count: all, or in the causal case those up to the row's own index. */
static int64_t columns_seen(const struct gd_view *x, int64_t r, bool causal) {
  int64_t columns = gd_view_columns(x);
  if (!causal)
    return columns;
  int64_t index = x->rank < 2 ? 0 : r % x->dims[x->rank - 2];
  return index + 1 < columns ? index + 1 : columns;
}

/* The largest of count values, the shift that keeps exp() in range. */
static double largest(const struct gd_view *x, int64_t at, int64_t count) {
  double max = -HUGE_VAL;
  for (int64_t j = 0; j < count; j++)
    max = get(x, at + j) > max ? get(x, at + j) : max;
  return max;
}

/* y_j = exp(x_j - max) / sum_i exp(x_i - max). */
void gd_ref_softmax(const struct gd_kernel_args *args) {
  const struct gd_view *x = &args->in[0];
  int64_t columns = gd_view_columns(x), rows = gd_view_rows(x);
  for (int64_t r = 0; r < rows; r++) {
    int64_t at = r * columns, seen = columns_seen(x, r, args->attr->softmax.causal);
    double max = largest(x, at, seen), sum = 0;
    for (int64_t j = 0; j < seen; j++)
      sum += exp(get(x, at + j) - max);
    for (int64_t j = 0; j < columns; j++)
      put(&args->out[0], at + j, j < seen ? exp(get(x, at + j) - max) / sum : 0.0);
  }
}

#define SQRT_HALF       0.70710678118654752440
#define SQRT_2_OVER_PI  0.79788456080286535588
#define SQRT_1_OVER_2PI 0.39894228040143267794
#define GELU_CUBIC      0.044715 /* Hendrycks, Gimpel, arXiv:1606.08415, sec. 2 */

static double activation(enum gd_activation function, double x) {
  switch (function) {
  case GD_ACTIVATION_GELU: return 0.5 * x * (1 + erf(x * SQRT_HALF));
  case GD_ACTIVATION_GELU_TANH:
    return 0.5 * x * (1 + tanh(SQRT_2_OVER_PI * (x + GELU_CUBIC * x * x * x)));
  case GD_ACTIVATION_RELU: return x <= 0 ? 0 : x; /* NaN stays, as in PyTorch */
  case GD_ACTIVATION_SILU: return x / (1 + exp(-x));
  case GD_ACTIVATION_SOFTPLUS: return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x));
  case GD_ACTIVATION_QUICK_GELU: return x / (1 + exp(-1.702 * x));
  case GD_ACTIVATION_TANH: return tanh(x);
  case GD_ACTIVATION_SIGMOID: return 1 / (1 + exp(-x));
  case GD_ACTIVATION_COUNT: break;
  }
  GD_ASSERT(!"activation");
  return 0;
}

static double activation_derivative(enum gd_activation function, double x) {
  switch (function) {
  case GD_ACTIVATION_GELU:
    return 0.5 * (1 + erf(x * SQRT_HALF)) + x * SQRT_1_OVER_2PI * exp(-0.5 * x * x);
  case GD_ACTIVATION_GELU_TANH: {
    double t = tanh(SQRT_2_OVER_PI * (x + GELU_CUBIC * x * x * x));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * SQRT_2_OVER_PI * (1 + 3 * GELU_CUBIC * x * x);
  }
  case GD_ACTIVATION_RELU: return x <= 0 ? 0 : 1; /* of NaN 1, likewise */
  case GD_ACTIVATION_SILU: {
    double s = 1 / (1 + exp(-x));
    return s * (1 + x * (1 - s));
  }
  case GD_ACTIVATION_SOFTPLUS: return 1 / (1 + exp(-x));
  case GD_ACTIVATION_QUICK_GELU: {
    double s = 1 / (1 + exp(-1.702 * x));
    return s * (1 + 1.702 * x * (1 - s));
  }
  case GD_ACTIVATION_TANH: return 1 - tanh(x) * tanh(x);
  case GD_ACTIVATION_SIGMOID: {
    double s = 1 / (1 + exp(-x));
    return s * (1 - s);
  }
  case GD_ACTIVATION_COUNT: break;
  }
  GD_ASSERT(!"activation");
  return 0;
}

/* y = f(x). */
void gd_ref_activate(const struct gd_kernel_args *args) {
  for (int64_t i = 0; i < args->in[0].elements; i++)
    put(&args->out[0], i, activation(args->attr->activate.function, get(&args->in[0], i)));
}

/* lse_r = log sum_j exp(x_rj); loss = weight * sum over counted rows of lse_r - x_r,label. */
void gd_ref_xent(const struct gd_kernel_args *args) {
  const struct gd_attr_xent *attr = &args->attr->xent;
  const struct gd_view *logits = &args->in[0], *labels = &args->in[1];
  int64_t columns = gd_view_columns(logits), rows = gd_view_rows(logits);
  double loss = 0;
  for (int64_t r = 0; r < rows; r++) {
    int64_t at = r * columns;
    double max = largest(logits, at, columns), sum = 0;
    for (int64_t j = 0; j < columns; j++)
      sum += exp(get(logits, at + j) - max);
    double lse = max + log(sum);
    int32_t label = label_of(attr, labels, r);
    put(&args->out[1], r, lse);
    if (label != attr->ignore)
      loss += lse - get(logits, at + label);
  }
  put(&args->out[0], 0, get(&args->in[2], 0) * loss);
}

/* Whether the first of the largest logits is where the first of the largest targets is. */
static bool is_hit(const struct gd_view *logits, const struct gd_view *targets, int64_t at,
                   int64_t columns) {
  int64_t guess = 0, right = 0;
  for (int64_t j = 1; j < columns; j++) {
    guess = get(logits, at + j) > get(logits, at + guess) ? j : guess;
    right = get(targets, at + j) > get(targets, at + right) ? j : right;
  }
  return columns > 0 && guess == right && get(targets, at + right) > 0;
}

void gd_ref_soft_xent(const struct gd_kernel_args *args) {
  const struct gd_view *logits = &args->in[0], *targets = &args->in[1];
  int64_t columns = gd_view_columns(logits), rows = gd_view_rows(logits), hits = 0;
  double loss = 0;
  for (int64_t r = 0; r < rows; r++) {
    int64_t at = r * columns;
    double max = largest(logits, at, columns), sum = 0;
    for (int64_t j = 0; j < columns; j++)
      sum += exp(get(logits, at + j) - max);
    double lse = max + log(sum);
    put(&args->out[1], r, lse);
    for (int64_t j = 0; j < columns; j++)
      loss += get(targets, at + j) * (lse - get(logits, at + j));
    hits += !isnan(lse) && is_hit(logits, targets, at, columns);
  }
  put(&args->out[0], 0, get(&args->in[2], 0) * loss);
  put(&args->out[2], 0, (double)hits);
}

/* --- backward ------------------------------------------------------------------------------ */

/*
 * With h = (x - mean) rstd and g = dy w: dw_j = sum_r dy h, db_j = sum_r dy,
 * dx = rstd (g - sum_j(g) / C - h sum_j(g h) / C). The sums over rows come first: dx may take the
 * memory of dy.
 */
void gd_ref_layernorm_grad(const struct gd_kernel_args *args) {
  const struct gd_view *dy = &args->in[0], *x = &args->in[1], *weight = &args->in[2];
  const struct gd_view *mean = &args->in[3], *rstd = &args->in[4];
  int64_t columns = gd_view_columns(x), rows = gd_view_rows(x);
  for (int64_t j = 0; j < columns; j++) {
    double dw = 0, db = 0;
    for (int64_t r = 0; r < rows; r++) {
      int64_t i = r * columns + j;
      dw += get(dy, i) * (get(x, i) - get(mean, r)) * get(rstd, r);
      db += get(dy, i);
    }
    put_out(args, 1, j, dw);
    if (args->attr->norm_grad.has_bias)
      put_out(args, 2, j, db);
  }
  for (int64_t r = 0; r < rows; r++) {
    int64_t at = r * columns;
    double sum_g = 0, sum_gh = 0;
    for (int64_t j = 0; j < columns; j++) {
      double g = get(dy, at + j) * get(weight, j);
      sum_g += g;
      sum_gh += g * (get(x, at + j) - get(mean, r)) * get(rstd, r);
    }
    for (int64_t j = 0; j < columns; j++) {
      double g = get(dy, at + j) * get(weight, j);
      double h = (get(x, at + j) - get(mean, r)) * get(rstd, r);
      put(&args->out[0], at + j,
          get(rstd, r) * (g - sum_g / (double)columns - h * sum_gh / (double)columns));
    }
  }
}

/* dx_j = y_j (dy_j - sum_i y_i dy_i). */
void gd_ref_softmax_grad(const struct gd_kernel_args *args) {
  const struct gd_view *y = &args->in[0], *dy = &args->in[1];
  int64_t columns = gd_view_columns(y), rows = gd_view_rows(y);
  for (int64_t r = 0; r < rows; r++) {
    int64_t at = r * columns, seen = columns_seen(y, r, args->attr->softmax.causal);
    double dot = 0;
    for (int64_t j = 0; j < seen; j++)
      dot += get(y, at + j) * get(dy, at + j);
    for (int64_t j = 0; j < columns; j++)
      put(&args->out[0], at + j, j < seen ? get(y, at + j) * (get(dy, at + j) - dot) : 0.0);
  }
}

/* dx = f'(x) dy. */
void gd_ref_activate_grad(const struct gd_kernel_args *args) {
  const struct gd_view *x = &args->in[0], *dy = &args->in[1];
  for (int64_t i = 0; i < x->elements; i++)
    put(&args->out[0], i,
        activation_derivative(args->attr->activate.function, get(x, i)) * get(dy, i));
}

/* dx_rj = (exp(x_rj - lse_r) - [j = label]) weight loss_scale; 0 in rows that do not count. */
void gd_ref_xent_grad(const struct gd_kernel_args *args) {
  const struct gd_attr_xent *attr = &args->attr->xent;
  const struct gd_view *logits = &args->in[0], *lse = &args->in[1], *labels = &args->in[2];
  int64_t columns = gd_view_columns(logits), rows = gd_view_rows(logits);
  double scale = get(&args->in[3], 0) * get(&args->in[4], 0);
  for (int64_t r = 0; r < rows; r++) {
    int32_t label = label_of(attr, labels, r);
    for (int64_t j = 0; j < columns; j++) {
      int64_t i = r * columns + j;
      double p = exp(get(logits, i) - get(lse, r));
      put(&args->out[0], i, label == attr->ignore ? 0.0 : (p - (j == label ? 1 : 0)) * scale);
    }
  }
}

/* (p sum of the row's targets - target) weight loss_scale. */
void gd_ref_soft_xent_grad(const struct gd_kernel_args *args) {
  const struct gd_view *logits = &args->in[0], *lse = &args->in[1], *targets = &args->in[2];
  int64_t columns = gd_view_columns(logits), rows = gd_view_rows(logits);
  double scale = get(&args->in[3], 0) * get(&args->in[4], 0);
  for (int64_t r = 0; r < rows; r++) {
    double sum = 0;
    for (int64_t j = 0; j < columns; j++)
      sum += get(targets, r * columns + j);
    for (int64_t j = 0; j < columns; j++) {
      int64_t i = r * columns + j;
      double p = exp(get(logits, i) - get(lse, r));
      put(&args->out[0], i, (p * sum - get(targets, i)) * scale);
    }
  }
}

/* dtable[v, :] = sum over the positions whose id is v of dy[position, :]; 0 for v = pad. */
void gd_ref_embed_grad(const struct gd_kernel_args *args) {
  const struct gd_view *dy = &args->in[0], *ids = &args->in[1];
  const struct gd_attr_embed *attr = &args->attr->embed;
  int64_t columns = gd_view_columns(dy);
  for (int64_t v = 0; v < attr->rows; v++) {
    int64_t first = 0; /* most of a vocabulary is not in the batch: found once, not per column */
    if (attr->has_pad && v == attr->pad)
      first = ids->elements;
    while (first < ids->elements && get_index(ids, first) != v)
      first++;
    for (int64_t j = 0; j < columns; j++) {
      double sum = 0;
      for (int64_t r = first; r < ids->elements; r++)
        if (get_index(ids, r) == v)
          sum += get(dy, r * columns + j);
      put_out(args, 0, v * columns + j, sum);
    }
  }
}

/* y_j = sum_r x_rj, where the columns are the trailing dims that are kept. */
void gd_ref_sum_rows(const struct gd_kernel_args *args) {
  const struct gd_view *x = &args->in[0];
  int64_t columns = args->out[0].elements;
  for (int64_t j = 0; j < columns; j++) {
    double sum = 0;
    for (int64_t i = j; i < x->elements; i += columns)
      sum += get(x, i);
    put_out(args, 0, j, sum);
  }
}

/* acc += x. */
void gd_ref_accumulate(const struct gd_kernel_args *args) {
  for (int64_t i = 0; i < args->out[0].elements; i++)
    put(&args->out[0], i, get(&args->in[0], i) + get(&args->in[1], i));
}

/* --- update -------------------------------------------------------------------------------- */

/* y0 + y1 = sum x^2: y1 is what rounding y0 loses. */
void gd_ref_sum_squares(const struct gd_kernel_args *args) {
  double sum = 0;
  for (int64_t i = 0; i < args->in[0].elements; i++)
    sum += get(&args->in[0], i) * get(&args->in[0], i);
  put(&args->out[0], 0, sum);
  double rest = sum - get(&args->out[0], 0);
  put(&args->out[0], 1, isfinite(rest) ? rest : 0);
}

/*
 * norm = sqrt(sum of the sums) / scale, the norm of the unscaled gradient. Not finite: the step is
 * skipped (factor 0) and a dynamic scale is divided by two, down to 1. Above the largest norm that
 * is allowed (step[1]; 0: any): the step is skipped, and nothing else. Otherwise: factor = min(1,
 * max_norm / (norm + 1e-6)) / scale, as torch.nn.utils.clip_grad_norm_ clips; the step counts, and
 * a dynamic scale doubles after growth_interval good steps in a row.
 */
void gd_ref_control(const struct gd_kernel_args *args) {
  const struct gd_attr_control *attr = &args->attr->control;
  double step = get(&args->in[0], 0), scale = get(&args->in[1], 0), good = get(&args->in[1], 1);
  double total = 0, factor = 0;
  for (uint32_t i = 2; i < args->n_in; i++)
    for (int64_t j = 0; j < args->in[i].elements; j++)
      total += get(&args->in[i], j);
  double norm = sqrt(total) / scale, most = get(&args->in[0], 1);
  bool spike = most > 0 && (double)(float)norm > most;
  if (isfinite(norm) && !spike) {
    double clip = attr->max_norm > 0 ? (double)attr->max_norm / (norm + 1e-6) : 1;
    factor = (clip < 1 ? clip : 1) / scale;
    step += 1;
    good += 1;
    if (attr->dynamic_scale && good >= (double)attr->growth_interval) {
      scale *= 2;
      good = 0;
    }
  } else if (!isfinite(norm)) {
    scale = scale / 2 > 1 ? scale / 2 : 1;
    good = 0;
  }
  put(&args->out[0], 0, step);
  if (attr->dynamic_scale) {
    put(&args->out[1], 0, scale);
    put(&args->out[1], 1, good);
  }
  put(&args->out[2], 0, norm);
  put(&args->out[3], 0, factor);
}

/*
 * Adam (Kingma, Ba, arXiv:1412.6980, algorithm 1) on g = factor grad, with the decay added to g,
 * or decoupled from it (Loshchilov, Hutter, arXiv:1711.05101, algorithm 2):
 * m = b1 m + (1 - b1) g, v = b2 v + (1 - b2) g^2,
 * p -= lr / (1 - b1^t) * m / (sqrt(v) / sqrt(1 - b2^t) + eps). Factor 0 skips the step.
 */
void gd_ref_adam(const struct gd_kernel_args *args) {
  const struct gd_attr_adam *attr = &args->attr->adam;
  double beta1 = (double)attr->beta1, beta2 = (double)attr->beta2;
  double decay = (double)attr->weight_decay;
  double factor = get(&args->in[4], 0), lr = get(&args->in[5], 0), step = get(&args->in[6], 0);
  double correction1 = 1 - pow(beta1, step), correction2 = 1 - pow(beta2, step);
  if (factor == 0) { /* nothing changes; a copy in another memory still gets its values */
    for (int64_t i = 0; args->n_out > 3 && i < args->in[0].elements; i++)
      put(&args->out[3], i, get(&args->in[0], i));
    return;
  }
  for (int64_t i = 0; i < args->in[0].elements; i++) {
    double p = get(&args->in[0], i), g = get(&args->in[1], i) * factor;
    if (attr->decoupled)
      p *= 1 - lr * decay;
    else
      g += decay * p;
    double m = beta1 * get(&args->in[2], i) + (1 - beta1) * g;
    double v = beta2 * get(&args->in[3], i) + (1 - beta2) * g * g;
    p -= lr / correction1 * m / (sqrt(v) / sqrt(correction2) + (double)attr->eps);
    put(&args->out[0], i, p);
    put(&args->out[1], i, m);
    put(&args->out[2], i, v);
    if (args->n_out > 3)
      put(&args->out[3], i, p);
  }
}

/* x = value. */
void gd_ref_fill(const struct gd_kernel_args *args) {
  for (int64_t i = 0; i < args->out[0].elements; i++)
    put(&args->out[0], i, (double)args->attr->fill.value);
}

/* dst = src, in the dtype of dst. */
void gd_ref_copy(const struct gd_kernel_args *args) {
  for (int64_t i = 0; i < args->out[0].elements; i++)
    put(&args->out[0], i, get(&args->in[1], i));
}

/* A row of ops.def that names a kernel nobody wrote does not link. */
const gd_kernel gd_ref_kernels[GD_OP_COUNT] = {
#define KERNEL_none(name) NULL
#define KERNEL_own(name)  gd_ref_##name
#define KERNEL_host(name) gd_host_##name
#define GD_OP(name, min, max, attr, doc, shape, grad, cost, flops, lower, ref, ...) \
  [GD_OP_##name] = KERNEL_##ref(name),
#include "ir/ops.def"
#undef GD_OP
};
