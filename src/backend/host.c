/*
 * The host runtime: ref and cpu are the same machine with different kernel tables.
 *
 * Memory is one anonymous mapping per arena. Pages come into being when a kernel first touches
 * them, so the process's resident set is the proof that a run uses what its plan says.
 */
#define _GNU_SOURCE
#include <math.h>
#include <omp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "backend/backend.h"
#include "backend/cpu/isa.h"
#include "backend/host_memory.h"
#include "backend/kernel.h"
#include "backend/side.h"
#include "base/cgroup.h"
#include "base/clock.h"
#include "base/process.h"
#include "codegen/codegen.h"

struct mapping {
  void *data;
  int64_t bytes;
};

struct host {
  struct gd_backend base;
  const gd_kernel *kernels;
  int threads;
  bool trace;
  struct mapping spaces[GD_SPACE_COUNT];
  int64_t resident_before_bytes; /* of the process, when the arenas were made; -1: not known */
  struct gd_comm *comm;          /* borrowed; NULL: one rank */
  struct gd_side side;           /* runs collectives and copies; started when a plan has some */
  struct gd_error side_error;    /* the first failure there */
};

/* One launch: a kernel and its resolved arguments. */
struct launch {
  gd_kernel kernel;
  struct gd_kernel_args args;
  bool beside;            /* goes to the side thread */
  uint32_t waits;         /* number of side launches of this program that must be done before it */
  struct gd_event *event; /* NULL: not recorded */
};

struct gd_bound {
  struct gd_arena arena;
  struct gd_codegen *code; /* NULL: the graph has no fused ops */
  struct launch *launches[GD_PROGRAM_COUNT];
  struct gd_event *events[GD_PROGRAM_COUNT]; /* NULL: not recorded */
  uint32_t n_launches[GD_PROGRAM_COUNT];
};

/* Pieces of a reduction arrive here; larger ones only save messages. */
enum { COMM_SCRATCH_BYTES = 1 << 20 };

static struct host *host_of(struct gd_backend *backend) {
  return (struct host *)backend;
}

/* More threads than a quota has CPUs for would only wait for it together. */
static int usable_threads(const struct gd_backend_options *options) {
  cpu_set_t set;
  double quota = gd_cgroup_cpus("");
  if (options->threads > 0)
    return options->threads;
  int limit = omp_get_max_threads(); /* honours OMP_NUM_THREADS */
  int cpus = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : limit;
  int least = cpus < limit ? cpus : limit;
  return quota > 0 && quota < least ? (int)ceil(quota) : least;
}

static void read_cpu_name(char *name, size_t size) {
  char line[256];
  snprintf(name, size, "CPU");
  FILE *file = fopen("/proc/cpuinfo", "r");
  if (!file)
    return;
  while (fgets(line, sizeof line, file)) {
    char *colon = strchr(line, ':');
    if (strncmp(line, "model name", 10) != 0 || !colon)
      continue;
    line[strcspn(line, "\n")] = '\0';
    snprintf(name, size, "%.80s", colon + 2);
    break;
  }
  fclose(file);
}

static void host_describe(struct gd_backend *backend, struct gd_device_info *info) {
  struct host *h = host_of(backend);
  char cpu[96];
  read_cpu_name(cpu, sizeof cpu);
  info->threads = h->threads;
  snprintf(info->name, sizeof info->name, "%s, %d thread%s, %s", cpu, h->threads,
           h->threads == 1 ? "" : "s",
           h->kernels == gd_ref_kernels ? "ref" : gd_isa_name(gd_isa_detect()));
  info->memory_bytes = info->host_memory_bytes = gd_host_memory_bytes();
}

static double cpu_peak_flops(struct gd_backend *backend, enum gd_dtype dtype, bool tf32) {
  (void)tf32;
  return gd_isa_peak_flops(dtype, host_of(backend)->threads, gd_isa_detect());
}

/* ref makes no claim of speed: 0 means that no utilisation is reported. */
static double ref_peak_flops(struct gd_backend *backend, enum gd_dtype dtype, bool tf32) {
  (void)tf32;
  (void)backend;
  (void)dtype;
  return 0;
}

/* A pass of one thread, about two seconds of a core with bf16 instructions: what a pass costs
   whatever its size is 1 % of it (docs/decisions.md, "A pass of enough work"). */
#define CPU_ENOUGH_FLOPS 3e11

