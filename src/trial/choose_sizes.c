/*
 * The search among micro-batches and numbers of saved layers; see choose.h. Every size that is
 * planned is a whole graph with its plan, so the search tries the likeliest answer first, remembers
 * what each graph was found to need, and leaves out what a bound excludes. The answer is that of a
 * search of all sizes, where more needs more.
 */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "codegen/codegen.h"
#include "trial/choose_int.h"

enum {
  /* A micro-step fills a device from so many tokens or pixels on, and from enough_flops / 12 on:
     vit on an H200 does 779 images/s with micro-steps of 1e14 FLOPs, and 753 with twice that and
     fewer saved activations. */
  ROWS_TO_FILL = 1 << 15,
  ENOUGH_TO_FILL = 12,
};

void gd_candidate_move(struct gd_candidate *to, struct gd_candidate *from) {
  *to = *from;
  to->plan.graph = &to->graph;
  *from = (struct gd_candidate){0};
}

struct gd_setup gd_planner_setup(const struct gd_planner *p, int64_t micro_batch, int64_t saved) {
  const struct gd_caps *caps = &p->place.caps;
  return (struct gd_setup){.model = p->model,
                           .precision = p->trial->precision,
                           .micro_batch = micro_batch,
                           .method = p->options->method,
                           .ranks = p->trial->ranks,
                           .tf32 = caps->tf32,
                           .cache = p->options->graphs,
                           .loss_chunk_bytes = caps->loss_chunk_bytes,
                           .saved_blocks = saved,
                           .no_compiler = p->trial->no_compiler[0] != '\0',
                           .rank = p->options->comm ? gd_comm_rank(p->options->comm) : 0};
}

static bool take_spare(struct gd_planner *p, int64_t micro_batch, int64_t saved,
                       struct gd_candidate *candidate) {
  for (int i = 0; i < MOST_SPARE; i++) {
    struct spare *spare = &p->spares[i];
    if (spare->size != micro_batch || spare->saved != saved)
      continue;
    gd_candidate_move(candidate, &spare->candidate);
    p->trial->plan_s = spare->plan_s;
    spare->size = 0;
    return true;
  }
  return false;
}

enum gd_status gd_planner_make(struct gd_planner *p, int64_t micro_batch, int64_t saved,
                               struct gd_candidate *candidate, struct gd_error *err) {
  if (take_spare(p, micro_batch, saved, candidate))
    return GD_OK;
  struct gd_setup setup = gd_planner_setup(p, micro_batch, saved);
  int64_t start = gd_clock_ns();
  GD_TRY(gd_pipeline_build(&setup, &candidate->graph, err));
  GD_TRY(gd_plan_make(&candidate->graph, &p->place.caps, &candidate->plan, err));
  p->trial->plan_s = 1e-9 * (double)(gd_clock_ns() - start);
  const int64_t *bytes = candidate->plan.bytes;
  p->state_bytes =
      bytes[GD_CATEGORY_PARAMETERS] + bytes[GD_CATEGORY_GRADIENTS] + bytes[GD_CATEGORY_OPTIMIZER];
  return GD_OK;
}

/* --- what a size needs --------------------------------------------------------------------- */

static const struct needs *find_tried(const struct gd_planner *p, int64_t micro_batch,
                                      int64_t saved) {
  for (int i = 0; i < p->n_tried; i++)
    if (p->tried[i].micro_batch == micro_batch && p->tried[i].saved == saved)
      return &p->tried[i];
  return NULL;
}

static bool is_too_long(const struct gd_planner *p, const struct needs *needs) {
  return needs->micro_batch > 1 && p->enough_flops > 0 && needs->flops > p->enough_flops;
}

static bool fits_device(const struct gd_planner *p, const struct needs *needs) {
  return needs->device_bytes <= p->trial->device_limit_bytes &&
         needs->host_bytes <= p->trial->host_limit_bytes;
}

void gd_planner_spare_ready(struct gd_planner *p) {
  if (p->ready_size == 0)
    return;
  struct spare *to = &p->spares[p->next_spare++ % MOST_SPARE];
  gd_candidate_deinit(&to->candidate);
  gd_candidate_move(&to->candidate, &p->ready);
  to->size = p->ready_size;
  to->saved = p->ready_saved;
  to->plan_s = p->ready_plan_s;
  p->ready_size = 0;
}

