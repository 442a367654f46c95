/*
 * What to do about a model that does not fit: the nearest questions that have an answer. Another
 * method on the same GPUs, more host memory, shorter sequences at as many tokens a step, more GPUs,
 * others of the catalogue; each planned and predicted like any other point.
 *
 *   struct gd_remedies remedies;
 *   GD_TRY(gd_remedies_find(&asked, &remedies, err));
 *   ... remedies.list[0].change, .days ...
 */
#ifndef GD_SEARCH_REMEDIES_H
#define GD_SEARCH_REMEDIES_H

#include "search/points.h"

struct gd_remedies_asked {
  const struct gd_points_asked *points; /* what did not fit: one model, one machine; its methods */
  const struct gd_target *target;       /* of the machine; NULL: this machine */
  struct gd_hw *hw;                     /* with a target: the catalogue */
  bool named;                           /* the methods were named, so that others are a remedy */
  bool fixed_memory;                    /* a limit was set: another GPU is none */
};

/* The first three keep the GPUs. */
enum gd_remedy_kind {
  GD_REMEDY_METHOD,
  GD_REMEDY_HOST,
  GD_REMEDY_SEQ,
  GD_REMEDY_COUNT,
  GD_REMEDY_GPU
};

struct gd_remedy {
  enum gd_remedy_kind kind;
  char method[GD_METHOD_NAME]; /* of the point that fits */
  int count;                   /* of GPUs */
  int64_t seq, batch;          /* of GD_REMEDY_SEQ */
  int64_t host_bytes;          /* of GD_REMEDY_HOST: a GPU's share, whole GiB */
  const struct gd_gpu *gpu;    /* NULL: this machine */
  double days;                 /* 0: not predicted */
};

enum { GD_REMEDIES_MOST = 3 };
struct gd_remedies {
  struct gd_remedy list[GD_REMEDIES_MOST]; /* the fewest days first */
  int count;
  double days; /* that the point would take with memory enough; 0: not predicted */
};
enum gd_status gd_remedies_find(const struct gd_remedies_asked *asked, struct gd_remedies *remedies,
                                struct gd_error *err) GD_MUST_USE;

#endif
