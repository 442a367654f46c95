/*
 * What the formats share: the point with its numbers made ready for tools that know whole
 * micro-batches only.
 */
#ifndef GD_EXPORT_EXPORT_INT_H
#define GD_EXPORT_EXPORT_INT_H

#include "export/export.h"
#include "pass/method.h"

struct gd_export_point {
  const struct gd_export *from;
  const struct gd_recipe *recipe;
  const struct gd_trial *trial;
  struct gd_method method;
  bool measured;                     /* times are known */
  bool cpu;                          /* the device is this kind */
  bool tf32;                         /* fp32 GEMMs may round their operands */
  int64_t ranks;                     /* micro_batch x accumulation x ranks = the recipe's batch */
  int64_t micro_batch, accumulation; /* of a rank */
  int64_t save_steps;                /* between checkpoints, about an hour; 0: not known */
  char name[128];                    /* of the model, fit for a file and a job */
  struct gd_strbuf *notes;           /* a line each */
};

typedef enum gd_status (*gd_export_write)(const struct gd_export_point *point,
                                          struct gd_strbuf *out, struct gd_error *err);
enum gd_status gd_export_hf(const struct gd_export_point *point, struct gd_strbuf *out,
                            struct gd_error *err);
enum gd_status gd_export_deepspeed(const struct gd_export_point *point, struct gd_strbuf *out,
                                   struct gd_error *err);
enum gd_status gd_export_torchtitan(const struct gd_export_point *point, struct gd_strbuf *out,
                                    struct gd_error *err);
enum gd_status gd_export_sbatch(const struct gd_export_point *point, struct gd_strbuf *out,
                                struct gd_error *err);

/* The schedule as it acts: a decay that ends where it begins is none. */
enum gd_schedule gd_export_schedule(const struct gd_recipe *recipe);

#endif
