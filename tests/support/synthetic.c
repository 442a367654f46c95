/*
 * Training for a few steps on synthetic samples. They are made one by one out of a counter-based
 * generator, so that every rank can make exactly its share.
 */
#include "support/synthetic.h"

#include "base/process.h"
#include "base/rng.h"

struct synthetic {
  uint64_t seed;
  int64_t classes;
  int32_t *ids, *labels; /* of one micro-batch; ids NULL: images */
  float *pixels;
};

/* A fifth of the labels does not count, and all of every fifth sample's. */
static bool is_masked(const struct synthetic *s, uint64_t index, int64_t sample) {
  if (!s->ids)
    return false;
  return sample % 5 == 3 || gd_rng_below(s->seed, gd_hash_string("masks"), index, 5) == 0;
}

/* Row `row` of the micro-batch is that sample. Every step trains on the same ones: a loss that
   does not fall, and an update that goes wrong, then show. */
static void make_sample(struct synthetic *s, const struct gd_graph *graph, int64_t sample,
                        int64_t row) {
  int64_t seq = gd_tensor_elements(graph, graph->labels) / graph->tensors[graph->labels].dims[0];
  for (int64_t i = 0; i < seq; i++) {
    uint64_t index = (uint64_t)(sample * seq + i);
    int32_t value = (int32_t)gd_rng_below(s->seed, gd_hash_string("tokens"), index, s->classes);
    if (s->ids)
      s->ids[row * seq + i] = value;
    s->labels[row * seq + i] = is_masked(s, index, sample) ? -100 : value;
  }
  if (s->pixels) {
    int64_t count =
        gd_tensor_elements(graph, graph->pixels) / graph->tensors[graph->pixels].dims[0];
    gd_rng_normal(s->seed, gd_hash_string("pixels"), 1, sample * count, s->pixels + row * count,
                  count);
  }
}

/* Labels that count in the whole batch: every rank needs to know. */
static int64_t count_valid(struct synthetic *s, const struct gd_graph *graph, int64_t batch) {
  int64_t rows = graph->tensors[graph->labels].dims[0], valid = 0;
  for (int64_t first = 0; first < batch; first++) {
    for (int64_t row = 0; row < rows; row++)
      make_sample(s, graph, first, row);
    valid += gd_batch_valid_labels(graph, s->labels) / rows; /* the same sample in every row */
  }
  return valid;
}

static void fill(void *user, const struct gd_graph *graph, int64_t first, int64_t count,
                 struct gd_batch *batch) {
  struct synthetic *s = user;
  for (int64_t row = 0; row < count; row++)
    make_sample(s, graph, first + row, row);
  batch->ids = s->ids;
  batch->pixels = s->pixels;
  batch->labels = s->labels;
}

static enum gd_status allocate_batch(struct synthetic *s, const struct gd_graph *graph,
                                     struct gd_error *err) {
  int64_t labels = gd_tensor_elements(graph, graph->labels);
  s->labels = gd_mem_alloc((size_t)labels, sizeof *s->labels);
  if (graph->ids != GD_NONE)
    s->ids = gd_mem_alloc((size_t)labels, sizeof *s->ids);
  else
    s->pixels = gd_mem_alloc((size_t)gd_tensor_elements(graph, graph->pixels), sizeof *s->pixels);
  return s->labels && (s->ids || s->pixels) ? GD_OK : gd_nomem(err, "before training");
}

static enum gd_status train(struct gd_trainer *trainer, struct synthetic *s,
                            struct synthetic_options *options, double *losses,
                            struct gd_error *err) {
  const struct gd_graph *graph = &trainer->graphs[GD_RUN_FULL];
  GD_TRY(allocate_batch(s, graph, err));
  struct gd_trainer_data data = {.fill = fill, .user = s};
  data.valid = count_valid(s, graph, options->trainer.batch);
  for (int step = 0; step < options->steps; step++)
    GD_TRY(gd_trainer_step(trainer, step, &data, options->lr, &losses[step], err));
  bool known = trainer->resident_bytes >= 0;
  options->resident_bytes = known ? gd_process_resident_bytes() - trainer->resident_bytes : -1;
  return GD_OK;
}

enum gd_status synthetic_train(struct synthetic_options *options, double *losses,
                               struct gd_error *err) {
  const struct gd_model *model = options->trainer.model;
  struct synthetic s = {.seed = options->trainer.seed, .classes = model->family->classes(model)};
  struct gd_trainer trainer;
  GD_TRY(gd_trainer_open(&trainer, &options->trainer, err));
  options->device_bytes = trainer.plans[GD_RUN_FULL].device_bytes;
  options->host_bytes = trainer.plans[GD_RUN_FULL].host_bytes;
  enum gd_status status = train(&trainer, &s, options, losses, err);
  gd_trainer_close(&trainer);
  gd_mem_free(s.ids);
  gd_mem_free(s.labels);
  gd_mem_free(s.pixels);
  return status;
}
