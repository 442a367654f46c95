/*
 * How long GPUs take to exchange data: the seconds of a collective of so many bytes among the GPUs
 * of a target, over NVLink, PCIe and the network cards of its nodes. As NCCL does, the fastest of
 * its algorithms (ring, tree, sums in the NVLink switch) and protocols is taken for each size; the
 * start of each step is paid, so that many ranks and small messages cost what they do. It knows no
 * plan and no overlap: the predicted clock has those (predict/simulate.h).
 *
 *   struct gd_fabric fabric;
 *   gd_fabric_of(&target, &fabric);
 *   double seconds = gd_collective_seconds(&fabric, GD_COLLECTIVE_ALL_GATHER, bytes, buckets);
 */
#ifndef GD_HW_COLLECTIVE_H
#define GD_HW_COLLECTIVE_H

#include "hw/hw.h"

enum gd_collective {
  GD_COLLECTIVE_ALL_REDUCE,
  GD_COLLECTIVE_REDUCE_SCATTER,
  GD_COLLECTIVE_ALL_GATHER,
  GD_COLLECTIVE_COUNT
};

/* What carries a collective. Bandwidths are those that NCCL reaches, one way, not of data sheets.
 */
struct gd_fabric {
  int ranks, nodes;           /* GPUs in all; nodes that they are spread over evenly */
  bool nvlink;                /* inside a node a ring stays on NVLink */
  bool sums;                  /* the NVLink switch adds: Hopper and later */
  double inside_bytes_per_s;  /* of a GPU, to the next one of its node */
  double between_bytes_per_s; /* of all network cards that the GPUs of a node use; 0: one node */
  double network_latency_s;   /* of a message between nodes */
  int cards;                  /* network cards of a node that its GPUs use */
};
/* All GPUs of a target. */
void gd_fabric_of(const struct gd_target *target, struct gd_fabric *fabric);

/* So many of them that are neighbours: in one node as far as they fit. */
void gd_fabric_group(const struct gd_fabric *fabric, int ranks, struct gd_fabric *group);

/* A collective, and how it was done. */
struct gd_collective_time {
  double seconds;
  double latency_s;       /* of it, the start of every step */
  double bus_bytes_per_s; /* as nccl-tests counts it; comparable with the links at any rank count */
  const char *algorithm;  /* "ring", "tree", "switch" */
  const char *protocol;   /* "LL", "LL128", "Simple" */
};

/*
 * Seconds of `calls` collectives (at least one) that share `bytes` evenly: a stack that buckets
 * its gradients has a call a bucket, one that does not has a call a tensor. bytes are those of the
 * largest buffer, as nccl-tests counts: of an all-gather what every rank has in the end, of a
 * reduce-scatter what every rank begins with. One rank takes no time.
 */
double gd_collective_seconds(const struct gd_fabric *fabric, enum gd_collective kind, double bytes,
                             double calls);
/* One collective, with what NCCL would choose for it. */
struct gd_collective_time gd_collective_time(const struct gd_fabric *fabric,
                                             enum gd_collective kind, double bytes);

const char *gd_collective_name(enum gd_collective kind); /* "all-reduce" */
/* "64 nodes of 8 on NVLink (240 GB/s a GPU), 8 network cards a node (180 GB/s)"; returns text. */
enum { GD_FABRIC_TEXT = 192 };
const char *gd_fabric_say(const struct gd_fabric *fabric, char text[GD_FABRIC_TEXT]);

/*
 * How much longer a step takes than on a typical GPU, because all wait for the slowest of so many:
 * 1 for one GPU. See collective.c for where the spread among GPUs comes from.
 */
double gd_slowest_of(int ranks);

#endif
