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
  bool measured; /* here, and not predicted */
  bool timed;    /* times are known */
  bool cpu;      /* the device is this kind */
  bool script;   /* train.py does what TrainingArguments cannot say: no notes about it */
  bool tf32;     /* fp32 GEMMs may round their operands */
  int64_t ranks; /* micro_batch x accumulation x ranks = the recipe's batch */
  int64_t micro_batch, accumulation; /* of a rank */
  int64_t save_steps;                /* between checkpoints, about an hour; 0: not known */
  char name[128];                    /* of the model, fit for a file and a job */
  struct gd_strbuf *notes;           /* a line each */
};

typedef enum gd_status (*gd_export_write)(const struct gd_export_point *point,
                                          struct gd_strbuf *out, struct gd_error *err);
enum gd_status gd_export_hf(const struct gd_export_point *point, struct gd_strbuf *out,
                            struct gd_error *err);
enum gd_status gd_export_train_py(const struct gd_export_point *point, struct gd_strbuf *out,
                                  struct gd_error *err);
enum gd_status gd_export_deepspeed(const struct gd_export_point *point, struct gd_strbuf *out,
                                   struct gd_error *err);
enum gd_status gd_export_torchtitan(const struct gd_export_point *point, struct gd_strbuf *out,
                                    struct gd_error *err);
enum gd_status gd_export_sbatch(const struct gd_export_point *point, struct gd_strbuf *out,
                                struct gd_error *err);

/* Whether transformers would shard by DeepSpeed. */
bool gd_export_is_deepspeed(const struct gd_method *method);
/* Where transformers is not told to compile although the method does: why; else NULL. */
const char *gd_export_why_not_compiled(const struct gd_export_point *point);
/* The model's attention as transformers calls it; NULL: it has none. */
const char *gd_export_attention(const struct gd_export_point *point);
/* "4 x NVIDIA A100", without what means something to a shell, to Python or to TOML. */
void gd_export_say_place(const struct gd_export_point *point, char *text, size_t size);
/* "6.1 days (4.9 to 7.6)"; "" where times are not known. */
const char *gd_export_say_days(const struct gd_export_point *point, char *text, size_t size);
/* The schedule as it acts: a decay that ends where it begins is none. */
enum gd_schedule gd_export_schedule(const struct gd_recipe *recipe);

#endif
