/*
 * The time of a piece of work by the nearest measured ones; see rates.h. Reading and writing is
 * rates_file.c's.
 */
#include "predict/rates.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "predict/streams.h"

void gd_rates_deinit(struct gd_rates *rates) {
  gd_rates_forget(rates);
  gd_arena_deinit(&rates->arena);
  gd_mem_free(rates->points);
  *rates = (struct gd_rates){0};
}

/* --- what nobody measured ------------------------------------------------------------------ */

void gd_rates_guess_cpu(struct gd_rates *rates, int threads, int cpus) {
  *rates = (struct gd_rates){.device = "a CPU that was not measured",
                             .backend = "cpu",
                             .threads = threads,
                             .cpus = cpus > threads ? cpus : threads,
                             .busy_share = -1,
                             .source = "assumed: a core of 2022",
                             .op_s = 5e-6,
                             .memory_bytes_per_s = 2e10,
                             .host_bytes_per_s = 1e10,
                             .host_link = {5e9, 1e-5},
                             .peer_link = {2e9, 5e-5},
                             .peer_source = "assumed"};
  rates->flops[GD_PEAK_FP32] = rates->flops[GD_PEAK_TF32] = 1e11 * threads;
  rates->flops[GD_PEAK_BF16] = rates->flops[GD_PEAK_FP16] = 2e11 * threads;
  rates->async_speed = rates->cpus / (threads + 1.0);
  if (rates->async_speed > 1)
    rates->async_speed = 1;
}

/* Log of the factor of a kind without points: GEMMs reach 70 % of their peak, what moves memory
   80 %; fused attention half of what GEMMs do (results/cuda-notes.md, results/performance.md). */
static double usual_factor(const struct gd_work *work) {
  const enum gd_work_class class = gd_op_info(work->kind)->work;
  if (class == GD_WORK_ATTENTION || class == GD_WORK_ATTENTION_GRAD)
    return log(1 / 0.35);
  return work->flops > 0 ? log(1 / 0.7) : log(1 / 0.8);
}

/* --- the roofline -------------------------------------------------------------------------- */

static double ceiling(double value, double step) {
  return ceil(value / step) * step;
}

/*
 * The share of a GPU's multipliers that a GEMM keeps busy: tiles of 128 x 128 at the edges, the
 * last wave of tiles over the multiprocessors, and the start of each tile's sum. GEMMs with few
 * tiles and a long sum are cut along it, 512 a piece, as the libraries do.
 */
static double tiled_share(double sm, const struct gd_work *work) {
  const double tile = 128, piece = 512, start = 64;
  double batch = work->sizes[0], m = work->sizes[1], n = work->sizes[2], k = work->sizes[3];
  if (sm <= 0 || gd_op_info(work->kind)->work != GD_WORK_MATMUL)
    return 1;
  double tiles = batch * ceiling(m, tile) / tile * ceiling(n, tile) / tile;
  double edges =
      m / ceiling(m, fmin(tile, ceiling(m, 16))) * n / ceiling(n, fmin(tile, ceiling(n, 16)));
  double pieces = tiles < sm ? fmin(ceil(k / piece), floor(sm / tiles)) : 1;
  tiles *= pieces;
  return edges * tiles / ceiling(tiles, sm) * k / (k + start * pieces);
}

static bool over_link(const struct gd_work *work) {
  return gd_work_is_transfer(work->kind) ||
         (gd_work_is_collective(work->kind) && work->sizes[1] > 1);
}

/*
 * What work over a link sends, and how often it starts: seconds = bytes / rate + starts x latency.
 * In a ring every rank sends and receives all but its own share, once a round; a transfer reads
 * there what it writes here, so half of its bytes cross.
 */
static void link_terms(const struct gd_work *work, double *bytes, double *starts) {
  double ranks = work->sizes[1];
  bool both = gd_op_info(work->kind)->exchange == GD_EXCHANGE_SUM_AND_SHARE;
  double rounds = both ? 2 : 1; /* reduce-scatter, then all-gather */
  if (gd_work_is_transfer(work->kind)) {
    *bytes = 0.5 * work->bytes;
    *starts = 1;
  } else {
    *bytes = rounds * (ranks - 1) / ranks * work->sizes[0];
    *starts = rounds * (ranks - 1);
  }
}

