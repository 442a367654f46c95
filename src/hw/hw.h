/*
 * Hardware and prices as data: GPUs, machines that hold them, networks between machines, what it
 * costs to buy or to rent. Records are the files of data/gpus, data/machines, data/networks and
 * data/prices, inside the program; a user's own are in $XDG_CONFIG_HOME/gpudays/{gpus,...} or named
 * by path, and hide those of the same name. Every figure has a source and a date.
 *
 *   struct gd_hw hw = {0};
 *   GD_TRY(gd_hw_load(&hw, err));
 *   const struct gd_gpu *gpu;
 *   GD_TRY(gd_hw_gpu(&hw, "a100-80gb", &gpu, err));
 *   gd_hw_deinit(&hw);
 */
#ifndef GD_HW_HW_H
#define GD_HW_HW_H

#include <stdbool.h>
#include <stdint.h>

#include "base/mem.h"
#include "base/status.h"
#include "ir/caps.h"

/* Rates of dense GEMMs that accumulate in fp32. */
enum gd_peak { GD_PEAK_FP32, GD_PEAK_TF32, GD_PEAK_FP16, GD_PEAK_BF16, GD_PEAK_COUNT };

/* How the GPUs of a machine reach each other: through the host's bus, or by links of their own in
   pairs or all to all. */
enum gd_topology { GD_TOPOLOGY_BUS, GD_TOPOLOGY_PAIRS, GD_TOPOLOGY_SWITCH };

/* Where a figure of a record comes from. */
struct gd_cite {
  const char *field;  /* as the file has it: "memory_gb_per_s" */
  const char *source; /* "NVIDIA A100 datasheet, 2021" */
  const char *date;   /* "2024-09-21": published or quoted */
};

struct gd_gpu {
  const char *name;         /* "a100" */
  const char *title;        /* "NVIDIA A100 SXM 80 GB" */
  const char *aliases;      /* "a100-80gb,a100-sxm": other names it answers to */
  const char *architecture; /* "ampere" */
  const char *class_name;   /* "desktop", "workstation", "datacenter" (Appendix A) */
  int compute_capability;   /* 80 */
  int multiprocessors;
  int64_t memory_bytes;
  double memory_bytes_per_s;
  double flops[GD_PEAK_COUNT]; /* 0: it does not compute in that precision at a useful speed */
  double paper_flops; /* of 16-bit recipes in the paper's Figure 9; 0: not among its GPUs */
  double host_link_bytes_per_s; /* one way */
  double
      peer_link_bytes_per_s; /* one way, all links of a GPU together; 0: through the host's bus */
  enum gd_topology topology; /* how several of them are usually joined */
  double power_w;
  double usd; /* to buy one; 0: not known */
  const struct gd_cite *cites;
  int n_cites;
  const char *file; /* it comes from; likewise below */
};

/* What a machine costs without GPUs, as Tables 6 and 7 of the paper list it. */
struct gd_part {
  const char *part, *detail; /* "Memory", "Corsair Vengeance LPX 64 GB" */
  double usd;
};
struct gd_build {
  const char *name; /* "desktop"; with count, what tells it from others */
  const char *title;
  int count; /* GPUs it holds */
  int cpus;
  int64_t host_memory_bytes;
  enum gd_topology topology;
  bool in_paper;
  double usd;     /* sum of its parts */
  double power_w; /* without GPUs */
  const struct gd_part *parts;
  int n_parts;
  const struct gd_cite *cites;
  int n_cites;
  const char *file;
};

/* Machines of the files, then every generic build (data/machines) with every GPU that has a price.
 */
struct gd_machine {
  const char *name; /* "paper-a100" or "server-8x-a100" */
  const char *title;
  const char *gpu; /* name of its GPU */
  int count;       /* GPUs in it */
  int cpus;
  int64_t host_memory_bytes;
  enum gd_topology topology;
  const char *network;          /* that joins several of them; NULL: not stated */
  int network_cards;            /* of that network, in one machine; 0: not stated */
  bool in_paper;                /* one of the paper's four, or of its cost tables */
  double usd;                   /* of the whole, GPUs included; 0: not for sale as such */
  double power_w;               /* of all but the GPUs */
  const struct gd_build *build; /* NULL: a machine of a file */
  const struct gd_cite *cites;
  int n_cites;
  const char *file;
};

