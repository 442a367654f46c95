/*
 * A program of a plan, op by op; see simulate.h.
 */
#include "predict/simulate.h"

#include <string.h>

#include "exec/run.h"
#include "predict/streams.h"

/* --- the streams --------------------------------------------------------------------------- */

struct walking {
  struct gd_streams streams;
  double slowest; /* times what a typical rank takes to compute */
  double clock;   /* what is bound by arithmetic takes 1 / clock */
};

/* --- times of ops -------------------------------------------------------------------------- */

/* Layers repeat their ops: each different one is looked up once. */
struct memo {
  uint32_t count; /* a power of two */
  struct {
    struct gd_work work;
    double seconds; /* below 0: empty */
  } * slots;
};

static double look_up(struct memo *memo, const struct gd_rates *rates, const struct gd_work *work) {
  uint64_t at = gd_work_hash(work) & (memo->count - 1);
  while (memo->slots[at].seconds >= 0 && !gd_work_same(&memo->slots[at].work, work))
    at = (at + 1) & (memo->count - 1);
  if (memo->slots[at].seconds < 0) {
    memo->slots[at].work = *work;
    memo->slots[at].seconds = gd_rates_seconds(rates, work);
  }
  return memo->slots[at].seconds;
}

static void add_row(struct gd_simulated *to, enum gd_program program, const struct gd_work *work,
                    bool async, double seconds) {
  uint32_t i = 0;
  while (i < to->n_rows && to->rows[i].kind != work->kind)
    i++;
  if (i == GD_PROFILE_ROWS)
    return;
  if (i == to->n_rows)
    to->rows[to->n_rows++] =
        (struct gd_profile_row){.kind = work->kind, .program = program, .async = async};
  to->rows[i].count++;
  to->rows[i].seconds += seconds;
  to->rows[i].bytes += work->bytes;
  to->rows[i].flops += work->flops;
}

static void add_collective(struct gd_simulated *to, const struct gd_rates *rates,
                           const struct gd_work *work, double seconds) {
  enum gd_collective kind;
  struct gd_collective_time time;
  if (!gd_rates_collective(rates, work, &kind, &time))
    return;
  to->collectives[kind].calls++;
  to->collectives[kind].bytes += work->sizes[0];
  to->collectives[kind].seconds += seconds;
  to->collectives[kind].latency_s += time.latency_s;
}

/* --- the walk ------------------------------------------------------------------------------ */

/* What a program asks of a GPU at its highest clock. */
struct demand {
  struct gd_power_load load;
  double seconds;
  double bound_s; /* of these, bound by arithmetic: they take longer at a lower clock */
  double clock_most;
};

static double seconds_at(void *user, double clock) {
  const struct demand *demand = user;
  return demand->seconds + demand->bound_s * (demand->clock_most / clock - 1);
}

/* Trials say how much more than the FLOPs of its tensor cores a step draws, as other units work
   too; where those other units multiply, in fp32, that is the power model's to say. */
static void add_demand(struct demand *demand, const struct gd_rates *rates,
                       const struct gd_work *work, double seconds) {
  bool on_tensor_cores = work->unit != GD_PEAK_FP32;
  double more = on_tensor_cores && rates->learned.energy > 0 ? rates->learned.energy : 1;
  /* This engine does GEMMs of TF32 in fp16 where that is faster. */
  enum gd_peak unit = work->unit == GD_PEAK_TF32 ? GD_PEAK_FP16 : work->unit;
  if (work->on_host || gd_work_is_transfer(work->kind) || gd_work_is_collective(work->kind))
    return;
  gd_power_add(&rates->power, unit, more * work->flops, work->bytes, &demand->load);
  if (gd_rates_is_arithmetic(rates, work))
    demand->bound_s += seconds;
}

