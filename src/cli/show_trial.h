/*
 * A trial as JSON, and the lines that `plan` and `bench` have in common. The names are in the
 * manual page and stay as they are: programs read them.
 */
#ifndef GD_CLI_SHOW_TRIAL_H
#define GD_CLI_SHOW_TRIAL_H

#include "cli/show.h"
#include "hw/hw.h"
#include "trial/choose.h"

/* measured false: the plan's names alone, the times null. */
void gd_show_trial(struct gd_show_object *to, const struct gd_trial *trial, bool measured);
/* The same into an object that was begun. */
void gd_show_set_trial(struct gd_show_object *to, const struct gd_trial *trial, bool measured);

/* "on 4 x NVIDIA H100", "on 2 ranks, each AMD EPYC 9R14, 1 thread, avx512_bf16" */
void gd_show_trial_place(struct gd_strbuf *out, const struct gd_trial *trial);
/* "pythia-14m, naive, bf16, on AMD EPYC 9R14, 2 threads, avx512_bf16" */
void gd_show_trial_title(struct gd_strbuf *out, const struct gd_trial *trial);
/* "gradient accumulation 256 x micro-batch 4", "... 342 x micro-batch 3, the last 1, per GPU" */
const char *gd_show_accumulation(char *text, size_t size, const struct gd_trial *trial);
/* Says that the recipe's precision is not the one that runs, when that is so. */
void gd_show_precision_note(struct gd_strbuf *out, const struct gd_model *model,
                            const struct gd_trial *trial);
/* Where the time of a step went: one row a kind of op and program, the longest first. */
enum gd_status gd_show_profile(struct gd_cli *cli, const struct gd_trial *trial,
                               struct gd_error *err) GD_MUST_USE;
/* Says that the compile method ran unfused, or a trial with nothing saved, and why, when that is
 * so.
 */
void gd_show_trial_note(struct gd_strbuf *out, const struct gd_trial *trial);

/* Where the FLOP/s of a device come from: "datasheet", "measured" (CPUs), or "reckoned" from cores
 * and clock, for a GPU that the catalogue does not have. */
const char *gd_show_peak_source(const char *backend, const char *device, enum gd_peak peak,
                                double flops);

/* The name of gd_trial_peak: "bf16", "TF32". */
const char *gd_show_trial_peak(const struct gd_trial *trial);

/* What a training step consumes: "1,024 x 2,049 tokens" or "4,096 images". */
const char *gd_show_step_size(char *text, size_t size, const struct gd_model *model);
/* How fast: "28,230 tokens/s" or "12.3 images/s". */
const char *gd_show_throughput(char *text, size_t size, const struct gd_model *model,
                               const struct gd_trial *trial);

#endif