bool gd_rates_collective(const struct gd_rates *rates, const struct gd_work *work,
                         enum gd_collective *kind, struct gd_collective_time *time) {
  static const enum gd_collective kinds[] = {[GD_EXCHANGE_SUM] = GD_COLLECTIVE_REDUCE_SCATTER,
                                             [GD_EXCHANGE_SHARE] = GD_COLLECTIVE_ALL_GATHER,
                                             [GD_EXCHANGE_SUM_AND_SHARE] =
                                                 GD_COLLECTIVE_ALL_REDUCE};
  struct gd_fabric group;
  if (rates->fabric.ranks <= 1 || !gd_work_is_collective(work->kind) || work->sizes[1] <= 1)
    return false;
  gd_fabric_group(&rates->fabric, (int)work->sizes[1], &group);
  *kind = kinds[gd_op_info(work->kind)->exchange];
  *time = gd_collective_time(&group, *kind, work->sizes[0]);
  return true;
}

static double link_bound(const struct gd_link *link, const struct gd_work *work) {
  double bytes, starts;
  link_terms(work, &bytes, &starts);
  return bytes / link->bytes_per_s + starts * link->latency_s;
}

/* A collective of one rank exchanges nothing; one that writes new memory copies. */
static double alone_bound(const struct gd_rates *rates, const struct gd_work *work) {
  double copy_s = rates->multiprocessors > 0 ? work->bytes / rates->memory_bytes_per_s
                                             : 0.5 * work->bytes / rates->host_link.bytes_per_s;
  bool copies = gd_op_info(work->kind)->op_class == GD_CLASS_PURE;
  return rates->op_s + (copies ? copy_s : 0);
}

static bool on_gpu(const struct gd_rates *rates) {
  return rates->multiprocessors > 0;
}

/* What multiplication takes of a GPU with these rates at best. */
struct arithmetic {
  const double *flops;
  int multiprocessors, compute_capability; /* 0: a CPU */
};

static double peak_of(const struct arithmetic *of, const struct gd_work *work) {
  return of->flops[work->unit] > 0 ? of->flops[work->unit] : of->flops[GD_PEAK_FP32];
}

/* Of GEMMs whose rows let loads take few elements. */
static double odd_rows_s(const struct arithmetic *of, const struct gd_work *work) {
  int elements = gd_work_load_elements(work);
  if (of->multiprocessors == 0 || elements >= 8)
    return 0;
  double flops = gd_gpu_odd_flops(of->flops[GD_PEAK_FP32], of->compute_capability);
  return work->flops / (elements * flops);
}

static double multiply_s(const struct arithmetic *of, const struct gd_work *work) {
  if (work->flops <= 0)
    return 0;
  double seconds = fmax(work->flops / peak_of(of, work), odd_rows_s(of, work));
  return seconds / tiled_share(of->multiprocessors, work);
}

static struct arithmetic arithmetic_of(const struct gd_rates *rates) {
  return (struct arithmetic){rates->flops, rates->multiprocessors, rates->compute_capability};
}

/* Of the GPU that was measured. */
static struct arithmetic arithmetic_from(const struct gd_rates_carry *carry) {
  return (struct arithmetic){carry->flops, carry->multiprocessors, carry->compute_capability};
}

/* How many times as long the other GPU takes. Both run this engine, whose attention has kernels of
   each architecture's own. */
static double carried(const struct gd_rates *rates, const struct gd_work *work) {
  static const struct gd_gpu_software software = {1, GD_GPU_FLASH_2, true};
  const struct gd_gpu_model *one = &rates->carry.from, *other = &rates->carry.to;
  struct arithmetic from = arithmetic_from(&rates->carry), to = arithmetic_of(rates);
  double from_s = gd_gpu_model_seconds(one, work, &software, one->power.clock_most);
  double to_s = gd_gpu_model_seconds(other, work, &software, other->power.clock_most);
  if (from_s <= 0)
    return 1;
  return fmax(to_s, odd_rows_s(&to, work) / other->power.clock_most) /
         fmax(from_s, odd_rows_s(&from, work) / one->power.clock_most);
}

