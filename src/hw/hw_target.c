/*
 * From "4 x a100" to what the planner and the prediction must know: memory, links, host, network.
 * What the CUDA backend can do on a GPU is said here, once, for GPUs at hand and GPUs on paper.
 */
#include <stdlib.h>
#include <string.h>

#include "hw/hw.h"

enum {
  ALIGNMENT_BYTES = 256,        /* cuMemAlloc aligns so; libraries are fastest with it */
  RUNTIME_BYTES = 1536 << 20,   /* of context, kernels and libraries: a plan cannot have it */
  LOSS_CHUNK_BYTES = 512 << 20, /* dw is read and written once a chunk: fewer are better */
  CPUS_A_GPU = 4,               /* this and the next: Appendix B of the paper */
  NODE_GPUS = 8,
};
static const int64_t host_bytes_a_gpu = (int64_t)64 << 30;

void gd_caps_gpu(int compute_capability, struct gd_caps *caps) {
  bool ampere = compute_capability >= 80;
  *caps = (struct gd_caps){
      .backend = "cuda",
      .alignment_bytes = ALIGNMENT_BYTES,
      .workspace_bytes = GD_GPU_WORKSPACE_BYTES,
      .comm_bytes = 0,
      .compile = true,
      .tf32 = ampere,
      .keeps = true,
      .enough_flops = 1e15, /* a second or two of an H200 */
      .loss_chunk_bytes = LOSS_CHUNK_BYTES,
      .dtype = {[GD_DTYPE_F32] = true,
                [GD_DTYPE_BF16] = ampere,
                [GD_DTYPE_F16] = compute_capability >= 70}, /* tensor cores, which add in fp32 */
      .dtypes_alone = true};
}

void gd_gpu_caps(const struct gd_gpu *gpu, struct gd_caps *caps) {
  gd_caps_gpu(gpu->compute_capability, caps);
  caps->tf32 = caps->tf32 && gpu->flops[GD_PEAK_TF32] > 0;
  caps->dtype[GD_DTYPE_F16] = caps->dtype[GD_DTYPE_F16] && gpu->flops[GD_PEAK_FP16] > 0;
  caps->dtype[GD_DTYPE_BF16] = caps->dtype[GD_DTYPE_BF16] && gpu->flops[GD_PEAK_BF16] > 0;
}

int64_t gd_gpu_plan_bytes(int64_t memory_bytes) {
  return memory_bytes > RUNTIME_BYTES ? memory_bytes - RUNTIME_BYTES : 0;
}

void gd_target_caps(const struct gd_target *target, struct gd_caps *caps) {
  gd_gpu_caps(target->gpu, caps);
}

/* The paper's machine, else the smallest that holds so many; NULL: none. */
static const struct gd_machine *usual_machine(const struct gd_hw *hw, const struct gd_gpu *gpu,
                                              int count) {
  const struct gd_machine *best = NULL;
  for (int i = 0; i < hw->n_machines; i++) {
    const struct gd_machine *machine = &hw->machines[i];
    if (strcmp(machine->gpu, gpu->name) != 0 || machine->count < count)
      continue;
    if (machine->in_paper && !machine->build)
      return machine;
    if (!best || machine->count < best->count)
      best = machine;
  }
  return best;
}

/* For several nodes: the smallest that holds so many and whose network cards are stated; NULL:
 * none.
 */
static const struct gd_machine *usual_node(const struct gd_hw *hw, const struct gd_gpu *gpu,
                                           int count) {
  const struct gd_machine *best = NULL;
  for (int i = 0; i < hw->n_machines; i++) {
    const struct gd_machine *machine = &hw->machines[i];
    bool holds = strcmp(machine->gpu, gpu->name) == 0 && machine->count >= count;
    if (holds && machine->network_cards > 0 && (!best || machine->count < best->count))
      best = machine;
  }
  return best;
}

/* GPUs that one machine holds: of that one, else of the largest with such GPUs. */
static int node_gpus(const struct gd_hw *hw, const struct gd_gpu *gpu,
                     const struct gd_machine *machine) {
  int most = 0;
  if (machine)
    return machine->count;
  for (int i = 0; i < hw->n_machines; i++)
    if (strcmp(hw->machines[i].gpu, gpu->name) == 0 && hw->machines[i].count > most)
      most = hw->machines[i].count;
  return most > 0 ? most : NODE_GPUS;
}

/* The fewest machines that hold so many, each as many as the others. */
static int even_nodes(int count, int room) {
  int nodes = (count + room - 1) / room;
  while (count % nodes)
    nodes++;
  return nodes;
}