static void cpu_caps(const struct gd_backend_options *options, struct gd_caps *caps) {
  const int64_t many = 1 << 20; /* columns: enough that the slope alone is left */
  int threads = usable_threads(options);
  *caps =
      (struct gd_caps){.backend = "cpu",
                       .alignment_bytes = 64,
                       .workspace_bytes = gd_cpu_workspace_bytes(threads, 0),
                       .comm_bytes = COMM_SCRATCH_BYTES,
                       .column_bytes = (gd_cpu_workspace_bytes(threads, many) + many - 1) / many,
                       .compile = true,
                       .needs_cc = true,
                       .enough_flops = CPU_ENOUGH_FLOPS * threads,
                       .dtype = {[GD_DTYPE_F32] = true, [GD_DTYPE_BF16] = true}};
}

static void ref_caps(const struct gd_backend_options *options, struct gd_caps *caps) {
  (void)options;
  *caps = (struct gd_caps){
      .backend = "ref",
      .alignment_bytes = 64,
      .comm_bytes = COMM_SCRATCH_BYTES,
      .dtype = {[GD_DTYPE_F32] = true, [GD_DTYPE_BF16] = true, [GD_DTYPE_F16] = true}};
}

static enum gd_status open_with(const struct gd_backend_ops *ops, const gd_kernel *kernels,
                                const struct gd_backend_options *options, int threads,
                                struct gd_backend **backend, struct gd_error *err) {
  struct host *h = gd_mem_alloc(1, sizeof *h);
  if (!h)
    return gd_fail(err, GD_ENVIRONMENT, "out of memory while opening the %s backend", ops->name);
  h->base.ops = ops;
  h->kernels = kernels;
  h->threads = threads;
  h->comm = options->comm;
  h->trace = options->trace;
  *backend = &h->base;
  return GD_OK;
}

static enum gd_status cpu_open(const struct gd_backend_options *options,
                               struct gd_backend **backend, struct gd_error *err) {
  return open_with(&gd_backend_cpu, gd_cpu_kernels, options, usable_threads(options), backend, err);
}

static enum gd_status ref_open(const struct gd_backend_options *options,
                               struct gd_backend **backend, struct gd_error *err) {
  return open_with(&gd_backend_ref, gd_ref_kernels, options, 1, backend, err);
}

static void unmap(struct mapping *mapping) {
  if (mapping->data)
    munmap(mapping->data, (size_t)mapping->bytes);
  *mapping = (struct mapping){0};
}

static enum gd_status map(struct mapping *mapping, const char *what, int64_t bytes,
                          struct gd_error *err) {
  char size[32];
  if (bytes == 0)
    return GD_OK;
  void *data =
      mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED)
    return gd_fail(err, GD_ENVIRONMENT, "the system refused %s for the %s arena: %s",
                   gd_format_bytes(size, sizeof size, bytes), what, "out of memory");
  /* Huge pages save TLB misses in the products; a refusal changes nothing but speed. */
  madvise(data, (size_t)bytes, MADV_HUGEPAGE);
  *mapping = (struct mapping){data, bytes};
  return GD_OK;
}

static void unmap_all(struct host *h) {
  for (int space = 0; space < GD_SPACE_COUNT; space++)
    unmap(&h->spaces[space]);
}

static void host_close(struct gd_backend *backend) {
  struct host *h = host_of(backend);
  gd_side_stop(&h->side);
  unmap_all(h);
  gd_mem_free(h);
}

static enum gd_status host_reserve(struct gd_backend *backend, int64_t device_bytes,
                                   int64_t host_bytes, struct gd_error *err) {
  struct host *h = host_of(backend);
  unmap_all(h);
  h->resident_before_bytes = gd_process_resident_bytes();
  GD_TRY(map(&h->spaces[GD_SPACE_DEVICE], "device", device_bytes, err));
  return map(&h->spaces[GD_SPACE_HOST], "host", host_bytes, err);
}

static void *host_memory(struct gd_backend *backend) {
  return host_of(backend)->spaces[GD_SPACE_HOST].data;
}

/* Pages of the arenas come into being when they are touched, so the resident set is the proof. */
static void host_usage(struct gd_backend *backend, int64_t *plan_bytes, int64_t *runtime_bytes) {
  int64_t before = host_of(backend)->resident_before_bytes, now = gd_process_resident_bytes();
  *plan_bytes = before < 0 || now < 0 ? -1 : now - before;
  *runtime_bytes = before;
}

/* --- binding ------------------------------------------------------------------------------- */

