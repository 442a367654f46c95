/*
 * The folder of a run: run.json says what is trained, on what, and with which settings, so that
 * `gpudays train RUN` goes on without being told again. One process (or job) has it at a time.
 */
#ifndef GD_TRAIN_RUN_FOLDER_H
#define GD_TRAIN_RUN_FOLDER_H

#include "base/strbuf.h"
#include "model/model.h"

enum { GD_RUN_FILES_MOST = 1024 };

/* All texts are in the arena of who reads or asks. */
struct gd_run_settings {
  struct gd_model model;   /* with its final recipe */
  const char *config_text; /* config.json */
  const char *const *data; /* token files, with their weights; or images */
  const char *const *eval;
  int n_data, n_eval;
  const char *tokenizer_text; /* of a new run: tokenizer.json; NULL: none */
  int64_t tokenizer_mask;     /* likewise: the token that masks; -1: none */
  int64_t data_size;          /* tokens or images of the data; 0: not known yet */
  const char *data_hash;      /* gd_dataset_hash of it in hexadecimal; "": not known */
  const char *init;           /* folder of the weights that it begins with; "": none */
  const char *method;
  int64_t micro_batch; /* 0: chosen */
  int64_t seed;
  int64_t mask_token;  /* of a masked model */
  int64_t token_bytes; /* of raw files; 0: by content */
  const char *augment; /* of images: as gd_augment_parse reads it; so the next two */
  const char *normalize;
  double label_smoothing;
  int64_t checkpoint_steps;
  double checkpoint_s;
  int64_t keep, eval_steps, eval_samples;
  int64_t ranks;             /* that --ranks started it with; 0: it did not say */
  int64_t threads;           /* of --threads; 0: all */
  const char *deterministic; /* GPUDAYS_DETERMINISTIC, "kept" or "1"; "": it is not */
};

/* Whether there is a run in the folder. */
bool gd_run_folder_has_run(const char *folder);
/* Writes run.json. GD_BAD_INPUT where the folder has a run already. */
enum gd_status gd_run_folder_create(const char *folder, const struct gd_run_settings *settings,
                                    struct gd_error *err) GD_MUST_USE;
/* How many ranks --ranks started the run with; 0: it did not say, or run.json cannot be read. */
int64_t gd_run_folder_ranks(const char *folder);
enum gd_status gd_run_folder_read(const char *folder, struct gd_arena *arena,
                                  struct gd_run_settings *settings,
                                  struct gd_error *err) GD_MUST_USE;
/* Another number once RUN/kernels has further choices, since a file is replaced then; 0: none. */
uint64_t gd_run_folder_choices(const char *folder);
/* Removes what a run without a logged step and without a checkpoint has written. */
void gd_run_folder_forget(const char *folder);
/* Takes the run for this process, until *fd is closed or the process ends. GD_ENVIRONMENT: another
   one trains it now. */
enum gd_status gd_run_folder_lock(const char *folder, int *fd, struct gd_error *err) GD_MUST_USE;

/* Whether a process trains the run now. It takes the lock for a moment. */
bool gd_run_folder_is_locked(const char *folder);

/* The process that trains or last trained a run, as run.json has it from its first step on: a run
   may change its method and its machine on the way. */
struct gd_run_session {
  char method[128], device[128], backend[16];
  int64_t micro_batch, accumulation, ranks;
  double expected_step_s; /* what it was started on; 0: nobody said */
  char expected_by[16];   /* "trial": measured here; "prediction"; empty */
};
/* Puts it into run.json. */
enum gd_status gd_run_folder_set_session(const char *folder, const struct gd_run_session *session,
                                         struct gd_error *err) GD_MUST_USE;

#endif
