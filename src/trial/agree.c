/*
 * Agreement of ranks; see agree.h. Everything is one all-gather of plain data each, after which
 * every rank comes to the same answer by itself.
 */
#include "trial/agree.h"

#include <stdio.h>
#include <string.h>

#include "base/cache.h"
#include "base/mem.h"
#include "base/strbuf.h"
#include "trial/recipe.h"

static int size_of(const struct gd_comm *comm) {
  return comm ? gd_comm_size(comm) : 1;
}

enum gd_status gd_agree_gather(struct gd_comm *comm, const void *own, size_t bytes, void **all,
                               struct gd_error *err) {
  char *data = gd_mem_alloc((size_t)gd_comm_size(comm), bytes);
  if (!data)
    return gd_nomem(err, "while ranks agree");
  memcpy(data + (size_t)gd_comm_rank(comm) * bytes, own, bytes);
  enum gd_status status = gd_comm_all_gather(comm, data, (int64_t)bytes, err);
  if (status != GD_OK) {
    gd_mem_free(data);
    return status;
  }
  *all = data;
  return GD_OK;
}

/* Appends the nth rank of a list; after eight of them the list ends in dots. */
static void name_rank(struct gd_strbuf *list, int rank, int nth) {
  if (nth < 8)
    gd_strbuf_printf(list, "%s%d", nth ? ", " : "", rank);
  else if (nth == 8)
    gd_strbuf_append(list, ", ...");
}

/* --- limits -------------------------------------------------------------------------------- */

struct range {
  int64_t least, most;
  int rank; /* the first that has the least */
};

static struct range range_of(const struct gd_limits *all, int size, size_t offset) {
  struct range range = {.least = INT64_MAX, .most = INT64_MIN};
  for (int i = 0; i < size; i++) {
    int64_t value;
    memcpy(&value, (const char *)&all[i] + offset, sizeof value);
    if (value < range.least) {
      range.least = value;
      range.rank = i;
    }
    range.most = value > range.most ? value : range.most;
  }
  return range;
}

static void describe(struct gd_strbuf *to, const char *what, const struct range *range,
                     bool bytes) {
  char least[32], most[32];
  /* Free memory differs a little from one moment to the next: that is not worth a word. */
  if ((double)range->least >= (bytes ? 0.95 : 1.0) * (double)range->most)
    return;
  snprintf(least, sizeof least, "%lld", (long long)range->least);
  snprintf(most, sizeof most, "%lld", (long long)range->most);
  gd_strbuf_printf(to, "%s%s %s (rank %d) to %s", to->length ? ", " : "", what,
                   bytes ? gd_format_bytes(least, sizeof least, range->least) : least, range->rank,
                   bytes ? gd_format_bytes(most, sizeof most, range->most) : most);
}

static void take_least(struct gd_limits *limits, const struct gd_limits *all, int size, char *note,
                       size_t note_size) {
  struct gd_strbuf text = {0};
  struct range threads = range_of(all, size, offsetof(struct gd_limits, threads));
  struct range device = range_of(all, size, offsetof(struct gd_limits, device_bytes));
  struct range host = range_of(all, size, offsetof(struct gd_limits, host_bytes));
  limits->threads = threads.least;
  limits->threads_differ = threads.least != threads.most;
  limits->device_bytes = device.least;
  limits->host_bytes = host.least;
  describe(&text, "threads", &threads, false);
  describe(&text, "device memory", &device, true);
  describe(&text, "host memory", &host, true);
  for (int i = size - 1; i >= 0; i--)
    if (all[i].no_compiler[0])
      snprintf(limits->no_compiler, sizeof limits->no_compiler, "%.255s", all[i].no_compiler);
  if (text.text && !text.failed)
    snprintf(note, note_size, "ranks have unequal limits, and all run with the least: %s",
             text.text);
  gd_strbuf_deinit(&text);
}

enum gd_status gd_agree_limits(struct gd_comm *comm, struct gd_limits *limits, char *note,
                               size_t size, struct gd_error *err) {
  void *all;
  note[0] = '\0';
  if (size_of(comm) == 1)
    return GD_OK;
  GD_TRY(gd_agree_gather(comm, limits, sizeof *limits, &all, err));
  take_least(limits, all, gd_comm_size(comm), note, size);
  gd_mem_free(all);
  return GD_OK;
}

/* --- plans --------------------------------------------------------------------------------- */

