/*
 * A model with its weights: the newest checkpoint of a run, or a model folder of Hugging Face.
 *
 *   struct gd_trained trained;
 *   GD_TRY(gd_trained_find("run", &arena, &trained, err));
 *   GD_TRY(gd_safetensors_open(&weights, trained.weights, err));
 */
#ifndef GD_TRAIN_TRAINED_H
#define GD_TRAIN_TRAINED_H

#include "base/file.h"
#include "train/run_folder.h"

struct gd_trained {
  struct gd_model model;
  char weights[GD_FILE_PATH];   /* folder of the weights: gd_safetensors_open takes it */
  char tokenizer[GD_FILE_PATH]; /* tokenizer.json; "": there is none */
  bool is_run;
  int64_t step;                    /* of a run: of its newest whole checkpoint */
  struct gd_run_settings settings; /* of a run */
};

/* GD_BAD_INPUT: neither a run nor a model folder, or a run without a whole checkpoint. Texts
   are in the arena. damaged, if not NULL, gets a line for each checkpoint that was left out. */
enum gd_status gd_trained_find(const char *path, struct gd_arena *arena, struct gd_trained *trained,
                               struct gd_strbuf *damaged, struct gd_error *err) GD_MUST_USE;

#endif
