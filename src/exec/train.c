/*
 * Training for a few steps. Batches are made sample by sample out of a counter-based generator, so
 * that every rank can make exactly its share.
 */
#include "exec/train.h"

#include "base/process.h"
#include "base/rng.h"
#include "codegen/codegen.h"
#include "exec/run.h"
#include "pass/pass.h"

struct part {
  struct gd_graph graph;
  struct gd_plan plan;
};

struct trainer {
  struct gd_train_options *options;
  struct part parts[GD_RUN_PARTS];
  int64_t local; /* samples of this rank in a step */
  int64_t first; /* the first of them */
  int64_t classes;
  struct gd_backend *backend;
  struct gd_run run;
  int32_t *ids, *labels; /* of one micro-batch; ids NULL: images */
  float *pixels;
};

static enum gd_status no_memory(struct gd_error *err) {
  return gd_fail(err, GD_ENVIRONMENT, "out of memory before training");
}

static int rank_of(const struct gd_comm *comm) {
  return comm ? gd_comm_rank(comm) : 0;
}

static int ranks_of(const struct gd_comm *comm) {
  return comm ? gd_comm_size(comm) : 1;
}

static enum gd_status make_part(struct trainer *t, int64_t micro_batch, struct part *part,
                                struct gd_error *err) {
  const struct gd_train_options *o = t->options;
  struct gd_setup setup = {.model = o->model,
                           .precision = o->precision,
                           .micro_batch = micro_batch,
                           .method = o->method,
                           .ranks = ranks_of(o->comm),
                           .rank = rank_of(o->comm)};
  const struct gd_backend_ops *ops;
  struct gd_caps caps;
  struct gd_error why = {0};
  GD_TRY(gd_backend_find(o->backend, &ops, err));
  ops->caps(&(struct gd_backend_options){.threads = o->threads}, &caps);
  setup.no_compiler = o->method.compile && !gd_codegen_works(&caps, &why);
  setup.tf32 = caps.tf32;
  GD_TRY(gd_pipeline_build(&setup, &part->graph, err));
  return gd_plan_make(&part->graph, &caps, &part->plan, err);
}

/* --- data ---------------------------------------------------------------------------------- */

/* A fifth of the labels does not count, and all of every fifth sample's. */
static bool is_masked(const struct trainer *t, uint64_t index, int64_t sample) {
  if (!t->ids)
    return false;
  return sample % 5 == 3 || gd_rng_below(t->options->seed, gd_hash_string("masks"), index, 5) == 0;
}

/* Row `row` of the micro-batch is that sample. Every step trains on the same ones: a loss that
   does not fall, and an update that goes wrong, then show. */
static void make_sample(struct trainer *t, const struct gd_graph *graph, int64_t sample,
                        int64_t row) {
  const uint64_t seed = t->options->seed;
  int64_t seq = gd_tensor_elements(graph, graph->labels) / graph->tensors[graph->labels].dims[0];
  for (int64_t i = 0; i < seq; i++) {
    uint64_t index = (uint64_t)(sample * seq + i);
    int32_t value = (int32_t)gd_rng_below(seed, gd_hash_string("tokens"), index, t->classes);
    if (t->ids)
      t->ids[row * seq + i] = value;
    t->labels[row * seq + i] = is_masked(t, index, sample) ? -100 : value;
  }
  if (t->pixels) {
    int64_t count =
        gd_tensor_elements(graph, graph->pixels) / graph->tensors[graph->pixels].dims[0];
    gd_rng_normal(seed, gd_hash_string("pixels"), 1, sample * count, t->pixels + row * count,
                  count);
  }
}

/* Labels that count in the whole batch: every rank needs to know. */
static int64_t count_valid(struct trainer *t) {
  const struct gd_graph *graph = &t->parts[GD_RUN_FULL].graph;
  int64_t rows = graph->tensors[graph->labels].dims[0], valid = 0;
  for (int64_t first = 0; first < t->options->batch; first++) {
    for (int64_t row = 0; row < rows; row++)
      make_sample(t, graph, first, row);
    valid += gd_batch_valid_labels(graph, t->labels) / rows; /* the same sample in every row */
  }
  return valid;
}