/* Takes the candidate over. */
void gd_planner_set_ready(struct gd_planner *p, int64_t micro_batch, int64_t saved, bool good,
                          struct gd_candidate *candidate) {
  gd_planner_spare_ready(p);
  gd_candidate_move(&p->ready, candidate);
  p->ready_size = micro_batch;
  p->ready_saved = saved;
  p->ready_good = good;
  p->ready_plan_s = p->trial->plan_s;
}

/* Whether this is a likelier answer than the plan at hand. Good ones come first; of two good ones
   the larger, or the one that saves more; of two others the smaller, which is shown where nothing
   fits.
 */
static bool is_likelier(const struct gd_planner *p, const struct needs *needs, bool good) {
  if (p->ready_size == 0 || good != p->ready_good)
    return p->ready_size == 0 || good;
  return good ? needs->micro_batch > p->ready_size || needs->saved > p->ready_saved
              : needs->micro_batch < p->ready_size;
}

/* Of a plan: see struct needs. */
static int64_t count_waiting(const struct gd_plan *plan) {
  const struct gd_graph *graph = plan->graph;
  int64_t waiting = gd_graph_blocks(graph);
  if (graph->n_ops == 0 ||
      gd_phase_program(graph->ops[plan->live_at].phase) != GD_PROGRAM_MICRO_STEP)
    return 0;
  for (gd_op_id id = 0; id < graph->n_ops; id++) {
    const struct gd_op *op = &graph->ops[id];
    if (op->block < 0)
      continue;
    if (op->phase == GD_PHASE_FORWARD && id >= plan->live_at)
      return 0;
    if (op->phase == GD_PHASE_BACKWARD && id <= plan->live_at && op->block < waiting)
      waiting = op->block;
  }
  return waiting;
}

/* Of the last `saved` layers: what they save when they may, beyond what they always do. */
static int64_t more_saved(const struct gd_planner *p, const struct gd_graph_saved *none,
                          const struct gd_graph_saved *all) {
  return all->own_bytes - none->own_bytes - none->own_tensors * p->place.caps.alignment_bytes;
}

/*
 * What a micro-batch needs at least where `saved` layers save, from a plan where `fewer` do: at the
 * op where most is alive in that plan, the others' activations lie in memory too, if the backward
 * pass has not come to them. 0: it is not known.
 */
static enum gd_status add_saved(const struct gd_planner *p, const struct needs *fewer,
                                int64_t saved, int64_t *bytes, struct gd_error *err) {
  struct gd_setup setup = gd_planner_setup(p, fewer->micro_batch, 0);
  struct gd_setup saving = gd_planner_setup(p, fewer->micro_batch, INT64_MAX);
  struct gd_graph_least none[2], all[2];
  *bytes = 0;
  if (fewer->at_least || fewer->blocks - fewer->saved > fewer->n_waiting)
    return GD_OK;
  for (int i = 0; i < 2; i++) {
    GD_TRY(gd_pipeline_least(&setup, i ? saved : fewer->saved, &none[i], err));
    GD_TRY(gd_pipeline_least(&saving, i ? saved : fewer->saved, &all[i], err));
    if (none[i].blocks == 0 || all[i].blocks == 0)
      return GD_OK;
  }
  *bytes = fewer->live_bytes + more_saved(p, &none[1].last, &all[1].last) -
           more_saved(p, &none[0].last, &all[0].last);
  return GD_OK;
}

/*
 * What a micro-batch needs at least when so many of the last layers save activations: the state,
 * scratch, and what the forward pass leaves for the backward pass. That follows from a graph that
 * methods share, without a plan. device_bytes 0: it is not known.
 */
