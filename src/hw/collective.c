/*
 * The time of collectives; see collective.h. Constants are published ones: NCCL's own tables, by
 * which it chooses among its algorithms, and bus bandwidths that nccl-tests measured.
 */
#include "hw/collective.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum protocol { LL, LL128, SIMPLE, PROTOCOLS };

static const char *const protocol_names[PROTOCOLS] = {"LL", "LL128", "Simple"};

/*
 * Seconds to start a collective, and of each of its steps, by protocol: baseLat and hwLat of
 * NCCL 2.19, src/graph/tuning.cc (github.com/NVIDIA/nccl), in microseconds there.
 */
enum link { LINK_NVLINK, LINK_PCIE, LINK_NETWORK, LINKS };
static const double start_us[2][PROTOCOLS] = {{6.6, 14.0, 8.4}, {6.8, 14.0, 8.4}}; /* ring, tree */
static const double step_us[LINKS][2][PROTOCOLS] = {
    [LINK_NVLINK] = {{0.6, 1.9, 3.4}, {0.6, 1.25, 4.0}},
    [LINK_PCIE] = {{1.0, 2.5, 5.7}, {1.0, 1.9, 4.0}},
    [LINK_NETWORK] = {{2.7, 4.0, 14.0}, {5.0, 8.5, 14.0}},
};
static const double switch_us = 23; /* likewise: a sum in the NVLink switch */

/*
 * The share of a link that a protocol has for data: LL sends a flag with every word, LL128 eight
 * bytes of flags with every 120 (the same file). LL never has more than these many bytes a second,
 * in one node, two and more.
 */
static const double data_share[PROTOCOLS] = {0.5, 120.0 / 128, 1};
static const double ll_most[3] = {87.7e9, 22.5e9, 19.0e9};

/*
 * What NCCL reaches of a data sheet's figure.
 * NVLink: 20 % is overhead of the protocol (github.com/NVIDIA/nccl-tests/issues/212): 365-370 of
 * 450 GB/s on H100 (nccl/issues/1455), 232 of 300 on 8 x A100 (nccl-tests/issues/175).
 * Sums in the switch carry 0.6 of the links' rate: 273 of 450 GB/s (nccl/issues/1455).
 * PCIe with peer access: 20 of 31.5 GB/s (nccl-tests/issues/178). Without it everything goes
 * through host memory: 28 (8 cards) and 35 (4 cards) of 63 GB/s (nccl/issues/1639).
 * Network cards: 86 to 96 of 100 GB/s (nccl-tests/issues/100, 119, 175).
 */
#define NVLINK_SHARE  0.8
#define SWITCH_SHARE  0.6
#define PEER_SHARE    0.63
#define HOST_SHARE    0.5
#define NETWORK_SHARE 0.9
#define COPY_SHARE    0.8 /* of PCIe: plain copies, as those of pinned memory */

/* NCCL's trees reach this share of what its rings do (busBw in src/graph/tuning.cc). */
#define TREE_SHARE 0.92

/* --- what carries it ----------------------------------------------------------------------- */

static int local_ranks(const struct gd_fabric *fabric) {
  return fabric->nodes > 0 ? fabric->ranks / fabric->nodes : fabric->ranks;
}

/* GeForce cards have no peer access over PCIe: the driver refuses it. */
static bool has_peer_access(const struct gd_gpu *gpu) {
  return !gpu->class_name || strcmp(gpu->class_name, "desktop") != 0;
}

void gd_fabric_of(const struct gd_target *target, struct gd_fabric *fabric) {
  const struct gd_gpu *gpu = target->gpu;
  int nodes = target->nodes > 0 ? target->nodes : 1, inside = target->count / nodes;
  bool linked = target->topology == GD_TOPOLOGY_SWITCH ||
                (target->topology == GD_TOPOLOGY_PAIRS && inside <= 2);
  *fabric = (struct gd_fabric){.ranks = target->count, .nodes = nodes};
  fabric->nvlink = linked && gpu->peer_link_bytes_per_s > 0;
  fabric->sums =
      fabric->nvlink && target->topology == GD_TOPOLOGY_SWITCH && gpu->compute_capability >= 90;
  double share = has_peer_access(gpu) ? PEER_SHARE : HOST_SHARE;
  fabric->inside_bytes_per_s = fabric->nvlink ? NVLINK_SHARE * gpu->peer_link_bytes_per_s
                                              : share * gpu->host_link_bytes_per_s;
  if (nodes > 1 && target->network) {
    fabric->cards = gd_target_cards(target);
    /* A card is on the bus of the GPUs next to it, and has no more than that. */
    double card = fmin(target->network->bytes_per_s * NETWORK_SHARE,
                       COPY_SHARE * gpu->host_link_bytes_per_s * inside / fabric->cards);
    fabric->between_bytes_per_s = fabric->cards * card;
    fabric->network_latency_s = target->network->latency_s;
  }
}

