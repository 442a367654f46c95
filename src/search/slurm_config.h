/*
 * What a job asks SLURM for: the paper's 4 CPUs and 64 GB a GPU (a rank), and what slurm.json says
 * otherwise. The file has a section for each kind of device, and "default" for all of them:
 *
 *   {"default": {"account": "lab7", "time": "2:00:00"},
 *    "cpu": {"partition": "standard"},
 *    "a100": {"partition": "gpu", "constraint": "a100", "cpus": 8, "memory": "120GiB",
 *             "extra": ["--qos=short"]}}
 *
 * What a job computes with is said by the command line or by this file, and never by the machine
 * that submits it: a login node has no GPU.
 */
#ifndef GD_SEARCH_SLURM_CONFIG_H
#define GD_SEARCH_SLURM_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/strbuf.h"

enum { GD_SLURM_EXTRA = 16, GD_SLURM_TEXT = 128 };

struct gd_slurm_config {
  char device[GD_SLURM_TEXT];    /* the section; the backend where there is none */
  char backend[16];              /* of the jobs: cuda, cpu or ref */
  char gpu[GD_SLURM_TEXT];       /* record of the catalogue, as the section says; empty: unknown */
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

/* What the command line says; NULL: nothing. */
struct gd_slurm_asked {
  const char *path; /* of the file; NULL: $XDG_CONFIG_HOME/gpudays/slurm.json (~/.config/...), and
                       without such a file the defaults */
  const char *section; /* --slurm-device */
  const char *backend; /* --backend */
  const char *gpu;     /* --gpu, by its name in the catalogue */
};
/*
 * The section is the one that was named, else that of the GPU, else that of the backend (by name,
 * or the only one there is of it), else the only one of the file. The backend is the one that was
 * named, else cuda for a GPU, else the section's "backend", else what the section is called: cpu,
 * ref, or a GPU. GD_BAD_INPUT where all of this leaves it open, and, with file and field, for what
 * is unknown or of another type.
 */
enum gd_status gd_slurm_config_load(const struct gd_slurm_asked *asked,
                                    struct gd_slurm_config *config,
                                    struct gd_error *err) GD_MUST_USE;

/* What a job is made of, next to the above. */
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

/* A job of a run (slurm_run.h): it submits its successor, trains until its time is nearly up, and
   cancels the successor when the run is done. */
struct gd_slurm_run_script {
  const char *name, *program;
  const char *run;    /* its folder */
  const char *folder; /* of the chain, in that of the run */
  const char *output; /* of sbatch: "--output=..." */
  int ranks, nodes;
  bool gpus;
  double limit_s;             /* of a job; 0: the section's, or a day */
  const char *const *options; /* of train, further ones */
  int n_options;
};
/* So long before its limit a job of a run ends in order, for its last checkpoint. */
double gd_slurm_spare_s(double limit_s);
void gd_slurm_run_script_print(const struct gd_slurm_config *config,
                               const struct gd_slurm_run_script *script, struct gd_strbuf *out);

#endif