/* A word at a time, since every plan that is predicted is hashed: half of the finalizer of
   splitmix64 (Steele, Lea, Flood 2014). */
static uint64_t mix(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * 0xbf58476d1ce4e5b9u;
  return hash ^ hash >> 31;
}

static uint64_t hash_tensor(uint64_t hash, const struct gd_graph *graph, gd_tensor_id id) {
  if (id == GD_NONE)
    return mix(hash, GD_NONE);
  const struct gd_tensor *tensor = &graph->tensors[id];
  hash = mix(hash, (uint64_t)tensor->dtype << 40 | (uint64_t)tensor->space << 32 | tensor->rank);
  for (uint32_t i = 0; i < tensor->rank; i++)
    hash = mix(hash, (uint64_t)tensor->dims[i]);
  return hash;
}

/* Not of offsets and attributes: where a shard begins depends on the rank. */
uint64_t gd_plan_hash(const struct gd_plan *plan) {
  const struct gd_graph *graph = plan->graph;
  uint64_t hash = mix(mix(1, (uint64_t)plan->device_bytes), (uint64_t)plan->host_bytes);
  for (int program = 0; program < GD_PROGRAM_COUNT; program++)
    for (uint32_t i = 0; i < plan->n_order[program]; i++) {
      const struct gd_op *op = &graph->ops[plan->order[program][i]];
      hash = mix(hash, (uint64_t)op->kind << 32 | op->adds);
      hash = mix(hash, (uint64_t)program << 60 | (uint64_t)op->n_in << 30 | op->n_out);
      for (uint32_t k = 0; k < op->n_in; k++)
        hash = hash_tensor(hash, graph, op->in[k]);
      for (uint32_t k = 0; k < op->n_out; k++)
        hash = hash_tensor(hash, graph, op->out[k]);
    }
  return hash;
}

static int64_t hash_text(const char *a, const char *b) {
  return (int64_t)gd_cache_hash(gd_cache_hash(0, a, strlen(a) + 1), b, strlen(b));
}

static enum gd_status fail_term(const struct gd_term *term, const int64_t *all, int size,
                                int stride, struct gd_error *err) {
  struct gd_strbuf who = {0};
  char values[64] = "";
  int count = 0;
  for (int i = size - 1; i > 0; i--)
    if (all[i * stride] != all[0] && term->number)
      snprintf(values, sizeof values, " (%lld, not %lld)", (long long)all[i * stride],
               (long long)all[0]);
  for (int i = 1; i < size; i++)
    if (all[i * stride] != all[0])
      name_rank(&who, i, count++);
  enum gd_status status =
      gd_fail(err, GD_BAD_INPUT,
              "rank%s %s %s another %s than rank 0%s; start all ranks with the same gpudays, the "
              "same options and the same files of the model",
              count > 1 ? "s" : "", who.text ? who.text : "?", count > 1 ? "have" : "has",
              term->name, values);
  gd_strbuf_deinit(&who);
  return status;
}

enum gd_status gd_agree_terms(struct gd_comm *comm, const struct gd_term *terms, int count,
                              struct gd_error *err) {
  enum { MOST = 32 };
  int64_t own[MOST] = {0};
  void *gathered;
  enum gd_status status = GD_OK;
  GD_ASSERT(count <= MOST);
  if (size_of(comm) == 1)
    return GD_OK;
  for (int i = 0; i < count; i++)
    own[i] = terms[i].value;
  GD_TRY(gd_agree_gather(comm, own, (size_t)count * sizeof *own, &gathered, err));
  const int64_t *all = gathered;
  for (int term = 0; term < count && status == GD_OK; term++)
    for (int i = 1; i < gd_comm_size(comm) && status == GD_OK; i++)
      if (all[i * count + term] != all[term])
        status = fail_term(&terms[term], all + term, gd_comm_size(comm), count, err);
  gd_mem_free(gathered);
  return status;
}

int64_t gd_agree_model_hash(const struct gd_model *model) {
  const struct gd_recipe *r = &model->recipe;
  char graph[GD_HASH_TEXT];
  if (gd_model_hash(model, graph, NULL) != GD_OK)
    return 0;
  int64_t whole[] = {r->batch,
                     r->seq,
                     r->steps,
                     (int64_t)r->precision,
                     r->optimizer,
                     gd_recipe_decouples(r),
                     r->decay_all,
                     r->warmup_steps,
                     (int64_t)r->schedule};
  double real[] = {r->lr, r->min_lr, r->beta1, r->beta2, r->eps, r->weight_decay, r->max_grad_norm};
  uint64_t hash = gd_cache_hash_text(0, graph);
  hash = gd_cache_hash_text(hash, model->family->model_type);
  hash = gd_cache_hash(hash, whole, sizeof whole);
  return (int64_t)gd_cache_hash(hash, real, sizeof real);
}