double gd_rates_bound(const struct gd_rates *rates, const struct gd_work *work) {
  enum gd_collective kind;
  struct gd_collective_time time;
  if (gd_rates_collective(rates, work, &kind, &time))
    return time.seconds;
  if (over_link(work))
    return link_bound(gd_work_is_transfer(work->kind) ? &rates->host_link : &rates->peer_link,
                      work);
  if (gd_work_is_collective(work->kind))
    return alone_bound(rates, work);
  if (work->on_host && on_gpu(rates))
    return work->bytes / (rates->host_bytes_per_s * rates->cpus) + rates->op_s;
  const struct gd_rates_carry *carry = &rates->carry; /* factors are over what was measured on */
  struct arithmetic of = carry->on ? arithmetic_from(carry) : arithmetic_of(rates);
  double memory = carry->on ? carry->memory_bytes_per_s : rates->memory_bytes_per_s;
  double bound = fmax(multiply_s(&of, work), work->bytes / memory) + rates->op_s;
  return carry->on ? bound * carried(rates, work) : bound;
}

bool gd_rates_is_arithmetic(const struct gd_rates *rates, const struct gd_work *work) {
  struct arithmetic of = arithmetic_of(rates);
  double seconds = fmax(work->flops / peak_of(&of, work), odd_rows_s(&of, work));
  return !work->on_host && seconds > work->bytes / rates->memory_bytes_per_s;
}

void gd_rates_leave_out(struct gd_rates *rates, const char *model) {
  for (int i = 0; i < rates->n_without; i++)
    if (strcmp(rates->without[i].model, model) == 0)
      rates->learned = rates->without[i].learned;
}

/* --- classes of points ---------------------------------------------------------------------- */

const char *gd_point_class_name(enum gd_point_class of) {
  static const char *const names[GD_POINT_CLASSES] = {[GD_POINT_NAIVE] = "naive",
                                                      [GD_POINT_FREE_LUNCH] = "free-lunch",
                                                      [GD_POINT_OFFLOAD] = "offload",
                                                      [GD_POINT_OTHER] = "other"};
  return names[of];
}

enum gd_point_class gd_point_class_of(const struct gd_method *method) {
  if (gd_method_is_free_lunch(method))
    return method->offload ? GD_POINT_OFFLOAD : GD_POINT_FREE_LUNCH;
  bool naive = gd_method_is_naive(method) && !method->offload;
  return naive ? GD_POINT_NAIVE : GD_POINT_OTHER;
}

/* --- the factor ---------------------------------------------------------------------------- */

static bool comparable(const struct gd_rates *rates, const struct gd_work *a,
                       const struct gd_work *b) {
  return a->on_host == b->on_host || !on_gpu(rates);
}

/* How badly a rate suits a work, their sizes aside: 0 is best. Another unit is worse than another
   variant. */
static int misfit(const struct gd_work *rate, const struct gd_work *work) {
  return 2 * (rate->unit != work->unit) + (rate->variant != work->variant);
}

/*
 * Local regression: a constant and a trend along each size, through the logs of the factors.
 * Weights fall with the sixth power of the distance, so that in four dimensions the many far points
 * do not outweigh the few near ones. Trends are held back (RIDGE), and the factor stays within
 * those of the points up to FAR away: sizes that nobody measured are no reason for one that nobody
 * saw. The numbers are those that predict each point of the stored calibrations from all others
 * with the least error (docs/prediction.md); no trial was looked at.
 */
#define NEARNESS 0.3
#define RIDGE    0.3
#define FAR      4
enum { TERMS = 1 + GD_WORK_SIZES };

struct regression {
  double sums[TERMS][TERMS + 1]; /* the normal equations, and their right side */
  double low, high;              /* of the factors */
};

static void regress_add(struct regression *r, const struct gd_rate_point *point,
                        const struct gd_work *work) {
  double apart = gd_work_distance(&point->work, work), near = apart * apart + NEARNESS;
  double weight = 1 / (near * near * near), terms[TERMS] = {1};
  gd_work_steps(work, &point->work, terms + 1);
  for (int i = 0; i < TERMS; i++) {
    for (int k = 0; k < TERMS; k++)
      r->sums[i][k] += weight * terms[i] * terms[k];
    r->sums[i][TERMS] += weight * terms[i] * point->factor;
  }
  if (apart > FAR)
    return;
  r->low = fmin(r->low, point->factor);
  r->high = fmax(r->high, point->factor);
}

