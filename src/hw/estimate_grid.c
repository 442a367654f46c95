/*
 * Models x GPUs x counts; see estimate_grid.h.
 */
#include "hw/estimate_grid.h"

#include <string.h>

/* Names joined by commas, else those of the paper. */
static enum gd_status find_gpus(const struct gd_estimate_asked *asked, struct gd_arena *arena,
                                struct gd_estimate_grid *grid, struct gd_error *err) {
  const char *list = asked->gpus;
  int most = 1;
  for (int i = 0; !list && gd_estimate_gpus[i]; i++)
    most++;
  for (const char *at = list; at && *at; at++)
    most += *at == ',';
  grid->gpus = gd_arena_alloc(arena, (size_t)most, sizeof(void *));
  if (!grid->gpus)
    return gd_nomem(err, "while reading names of GPUs");
  for (int i = 0; !list && gd_estimate_gpus[i]; i++)
    GD_TRY(gd_hw_gpu(asked->hw, gd_estimate_gpus[i], &grid->gpus[grid->n_gpus++], err));
  while (list) {
    char *name = gd_arena_printf(arena, "%.*s", (int)strcspn(list, ","), list);
    if (!name)
      return gd_nomem(err, "while reading names of GPUs");
    GD_TRY(gd_hw_gpu(asked->hw, name, &grid->gpus[grid->n_gpus++], err));
    list = list[strlen(name)] ? list + strlen(name) + 1 : NULL;
  }
  return GD_OK;
}

static enum gd_status check_peaks(const struct gd_estimate_asked *asked,
                                  const struct gd_estimate_grid *grid, struct gd_error *err) {
  for (int i = 0; i < grid->n_gpus && asked->peaks == GD_PEAKS_PAPER; i++)
    if (grid->gpus[i]->paper_flops <= 0)
      return gd_fail(err, GD_BAD_INPUT,
                     "the paper states no peak of %s; with --peaks paper choose among 3090, a6000, "
                     "a100 and h100",
                     grid->gpus[i]->name);
  return GD_OK;
}

static enum gd_status fill_model(const struct gd_estimate_asked *asked, int model,
                                 const struct gd_estimate_grid *grid, struct gd_error *err) {
  const struct gd_model *of = &asked->models[model];
  struct gd_estimate *cell = &grid->cells[model * grid->n_gpus * grid->n_counts];
  double flops = asked->flops ? asked->flops[model] : 0;
  if (!asked->flops)
    GD_TRY(
        gd_estimate_flops(of, asked->forced ? *asked->forced : of->recipe.precision, &flops, err));
  for (int g = 0; g < grid->n_gpus; g++)
    for (int c = 0; c < grid->n_counts; c++, cell++)
      GD_TRY(gd_estimate_make(of, flops, grid->gpus[g], grid->counts[c], asked->forced,
                              asked->peaks, cell, err));
  return GD_OK;
}

enum gd_status gd_estimate_grid_make(const struct gd_estimate_asked *asked, struct gd_arena *arena,
                                     struct gd_estimate_grid *grid, struct gd_error *err) {
  *grid = (struct gd_estimate_grid){.n_models = asked->n_models};
  for (int i = 0; i < GD_ESTIMATE_COUNTS && (i == 0 || asked->count == 0); i++)
    grid->counts[grid->n_counts++] = asked->count > 0 ? asked->count : 1 << i;
  GD_TRY(find_gpus(asked, arena, grid, err));
  GD_TRY(check_peaks(asked, grid, err));
  size_t count = (size_t)grid->n_models * (size_t)grid->n_gpus * (size_t)grid->n_counts;
  grid->cells = gd_arena_alloc(arena, count + 1, sizeof *grid->cells);
  if (!grid->cells)
    return gd_nomem(err, "while estimating");
  for (int i = 0; i < grid->n_models; i++)
    GD_TRY(fill_model(asked, i, grid, err));
  return GD_OK;
}

const struct gd_estimate *gd_estimate_grid_cell(const struct gd_estimate_grid *grid, int model,
                                                int gpu, int count) {
  GD_ASSERT(model < grid->n_models && gpu < grid->n_gpus && count < grid->n_counts);
  return &grid->cells[(model * grid->n_gpus + gpu) * grid->n_counts + count];
}
