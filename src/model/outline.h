/*
 * A model of which no graph can be built: its size alone, given by --params or counted from the
 * sizes of a config.json whose architecture is not among the families. What follows of it is
 * 6 N D FLOPs (Kaplan et al. 2020, arXiv:2001.08361, section 2.1; Hoffmann et al. 2022,
 * arXiv:2203.15556, appendix F) and the bytes of its state; no plan.
 */
#ifndef GD_MODEL_OUTLINE_H
#define GD_MODEL_OUTLINE_H

#include "model/model.h"

struct gd_outline {
  char name[128];
  char model_type[64];     /* "" where it was given by --params */
  double parameters;       /* all: what memory holds */
  double active;           /* N: what a token is multiplied with */
  bool counted;            /* from a configuration: all but norms, biases and positions */
  bool images;             /* a sequence is the patches of an image */
  int64_t experts, chosen; /* of a layer, and of those that a token passes; 0: it has none */
  struct gd_recipe recipe;
  double tokens;    /* D */
  unsigned assumed; /* enum gd_assumed */
  char lacks[512];  /* what this version lacks for it, a sentence; "" for --params */
  char unread[256]; /* fields that the count does not know: "a, b" */
};

/* So many parameters, by a recipe for which nobody said anything. */
void gd_outline_of_size(double parameters, struct gd_outline *outline);
/*
 * From a configuration that gd_model_load refuses as GD_UNSUPPORTED. GD_UNSUPPORTED with the field
 * that is missing where it has not the sizes of a transformer.
 */
enum gd_status gd_outline_load(const char *name_or_path, struct gd_outline *outline,
                               struct gd_error *err) GD_MUST_USE;
/* Reads the sizes of a configuration for json->log alone: which fields they come from. */
void gd_outline_ask(struct gd_json *json, json_t *config);
/* What is asked for in place of the recipe's values, and tokens, where nobody gave them. */
enum gd_status gd_outline_change(struct gd_outline *outline, const struct gd_recipe_change *change,
                                 struct gd_error *err) GD_MUST_USE;

double gd_outline_flops(const struct gd_outline *outline); /* 6 N D */
/* N of a model with a graph: its parameters less a table of words that is only looked up. */
enum gd_status gd_model_active_parameters(const struct gd_model *model, double *active,
                                          bool *attends, struct gd_error *err) GD_MUST_USE;

/*
 * Bytes of parameters, gradients and Adam's moments, one parameter each. Mixed precision: 16 with
 * gradients in 16 bits (ZeRO: arXiv:1910.02054, section 3.1), 18 with gradients in fp32, as here
 * and in Megatron-LM. fp32: 16, in both.
 */
enum { GD_STATE_BYTES_LOW = 16, GD_STATE_BYTES_HIGH = 18 };

#endif