/* The constant. Gauss and Jordan; the ridge keeps all pivots above 0. */
static double regress_solve(struct regression *r) {
  double all = r->sums[0][0], mean = r->sums[0][TERMS] / all;
  for (int i = 1; i < TERMS; i++)
    r->sums[i][i] += RIDGE * all;
  for (int i = TERMS - 1; i > 0; i--) /* the constant is what is left */
    for (int row = 0; row < i; row++) {
      double times = r->sums[row][i] / r->sums[i][i];
      for (int k = 0; k <= TERMS; k++)
        r->sums[row][k] -= times * r->sums[i][k];
    }
  double value = r->sums[0][TERMS] / r->sums[0][0];
  return r->low <= r->high ? fmin(fmax(value, r->low), r->high) : mean;
}

static double factor_of(const struct gd_rates *rates, const struct gd_work *work,
                        uint32_t without) {
  struct regression near = {.low = HUGE_VAL, .high = -HUGE_VAL};
  const struct gd_rate_point *any = NULL;
  for (uint32_t i = rates->first[work->kind]; i < rates->first[work->kind + 1]; i++) {
    const struct gd_rate_point *point = &rates->points[i];
    if (i == without || !comparable(rates, &point->work, work))
      continue;
    if (!point->any_size)
      regress_add(&near, point, work);
    else if (!any || misfit(&point->work, work) < misfit(&any->work, work))
      any = point;
  }
  if (near.sums[0][0] > 0)
    return regress_solve(&near);
  return any ? any->factor : usual_factor(work);
}

/* Work by its hash; full after MEMO_MOST. Several rates with the same points share one, on threads.
 */
enum { MEMO_SLOTS = 1 << 14, MEMO_MOST = MEMO_SLOTS / 2 };
struct gd_rates_memo {
  pthread_mutex_t mutex;
  int users;
  uint32_t count;
  struct memo_slot {
    struct gd_work work;
    double factor;
    bool used;
  } slots[MEMO_SLOTS];
};

void gd_rates_remember(struct gd_rates *rates) {
  if (rates->memo)
    return;
  rates->memo = gd_mem_alloc(1, sizeof *rates->memo);
  if (!rates->memo)
    return;
  pthread_mutex_init(&rates->memo->mutex, NULL);
  rates->memo->users = 1;
}

static bool same_points(const struct gd_rates *a, const struct gd_rates *b) {
  if (a->n_points != b->n_points || on_gpu(a) != on_gpu(b))
    return false;
  for (uint32_t i = 0; i < a->n_points; i++) {
    const struct gd_rate_point *x = &a->points[i], *y = &b->points[i];
    if (!gd_work_same(&x->work, &y->work) || x->any_size != y->any_size || x->factor < y->factor ||
        x->factor > y->factor)
      return false;
  }
  return true;
}

bool gd_rates_remember_with(struct gd_rates *rates, const struct gd_rates *other) {
  struct gd_rates_memo *memo = other->memo;
  if (rates->memo || !memo || !same_points(rates, other))
    return false;
  pthread_mutex_lock(&memo->mutex);
  memo->users++;
  pthread_mutex_unlock(&memo->mutex);
  rates->memo = memo;
  return true;
}

void gd_rates_forget(struct gd_rates *rates) {
  struct gd_rates_memo *memo = rates->memo;
  rates->memo = NULL;
  if (!memo)
    return;
  pthread_mutex_lock(&memo->mutex);
  int left = --memo->users;
  pthread_mutex_unlock(&memo->mutex);
  if (left > 0)
    return;
  pthread_mutex_destroy(&memo->mutex);
  gd_mem_free(memo);
}