struct gd_network {
  const char *name, *title; /* "infiniband-hdr" */
  double bytes_per_s, latency_s;
  const struct gd_cite *cites;
  int n_cites;
  const char *file;
};

/* To buy one GPU; gd_gpu.usd is it. */
struct gd_price {
  const char *gpu;
  double usd;
  const struct gd_cite *cites;
  int n_cites;
  const char *file;
};

/* Renting: one GPU for one hour. */
struct gd_rent {
  const char *gpu, *provider;
  double usd_per_gpu_hour;
  const struct gd_cite *cites;
  int n_cites;
  const char *file;
};

/* What electricity costs, and what it leaves in the air. */
struct gd_energy {
  const char *name, *title; /* "us" */
  double usd_per_kwh;
  double pue; /* energy of the building over that of its computers */
  double g_co2_per_kwh;
  const struct gd_cite *cites;
  int n_cites;
  const char *file;
};

struct gd_hw {
  struct gd_arena arena;
  struct gd_gpu *gpus;
  struct gd_build *builds;
  struct gd_machine *machines;
  struct gd_network *networks;
  struct gd_price *prices;
  struct gd_rent *rents;
  struct gd_energy *energies;
  int n_gpus, n_builds, n_machines, n_networks, n_prices, n_rents, n_energies;
  struct gd_machine *stated; /* machines of files alone */
  int n_stated;
};

enum gd_status gd_hw_load(struct gd_hw *hw, struct gd_error *err) GD_MUST_USE;
void gd_hw_deinit(struct gd_hw *hw); /* safe on a zeroed one */
/*
 * Adds the records of one file; GD_BAD_INPUT names file, field, value and what was expected. What
 * was found before stays valid, as it was. *what, which may be NULL, becomes what the file holds:
 * "GPU mine, price of mine".
 */
enum gd_status gd_hw_add_file(struct gd_hw *hw, const char *path, const char **what,
                              struct gd_error *err) GD_MUST_USE;
enum gd_status gd_hw_add_text(struct gd_hw *hw, const char *label, const char *text, int64_t length,
                              const char **what, struct gd_error *err) GD_MUST_USE;

/*
 * By name, alias (the driver's name among them: "NVIDIA H200"), or path of a file; else
 * GD_BAD_INPUT that lists the nearest names. Case does not matter, nor whether words are joined by
 * '-' or ' '.
 */
enum gd_status gd_hw_gpu(struct gd_hw *hw, const char *name, const struct gd_gpu **gpu,
                         struct gd_error *err) GD_MUST_USE;
/* Whether the catalogue has it. */
bool gd_hw_knows_gpu(const char *name);
/* Whether the record of that device, by name or alias, has this rate: then it is the data sheet's.
 * A GPU that the catalogue does not have is reckoned from its cores and clock instead. */
bool gd_hw_states_peak(struct gd_hw *hw, const char *device, enum gd_peak peak, double flops);
enum gd_status gd_hw_machine(struct gd_hw *hw, const char *name, const struct gd_machine **machine,
                             struct gd_error *err) GD_MUST_USE;
enum gd_status gd_hw_network(struct gd_hw *hw, const char *name, const struct gd_network **network,
                             struct gd_error *err) GD_MUST_USE;
/* NULL is the catalogue's usual: "us". */
enum gd_status gd_hw_energy(struct gd_hw *hw, const char *name, const struct gd_energy **energy,
                            struct gd_error *err) GD_MUST_USE;
/* The cite of that field of a record, or NULL. */
const struct gd_cite *gd_cite_of(const struct gd_cite *cites, int n_cites, const char *field);
const char *gd_topology_name(enum gd_topology topology); /* "bus", "pairs", "switch" */
const char *gd_peak_name(enum gd_peak peak);             /* "fp32", "tf32", "fp16", "bf16" */