static enum gd_status find_least(const struct gd_planner *p, int64_t micro_batch, int64_t saved,
                                 struct needs *least, struct gd_error *err) {
  struct gd_graph_least none = {0}, all = {0};
  *least = (struct needs){
      .micro_batch = micro_batch, .saved = saved, .at_least = true, .rest_bytes = -1};
  if (!p->options->graphs)
    return GD_OK;
  struct gd_setup setup = gd_planner_setup(p, micro_batch, 0),
                  saving = gd_planner_setup(p, micro_batch, INT64_MAX);
  if (saved < INT64_MAX)
    GD_TRY(gd_pipeline_least(&setup, saved, &none, err));
  if (saved > 0)
    GD_TRY(gd_pipeline_least(&saving, saved, &all, err));
  if ((saved < INT64_MAX && none.blocks == 0) || (saved > 0 && all.blocks == 0))
    return GD_OK;
  const struct gd_graph_least *any = saved > 0 ? &all : &none;
  least->blocks = any->blocks;
  least->rows = any->rows;
  least->flops = any->flops;
  least->parameters = any->parameters;
  least->rest_bytes = any->rest_bytes;
  least->device_bytes = p->state_bytes + p->place.caps.workspace_bytes;
  least->device_bytes +=
      saved == INT64_MAX ? all.all.bytes : none.all.bytes - none.last.bytes + all.last.bytes;
  return GD_OK;
}

/* The same, also from the plans of that micro-batch where fewer layers save. */
static enum gd_status find_bound(const struct gd_planner *p, int64_t micro_batch, int64_t saved,
                                 struct needs *least, struct gd_error *err) {
  GD_TRY(find_least(p, micro_batch, saved, least, err));
  for (int i = 0; saved < least->blocks && i < p->n_tried; i++) {
    const struct needs *fewer = &p->tried[i];
    int64_t bytes = 0;
    if (fewer->micro_batch == micro_batch && fewer->saved < saved)
      GD_TRY(add_saved(p, fewer, saved, &bytes, err));
    least->device_bytes = bytes > least->device_bytes ? bytes : least->device_bytes;
  }
  return GD_OK;
}

static void remember(struct gd_planner *p, const struct needs *needs) {
  for (int i = 0; i < p->n_tried; i++)
    if (p->tried[i].micro_batch == needs->micro_batch && p->tried[i].saved == needs->saved) {
      p->tried[i] = *needs;
      return;
    }
  if (p->n_tried < MOST_TRIED)
    p->tried[p->n_tried++] = *needs;
}

/* For the guesses of other methods; least_bytes: of find_least, without the state. */
static void note_rest(const struct gd_planner *p, const struct needs *needs, int64_t least_bytes) {
  int64_t rest_bytes = needs->device_bytes - p->state_bytes - least_bytes;
  for (int i = 0; i < 2; i++) {
    struct gd_setup setup = gd_planner_setup(p, needs->micro_batch, i ? INT64_MAX : 0);
    gd_pipeline_note(&setup, rest_bytes);
  }
}

/* Sets p->last to what a micro-batch needs when the last `saved` layers save activations. Plans
   only what is not known, and nothing that is certain to need more than it may. limit_bytes: of
   device memory, for the plan to be good; INT64_MAX: the device's. */
static enum gd_status find_needs(struct gd_planner *p, int64_t micro_batch, int64_t saved,
                                 int64_t limit_bytes, struct gd_error *err) {
  struct gd_candidate candidate = {0};
  struct needs least;
  const struct gd_graph *graph = &candidate.graph;
  const struct needs *known = find_tried(p, micro_batch, saved);
  int64_t most = limit_bytes < INT64_MAX ? limit_bytes : p->trial->device_limit_bytes;
  if (known && (!known->at_least || known->device_bytes > most)) {
    p->last = *known;
    return GD_OK;
  }
  GD_TRY(find_least(p, micro_batch, saved, &least, err));
  int64_t least_bytes = least.device_bytes > 0 ? least.device_bytes - p->state_bytes : -1;
  GD_TRY(find_bound(p, micro_batch, saved, &p->last, err));
  if (p->last.device_bytes > most) {
    remember(p, &p->last);
    return GD_OK;
  }
  enum gd_status status = gd_planner_make(p, micro_batch, saved, &candidate, err);
  if (status == GD_OK) {
    p->last = (struct needs){
        .micro_batch = micro_batch,
        .saved = saved,
        .device_bytes = candidate.plan.device_bytes,
        .host_bytes = candidate.plan.host_bytes,
        .blocks = gd_graph_blocks(graph),
        .rows = gd_tensor_elements(graph, graph->ids != GD_NONE ? graph->ids : graph->pixels),
        .flops = graph->model_flops,
        .live_bytes = candidate.plan.device_bytes - candidate.plan.bytes[GD_CATEGORY_ACTIVATIONS] +
                      candidate.plan.live_bytes,
        .n_waiting = count_waiting(&candidate.plan)};
    remember(p, &p->last);
    if (least_bytes >= 0)
      note_rest(p, &p->last, least_bytes);
    bool good = fits_device(p, &p->last) && p->last.device_bytes <= limit_bytes &&
                !is_too_long(p, &p->last);
    if (is_likelier(p, &p->last, good))
      gd_planner_set_ready(p, micro_batch, saved < p->last.blocks ? saved : p->last.blocks, good,
                           &candidate);
  }
  gd_candidate_deinit(&candidate);
  return status;
}

