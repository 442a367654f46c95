/*
 * Any bytes as a file of hardware records: refused with a sentence and without a trace, or records
 * of which every figure has a source and a date, and machines for every build and priced GPU.
 */
#include <string.h>

#include "hw/hw.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_cites(const struct gd_cite *cites, int n_cites) {
  GD_ASSERT(n_cites > 0);
  for (int i = 0; i < n_cites; i++)
    GD_ASSERT(cites[i].field[0] && cites[i].source[0] && cites[i].date[0]);
}

static void check_records(struct gd_hw *hw) {
  struct gd_error err = {0};
  for (int i = 0; i < hw->n_gpus; i++) {
    struct gd_target target;
    const struct gd_gpu *gpu = &hw->gpus[i];
    GD_ASSERT(gpu->memory_bytes > 0 && gpu->flops[GD_PEAK_FP32] > 0);
    check_cites(gpu->cites, gpu->n_cites);
    if (gd_hw_target(hw, gpu->name, 2, 0, NULL, NULL, &target, &err) == GD_OK)
      GD_ASSERT(target.nodes > 0 && target.cpus > 0 && target.host_memory_bytes > 0);
  }
  for (int i = 0; i < hw->n_machines; i++) {
    const struct gd_gpu *gpu;
    check_cites(hw->machines[i].cites, hw->machines[i].n_cites);
    GD_ASSERT(gd_hw_gpu(hw, hw->machines[i].gpu, &gpu, NULL) == GD_OK);
  }
  for (int i = 0; i < hw->n_energies; i++)
    GD_ASSERT(hw->energies[i].pue >= 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  struct gd_hw hw = {0};
  struct gd_error err = {0};
  const char *what = NULL;
  int64_t blocks = gd_mem_live_blocks();
  enum gd_status status =
      gd_hw_add_text(&hw, "fuzz.json", (const char *)data, (int64_t)size, &what, &err);
  GD_ASSERT(status == err.status);
  if (status == GD_OK) {
    GD_ASSERT(what && what[0]);
    check_records(&hw);
  } else {
    GD_ASSERT(status == GD_BAD_INPUT);
    GD_ASSERT(err.text[0] != '\0' && !strchr(err.text, '\n'));
    GD_ASSERT(hw.n_gpus + hw.n_machines + hw.n_rents + hw.n_builds + hw.n_energies == 0);
  }
  gd_hw_deinit(&hw);
  GD_ASSERT(gd_mem_live_blocks() == blocks);
  return 0;
}