static enum gd_status check_counts(const struct gd_target *target, struct gd_error *err) {
  const struct gd_machine *machine = target->machine;
  if (target->count % target->nodes)
    return gd_fail(err, GD_BAD_INPUT,
                   "%d GPU%s cannot be spread evenly over %d nodes; choose --count as a multiple "
                   "of --nodes",
                   target->count, target->count == 1 ? "" : "s", target->nodes);
  if (machine && strcmp(machine->gpu, target->gpu->name) != 0)
    return gd_fail(err, GD_BAD_INPUT, "machine %s holds %s, not %s; choose one that holds it",
                   machine->name, machine->gpu, target->gpu->name);
  if (machine && target->count / target->nodes > machine->count)
    return gd_fail(err, GD_BAD_INPUT,
                   "machine %s holds %d GPUs, not the %d that each of %d would need; use more "
                   "machines",
                   machine->name, machine->count, target->count / target->nodes, target->nodes);
  return GD_OK;
}

/* "8xinfiniband-hdr": eight of them, and the rest of the text. 0: no number. */
static int cards_of(const char **network) {
  const char *digits = "0123456789", *text = *network;
  size_t length = strspn(text, digits);
  if (length == 0 || length > 4 || (text[length] != 'x' && text[length] != 'X'))
    return 0;
  int cards = (int)strtol(text, NULL, 10);
  *network = cards > 0 ? text + length + 1 : text;
  return cards;
}

/* "infiniband-hdr" and "infiniband-ndr": other cards in the same places. */
static bool same_kind(const char *a, const char *b) {
  size_t length = strcspn(a, "-");
  return length == strcspn(b, "-") && strncmp(a, b, length) == 0;
}

/* Where nobody said how many: as many as the machine has of that kind of network, else one. */
static void set_cards(struct gd_target *target, int stated) {
  const struct gd_machine *machine = target->machine;
  bool own = machine && machine->network_cards > 0 && machine->network &&
             same_kind(machine->network, target->network->name);
  target->network_cards = stated > 0 ? stated : own ? machine->network_cards : 1;
  target->cards_assumed =
      stated <= 0 && !(own && strcmp(machine->network, target->network->name) == 0);
}

int gd_target_cards(const struct gd_target *target) {
  int cards = target->network_cards > 0 ? target->network_cards : 1;
  int inside = target->nodes > 0 ? target->count / target->nodes : target->count;
  if (target->node_gpus > inside)
    cards = cards * inside / target->node_gpus;
  return cards > 0 ? cards : 1;
}

static enum gd_status set_network(struct gd_hw *hw, const char *network, struct gd_target *target,
                                  struct gd_error *err) {
  const struct gd_network *found;
  const char *usual =
      target->machine && target->machine->network ? target->machine->network : "infiniband-hdr";
  int stated = network ? cards_of(&network) : 0;
  GD_TRY(gd_hw_network(hw, network ? network : usual, &found, err));
  target->network_unused = network && target->nodes == 1 ? found : NULL;
  if (target->nodes > 1) {
    target->network = found;
    target->network_assumed = !network;
    set_cards(target, stated);
  }
  return GD_OK;
}

enum gd_status gd_hw_target(struct gd_hw *hw, const char *gpu, int count, int nodes,
                            const char *machine, const char *network, struct gd_target *target,
                            struct gd_error *err) {
  struct gd_target made = {.count = count};
  GD_ASSERT(count > 0 && nodes >= 0);
  GD_TRY(gd_hw_gpu(hw, gpu, &made.gpu, err));
  if (machine)
    GD_TRY(gd_hw_machine(hw, machine, &made.machine, err));
  made.nodes = nodes > 0 ? nodes : even_nodes(count, node_gpus(hw, made.gpu, made.machine));
  if (!machine && made.nodes > 1)
    made.machine = usual_node(hw, made.gpu, (count + made.nodes - 1) / made.nodes);
  if (!machine && !made.machine)
    made.machine = usual_machine(hw, made.gpu, (count + made.nodes - 1) / made.nodes);
  made.node_gpus = node_gpus(hw, made.gpu, made.machine);
  GD_TRY(check_counts(&made, err));
  GD_TRY(set_network(hw, network, &made, err));
  int used = count / made.nodes;
  made.topology = made.machine ? made.machine->topology : made.gpu->topology;
  made.memory_bytes = gd_gpu_plan_bytes(made.gpu->memory_bytes);
  made.host_memory_bytes = host_bytes_a_gpu;
  made.cpus = CPUS_A_GPU;
  if (made.machine && made.machine->host_memory_bytes / used < made.host_memory_bytes)
    made.host_memory_bytes = made.machine->host_memory_bytes / used;
  if (made.machine && made.machine->cpus / used < made.cpus)
    made.cpus = made.machine->cpus / used > 0 ? made.machine->cpus / used : 1;
  *target = made;
  return GD_OK;
}