static bool may_save(const struct gd_planner *p) {
  return p->save_bytes > 0 && p->options->method.compile && !p->trial->no_compiler[0];
}

/* --- the micro-batch ----------------------------------------------------------------------- */

/* The largest power of two up to the batch that is not too long. flops: of a micro-step of size 1;
   they grow in proportion to the size. */
static int64_t longest_size(const struct gd_planner *p, double flops, int64_t batch) {
  int64_t size = 1;
  while (size <= batch / 2 && (p->enough_flops <= 0 || 2 * (double)size * flops <= p->enough_flops))
    size *= 2;
  return size;
}

/*
 * The power of two from which to look, at least 2 and at most `most`: bytes grow in proportion to
 * the micro-batch, and those of size 1 and of another one tell how. A wrong guess costs plans,
 * never the answer.
 */
static int64_t guess_size(const struct gd_planner *p, int64_t bytes, int64_t other_bytes,
                          int64_t other, int64_t most) {
  int64_t size = 2, each = (other_bytes - bytes) / (other - 1);
  int64_t fitting = (p->trial->device_limit_bytes - bytes) / (each > 0 ? each : 1) + 1;
  while (size <= most / 2 && 2 * size <= fitting)
    size *= 2;
  return size;
}

/* Whether a size fits with nothing saved, and whether it is not too long either. */
static enum gd_status try_size(struct gd_planner *p, int64_t size, bool *good, bool *fits,
                               struct gd_error *err) {
  GD_TRY(find_needs(p, size, 0, INT64_MAX, err));
  *fits = fits_device(p, &p->last);
  *good = *fits && !is_too_long(p, &p->last);
  return GD_OK;
}

/* About what parameters, gradients and optimizer take on the device, from the table of parts. */
static int64_t guess_state(const struct gd_planner *p, int64_t parameters) {
  const struct gd_method *method = &p->options->method;
  const struct gd_method_part *part = gd_sharding_part(method->sharding);
  const struct {
    enum gd_part_state state;
    int64_t bytes;
  } states[] = {{GD_STATE_MASTER, 4},
                {GD_STATE_COMPUTE, p->trial->precision == GD_PRECISION_FP32 ? 0 : 2},
                {GD_STATE_GRADIENT, 4},
                {GD_STATE_MOMENTS, 8}};
  int64_t bytes = 0;
  for (size_t i = 0; i < sizeof states / sizeof *states; i++) {
    bool moved = part && method->offload && (part->offloads & states[i].state);
    bool divided = part && (part->divides & states[i].state);
    if (!moved)
      bytes += states[i].bytes * parameters / (divided ? p->trial->ranks : 1);
  }
  return bytes;
}

/* How many layers of a micro-batch can save, by what plans of other methods had; INT64_MAX: all. */
static enum gd_status guess_first_saved(const struct gd_planner *p, int64_t micro_batch,
                                        int64_t state_bytes, int64_t *saved, struct gd_error *err) {
  struct needs least;
  GD_TRY(find_least(p, micro_batch, INT64_MAX, &least, err));
  int64_t rest_bytes = state_bytes + (least.rest_bytes > 0 ? least.rest_bytes : 0);
  int64_t low = 0, high = least.rest_bytes > 0 ? least.blocks : 0;
  *saved = INT64_MAX;
  if (least.device_bytes + rest_bytes <= p->save_bytes)
    return GD_OK;
  while (high - low > 1) {
    int64_t middle = low + (high - low) / 2;
    GD_TRY(find_least(p, micro_batch, middle, &least, err));
    *(least.device_bytes + rest_bytes <= p->save_bytes ? &low : &high) = middle;
  }
  *saved = low;
  return GD_OK;
}