static struct gd_view view_of(const struct host *h, const struct gd_plan *plan, gd_tensor_id id) {
  if (id == GD_NONE)
    return (struct gd_view){0};
  const struct gd_tensor *t = &plan->graph->tensors[id];
  const struct mapping *space =
      &h->spaces[plan->graph->tensors[gd_tensor_root(plan->graph, id, NULL)].space];
  GD_ASSERT(plan->offset_bytes[id] >= 0);
  GD_ASSERT(plan->offset_bytes[id] + gd_tensor_bytes(plan->graph, id) <= space->bytes);
  return (struct gd_view){.data = (char *)space->data + plan->offset_bytes[id],
                          .dtype = t->dtype,
                          .rank = t->rank,
                          .dims = t->dims,
                          .elements = gd_tensor_elements(plan->graph, id)};
}

static bool bind_op(struct host *h, const struct gd_plan *plan, gd_op_id id, struct gd_bound *bound,
                    struct launch *launch) {
  const struct gd_op *op = &plan->graph->ops[id];
  struct gd_view *views =
      gd_arena_alloc(&bound->arena, (size_t)op->n_in + op->n_out, sizeof *views);
  if (!views)
    return false;
  for (uint32_t i = 0; i < op->n_in; i++)
    views[i] = view_of(h, plan, op->in[i]);
  for (uint32_t i = 0; i < op->n_out; i++)
    views[op->n_in + i] = view_of(h, plan, op->out[i]);
  char *device = h->spaces[GD_SPACE_DEVICE].data;
  *launch =
      (struct launch){.kernel = h->kernels[op->kind],
                      .beside = gd_op_is_async(op->kind),
                      .args = {.attr = &op->attr,
                               .fused = op->kind == GD_OP_fused
                                            ? gd_codegen_kernel(bound->code, op->attr.fused.fusion)
                                            : NULL,
                               .n_in = op->n_in,
                               .n_out = op->n_out,
                               .adds = op->adds,
                               .in = views,
                               .out = views + op->n_in,
                               .workspace = device + plan->workspace_at,
                               .workspace_bytes = plan->workspace_bytes,
                               .threads = h->threads,
                               .comm = h->comm,
                               .comm_scratch = device + plan->comm_at,
                               .comm_scratch_bytes = plan->comm_bytes,
                               .err = &h->side_error}};
  return true;
}

static bool bind_program(struct host *h, const struct gd_plan *plan, enum gd_program program,
                         uint32_t *beside_at, struct gd_bound *b, bool *any_beside) {
  uint32_t n = plan->n_order[program], n_beside = 0;
  struct launch *launches = gd_arena_alloc(&b->arena, n, sizeof *launches);
  struct gd_event *events = h->trace ? gd_arena_alloc(&b->arena, n, sizeof *events) : NULL;
  if (!launches || (h->trace && !events))
    return false;
  b->launches[program] = launches;
  b->events[program] = events;
  b->n_launches[program] = n;
  memset(beside_at, 0, plan->graph->n_ops * sizeof *beside_at);
  for (uint32_t i = 0; i < n; i++) {
    gd_op_id id = plan->order[program][i];
    if (!bind_op(h, plan, id, b, &launches[i]))
      return false;
    if (launches[i].beside)
      beside_at[id] = ++n_beside; /* in order there: it waits for nothing else */
    else
      launches[i].waits = gd_side_waits_for(plan->graph, &plan->graph->ops[id], beside_at);
    if (events) {
      events[i] = (struct gd_event){.op = id, .beside = launches[i].beside};
      launches[i].event = &events[i];
    }
  }
  *any_beside |= n_beside > 0;
  return true;
}

static void host_unbind(struct gd_backend *backend, struct gd_bound *bound) {
  (void)backend;
  if (!bound)
    return;
  gd_codegen_free(bound->code);
  gd_arena_deinit(&bound->arena);
  gd_mem_free(bound);
}

static enum gd_status host_bind(struct gd_backend *backend, const struct gd_plan *plan,
                                struct gd_bound **bound, struct gd_error *err) {
  struct host *h = host_of(backend);
  struct gd_bound *b = gd_mem_alloc(1, sizeof *b);
  uint32_t *beside_at = gd_mem_alloc((size_t)plan->graph->n_ops + 1, sizeof *beside_at);
  bool ok = b && beside_at, any_beside = false;
  GD_ASSERT(plan->device_bytes <= h->spaces[GD_SPACE_DEVICE].bytes);
  if (ok && plan->graph->n_fusions > 0) {
    enum gd_status status =
        h->kernels == gd_cpu_kernels
            ? gd_codegen_build(plan->graph, &b->code, err)
            : gd_fail(err, GD_UNSUPPORTED, "the %s backend has no generated kernels",
                      backend->ops->name);
    if (status != GD_OK) {
      gd_mem_free(beside_at);
      host_unbind(backend, b);
      return status;
    }
  }
  for (int program = 0; ok && program < GD_PROGRAM_COUNT; program++)
    ok = bind_program(h, plan, (enum gd_program)program, beside_at, b, &any_beside);
  gd_mem_free(beside_at);
  if (!ok) {
    host_unbind(backend, b);
    return gd_fail(err, GD_ENVIRONMENT, "out of memory while binding a plan");
  }
  *bound = b;
  if (!any_beside || h->side.started)
    return GD_OK;
  enum gd_status status = gd_side_start(&h->side, err);
  if (status != GD_OK) {
    host_unbind(backend, b);
    *bound = NULL;
  }
  return status;
}

