/*
 * From the settings of a run to what the loop takes: the tokenizer and the token that masks, the
 * options of its data and of its plan, and what ranks must have in common. The command line fills
 * the settings of a new run (run_folder.h has them), run.json those of one that goes on.
 */
#ifndef GD_TRAIN_RUN_SETTINGS_H
#define GD_TRAIN_RUN_SETTINGS_H

#include "comm/comm.h"
#include "data/source.h"
#include "train/run_folder.h"
#include "train/trained.h"
#include "trial/choose.h"

/*
 * The tokenizer of a new run: path, or where that is NULL tokenizer.json in the folder `model`, if
 * there is one. Sets tokenizer_text and tokenizer_mask. GD_BAD_INPUT: it has more tokens than the
 * model.
 */
enum gd_status gd_run_set_tokenizer(struct gd_run_settings *s, const char *path, const char *model,
                                    struct gd_arena *arena, struct gd_error *err) GD_MUST_USE;
/* The token that masks in BERT's and RoBERTa's vocabularies, which their sizes tell; else -1. */
int64_t gd_run_usual_mask(int64_t classes);
/* The token that masks, of a new run: given (-1: not given), else the tokenizer's, else that of the
   usual vocabularies of BERT and RoBERTa. GD_BAD_INPUT: a model that needs one has none. */
enum gd_status gd_run_set_mask(struct gd_run_settings *s, int64_t given,
                               struct gd_error *err) GD_MUST_USE;
/* What was said of the images of a new run; NULL: not given. */
struct gd_run_images {
  const char *augment, *normalize;
  const double *label_smoothing, *drop_path;
  const char *model;             /* as it was named: a folder, or a preset */
  const struct gd_trained *init; /* whose weights it begins with */
};
/*
 * Of a model of images, what is done with them: as given, else as its preset says, else crop,flip
 * alone. They are normalized as those of the model that it begins with, else as
 * preprocessor_config.json of the model's folder says, else as the preset, else as ImageNet.
 */
enum gd_status gd_run_set_images(struct gd_run_settings *s, const struct gd_run_images *given,
                                 struct gd_arena *arena, struct gd_error *err) GD_MUST_USE;
/* How a model with its weights normalizes pixels: as the run does, or preprocessor_config.json
   says; NULL: neither does. */
enum gd_status gd_run_normalize_of(const struct gd_trained *trained, const char **normalize,
                                   struct gd_error *err) GD_MUST_USE;
/*
 * As many steps as see all samples so often, of a run whose data is set; the last one may begin
 * another epoch. GD_BAD_INPUT: files with weights, whose epochs have lengths of their own, or too
 * many steps. threads as of gd_run_data_options.
 */
enum gd_status gd_run_set_epochs(struct gd_run_settings *s, double epochs, int ranks, int threads,
                                 struct gd_error *err) GD_MUST_USE;
/* What is kept and evaluated where nobody says otherwise: two checkpoints, one each half hour, and
   256 sequences, or all images. */
void gd_run_set_usual(struct gd_run_settings *s);
/* A run that was made shorter than its recipe warms up for a tenth of it at most. */
void gd_run_shorten_warmup(struct gd_recipe *recipe);

/* Of training and evaluation. threads 0: one that decodes images for each core, divided among the
   ranks of this machine. */
enum gd_status gd_run_data_options(const struct gd_run_settings *s, int ranks, int threads,
                                   struct gd_source_options *data, struct gd_source_options *eval,
                                   struct gd_error *err) GD_MUST_USE;
/* Opens all files of both, so that none is missed later, and leaves the training data open. The
   first time, data_size and data_hash (in the arena) are set; then they must be those. name: of the
   run, for the message. */
enum gd_status gd_run_open_data(struct gd_run_settings *s, const char *name, int ranks, int threads,
                                struct gd_arena *arena, struct gd_source *data,
                                struct gd_error *err) GD_MUST_USE;
/* What the plan is chosen by: method, micro-batch and seed of `options` become the run's. A
   micro-batch that another number of ranks was given (fixed: it was asked for just now) is no
   larger than what a rank has of the batch. */
enum gd_status gd_run_trial_options(const struct gd_run_settings *s, bool fixed,
                                    struct gd_trial_options *options,
                                    struct gd_error *err) GD_MUST_USE;

/* Options are each rank's own under one's own mpirun: what they train must be the same. comm NULL:
   one rank. */
enum gd_status gd_run_agree(struct gd_comm *comm, const char *folder,
                            const struct gd_run_settings *s, struct gd_error *err) GD_MUST_USE;
/* Makes the folder of a new run and locks it. Rank 0 has it; the others learn whether it got it,
   and their *lock is -1. */
enum gd_status gd_run_take_folder(struct gd_comm *comm, const char *folder, bool resumes,
                                  const struct gd_run_settings *s, int *lock,
                                  struct gd_error *err) GD_MUST_USE;

#endif