/* Where it is, or where it would be. */
static struct memo_slot *find_slot(struct gd_rates_memo *memo, const struct gd_work *work) {
  uint64_t at = gd_work_hash(work) % MEMO_SLOTS;
  while (memo->slots[at].used && !gd_work_same(&memo->slots[at].work, work))
    at = (at + 1) % MEMO_SLOTS;
  return &memo->slots[at];
}

/* What one thread looks up while another does is found twice, and is the same. */
static double kept_factor(const struct gd_rates *rates, const struct gd_work *work) {
  struct gd_rates_memo *memo = rates->memo;
  if (!memo)
    return factor_of(rates, work, UINT32_MAX);
  pthread_mutex_lock(&memo->mutex);
  const struct memo_slot found = *find_slot(memo, work);
  pthread_mutex_unlock(&memo->mutex);
  if (found.used)
    return found.factor;
  double factor = factor_of(rates, work, UINT32_MAX);
  pthread_mutex_lock(&memo->mutex);
  struct memo_slot *slot = find_slot(memo, work);
  if (!slot->used && memo->count < MEMO_MOST) {
    memo->count++;
    *slot = (struct memo_slot){.work = *work, .factor = factor, .used = true};
  }
  pthread_mutex_unlock(&memo->mutex);
  return factor;
}

/* Whether the factors of a kind say anything of this work: of an exchange among ranks, those of
   exchanges; links without any have the rate that was measured or assumed. */
static bool has_factor(const struct gd_rates *rates, const struct gd_work *work) {
  bool any = rates->first[work->kind] < rates->first[work->kind + 1];
  if (gd_work_is_collective(work->kind))
    return any && work->sizes[1] > 1;
  return any || !gd_work_is_transfer(work->kind);
}

/* No trend makes GEMMs faster than the unit that multiplies; TF32 may be done in fp16. */
static double least_seconds(const struct gd_rates *rates, const struct gd_work *work) {
  double peak = rates->flops[work->unit];
  if (work->unit == GD_PEAK_TF32)
    peak = fmax(peak, rates->flops[GD_PEAK_FP16]);
  return peak > 0 && !work->on_host ? work->flops / peak : 0;
}

/* As if the point `without` had not been measured; UINT32_MAX: with all of them. */
static double seconds_of(const struct gd_rates *rates, const struct gd_work *work,
                         uint32_t without) {
  if (gd_op_info(work->kind)->work == GD_WORK_NONE)
    return 0;
  double bound = gd_rates_bound(rates, work);
  if (work->on_host && on_gpu(rates) && rates->learned.host > 0)
    bound *= rates->learned.host;
  if (!has_factor(rates, work))
    return bound;
  double factor =
      without == UINT32_MAX ? kept_factor(rates, work) : factor_of(rates, work, without);
  double seconds = bound * exp(factor);
  return on_gpu(rates) ? fmax(seconds, least_seconds(rates, work)) : seconds;
}

double gd_rates_seconds(const struct gd_rates *rates, const struct gd_work *work) {
  return seconds_of(rates, work, UINT32_MAX);
}

/* --- points -------------------------------------------------------------------------------- */

enum gd_status gd_rates_add(struct gd_rates *rates, const struct gd_work *work, double seconds,
                            struct gd_error *err) {
  if (!gd_vec_reserve((void **)&rates->points, &rates->points_capacity, rates->n_points + 1,
                      sizeof *rates->points))
    return gd_nomem(err, "while collecting rates");
  rates->points[rates->n_points++] = (struct gd_rate_point){
      .work = *work, .seconds = seconds, .factor = log(seconds / gd_rates_bound(rates, work))};
  return GD_OK;
}

static int compare_points(const void *left, const void *right) {
  const struct gd_rate_point *a = left, *b = right;
  if (a->work.kind != b->work.kind)
    return a->work.kind < b->work.kind ? -1 : 1;
  return a->work.flops + a->work.bytes < b->work.flops + b->work.bytes   ? -1
         : a->work.flops + a->work.bytes > b->work.flops + b->work.bytes ? 1
                                                                         : 0;
}

void gd_rates_sort(struct gd_rates *rates) {
  uint32_t at = 0;
  if (rates->n_points)
    qsort(rates->points, rates->n_points, sizeof *rates->points, compare_points);
  for (int kind = 0; kind <= GD_OP_COUNT; kind++) {
    rates->first[kind] = at;
    while (kind < GD_OP_COUNT && at < rates->n_points && (int)rates->points[at].work.kind == kind)
      at++;
  }
}