static enum gd_status allocate_batch(struct trainer *t, struct gd_error *err) {
  const struct gd_graph *graph = &t->parts[GD_RUN_FULL].graph;
  int64_t labels = gd_tensor_elements(graph, graph->labels);
  t->labels = gd_mem_alloc((size_t)labels, sizeof *t->labels);
  if (graph->ids != GD_NONE)
    t->ids = gd_mem_alloc((size_t)labels, sizeof *t->ids);
  else
    t->pixels = gd_mem_alloc((size_t)gd_tensor_elements(graph, graph->pixels), sizeof *t->pixels);
  return t->labels && (t->ids || t->pixels) ? GD_OK : no_memory(err);
}

/* --- steps --------------------------------------------------------------------------------- */

static enum gd_status run_passes(struct trainer *t, int step, struct gd_error *err) {
  double weight = 1 / (double)count_valid(t);
  int64_t size = t->options->micro_batch;
  for (int64_t done = 0; done < t->local; done += size) {
    bool last = done + size >= t->local, smaller = done + size > t->local;
    enum gd_run_part part = smaller ? GD_RUN_REMAINDER : GD_RUN_FULL;
    const struct gd_graph *graph = &t->parts[part].graph;
    int64_t count = smaller ? t->local - done : size;
    for (int64_t row = 0; row < count; row++)
      make_sample(t, graph, t->first + done + row, row);
    struct gd_batch batch = {t->ids, t->pixels, t->labels, weight};
    GD_TRY(gd_run_seed(&t->run, part, (uint32_t)t->options->seed, step, t->first + done, err));
    GD_TRY(gd_run_batch(&t->run, part, &batch, err));
    GD_TRY(last ? gd_run_last_pass(&t->run, part, err) : gd_run_pass(&t->run, part, err));
  }
  return GD_OK;
}

static enum gd_status train(struct trainer *t, double *losses, struct gd_error *err) {
  struct gd_train_options *o = t->options;
  int64_t rest = t->local % o->micro_batch;
  GD_TRY(make_part(t, o->micro_batch, &t->parts[GD_RUN_FULL], err));
  if (rest)
    GD_TRY(make_part(t, rest, &t->parts[GD_RUN_REMAINDER], err));
  o->device_bytes = t->parts[GD_RUN_FULL].plan.device_bytes;
  o->host_bytes = t->parts[GD_RUN_FULL].plan.host_bytes;
  GD_TRY(allocate_batch(t, err));
  GD_TRY(gd_backend_open(o->backend,
                         &(struct gd_backend_options){.threads = o->threads, .comm = o->comm},
                         &t->backend, err));
  int64_t before = o->resident ? gd_process_resident_bytes() : -1;
  GD_TRY(gd_run_open(&t->run, t->backend, &t->parts[GD_RUN_FULL].plan,
                     rest ? &t->parts[GD_RUN_REMAINDER].plan : NULL, err));
  GD_TRY(gd_run_init(&t->run, o->seed, err));
  for (int step = 0; step < o->steps; step++) {
    GD_TRY(run_passes(t, step, err));
    GD_TRY(gd_run_take_loss(&t->run, &losses[step], err));
    if (o->comm)
      GD_TRY(gd_comm_sum_doubles(o->comm, &losses[step], 1, err));
    GD_TRY(gd_run_update(&t->run, o->lr, err));
  }
  o->resident_bytes = before < 0 ? -1 : gd_process_resident_bytes() - before;
  return GD_OK;
}

enum gd_status gd_train(struct gd_train_options *options, double *losses, struct gd_error *err) {
  int ranks = ranks_of(options->comm);
  struct trainer t = {.options = options,
                      .classes = options->model->family->classes(options->model)};
  if (options->batch < 1 || options->micro_batch < 1 || options->batch % ranks)
    return gd_fail(err, GD_BAD_INPUT, "a batch of %lld does not divide among %d ranks",
                   (long long)options->batch, ranks);
  t.local = options->batch / ranks;
  t.first = t.local * rank_of(options->comm);
  options->micro_batch = options->micro_batch < t.local ? options->micro_batch : t.local;
  enum gd_status status = train(&t, losses, err);
  gd_run_close(&t.run);
  gd_backend_close(t.backend);
  for (int part = 0; part < GD_RUN_PARTS; part++) {
    gd_plan_deinit(&t.parts[part].plan);
    gd_graph_deinit(&t.parts[part].graph);
  }
  gd_mem_free(t.ids);
  gd_mem_free(t.labels);
  gd_mem_free(t.pixels);
  return status;
}