enum gd_status gd_agree_plan(struct gd_comm *comm, const struct gd_offer *offer,
                             struct gd_error *err) {
  const struct gd_trial *trial = offer->trial;
  if (size_of(comm) == 1)
    return GD_OK;
  const struct gd_term terms[] = {
      {"gpudays", hash_text(trial->version, trial->commit), false},
      {"model", hash_text(trial->model, ""), false},
      {"method", hash_text(trial->method, ""), false},
      {"backend", hash_text(trial->backend, ""), false},
      {"precision", (int64_t)trial->precision, false},
      {"batch", offer->model->recipe.batch, true},
      {"sequence length", offer->model->recipe.seq, true},
      {"number of steps", offer->model->recipe.steps, true},
      {GD_TERM_MODEL, gd_agree_model_hash(offer->model), false},
      {"micro-batch", trial->micro_batch, true},
      {"last micro-batch", trial->remainder, true},
      {"number of layers that save activations", trial->saved_blocks, true},
      {"--sample-seconds",
       (int64_t)gd_cache_hash(0, &offer->sample_seconds, sizeof offer->sample_seconds), false},
      {"--seed", (int64_t)offer->seed, true},
      {"--profile", offer->profile, true},
      {"plan", (int64_t)gd_plan_hash(offer->full), false},
      {"plan of the last micro-batch",
       offer->remainder ? (int64_t)gd_plan_hash(offer->remainder) : 0, false},
  };
  return gd_agree_terms(comm, terms, sizeof terms / sizeof *terms, err);
}

/* --- peaks --------------------------------------------------------------------------------- */

struct seat {
  struct gd_peak_share share;
  int64_t host, host_cores;
};

static bool is_gpu(const struct seat *seat) {
  static const unsigned char none[sizeof seat->share.uuid] = {0};
  return memcmp(seat->share.uuid, none, sizeof none) != 0;
}

/* The part of a rank's own peak that it adds: 0 for a GPU that an earlier rank has; the rank's part
 * of the cores where its machine's ranks have more threads than there are. */
static double part_of(const struct seat *seats, int size, int rank, bool *first) {
  const struct seat *own = &seats[rank];
  int64_t threads = 0;
  *first = true;
  for (int i = 0; i < size; i++) {
    bool same = is_gpu(own)
                    ? memcmp(own->share.uuid, seats[i].share.uuid, sizeof own->share.uuid) == 0
                    : own->host == seats[i].host;
    if (same && i < rank)
      *first = false;
    if (same)
      threads += seats[i].share.threads;
  }
  if (is_gpu(own))
    return *first ? 1 : 0;
  return threads > own->host_cores ? (double)own->host_cores / (double)threads : 1;
}

enum gd_status gd_agree_peak(struct gd_comm *comm, const struct gd_peak_share *own,
                             double *peak_flops, double *limit_flops, int *devices,
                             struct gd_error *err) {
  void *gathered;
  *peak_flops = own->peak_flops;
  *limit_flops = own->limit_flops;
  *devices = 1;
  if (size_of(comm) == 1)
    return GD_OK;
  struct seat seat = {.share = *own,
                      .host = gd_comm_host(comm, gd_comm_rank(comm)),
                      .host_cores = gd_comm_host_cores(comm)};
  /* More threads than a rank has cores are off its own peak already. */
  if (seat.share.threads > gd_comm_allowed_cores(comm))
    seat.share.threads = gd_comm_allowed_cores(comm);
  GD_TRY(gd_agree_gather(comm, &seat, sizeof seat, &gathered, err));
  const struct seat *seats = gathered;
  *peak_flops = *limit_flops = *devices = 0;
  for (int i = 0; i < gd_comm_size(comm); i++) {
    bool first;
    double part = part_of(seats, gd_comm_size(comm), i, &first);
    *peak_flops += part * seats[i].share.peak_flops;
    *limit_flops += part * seats[i].share.limit_flops;
    *devices += first;
  }
  gd_mem_free(gathered);
  return GD_OK;
}
