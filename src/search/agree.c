/*
 * Agreement of ranks; see agree.h. Everything is one all-gather of plain data each, after which
 * every rank comes to the same answer by itself.
 */
#include "search/agree.h"

#include <stdio.h>
#include <string.h>

#include "base/cache.h"
#include "base/mem.h"
#include "base/strbuf.h"

static int size_of(const struct gd_comm *comm) {
  return comm ? gd_comm_size(comm) : 1;
}

/* Every rank's; free with gd_mem_free. */
static enum gd_status gather(struct gd_comm *comm, const void *own, size_t bytes, void **all,
                             struct gd_error *err) {
  char *data = gd_mem_alloc((size_t)gd_comm_size(comm), bytes);
  if (!data)
    return gd_fail(err, GD_ENVIRONMENT, "out of memory while ranks agree");
  memcpy(data + (size_t)gd_comm_rank(comm) * bytes, own, bytes);
  enum gd_status status = gd_comm_all_gather(comm, data, (int64_t)bytes, err);
  if (status != GD_OK) {
    gd_mem_free(data);
    return status;
  }
  *all = data;
  return GD_OK;
}

/* Appends a rank to a list that began with "rank" or goes on; a few are enough. */
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

/* Free memory moves by a little from one moment to the next: that is worth no word. */
static bool is_unequal(const struct range *range, bool bytes) {
  return (double)range->least < (bytes ? 0.95 : 1.0) * (double)range->most;
}

static void describe(struct gd_strbuf *to, const char *what, const struct range *range,
                     bool bytes) {
  char least[32], most[32];
  if (!is_unequal(range, bytes))
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
  GD_TRY(gather(comm, limits, sizeof *limits, &all, err));
  take_least(limits, all, gd_comm_size(comm), note, size);
  gd_mem_free(all);
  return GD_OK;
}

/* --- plans --------------------------------------------------------------------------------- */

static uint64_t hash_tensor(uint64_t hash, const struct gd_graph *graph, gd_tensor_id id) {
  if (id == GD_NONE)
    return gd_cache_hash(hash, &id, sizeof id);
  const struct gd_tensor *tensor = &graph->tensors[id];
  int64_t facts[] = {(int64_t)tensor->dtype, (int64_t)tensor->space, (int64_t)tensor->rank};
  hash = gd_cache_hash(hash, facts, sizeof facts);
  return gd_cache_hash(hash, tensor->dims, tensor->rank * sizeof *tensor->dims);
}

/* Not of offsets and attributes: where a shard begins depends on the rank. */
uint64_t gd_plan_hash(const struct gd_plan *plan) {
  const struct gd_graph *graph = plan->graph;
  uint64_t hash = gd_cache_hash(0, &plan->device_bytes, sizeof plan->device_bytes);
  hash = gd_cache_hash(hash, &plan->host_bytes, sizeof plan->host_bytes);
  for (int program = 0; program < GD_PROGRAM_COUNT; program++)
    for (uint32_t i = 0; i < plan->n_order[program]; i++) {
      const struct gd_op *op = &graph->ops[plan->order[program][i]];
      int64_t facts[] = {program, (int64_t)op->kind, op->n_in, op->n_out, op->adds};
      hash = gd_cache_hash(hash, facts, sizeof facts);
      for (uint32_t k = 0; k < op->n_in; k++)
        hash = hash_tensor(hash, graph, op->in[k]);
      for (uint32_t k = 0; k < op->n_out; k++)
        hash = hash_tensor(hash, graph, op->out[k]);
    }
  return hash;
}

/* In the order of cause and effect: the first that differs is the one to name. */
enum term {
  TERM_PROGRAM,
  TERM_MODEL,
  TERM_METHOD,
  TERM_BACKEND,
  TERM_PRECISION,
  TERM_BATCH,
  TERM_LENGTH,
  TERM_MICRO_BATCH,
  TERM_REMAINDER,
  TERM_BLOCKS,
  TERM_SECONDS,
  TERM_SEED,
  TERM_PROFILE,
  TERM_PLAN,
  TERM_LAST_PLAN,
  TERM_COUNT
};