static void walk(const struct gd_plan *plan, enum gd_program program, const struct gd_rates *rates,
                 struct memo *memo, struct walking *walking, uint32_t *async_at,
                 struct demand *demand, struct gd_simulated *to) {
  struct gd_streams *streams = &walking->streams;
  const uint32_t *waits = plan->waits[program];
  const struct gd_graph *graph = plan->graph;
  double share = graph->loss == GD_NONE ? 1 : gd_run_counted_share(graph);
  for (uint32_t i = 0; i < plan->n_order[program]; i++) {
    gd_op_id id = plan->order[program][i];
    const struct gd_op *op = &graph->ops[id];
    bool async = gd_op_is_async(op->kind);
    struct gd_work work;
    gd_work_of(graph, id, share, &work);
    double seconds = look_up(memo, rates, &work);
    if (!async) {
      seconds *= walking->slowest;
      add_demand(demand, rates, &work, seconds);
      if (gd_rates_is_arithmetic(rates, &work))
        seconds /= walking->clock;
    }
    add_row(to, program, &work, async, seconds);
    add_collective(to, rates, &work, seconds);
    if (async) {
      async_at[i] = gd_streams_push(streams, seconds);
      to->async_s += seconds;
    } else {
      gd_streams_wait(streams, waits[i] ? async_at[waits[i] - 1] : 0);
      gd_streams_compute(streams, seconds);
      to->main_s += seconds;
    }
  }
  gd_streams_wait(streams, streams->pushed);
  to->seconds = demand->seconds = streams->now_s;
}

/* What the limit of its power costs a GPU is known once a program was walked without it. */
static void walk_limited(const struct gd_plan *plan, enum gd_program program,
                         const struct gd_rates *rates, struct memo *memo, struct walking *walking,
                         uint32_t *async_at, struct gd_simulated *to) {
  struct demand demand = {.clock_most = rates->power.clock_most}, again = demand;
  struct walking fresh = *walking;
  walk(plan, program, rates, memo, walking, async_at, &demand, to);
  to->clock = 1;
  if (rates->power.limit_w <= 0 || demand.seconds <= 0)
    return;
  double clock = gd_power_clock(&rates->power, &demand.load, seconds_at, &demand);
  to->clock = clock / demand.clock_most;
  to->power_w = gd_power_watts(&rates->power, &demand.load, seconds_at(&demand, clock), clock);
  if (to->clock >= 1)
    return;
  fresh.clock = to->clock;
  struct gd_simulated limited = {.clock = to->clock, .power_w = to->power_w};
  walk(plan, program, rates, memo, &fresh, async_at, &again, &limited);
  *to = limited;
}

enum gd_status gd_simulate(const struct gd_plan *plan, enum gd_program program,
                           const struct gd_rates *rates, struct gd_simulated *simulated,
                           struct gd_error *err) {
  uint32_t n = plan->n_order[program];
  struct memo memo = {.count = 64};
  *simulated = (struct gd_simulated){0};
  while (memo.count < 2 * n)
    memo.count *= 2;
  memo.slots = gd_mem_alloc(memo.count, sizeof *memo.slots);
  uint32_t *async_at = gd_mem_alloc((size_t)n + 1, sizeof *async_at); /* by place in order */
  double *left_s = gd_mem_alloc((size_t)n + 1, sizeof *left_s);
  struct walking walking = {
      .streams = {.speed = rates->async_speed > 0 ? rates->async_speed : 1, .left_s = left_s},
      .slowest = (rates->slowest > 0 ? rates->slowest : 1) *
                 (rates->learned.step > 0 ? rates->learned.step : 1),
      .clock = 1};
  bool ok = memo.slots && async_at && left_s;
  for (uint32_t i = 0; ok && i < memo.count; i++)
    memo.slots[i].seconds = -1;
  if (ok)
    walk_limited(plan, program, rates, &memo, &walking, async_at, simulated);
  gd_mem_free(left_s);
  gd_mem_free(async_at);
  gd_mem_free(memo.slots);
  return ok ? GD_OK : gd_nomem(err, "while simulating a plan");
}