/*
 * Sets *first to the power of two up to `longest` from which to look, by what graphs without a plan
 * tell; 0: nothing. Where it seems to fit with layers that save too, that is planned right away; if
 * it does fit the device, so it does with nothing saved. A wrong guess costs plans, never the
 * answer.
 */
static enum gd_status find_first(struct gd_planner *p, int64_t longest, int64_t *first, bool *fits,
                                 struct gd_error *err) {
  struct needs none;
  *first = 0;
  *fits = false;
  if (longest < 2)
    return GD_OK;
  GD_TRY(find_least(p, longest, 0, &none, err));
  if (none.device_bytes == 0)
    return GD_OK;
  int64_t state = p->state_bytes ? 0 : guess_state(p, none.parameters), size = longest;
  int64_t each = (none.device_bytes - p->state_bytes) / longest;
  while (size > 1 && p->state_bytes + state + size * each > p->trial->device_limit_bytes)
    size /= 2;
  *first = size;
  for (int tries = 0; may_save(p) && tries < 2 && !*fits; tries++) {
    int64_t saved;
    GD_TRY(guess_first_saved(p, size, p->state_bytes ? 0 : state, &saved, err));
    if (saved == 0 || find_tried(p, size, saved))
      break;
    GD_TRY(find_needs(p, size, saved, p->save_bytes, err));
    *fits = !p->last.at_least && fits_device(p, &p->last);
  }
  return GD_OK;
}

/* What offloading needs of the host depends little on the micro-batch: where a size has not enough
   of it, size 1 tells whether any has. *none: not even that fits. */
static enum gd_status try_host(struct gd_planner *p, int64_t *found, int64_t *bad, bool *none,
                               struct gd_error *err) {
  bool good, fits;
  *none = false;
  if (p->last.at_least || p->last.micro_batch < 2 || *found > 0 ||
      p->last.host_bytes <= p->trial->host_limit_bytes)
    return GD_OK;
  GD_TRY(try_size(p, 1, &good, &fits, err));
  *none = !fits;
  *bad = fits ? *bad : 1;
  *found = good ? 1 : 0;
  return GD_OK;
}

/*
 * The largest good power of two, 0 if there is none; *bad is the least size known not to fit.
 * longest: the largest that FLOPs permit, 0 where that is not known. Where FLOPs bound the size,
 * the largest that they permit is tried right after size 1: often it is the answer, and longer ones
 * are never planned.
 */
static enum gd_status find_power(struct gd_planner *p, int64_t batch, int64_t longest,
                                 int64_t *found, int64_t *bad, struct gd_error *err) {
  bool good, fits, none;
  int64_t guess, most = longest;
  *found = 0;
  GD_TRY(find_first(p, longest, &guess, &fits, err));
  if (fits)
    *found = guess;
  GD_TRY(try_host(p, found, bad, &none, err));
  if (none)
    return GD_OK;
  if (guess == 0) {
    GD_TRY(try_size(p, 1, &good, &fits, err));
    *bad = fits ? *bad : 1;
    if (!good)
      return GD_OK;
    *found = 1;
    int64_t bytes = p->last.device_bytes;
    most = longest_size(p, p->last.flops, batch);
    int64_t size = p->enough_flops > 0 ? most : 2; /* without a bound the longest may be absurd */
    if (most < 2)
      return GD_OK;
    GD_TRY(try_size(p, size, &good, &fits, err));
    *bad = fits ? *bad : size;
    guess = guess_size(p, bytes, p->last.device_bytes, size, most);
    if (good)
      *found = size;
  }
  /* Down from the guess until one is good, then up as long as the next one is. */
  for (int64_t size = guess < *bad ? guess : *bad / 2; size > *found; size = good ? 0 : size / 2) {
    GD_TRY(try_size(p, size, &good, &fits, err));
    *bad = fits ? *bad : size;
    *found = good ? size : *found;
    GD_TRY(try_host(p, found, bad, &none, err));
    if (none)
      return GD_OK;
  }
  for (; *found > 0 && 2 * *found <= most && 2 * *found < *bad; *found *= 2) {
    GD_TRY(try_size(p, 2 * *found, &good, &fits, err));
    *bad = fits ? *bad : 2 * *found;
    if (!good)
      break;
  }
  return GD_OK;
}

