/*
 * A trial as settings for the tools people train with: Hugging Face's TrainingArguments (with an
 * fsdp_config or a deepspeed section), a program that trains with them, a DeepSpeed configuration,
 * a torchtitan job, a SLURM job.
 * What a tool cannot say as it was measured becomes the nearest thing it can say, with a note; what
 * has no near thing is an error. Nothing here is read from those tools: field names are those of
 * transformers 5, DeepSpeed 0.19 and torchtitan 0.2, checked by tools/check_export.py.
 *
 *   struct gd_strbuf text = {0}, notes = {0};
 *   struct gd_export from = {.model = &model, .trial = &trial};
 *   GD_TRY(gd_export(GD_EXPORT_HF, &from, &text, &notes, err));
 */
#ifndef GD_EXPORT_EXPORT_H
#define GD_EXPORT_EXPORT_H

#include "base/strbuf.h"
#include "hw/hw.h"
#include "model/model.h"
#include "pass/method.h"
#include "store/record.h"

enum gd_export_format {
  GD_EXPORT_HF,
  GD_EXPORT_TRAIN_PY,
  GD_EXPORT_DEEPSPEED,
  GD_EXPORT_TORCHTITAN,
  GD_EXPORT_SBATCH,
  GD_EXPORT_COUNT
};
const char *gd_export_name(enum gd_export_format format); /* "hf", "deepspeed", ... */
bool gd_export_parse(const char *text, enum gd_export_format *format);
/* "hf, train.py, deepspeed, torchtitan or sbatch" */
#define GD_EXPORT_NAMES "hf, train.py, deepspeed, torchtitan or sbatch"
/*
 * Whose memory and time a plan for that format is made by: a name of data/stacks. With ZeRO the
 * Trainer is DeepSpeed, and Mamba it does not compile. method NULL: one without ZeRO.
 */
const char *gd_export_stack(enum gd_export_format format, const struct gd_model *model,
                            const struct gd_method *method);
/* The format for what was planned by that stack. */
enum gd_export_format gd_export_of_stack(const char *stack, const struct gd_model *model,
                                         const struct gd_method *method);
/* Whether the format says all of the method, so that what its stack predicts is what will run; of
   one device or several. */
bool gd_export_keeps(enum gd_export_format format, const struct gd_method *method, bool several);

/* A day, the usual limit of a cluster's common partition. */
#define GD_EXPORT_JOB_S   86400.0
#define GD_EXPORT_CPUS    4  /* of a rank; the paper's jobs, section 3.2 */
#define GD_EXPORT_MEM_GIB 64 /* likewise */

struct gd_export {
  const struct gd_model *model; /* with the recipe of the trial */
  const struct gd_trial
      *trial;           /* measured (status ok); or planned, step_s and days predicted or 0 */
  const char *software; /* that it was planned for, "PyTorch with torch.compile"; NULL: this one */
  const struct gd_target *target; /* it was planned for hardware that need not be here; or NULL */
  const char *config;             /* train.py: the model's config.json */
  uint64_t seed;                  /* numpy's limit: 32 bits */
  double job_s;                   /* sbatch: wall time of one job; 0: GD_EXPORT_JOB_S */
  const char *argument;           /* how the user names the model; NULL: not known */
  const char *options;            /* those that name this trial, " --batch 64"; NULL: none */
};

/*
 * Appends the file's text, and to notes one line for each thing that the file does not say as it
 * was measured. GD_UNSUPPORTED: the tool has nothing near to it. GD_BAD_INPUT: a seed past 32 bits,
 * a batch that the ranks do not divide.
 */
enum gd_status gd_export(enum gd_export_format format, const struct gd_export *from,
                         struct gd_strbuf *out, struct gd_strbuf *notes,
                         struct gd_error *err) GD_MUST_USE;

#endif