/* --- running ------------------------------------------------------------------------------- */

static void run_launch(void *job) {
  const struct launch *launch = job;
  if (launch->event)
    launch->event->begin_ns = gd_clock_ns();
  launch->kernel(&launch->args);
  if (launch->event)
    launch->event->end_ns = gd_clock_ns();
}

static enum gd_status host_run(struct gd_backend *backend, struct gd_bound *bound,
                               enum gd_program program, struct gd_error *err) {
  struct host *h = host_of(backend);
  struct launch *launches = bound->launches[program];
  uint64_t before = h->side.pushed, last = before; /* this thread alone pushes */
  for (uint32_t i = 0; i < bound->n_launches[program]; i++) {
    struct launch *launch = &launches[i];
    if (launch->beside) {
      last = gd_side_push(&h->side, run_launch, launch);
      continue;
    }
    if (launch->waits)
      gd_side_wait(&h->side, before + launch->waits);
    run_launch(launch);
  }
  if (last > before)
    gd_side_wait(&h->side, last);
  if (h->side_error.status == GD_OK)
    return GD_OK;
  return gd_fail(err, h->side_error.status, "%s", h->side_error.text);
}

/* A program is done when host_run returns. */
static enum gd_status host_sync(struct gd_backend *backend, struct gd_error *err) {
  (void)backend;
  (void)err;
  return GD_OK;
}

static const struct gd_event *host_events(struct gd_backend *backend, const struct gd_bound *bound,
                                          enum gd_program program, uint32_t *count) {
  (void)backend;
  *count = bound->events[program] ? bound->n_launches[program] : 0;
  return bound->events[program];
}

static enum gd_status host_write(struct gd_backend *backend, enum gd_space space,
                                 int64_t offset_bytes, const void *from, int64_t bytes,
                                 struct gd_error *err) {
  const struct mapping *to = &host_of(backend)->spaces[space];
  (void)err;
  GD_ASSERT(offset_bytes >= 0 && offset_bytes + bytes <= to->bytes);
  memcpy((char *)to->data + offset_bytes, from, (size_t)bytes);
  return GD_OK;
}

static enum gd_status host_clear(struct gd_backend *backend, enum gd_space space,
                                 int64_t offset_bytes, int64_t bytes, struct gd_error *err) {
  const struct mapping *at = &host_of(backend)->spaces[space];
  (void)err;
  GD_ASSERT(offset_bytes >= 0 && offset_bytes + bytes <= at->bytes);
  memset((char *)at->data + offset_bytes, 0, (size_t)bytes);
  return GD_OK;
}

static enum gd_status host_read(struct gd_backend *backend, enum gd_space space,
                                int64_t offset_bytes, void *to, int64_t bytes,
                                struct gd_error *err) {
  const struct mapping *from = &host_of(backend)->spaces[space];
  (void)err;
  GD_ASSERT(offset_bytes >= 0 && offset_bytes + bytes <= from->bytes);
  memcpy(to, (char *)from->data + offset_bytes, (size_t)bytes);
  return GD_OK;
}

const struct gd_backend_ops gd_backend_cpu = {
    .name = "cpu",
    .caps = cpu_caps,
    .open = cpu_open,
    .close = host_close,
    .describe = host_describe,
    .peak_flops = cpu_peak_flops,
    .reserve = host_reserve,
    .host_memory = host_memory,
    .usage = host_usage,
    .bind = host_bind,
    .unbind = host_unbind,
    .run = host_run,
    .sync = host_sync,
    .events = host_events,
    .write = host_write,
    .clear = host_clear,
    .read = host_read,
};

const struct gd_backend_ops gd_backend_ref = {
    .name = "ref",
    .caps = ref_caps,
    .open = ref_open,
    .close = host_close,
    .describe = host_describe,
    .peak_flops = ref_peak_flops,
    .reserve = host_reserve,
    .host_memory = host_memory,
    .usage = host_usage,
    .bind = host_bind,
    .unbind = host_unbind,
    .run = host_run,
    .sync = host_sync,
    .events = host_events,
    .write = host_write,
    .clear = host_clear,
    .read = host_read,
};
