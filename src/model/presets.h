/*
 * The presets that there are, the user's (gpudays/models of the configuration folder) before those
 * inside the program, and what a person may call them: their name in any case, or a name that the
 * checkpoint has on Hugging Face, which a preset lists in "hub".
 *
 *   struct gd_preset_at at;
 *   char preset[GD_PRESET_NAME];
 *   GD_TRY(gd_preset_of_name("EleutherAI/pythia-410m", preset, &found, err));
 *   if (found && gd_preset_find(preset, &at)) ...
 */
#ifndef GD_MODEL_PRESETS_H
#define GD_MODEL_PRESETS_H

#include "base/embedded.h"
#include "base/json.h"
#include "base/mem.h"

enum { GD_PRESET_NAME = 128, GD_PRESET_PATH = 4096 };

/* Where a preset is: a file of the user's, or one inside the program. */
struct gd_preset_at {
  char path[GD_PRESET_PATH];
  const struct gd_embedded_file *embedded; /* NULL: path */
};
/* By its exact name. */
bool gd_preset_find(const char *name, struct gd_preset_at *at);
enum gd_status gd_preset_read(const struct gd_preset_at *at, struct gd_json *json,
                              struct gd_error *err) GD_MUST_USE;

/* Names of all, in no order; texts in the arena. */
enum gd_status gd_presets_collect(struct gd_arena *arena, const char *const **names, int *count,
                                  struct gd_error *err) GD_MUST_USE;
/*
 * The preset that a word means: its name in any case, a Hugging Face name in any case, or the part
 * of one behind the slash. A preset of the user's that cannot be read is passed over.
 */
enum gd_status gd_preset_of_name(const char *word, char preset[GD_PRESET_NAME], bool *found,
                                 struct gd_error *err) GD_MUST_USE;
/* Whether it could be a name of Hugging Face's, as no path of this machine is: OWNER/NAME. */
bool gd_name_is_hub(const char *word);
/* The Hugging Face names of a preset, in the arena: none where it has none. */
enum gd_status gd_preset_hub_names(const char *preset, struct gd_arena *arena,
                                   const char *const **names, int *count,
                                   struct gd_error *err) GD_MUST_USE;
/* GD_BAD_INPUT: what is nearest to a word that means no preset, and what else to do. */
enum gd_status gd_preset_unknown(const char *word, struct gd_error *err);

#endif
