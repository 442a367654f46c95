/*
 * What the tests of model families share: small configurations written out in the test, parsed,
 * built and refused, and presets by their counts. All of it fails the cmocka test by itself unless
 * it returns a status.
 *
 *   tiny_expect("{\"model_type\": \"gpt2\"}", 0, GD_BAD_INPUT, "vocab_size is missing");
 *   tiny_expect_preset("gpt2", 124439808, 0);
 */
#ifndef GD_TESTS_SUPPORT_TINY_H
#define GD_TESTS_SUPPORT_TINY_H

#include "model/model.h"

/* The text of a config.json to a model. *err is cleared first. */
enum gd_status tiny_parse(const char *text, struct gd_model *model, struct gd_error *err);

/*
 * The configuration of tests/reference/<folder>, with dropout and stochastic depth turned on where
 * the family has some, and sequences of that length.
 */
void tiny_load_reference(const char *folder, int64_t seq, struct gd_model *model);

/*
 * Parses, builds the forward graph for two sequences or images and verifies it; returns the first
 * failure. seq 0: the recipe's. The graph is the caller's to deinit, whatever is returned.
 */
enum gd_status tiny_build(const char *text, int64_t seq, struct gd_model *model,
                          struct gd_graph *graph, struct gd_error *err);

/* tiny_build returns that status, and the sentence holds that part; NULL: whatever it says. */
void tiny_expect(const char *text, int64_t seq, enum gd_status expected, const char *part);

/* Configurations that are refused, each with its status and a part of the sentence. */
struct tiny_refused {
  const char *config;
  enum gd_status status;
  const char *part;
};
void tiny_expect_refused(const struct tiny_refused *cases, size_t count);

/* The parameter of that name, or GD_NONE. */
gd_tensor_id tiny_parameter(const struct gd_graph *graph, const char *name);

/* A preset's parameters, exactly, and the FLOPs of its training within 1 %; 0: not published. */
void tiny_expect_preset(const char *name, int64_t parameters, double train_flops);

#endif
