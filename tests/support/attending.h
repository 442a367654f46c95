/*
 * A small model of every family that attends, for tests of what is rewritten around attention: its
 * forward graph with the rewrites of a test, and one pass of it, loss and all gradients.
 *
 *   attending_load(&attending[i], &model);
 *   attending_forward(&model, GD_PRECISION_BF16, (attending_rewrite[]){gd_kernels_attention, NULL},
 *                     &graph);
 *   int64_t count = attending_train(&model, &graph, "cpu", 2, &loss, gradients);
 */
#ifndef GD_TESTS_SUPPORT_ATTENDING_H
#define GD_TESTS_SUPPORT_ATTENDING_H

#include "ir/graph.h"
#include "model/model.h"

enum {
  ATTENDING_BATCH = 2,
  ATTENDING_LAYERS = 2,
  ATTENDING_GRADIENTS = 60000,
  ATTENDING_COUNT = 12
};

struct attending {
  const char *config;
  int64_t seq;     /* 0: images */
  bool dropout;    /* of attention's weights */
  uint32_t splits; /* of a layer: one for q, k and v together, or three */
  uint32_t ropes;  /* of a layer */
};
extern const struct attending attending[ATTENDING_COUNT];

void attending_load(const struct attending *from, struct gd_model *model);

typedef enum gd_status (*attending_rewrite)(struct gd_graph *graph, struct gd_error *err);
/* rewrites: in order, NULL after the last. The graph is verified, and the caller's to deinit. */
void attending_forward(const struct gd_model *model, enum gd_precision precision,
                       const attending_rewrite *rewrites, struct gd_graph *graph);

/* Loss and gradients of one pass of a forward graph, to which it appends; how many gradients. */
int64_t attending_train(const struct gd_model *model, struct gd_graph *graph,
                        const char *backend_name, int threads, double *loss,
                        float gradients[ATTENDING_GRADIENTS]);

#endif