static const struct {
  const char *name;
  bool number; /* as it is; others are hashes */
} terms[TERM_COUNT] = {
    [TERM_PROGRAM] = {"gpudays", false},
    [TERM_MODEL] = {"model", false},
    [TERM_METHOD] = {"method", false},
    [TERM_BACKEND] = {"backend", false},
    [TERM_PRECISION] = {"precision", false},
    [TERM_BATCH] = {"batch", true},
    [TERM_LENGTH] = {"sequence length", true},
    [TERM_MICRO_BATCH] = {"micro-batch", true},
    [TERM_REMAINDER] = {"last micro-batch", true},
    [TERM_BLOCKS] = {"number of layers that save activations", true},
    [TERM_SECONDS] = {"--sample-seconds", false},
    [TERM_SEED] = {"--seed", true},
    [TERM_PROFILE] = {"--profile", true},
    [TERM_PLAN] = {"plan", false},
    [TERM_LAST_PLAN] = {"plan of the last micro-batch", false},
};

static int64_t hash_text(const char *a, const char *b) {
  return (int64_t)gd_cache_hash(gd_cache_hash(0, a, strlen(a) + 1), b, strlen(b));
}

static void fill_terms(const struct gd_offer *offer, int64_t values[TERM_COUNT]) {
  const struct gd_trial *trial = offer->trial;
  values[TERM_PROGRAM] = hash_text(trial->version, trial->commit);
  values[TERM_MODEL] = hash_text(trial->model, "");
  values[TERM_METHOD] = hash_text(trial->method, "");
  values[TERM_BACKEND] = hash_text(trial->backend, "");
  values[TERM_PRECISION] = (int64_t)trial->precision;
  values[TERM_BATCH] = offer->recipe->batch;
  values[TERM_LENGTH] = offer->recipe->seq;
  values[TERM_MICRO_BATCH] = trial->micro_batch;
  values[TERM_REMAINDER] = trial->remainder;
  values[TERM_BLOCKS] = trial->kept_blocks;
  values[TERM_SECONDS] =
      (int64_t)gd_cache_hash(0, &offer->sample_seconds, sizeof offer->sample_seconds);
  values[TERM_SEED] = (int64_t)offer->seed;
  values[TERM_PROFILE] = offer->profile;
  values[TERM_PLAN] = (int64_t)gd_plan_hash(offer->full);
  values[TERM_LAST_PLAN] = offer->remainder ? (int64_t)gd_plan_hash(offer->remainder) : 0;
}

static enum gd_status fail_term(int64_t (*all)[TERM_COUNT], int size, int term,
                                struct gd_error *err) {
  struct gd_strbuf who = {0};
  char values[64] = "";
  int count = 0;
  for (int i = size - 1; i > 0; i--)
    if (all[i][term] != all[0][term] && terms[term].number)
      snprintf(values, sizeof values, " (%lld, not %lld)", (long long)all[i][term],
               (long long)all[0][term]);
  for (int i = 1; i < size; i++)
    if (all[i][term] != all[0][term])
      name_rank(&who, i, count++);
  enum gd_status status =
      gd_fail(err, GD_BAD_INPUT,
              "rank%s %s %s another %s than rank 0%s; start all ranks with the same gpudays and "
              "the same options",
              count > 1 ? "s" : "", who.text ? who.text : "?", count > 1 ? "have" : "has",
              terms[term].name, values);
  gd_strbuf_deinit(&who);
  return status;
}

enum gd_status gd_agree_plan(struct gd_comm *comm, const struct gd_offer *offer,
                             struct gd_error *err) {
  int64_t own[TERM_COUNT];
  void *gathered;
  enum gd_status status = GD_OK;
  if (size_of(comm) == 1)
    return GD_OK;
  fill_terms(offer, own);
  GD_TRY(gather(comm, own, sizeof own, &gathered, err));
  int64_t(*all)[TERM_COUNT] = gathered;
  for (int term = 0; term < TERM_COUNT && status == GD_OK; term++)
    for (int i = 1; i < gd_comm_size(comm) && status == GD_OK; i++)
      if (all[i][term] != all[0][term])
        status = fail_term(all, gd_comm_size(comm), term, err);
  gd_mem_free(gathered);
  return status;
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

static bool is_same_gpu(const struct seat *a, const struct seat *b) {
  return memcmp(a->share.uuid, b->share.uuid, sizeof a->share.uuid) == 0;
}

/* The part of a rank's own peak that it adds: 0 for a GPU that an earlier rank has; the rank's part
 * of the cores where its machine's ranks have more threads than there are. */
static double part_of(const struct seat *seats, int size, int rank, bool *first) {
  const struct seat *own = &seats[rank];
  int64_t threads = 0;
  *first = true;
  for (int i = 0; i < size; i++) {
    bool same = is_gpu(own) ? is_same_gpu(own, &seats[i]) : own->host == seats[i].host;
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
  GD_TRY(gather(comm, &seat, sizeof seat, &gathered, err));
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