/* --- measured points, mended ---------------------------------------------------------------- */

/* Sums of a least-squares fit of seconds = bytes x per_byte + starts x latency, relative to the
   seconds, so that small messages count as much as large ones. */
struct link_fit {
  double bb, bs, ss, b, s;
  int count;
};

static void fit_add(struct link_fit *fit, const struct gd_rate_point *point) {
  double bytes, starts;
  link_terms(&point->work, &bytes, &starts);
  bytes /= point->seconds;
  starts /= point->seconds;
  fit->bb += bytes * bytes;
  fit->bs += bytes * starts;
  fit->ss += starts * starts;
  fit->b += bytes;
  fit->s += starts;
  fit->count++;
}

static void fit_solve(const struct link_fit *fit, struct gd_link *link) {
  double det = fit->bb * fit->ss - fit->bs * fit->bs;
  if (fit->count == 0)
    return;
  double per_byte = fit->b / fit->bb, latency = 0; /* one size, or latency below what can be seen */
  if (det > 1e-9 * fit->bb * fit->ss) {
    double both = (fit->b * fit->ss - fit->s * fit->bs) / det;
    double start = (fit->s * fit->bb - fit->b * fit->bs) / det;
    if (both > 0 && start > 0) {
      per_byte = both;
      latency = start;
    }
  }
  *link = (struct gd_link){1 / per_byte, latency};
}

void gd_rates_fit_links(struct gd_rates *rates) {
  struct link_fit host = {0}, peer = {0};
  for (uint32_t i = 0; i < rates->n_points; i++) {
    const struct gd_rate_point *point = &rates->points[i];
    if (over_link(&point->work) && !point->any_size)
      fit_add(gd_work_is_transfer(point->work.kind) ? &host : &peer, point);
  }
  fit_solve(&host, &rates->host_link);
  fit_solve(&peer, &rates->peer_link);
  for (uint32_t i = 0; i < rates->n_points; i++)
    if (!rates->points[i].any_size)
      rates->points[i].factor =
          log(rates->points[i].seconds / gd_rates_bound(rates, &rates->points[i].work));
}

/* The same exchange of more bytes. */
static bool same_but_larger(const struct gd_work *more, const struct gd_work *work) {
  return more->kind == work->kind && more->unit == work->unit && more->variant == work->variant &&
         more->on_host == work->on_host && more->bytes > work->bytes &&
         (gd_work_is_transfer(work->kind) || more->sizes[1] == work->sizes[1]);
}

/* The least time of exchanges of as many bytes or more: what carries more in less can carry this.
 */
static double least_of_larger(const struct gd_rates *rates, uint32_t at) {
  const struct gd_rate_point *point = &rates->points[at];
  double least = point->seconds;
  for (uint32_t i = 0; i < rates->n_points; i++)
    if (same_but_larger(&rates->points[i].work, &point->work))
      least = fmin(least, rates->points[i].seconds);
  return least;
}

/* Whether at least two others are within a factor of four in size, to judge a point by. */
static bool has_neighbours(const struct gd_rates *rates, uint32_t at) {
  const struct gd_work *work = &rates->points[at].work;
  int near = 0;
  for (uint32_t i = rates->first[work->kind]; i < rates->first[work->kind + 1]; i++)
    near += i != at && comparable(rates, &rates->points[i].work, work) &&
            gd_work_distance(&rates->points[i].work, work) <= 2;
  return near >= 2;
}

enum gd_status gd_rates_drop_disturbed(struct gd_rates *rates, struct gd_error *err) {
  double *most = gd_mem_alloc(rates->n_points + 1, sizeof *most);
  if (!most)
    return gd_nomem(err, "while sorting rates");
  for (uint32_t i = 0; i < rates->n_points; i++) {
    const struct gd_work *work = &rates->points[i].work;
    if (over_link(work))
      rates->points[i].seconds = least_of_larger(rates, i);
    most[i] =
        over_link(work) || !has_neighbours(rates, i) ? HUGE_VAL : 2.5 * seconds_of(rates, work, i);
  }
  uint32_t kept = 0;
  for (uint32_t i = 0; i < rates->n_points; i++)
    if (rates->points[i].seconds <= most[i])
      rates->points[kept++] = rates->points[i];
  rates->n_points = kept;
  gd_mem_free(most);
  gd_rates_sort(rates);
  return GD_OK;
}