/* The policies `pow2`, `auto` (which also stops before a micro-step is longer than it gains from)
   and `max` (which then bisects). 0: not even one sequence fits. */
static enum gd_status find_micro_batch(struct gd_planner *p, int64_t longest, int64_t *found,
                                       struct gd_error *err) {
  const int64_t batch = p->model->recipe.batch / p->trial->ranks;
  int64_t good = 0, bad = batch + 1;
  bool fits, unused;
  *found = 0;
  if (p->options->micro_batch == GD_MICRO_BATCH_FIXED) {
    GD_TRY(try_size(p, p->options->micro_batch_size, &unused, &fits, err));
    *found = fits ? p->options->micro_batch_size : 0;
    return GD_OK;
  }
  GD_TRY(find_power(p, batch, longest, &good, &bad, err));
  if (p->options->micro_batch == GD_MICRO_BATCH_MAX)
    while (good > 0 && bad - good > 1) {
      int64_t middle = good + (bad - good) / 2;
      GD_TRY(try_size(p, middle, &unused, &fits, err));
      if (fits)
        good = middle;
      else
        bad = middle;
    }
  *found = good;
  return GD_OK;
}

/* --- saved activations --------------------------------------------------------------------- */

/* Whether a micro-batch fits into what saved activations may fill, with so many layers saving. */
static enum gd_status try_saving(struct gd_planner *p, int64_t micro_batch, int64_t saved,
                                 bool *fits, struct gd_error *err) {
  GD_TRY(find_needs(p, micro_batch, saved, p->save_bytes, err));
  *fits = p->last.device_bytes <= p->save_bytes;
  return GD_OK;
}

/* Micro-steps half as long cost only what is exchanged in each, as long as they fill the device. */
static bool may_halve(const struct gd_planner *p) {
  return p->options->micro_batch == GD_MICRO_BATCH_AUTO && p->trial->micro_batch % 2 == 0 &&
         p->options->method.sharding <= GD_SHARDING_ZERO1 &&
         p->last.flops / 2 >= p->place.caps.enough_flops / ENOUGH_TO_FILL &&
         p->last.rows / 2 >= ROWS_TO_FILL;
}

/* A number of layers that can save, or cannot. */
struct saving {
  int64_t saved, bytes; /* bytes -1: it was not planned */
};

/*
 * Sets *guess to a number of layers between `good`, which can save, and `bad`, which cannot. What a
 * layer takes follows from graphs without a plan, or is the same for each; halfway when that was
 * wrong often.
 */
static enum gd_status guess_saved(const struct gd_planner *p, struct saving good, struct saving bad,
                                  int tries, int64_t *guess, struct gd_error *err) {
  enum { MOST_GUESSES = 3 };
  struct saving from = good.bytes >= 0 ? good : bad;
  struct needs least, more;
  int64_t low = good.saved, high = bad.saved;
  *guess = low + (high - low) / 2;
  if (from.bytes < 0 || tries >= MOST_GUESSES)
    return GD_OK;
  GD_TRY(find_least(p, p->trial->micro_batch, from.saved, &least, err));
  if (least.device_bytes > 0) {
    while (high - low > 1) {
      int64_t middle = low + (high - low) / 2;
      GD_TRY(find_least(p, p->trial->micro_batch, middle, &more, err));
      *(from.bytes + more.device_bytes - least.device_bytes <= p->save_bytes ? &low : &high) =
          middle;
    }
    *guess = low;
  } else if (good.bytes >= 0 && bad.bytes > good.bytes) {
    double share = (double)(p->save_bytes - good.bytes) / (double)(bad.bytes - good.bytes);
    *guess = low + (int64_t)(share * (double)(high - low));
  }
  *guess = *guess <= good.saved ? good.saved + 1 : *guess >= bad.saved ? bad.saved - 1 : *guess;
  return GD_OK;
}

