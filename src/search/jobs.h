/*
 * What trials are planned for that run as jobs of SLURM: what a job asks for, and never what the
 * machine has that submits it.
 *
 *   struct gd_job_place place = {.nodes = 2};
 *   gd_job_place_complete(&config, &place);
 *   ... place.gpu: the GPU to plan for; NULL: the CPUs of a job ...
 */
#ifndef GD_SEARCH_JOBS_H
#define GD_SEARCH_JOBS_H

#include "search/slurm_config.h"

/* Zero and NULL are "not said", and are completed. All but the nodes is of one rank. */
struct gd_job_place {
  const char *gpu; /* a record of the catalogue; NULL after: jobs compute on CPUs */
  bool any_gpu;  /* after: nothing says which GPU jobs get, and gpu stands in for it, for the order
                    of the trials alone: memory and device are the job's to find */
  int64_t nodes; /* of a trial; 0 after: as many as the machines of that GPU make of its ranks */
  int64_t threads;
  int64_t device_bytes; /* 0 after: what the GPU has */
  int64_t host_bytes;
};
/*
 * The GPU is the one that was said, else that of the section, else that which the section is called
 * by. A rank has the CPUs of a job, and its memory less what the program itself takes. Texts are
 * borrowed from config.
 */
void gd_job_place_complete(const struct gd_slurm_config *config, struct gd_job_place *place);

/* What one rank of a job may plan for: its memory less a sixteenth for the program itself. */
int64_t gd_job_bytes(const struct gd_slurm_config *config);

#endif
