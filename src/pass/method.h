/*
 * Methods: the points of the search space, by name. A method says which passes run;
 * docs/methods.md says what each part means in bytes and messages.
 *
 *   struct gd_method method;
 *   GD_TRY(gd_method_parse("free-lunch+ckpt+zero2+offload", &method, err));
 */
#ifndef GD_PASS_METHOD_H
#define GD_PASS_METHOD_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

enum gd_sharding {
  GD_SHARDING_NONE, /* every rank has everything: plain data parallel where there are several */
  GD_SHARDING_ZERO1,
  GD_SHARDING_ZERO2,
  GD_SHARDING_ZERO3,
  GD_SHARDING_FSDP2,
  GD_SHARDING_FSDP3,
  GD_SHARDING_COUNT
};
const char *gd_sharding_name(enum gd_sharding sharding); /* "zero1"; "" for none */

struct gd_method {
  bool compile; /* generated kernels for clusters of pointwise, norm and reduction ops */
  bool kernels; /* fused attention, selective scan, linear + cross-entropy */
  bool tf32;    /* fp32 products on faster units of lower precision, where a device has them */
  bool ckpt;
  enum gd_sharding sharding;
  bool offload;
};

/* What a sharding keeps one share of per rank, instead of all. */
static inline bool gd_shards_gradients(enum gd_sharding sharding) {
  return sharding >= GD_SHARDING_ZERO2;
}
static inline bool gd_shards_parameters(enum gd_sharding sharding) {
  return sharding >= GD_SHARDING_ZERO3;
}
/* Units are layers; otherwise buckets of about equal size. */
static inline bool gd_shards_by_block(enum gd_sharding sharding) {
  return sharding >= GD_SHARDING_FSDP2;
}
/* Gathered parameters are let go between the forward and the backward pass. */
static inline bool gd_regathers(enum gd_sharding sharding) {
  return sharding == GD_SHARDING_ZERO3 || sharding == GD_SHARDING_FSDP3;
}

/* Parts joined by +, in any order: naive, or free-lunch (= compile+kernels+tf32), then ckpt, one
   sharding, offload. What contradicts itself is GD_BAD_INPUT with the reason. */
enum gd_status gd_method_parse(const char *text, struct gd_method *method,
                               struct gd_error *err) GD_MUST_USE;
enum { GD_METHOD_NAME = 64 };
/* The canonical name; returns it. */
const char *gd_method_name(const struct gd_method *method, char name[GD_METHOD_NAME]);

enum { GD_METHODS_MOST = 22 };
/*
 * The search space with the constraints of the paper's Appendix F: 12 points on one device, 22 on
 * several. Offload needs sharding; sharding without offload is left out on one device.
 */
int gd_method_space(bool several, struct gd_method methods[GD_METHODS_MOST]);

#endif