void gd_fabric_group(const struct gd_fabric *fabric, int ranks, struct gd_fabric *group) {
  int inside = local_ranks(fabric);
  GD_ASSERT(ranks >= 1);
  *group = *fabric;
  group->ranks = ranks;
  group->nodes = inside > 0 ? (ranks + inside - 1) / inside : 1;
}

/* --- one algorithm ------------------------------------------------------------------------- */

/* Rounds of a ring: an all-reduce is a reduce-scatter and an all-gather. */
static double rounds_of(enum gd_collective kind) {
  return kind == GD_COLLECTIVE_ALL_REDUCE ? 2 : 1;
}

static double step_s(const struct gd_fabric *fabric, bool between, int tree, enum protocol p) {
  if (between)
    return 1e-6 * step_us[LINK_NETWORK][tree][p] + fabric->network_latency_s;
  return 1e-6 * step_us[fabric->nvlink ? LINK_NVLINK : LINK_PCIE][tree][p];
}

/* What a protocol carries of a bandwidth. */
static double rate_of(const struct gd_fabric *fabric, double bytes_per_s, enum protocol p) {
  double rate = bytes_per_s * data_share[p];
  int nodes = fabric->nodes < 3 ? fabric->nodes : 3;
  return p == LL ? fmin(rate, ll_most[nodes - 1]) : rate;
}

/*
 * Rings through all GPUs, as many as there are cards, so that each byte crosses each node's border
 * on one of them: the slower of NVLink and all cards together sets the pace, and every step waits
 * for the one before it.
 */
static struct gd_collective_time ring(const struct gd_fabric *fabric, enum gd_collective kind,
                                      double bytes, enum protocol p) {
  double n = fabric->ranks, rounds = rounds_of(kind);
  double between = fabric->nodes > 1 ? fabric->nodes - 1 : 0;
  double pace = fabric->nodes > 1 ? fabric->between_bytes_per_s : HUGE_VAL;
  if (local_ranks(fabric) > 1)
    pace = fmin(pace, fabric->inside_bytes_per_s);
  double latency =
      1e-6 * start_us[0][p] + rounds * ((n - 1 - between) * step_s(fabric, false, 0, p) +
                                        between * step_s(fabric, true, 0, p));
  double carry = rounds * (n - 1) / n * bytes / rate_of(fabric, pace, p);
  return (struct gd_collective_time){latency + carry, latency, 0, "ring", protocol_names[p]};
}

/* A chain inside each node and two complementary binary trees of nodes, up and down; with two
   nodes, each sends its sum to the other once. Only all-reduce has it. */
static struct gd_collective_time tree(const struct gd_fabric *fabric, double bytes,
                                      enum protocol p) {
  double inside = local_ranks(fabric) - 1;
  double levels = fabric->nodes > 1 ? floor(log2(fabric->nodes)) : 0;
  double latency = 1e-6 * start_us[1][p] +
                   2 * (inside * step_s(fabric, false, 1, p) + levels * step_s(fabric, true, 1, p));
  double carry = 0;
  if (inside > 0)
    carry = 2 * bytes / rate_of(fabric, TREE_SHARE * fabric->inside_bytes_per_s, p);
  if (fabric->nodes > 1) {
    double sent = fabric->nodes == 2 ? 1 : 2;
    carry =
        fmax(carry, sent * bytes / rate_of(fabric, TREE_SHARE * fabric->between_bytes_per_s, p));
  }
  return (struct gd_collective_time){latency + carry, latency, 0, "tree", protocol_names[p]};
}

/* The switch adds what it carries, so that each GPU sends its bytes once; between nodes a tree. */
static struct gd_collective_time in_switch(const struct gd_fabric *fabric, double bytes) {
  double levels = fabric->nodes > 1 ? floor(log2(fabric->nodes)) : 0;
  double latency = 1e-6 * switch_us + 2 * levels * step_s(fabric, true, 1, SIMPLE);
  double carry = bytes / (SWITCH_SHARE / NVLINK_SHARE * fabric->inside_bytes_per_s);
  if (fabric->nodes > 1) {
    double sent = fabric->nodes == 2 ? 1 : 2;
    carry = fmax(carry, sent * bytes / (TREE_SHARE * fabric->between_bytes_per_s));
  }
  return (struct gd_collective_time){latency + carry, latency, 0, "switch", protocol_names[SIMPLE]};
}

