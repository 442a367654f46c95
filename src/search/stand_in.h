/*
 * Days of a model of which only the size is known (model/outline.h): presets of nearly that size
 * stand in for it, with as many steps of its batch and sequence as are 6 N D FLOPs, and are planned
 * and predicted as they are. The days are the geometric mean of theirs; the interval holds all of
 * their intervals. So the share of the peak is the program's own prediction for that GPU, never a
 * constant.
 *
 *   struct gd_stand_ins in;
 *   GD_TRY(gd_stand_ins_find(&outline, &in, err));
 *   ... plan in.models[0] to [in.count - 1] into answers ...
 *   gd_stand_ins_days(&in, &outline, answers, place, &days);
 */
#ifndef GD_SEARCH_STAND_IN_H
#define GD_SEARCH_STAND_IN_H

#include "model/outline.h"
#include "search/points.h"

enum { GD_STAND_INS = 3 };

struct gd_stand_ins {
  struct gd_model models[GD_STAND_INS]; /* the nearest first */
  double active[GD_STAND_INS];          /* their N */
  int count;
};
/* Past such a factor in N from the nearest preset, the answer is far from what it rests on. */
#define GD_STAND_IN_FAR 3.0

/* Transformers alone. GD_UNSUPPORTED where none has so long a sequence. */
enum gd_status gd_stand_ins_find(const struct gd_outline *outline, struct gd_stand_ins *in,
                                 struct gd_error *err) GD_MUST_USE;
/* How many times larger, or smaller, the nearest one is; at least 1. */
double gd_stand_ins_distance(const struct gd_stand_ins *in, const struct gd_outline *outline);

/* What is predicted of one of them on some hardware. */
struct gd_stand_in_answer {
  bool fits;
  double days, low, high; /* 0: it fits, but nothing is predicted */
  double power_w;         /* of a GPU; 0: not known */
  char method[GD_METHOD_NAME];
};
/* The best of planned points; points: of each stand-in `each`, in their order. */
void gd_stand_ins_best(const struct gd_stand_ins *in, const struct gd_point *points, int each,
                       struct gd_stand_in_answer answers[GD_STAND_INS]);

/* The hardware of the answers. */
struct gd_stand_in_place {
  int count;           /* of GPUs */
  double memory_bytes; /* of each; 0: not known */
};

struct gd_stand_in_days {
  double days, low, high; /* 0: none of them fits, or nothing is predicted */
  double power_w;         /* of a GPU, mean of those that say it; 0: none does */
  int fitting;            /* of them */
  /* Parameters, gradients and Adam's moments alone are more than the GPUs hold, and no stand-in of
     that size offloads them: no days. */
  bool too_large;
  char names[256]; /* of those that fit: "pythia-1.4b (free-lunch), ..." */
};
void gd_stand_ins_days(const struct gd_stand_ins *in, const struct gd_outline *outline,
                       const struct gd_stand_in_answer answers[GD_STAND_INS],
                       struct gd_stand_in_place place, struct gd_stand_in_days *days);

#endif