/* The cheapest offer of a GPU by a provider whose name has that part in it (NULL: by anyone); of
 * any GPU where that is NULL. NULL: there is none. */
const struct gd_rent *gd_hw_cheapest_rent(const struct gd_hw *hw, const char *gpu,
                                          const char *provider);
/* All GPUs from desktop to server, each class by its 16-bit rate: n_gpus pointers in the arena. */
enum gd_status gd_hw_sorted_gpus(const struct gd_hw *hw, struct gd_arena *arena,
                                 const struct gd_gpu *const **gpus,
                                 struct gd_error *err) GD_MUST_USE;

/*
 * What a run would be on: so many GPUs of a kind, in machines of so many, with their links. The
 * planner reads its caps, the prediction the rest.
 */
struct gd_target {
  const struct gd_gpu *gpu;
  const struct gd_machine *machine; /* whose links and host memory hold; NULL: as a plain build */
  const struct gd_network *network; /* between machines; NULL where there is one machine */
  bool network_assumed;             /* nobody named it: the machine's, or InfiniBand HDR */
  const struct gd_network *network_unused; /* that was named, where there is one machine */
  int network_cards;                       /* of a whole machine; 0 where there is one machine */
  bool cards_assumed;                      /* nobody stated them: one */
  const char *calibration;                 /* to predict from; NULL: the nearest one */
  int count, nodes;                        /* GPUs in all; machines they are spread over */
  int node_gpus; /* that the machine holds, or the largest of the catalogue with such GPUs (else 8)
                  */
  enum gd_topology topology;
  int64_t memory_bytes; /* of one GPU, free for a plan: less what the runtime takes */
  int64_t
      host_memory_bytes; /* a GPU's share: 64 GB, as in the paper, unless the machine has less */
  int cpus;              /* a GPU's share: 4, as in the paper */
};
/*
 * count GPUs of that kind over so many machines. nodes 0: the fewest machines that hold them, each
 * the same number; a machine is then as large as the one named, or as the largest of the catalogue
 * with such GPUs (8 where it has none). machine may be NULL: the paper's for that GPU, else the
 * smallest of the catalogue that holds them, else a plain build with 64 GB and 4 CPUs a GPU; where
 * several nodes are needed, one whose network cards are stated comes before all of these.
 * network may be NULL: the machine's, else InfiniBand HDR; "8xinfiniband-hdr" is eight cards a
 * node, and without a number there are as many as the machine has cards of that kind (another
 * InfiniBand in place of its own), else one. One machine has no use for a network.
 */
enum gd_status gd_hw_target(struct gd_hw *hw, const char *gpu, int count, int nodes,
                            const char *machine, const char *network, struct gd_target *target,
                            struct gd_error *err) GD_MUST_USE;
/* Of a node's network cards, those next to the GPUs that are used: 8 of 16 where half of them are.
 */
int gd_target_cards(const struct gd_target *target);
/* What the planner must know of it. */
void gd_target_caps(const struct gd_target *target, struct gd_caps *caps);

/*
 * What the CUDA backend offers on a GPU of that compute capability (80, 86, 90), and how much of
 * its memory it leaves to a plan: the backend itself answers with these two, so that the plan for a
 * GPU one does not own is the one that would run on it.
 */
enum { GD_GPU_WORKSPACE_BYTES = 256 << 20 };
void gd_caps_gpu(int compute_capability, struct gd_caps *caps);
/* The least compute capability that the CUDA backend runs on: Ampere's. A prediction for an older
   GPU is for comparison only. */
enum { GD_GPU_OLDEST = 80 };
/* The same of a record: a precision that it states no rate of is one that the GPU lacks. */
void gd_gpu_caps(const struct gd_gpu *gpu, struct gd_caps *caps);
int64_t gd_gpu_plan_bytes(int64_t memory_bytes);

#endif