/* Between which numbers of layers of a micro-batch to look, by what was tried. */
static void find_saving(const struct gd_planner *p, int64_t blocks, struct saving *good,
                        struct saving *bad) {
  *good = (struct saving){0, -1};
  *bad = (struct saving){blocks, -1};
  for (int i = 0; i < p->n_tried; i++) {
    const struct needs *at = &p->tried[i];
    int64_t saved = at->saved < blocks ? at->saved : blocks;
    struct saving it = {saved, at->at_least ? -1 : at->device_bytes};
    if (at->micro_batch != p->trial->micro_batch)
      continue;
    if (saved == 0) {
      if (good->saved == 0)
        *good = it;
    } else if (at->device_bytes > p->save_bytes) {
      if (saved <= bad->saved)
        *bad = it;
    } else if (!at->at_least && saved >= good->saved && saved < blocks) {
      *good = it;
    }
  }
  if (good->bytes > p->save_bytes) /* with nothing saved: more layers need more */
    bad->saved = good->saved + 1;
}

/*
 * Memory that the micro-batch leaves over: as many layers as fit save the activations that the
 * compile method would recompute as inputs of GEMMs (pass_recompute.c). All of them at half the
 * micro-batch are better than some at the whole.
 */
static enum gd_status save_what_fits(struct gd_planner *p, struct gd_error *err) {
  struct gd_trial *trial = p->trial;
  bool fits;
  struct saving good, bad;
  GD_TRY(try_saving(p, trial->micro_batch, INT64_MAX, &fits, err));
  int64_t blocks = p->last.blocks;
  find_saving(p, blocks, &good, &bad);
  if (!fits && may_halve(p)) {
    GD_TRY(try_saving(p, trial->micro_batch / 2, INT64_MAX, &fits, err));
    blocks = p->last.blocks;
    if (fits)
      trial->micro_batch /= 2;
  }
  for (int tries = 0; !fits && bad.saved - good.saved > 1; tries++) {
    int64_t saved;
    bool some;
    GD_TRY(guess_saved(p, good, bad, tries, &saved, err));
    GD_TRY(try_saving(p, trial->micro_batch, saved, &some, err));
    *(some ? &good : &bad) = (struct saving){saved, p->last.at_least ? -1 : p->last.device_bytes};
  }
  trial->saved_blocks = fits ? blocks : good.saved;
  return GD_OK;
}

/*
 * Tries the largest useful micro-batch (of p->enough_flops) with everything saved. With plenty of
 * memory that is the answer, and the only plan that is made. *found 0: it does not fit, or
 * something else might be better. *longest: that micro-batch, 0 where it is not known.
 */
static enum gd_status try_longest(struct gd_planner *p, int64_t batch, int64_t *found,
                                  int64_t *longest, struct gd_error *err) {
  int64_t saved = may_save(p) ? INT64_MAX : 0;
  int64_t limit_bytes = saved ? p->save_bytes : INT64_MAX;
  *found = *longest = 0;
  if (p->enough_flops <= 0 || batch < 2)
    return GD_OK;
  /* Backward takes about twice the GEMMs of forward; a plan then tells exactly. */
  int64_t guess = longest_size(p, p->identity.flops, batch), size = 0;
  for (int tries = 0; tries < 2 && guess >= 2 && guess != size; tries++) {
    size = guess;
    GD_TRY(find_needs(p, size, saved, limit_bytes, err));
    guess = longest_size(p, p->last.flops / (double)size, batch);
  }
  *longest = guess == size ? size : 0;
  if (guess < 2 || guess != size || !fits_device(p, &p->last) || p->last.device_bytes > limit_bytes)
    return GD_OK;
  *found = size;
  p->trial->saved_blocks = saved ? p->last.blocks : 0;
  return GD_OK;
}

/* --- both ---------------------------------------------------------------------------------- */

enum gd_status gd_planner_search_sizes(struct gd_planner *p, int64_t *found, struct gd_error *err) {
  struct gd_trial *trial = p->trial;
  const struct gd_trial_options *options = p->options;
  int64_t longest;
  GD_TRY(try_longest(p, p->model->recipe.batch / trial->ranks, found, &longest, err));
  trial->micro_batch = *found;
  if (*found)
    return GD_OK;
  GD_TRY(find_micro_batch(p, longest, found, err));
  trial->micro_batch = *found                                         ? *found
                       : options->micro_batch == GD_MICRO_BATCH_FIXED ? options->micro_batch_size
                                                                      : 1;
  GD_ASSERT(trial->micro_batch > 0);
  return *found && may_save(p) ? save_what_fits(p, err) : GD_OK;
}
