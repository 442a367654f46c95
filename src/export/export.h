/*
 * A trial as settings for the tools people train with: Hugging Face's TrainingArguments (with an
 * fsdp_config or a deepspeed section), a DeepSpeed configuration, a torchtitan job, a SLURM job.
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
#include "model/model.h"
#include "store/record.h"

enum gd_export_format {
  GD_EXPORT_HF,
  GD_EXPORT_DEEPSPEED,
  GD_EXPORT_TORCHTITAN,
  GD_EXPORT_SBATCH,
  GD_EXPORT_COUNT
};
const char *gd_export_name(enum gd_export_format format); /* "hf", "deepspeed", ... */
bool gd_export_parse(const char *text, enum gd_export_format *format);

/* A day, the usual limit of a cluster's common partition. */
#define GD_EXPORT_JOB_S   86400.0
#define GD_EXPORT_CPUS    4  /* of a rank; the paper's jobs, section 3.2 */
#define GD_EXPORT_MEM_GIB 64 /* likewise */

struct gd_export {
  const struct gd_model *model; /* with the recipe of the trial */
  const struct gd_trial *trial; /* measured (status ok) or planned */
  uint64_t seed;                /* numpy's limit: 32 bits */
  double job_s;                 /* sbatch: wall time of one job; 0: GD_EXPORT_JOB_S */
  const char *argument;         /* sbatch: how the user names the model; NULL: not known */
  const char *options;          /* sbatch: those that name this trial, " --batch 64"; NULL: none */
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