/* --- the fastest --------------------------------------------------------------------------- */

static void keep_faster(struct gd_collective_time *best, struct gd_collective_time other) {
  if (other.seconds < best->seconds)
    *best = other;
}

struct gd_collective_time gd_collective_time(const struct gd_fabric *fabric,
                                             enum gd_collective kind, double bytes) {
  struct gd_collective_time best = {.seconds = HUGE_VAL, .algorithm = "none", .protocol = ""};
  double n = fabric->ranks;
  GD_ASSERT(kind < GD_COLLECTIVE_COUNT);
  if (fabric->ranks <= 1 || bytes <= 0) {
    best.seconds = 0;
    return best;
  }
  for (int p = 0; p < PROTOCOLS; p++) {
    if (p == LL128 && !fabric->nvlink) /* needs stores of 128 bytes in order: NVLink */
      continue;
    keep_faster(&best, ring(fabric, kind, bytes, (enum protocol)p));
    if (kind == GD_COLLECTIVE_ALL_REDUCE)
      keep_faster(&best, tree(fabric, bytes, (enum protocol)p));
  }
  if (kind == GD_COLLECTIVE_ALL_REDUCE && fabric->sums && local_ranks(fabric) > 2)
    keep_faster(&best, in_switch(fabric, bytes));
  best.bus_bytes_per_s = rounds_of(kind) * (n - 1) / n * bytes / best.seconds;
  return best;
}

double gd_collective_seconds(const struct gd_fabric *fabric, enum gd_collective kind, double bytes,
                             double calls) {
  double each = fmax(1, calls);
  return each * gd_collective_time(fabric, kind, bytes / each).seconds;
}

const char *gd_collective_name(enum gd_collective kind) {
  static const char *const names[GD_COLLECTIVE_COUNT] = {[GD_COLLECTIVE_ALL_REDUCE] = "all-reduce",
                                                         [GD_COLLECTIVE_REDUCE_SCATTER] =
                                                             "reduce-scatter",
                                                         [GD_COLLECTIVE_ALL_GATHER] = "all-gather"};
  GD_ASSERT(kind < GD_COLLECTIVE_COUNT);
  return names[kind];
}

const char *gd_fabric_say(const struct gd_fabric *fabric, char text[GD_FABRIC_TEXT]) {
  int inside = local_ranks(fabric), length = 0;
  const char *link = fabric->nvlink ? "NVLink" : "PCIe";
  text[0] = '\0';
  if (inside > 1)
    length = snprintf(text, GD_FABRIC_TEXT, "%s %.3g GB/s a GPU", link,
                      fabric->inside_bytes_per_s / 1e9);
  if (fabric->nodes > 1)
    snprintf(text + length, GD_FABRIC_TEXT - (size_t)length,
             "%s%d network card%s a node, %.3g GB/s together", length ? ", " : "", fabric->cards,
             fabric->cards == 1 ? "" : "s", fabric->between_bytes_per_s / 1e9);
  return text;
}

/* --- the slowest of many ------------------------------------------------------------------- */

/*
 * Standard deviation of how fast GPUs of one kind are, relative: Sinha et al., Not All GPUs Are
 * Created Equal, SC 2022 (arXiv:2208.11035): 8 % of variation on average over five clusters, read
 * as the range of a box plot without its outliers; of a normal distribution that is 5.4 deviations.
 */
#define GPU_SPREAD (0.08 / 5.4)

/* The expected largest of n normal values in deviations: Blom's approximation. */
double gd_slowest_of(int ranks) {
  GD_ASSERT(ranks >= 1);
  if (ranks == 1)
    return 1;
  double p = (ranks - 0.375) / (ranks + 0.25); /* its place in the distribution */
  /* Abramowitz and Stegun, 26.2.23: the quantile, to 4.5e-4. */
  double t = sqrt(-2 * log(1 - p));
  double quantile = t - (2.515517 + t * (0.802853 + t * 0.010328)) /
                            (1 + t * (1.432788 + t * (0.189269 + t * 0.001308)));
  return 1 + GPU_SPREAD * quantile;
}