/* --- other hardware ------------------------------------------------------------------------ */

/* PCIe carries 80 % of its data sheet's figure in copies of pinned memory. */
#define LINK_SHARE 0.8

void gd_rates_set_fabric(struct gd_rates *rates, const struct gd_target *target,
                         const struct gd_gpu_fit *fit) {
  gd_fabric_of(target, &rates->fabric);
  if (target->count > 1)
    rates->async_speed = gd_streams_gpu_speed(fit->value[GD_GPU_EXPOSED]);
  rates->peer_link = (struct gd_link){rates->fabric.inside_bytes_per_s, 5e-6};
  rates->slowest = gd_slowest_of(target->count);
}

/* How far collectives were from a roofline says something of the links that they went over. */
static void drop_collectives(struct gd_rates *rates) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < rates->n_points; i++)
    if (!gd_work_is_collective(rates->points[i].work.kind) || rates->points[i].work.sizes[1] <= 1)
      rates->points[kept++] = rates->points[i];
  if (kept == rates->n_points)
    return;
  rates->n_points = kept;
  gd_rates_sort(rates);
}

void gd_rates_carry_from(struct gd_rates *rates, const struct gd_gpu *measured,
                         const struct gd_gpu_fit *fit) {
  struct gd_rates_carry *carry = &rates->carry;
  *carry = (struct gd_rates_carry){.memory_bytes_per_s = rates->memory_bytes_per_s,
                                   .multiprocessors = rates->multiprocessors,
                                   .compute_capability = rates->compute_capability};
  for (int i = 0; i < GD_PEAK_COUNT; i++)
    carry->flops[i] = rates->flops[i];
  gd_gpu_model_make(measured, fit, &carry->from);
  carry->on = true;
}

void gd_rates_set_power(struct gd_rates *rates, const struct gd_gpu *gpu,
                        const struct gd_gpu_fit *fit) {
  struct gd_gpu_model model;
  gd_gpu_model_make(gpu, fit, &model);
  rates->power = model.power;
}

void gd_rates_retarget(struct gd_rates *rates, const struct gd_target *target,
                       const struct gd_gpu_fit *fit) {
  const struct gd_gpu *gpu = target->gpu;
  if (rates->carry.on)
    gd_gpu_model_make(gpu, fit, &rates->carry.to);
  drop_collectives(rates);
  /* What was measured of memory relates to the data sheet of the card it was measured on. */
  for (int i = 0; i < GD_PEAK_COUNT; i++)
    rates->flops[i] = gpu->flops[i];
  rates->memory_bytes_per_s = gpu->memory_bytes_per_s;
  rates->multiprocessors = gpu->multiprocessors;
  rates->compute_capability = gpu->compute_capability;
  rates->host_link.bytes_per_s = LINK_SHARE * gpu->host_link_bytes_per_s;
  gd_rates_set_fabric(rates, target, fit);
  rates->cpus = target->cpus > 0 ? target->cpus : 1;
  gd_rates_set_power(rates, gpu, fit);
}

struct gd_rates_range gd_rates_range(const struct gd_rates *rates, enum gd_op_kind kind,
                                     enum gd_peak unit) {
  uint32_t first = rates->first[kind], end = rates->first[kind + 1];
  struct gd_rates_range range = {.flops = first < end && rates->points[first].work.flops > 0,
                                 .low = HUGE_VAL};
  for (uint32_t i = first; i < end; i++) {
    const struct gd_rate_point *point = &rates->points[i];
    double amount = range.flops ? point->work.flops : point->work.bytes;
    if (point->work.unit != unit || amount <= 0)
      continue;
    range.count++;
    range.low = fmin(range.low, amount / point->seconds);
    range.high = fmax(range.high, amount / point->seconds);
  }
  return range;
}
