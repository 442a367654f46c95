/*
 * Rotary positions (Su et al. 2021, arXiv:2104.09864) and the ways configurations stretch them to
 * longer texts: what config.json says, and the table of cosines and sines that gd_rope reads.
 */
#ifndef GD_MODEL_ROPE_H
#define GD_MODEL_ROPE_H

#include "base/json.h"
#include "ir/graph.h"

enum gd_rope_type {
  GD_ROPE_DEFAULT,
  GD_ROPE_LINEAR,  /* every frequency divided by factor */
  GD_ROPE_DYNAMIC, /* the base grows with the sequence once that is longer than original */
  GD_ROPE_YARN,    /* Peng et al. 2023, arXiv:2309.00071, section 3 */
  GD_ROPE_LLAMA3,  /* Llama 3.1: low frequencies divided, high ones kept, a ramp between */
};

struct gd_rope {
  enum gd_rope_type type;
  double base;
  double factor;
  double original;   /* positions before the stretch */
  double slow, fast; /* turns within original: below slow a pair is stretched, above fast not */
  double magnitude;  /* yarn: what cosines and sines are multiplied by */
  bool truncate;     /* yarn: the ramp begins and ends at whole pairs */
};

/* rope_theta with rope_scaling (transformers 4) or rope_parameters (5) of a configuration. */
enum gd_status gd_rope_parse(const struct gd_json *json, const json_t *config, struct gd_rope *rope,
                             struct gd_error *err) GD_MUST_USE;

/* The constant [positions, rotary]: the first positions of sequences of seq tokens, whose length
   some types stretch by. */
gd_tensor_id gd_rope_table(struct gd_graph *graph, const struct gd_rope *rope, int64_t seq,
                           int64_t positions, int64_t rotary);

#endif
