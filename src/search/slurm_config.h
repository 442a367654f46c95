/*
 * What a job asks SLURM for: the paper's 4 CPUs and 64 GB a GPU (a rank), and what slurm.json says
 * otherwise. The file has a section for each kind of device, and "default" for all of them:
 *
 *   {"default": {"account": "lab7", "time": "2:00:00"},
 *    "cpu": {"partition": "standard"},
 *    "a100": {"partition": "gpu", "constraint": "a100", "cpus": 8, "memory": "120GiB",
 *             "extra": ["--qos=short"]}}
 */
#ifndef GD_SEARCH_SLURM_CONFIG_H
#define GD_SEARCH_SLURM_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/strbuf.h"

enum { GD_SLURM_EXTRA = 16, GD_SLURM_TEXT = 128 };

struct gd_slurm_config {
  char device[GD_SLURM_TEXT];    /* the section */
  char partition[GD_SLURM_TEXT]; /* empty: SLURM's default; likewise account and constraint */
  char account[GD_SLURM_TEXT];
  char constraint[GD_SLURM_TEXT];
  char time[GD_SLURM_TEXT]; /* as sbatch takes it; empty: from --trial-timeout */
  char gres[GD_SLURM_TEXT]; /* what one rank on a GPU needs: "gpu", "gpu:a100" */
  char mpi[GD_SLURM_TEXT];  /* srun --mpi=..., "pmix" unless set */
  int64_t cpus;             /* a rank */
  int64_t memory_bytes;     /* a rank */
  char extra[GD_SLURM_EXTRA][2 * GD_SLURM_TEXT]; /* further options of sbatch */
  int n_extra;
};

/*
 * Reads the section of that device. path NULL: $XDG_CONFIG_HOME/gpudays/slurm.json (~/.config/...),
 * and without such a file the defaults. asked: the user has named the device, so that there must be
 * a section of it. GD_BAD_INPUT, with file and field, for what is unknown or of another type.
 */
enum gd_status gd_slurm_config_load(const char *path, const char *device, bool asked,
                                    struct gd_slurm_config *config,
                                    struct gd_error *err) GD_MUST_USE;

/* What a job is made of, beside the above. */
struct gd_slurm_script {
  const char *name;                     /* of the job */
  const char *program, *order, *result; /* paths */
  const char *code;                     /* where the exit code goes */
  int ranks, nodes;
  bool gpus;             /* a rank has one */
  double timeout_s;      /* of the trial */
  double rank_timeout_s; /* 0: the default */
};
/* Appends the batch script. */
void gd_slurm_script_print(const struct gd_slurm_config *config,
                           const struct gd_slurm_script *script, struct gd_strbuf *out);

#endif
