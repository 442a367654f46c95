/*
 * What trials in jobs are planned for; see jobs.h.
 */
#include "search/jobs.h"

#include "backend/backend.h"
#include "hw/hw.h"

static const char stand_in[] = "a100";

int64_t gd_job_bytes(const struct gd_slurm_config *config) {
  return config->memory_bytes / 16 * 15;
}

static void find_gpu(const struct gd_slurm_config *config, struct gd_job_place *place) {
  const char *named = config->gpu[0] ? config->gpu : config->device;
  place->any_gpu = !config->gpu[0] && !gd_hw_knows_gpu(named);
  place->gpu = place->any_gpu ? stand_in : named;
  if (place->any_gpu && place->nodes == 0) /* the machines of another GPU say nothing */
    place->nodes = 1;
}

void gd_job_place_complete(const struct gd_slurm_config *config, struct gd_job_place *place) {
  const bool gpus = gd_backend_is_gpu(config->backend);
  if (gpus && !place->gpu)
    find_gpu(config, place);
  if (place->threads == 0)
    place->threads = config->cpus;
  if (place->device_bytes == 0 && !gpus)
    place->device_bytes = gd_job_bytes(config);
  if (place->host_bytes == 0)
    place->host_bytes = gd_job_bytes(config);
}
