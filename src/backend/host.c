/*
 * The host runtime: see host.h.
 *
 * Memory is one anonymous mapping per arena. The system maps a page when a kernel first touches it,
 * so the process's resident set is the proof that a run uses what its plan says.
 */
#define _GNU_SOURCE
#include "backend/host.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "backend/async.h"
#include "backend/bind.h"
#include "backend/host_memory.h"
#include "base/cgroup.h"
#include "base/clock.h"
#include "base/cpus.h"
#include "base/process.h"
#include "codegen/codegen.h"

struct host {
  struct gd_backend base;
  const struct gd_host_kind *kind;
  int threads;
  bool trace;
  struct gd_memory memory;
  int64_t resident_before_bytes; /* of the process, when the arenas were made; -1: not known */
  struct gd_comm *comm;          /* borrowed; NULL: one rank */
  struct gd_async async;         /* runs collectives and copies; started when a plan has some */
  struct gd_error async_error;   /* the first failure there */
};

/* What the communication thread gets, and the computation runs itself. */
struct job {
  gd_kernel kernel;
  const struct gd_launch *launch;
  struct gd_event *event; /* NULL: not recorded */
  uint32_t waits;         /* asynchronous launches of this program that must be done before it */
};

struct gd_bound {
  struct gd_arena arena;
  struct gd_codegen *code; /* NULL: the graph has no fused ops */
  struct job *jobs[GD_PROGRAM_COUNT];
  struct gd_event *events[GD_PROGRAM_COUNT]; /* NULL: not recorded */
  uint32_t n_jobs[GD_PROGRAM_COUNT];
};

static struct host *host_of(struct gd_backend *backend) {
  return (struct host *)backend;
}

/* With more threads than a quota has CPUs, all of them wait for the next period. */
int gd_host_threads(const struct gd_backend_options *options) {
  double quota = gd_cgroup_cpus("");
  if (options->threads > 0)
    return options->threads;
  int limit = omp_get_max_threads(); /* honours OMP_NUM_THREADS */
  int cpus = gd_cpus(limit);
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

void gd_host_describe(struct gd_backend *backend, struct gd_device_info *info) {
  struct host *h = host_of(backend);
  char cpu[96];
  read_cpu_name(cpu, sizeof cpu);
  info->threads = h->threads;
  snprintf(info->kernels, sizeof info->kernels, "%s", h->kind->level());
  info->multiplies_bf16 = h->kind->multiplies_bf16 && h->kind->multiplies_bf16();
  snprintf(info->name, sizeof info->name, "%s, %d thread%s, %s", cpu, h->threads,
           h->threads == 1 ? "" : "s", h->kind->level());
  info->memory_bytes = info->host_memory_bytes = gd_host_memory_bytes();
}

enum gd_status gd_host_open(const struct gd_host_kind *kind,
                            const struct gd_backend_options *options, int threads,
                            struct gd_backend **backend, struct gd_error *err) {
  struct host *h = gd_mem_alloc(1, sizeof *h);
  if (!h)
    return gd_nomem(err, "while opening the %s backend", kind->ops->name);
  h->base.ops = kind->ops;
  h->kind = kind;
  h->threads = threads;
  h->comm = options->comm;
  h->trace = options->trace;
  *backend = &h->base;
  return GD_OK;
}

int gd_host_threads_of(const struct gd_backend *backend) {
  return ((const struct host *)backend)->threads;
}

/* --- memory -------------------------------------------------------------------------------- */

static enum gd_status map(struct host *h, enum gd_space space, const char *what, int64_t bytes,
                          struct gd_error *err) {
  char size[32];
  if (bytes == 0)
    return GD_OK;
  void *data =
      mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED)
    return gd_fail(err, GD_ENVIRONMENT, "the system refused %s for the %s arena: %s",
                   gd_format_bytes(size, sizeof size, bytes), what, "out of memory");
  /* Huge pages save TLB misses in GEMMs; a refusal changes nothing but speed. */
  madvise(data, (size_t)bytes, MADV_HUGEPAGE);
  h->memory.data[space] = data;
  h->memory.bytes[space] = bytes;
  return GD_OK;
}

static void unmap_all(struct host *h) {
  for (int space = 0; space < GD_SPACE_COUNT; space++)
    if (h->memory.data[space])
      munmap(h->memory.data[space], (size_t)h->memory.bytes[space]);
  h->memory = (struct gd_memory){0};
}

void gd_host_close(struct gd_backend *backend) {
  struct host *h = host_of(backend);
  gd_async_stop(&h->async);
  unmap_all(h);
  gd_mem_free(h);
}

enum gd_status gd_host_reserve(struct gd_backend *backend, int64_t device_bytes, int64_t host_bytes,
                               struct gd_error *err) {
  struct host *h = host_of(backend);
  unmap_all(h);
  h->resident_before_bytes = gd_process_resident_bytes();
  GD_TRY(map(h, GD_SPACE_DEVICE, "device", device_bytes, err));
  return map(h, GD_SPACE_HOST, "host", host_bytes, err);
}

void *gd_host_memory(struct gd_backend *backend) {
  return host_of(backend)->memory.data[GD_SPACE_HOST];
}

void gd_host_usage(struct gd_backend *backend, int64_t *plan_bytes, int64_t *runtime_bytes) {
  int64_t before = host_of(backend)->resident_before_bytes, now = gd_process_resident_bytes();
  *plan_bytes = before < 0 || now < 0 ? -1 : now - before;
  *runtime_bytes = before;
}

static char *address(struct gd_backend *backend, enum gd_space space, int64_t offset_bytes,
                     int64_t bytes) {
  const struct gd_memory *memory = &host_of(backend)->memory;
  GD_ASSERT(offset_bytes >= 0 && offset_bytes + bytes <= memory->bytes[space]);
  return (char *)memory->data[space] + offset_bytes;
}

enum gd_status gd_host_write(struct gd_backend *backend, enum gd_space space, int64_t offset_bytes,
                             const void *from, int64_t bytes, struct gd_error *err) {
  (void)err;
  memcpy(address(backend, space, offset_bytes, bytes), from, (size_t)bytes);
  return GD_OK;
}

enum gd_status gd_host_clear(struct gd_backend *backend, enum gd_space space, int64_t offset_bytes,
                             int64_t bytes, struct gd_error *err) {
  (void)err;
  memset(address(backend, space, offset_bytes, bytes), 0, (size_t)bytes);
  return GD_OK;
}

enum gd_status gd_host_read(struct gd_backend *backend, enum gd_space space, int64_t offset_bytes,
                            void *to, int64_t bytes, struct gd_error *err) {
  (void)err;
  memcpy(to, address(backend, space, offset_bytes, bytes), (size_t)bytes);
  return GD_OK;
}

/* --- binding ------------------------------------------------------------------------------- */

/* What this backend alone knows of a launch. */
static void complete(struct host *h, const struct gd_plan *plan, const struct gd_codegen *code,
                     struct gd_launch *launch) {
  if (gd_op_info(launch->kind)->attr == GD_ATTR_fused)
    launch->args.fused = gd_codegen_kernel(code, launch->args.attr->fused.fusion);
  launch->args.threads = h->threads;
  launch->args.comm = h->comm;
  launch->args.comm_scratch = (char *)h->memory.data[GD_SPACE_DEVICE] + plan->comm_at;
  launch->args.comm_scratch_bytes = plan->comm_bytes;
  launch->args.err = &h->async_error;
}

static enum gd_status bind_program(struct host *h, const struct gd_plan *plan,
                                   enum gd_program program, struct gd_bound *b, bool *any_async,
                                   struct gd_error *err) {
  struct gd_launches launches;
  uint32_t n_async = 0;
  GD_TRY(gd_bind_program(plan, program, &h->memory, &b->arena, &launches, err));
  struct job *jobs = gd_arena_alloc(&b->arena, (size_t)launches.n + 1, sizeof *jobs);
  struct gd_event *events = h->trace ? gd_bind_events(&launches, &b->arena) : NULL;
  if (!jobs || (h->trace && !events))
    return gd_nomem(err, "while binding a plan");
  for (uint32_t i = 0; i < launches.n; i++) {
    struct gd_launch *launch = &launches.at[i];
    complete(h, plan, b->code, launch);
    jobs[i] = (struct job){.kernel = h->kind->kernels[launch->kind],
                           .launch = launch,
                           .event = events ? &events[i] : NULL};
    if (launch->async)
      jobs[i].waits = ++n_async; /* for others: its own number */
    else if (launch->waits)
      jobs[i].waits = jobs[launch->waits - 1].waits;
  }
  b->jobs[program] = jobs;
  b->events[program] = events;
  b->n_jobs[program] = launches.n;
  *any_async |= n_async > 0;
  return GD_OK;
}

void gd_host_unbind(struct gd_backend *backend, struct gd_bound *bound) {
  (void)backend;
  if (!bound)
    return;
  gd_codegen_free(bound->code);
  gd_arena_deinit(&bound->arena);
  gd_mem_free(bound);
}

static enum gd_status bind_all(struct host *h, const struct gd_plan *plan, struct gd_bound *b,
                               struct gd_error *err) {
  bool any_async = false;
  GD_ASSERT(plan->device_bytes <= h->memory.bytes[GD_SPACE_DEVICE]);
  if (plan->graph->n_fusions > 0 && !h->kind->generates)
    return gd_fail(err, GD_UNSUPPORTED, "the %s backend has no generated kernels",
                   h->kind->ops->name);
  if (plan->graph->n_fusions > 0)
    GD_TRY(gd_codegen_build(plan->graph, &b->code, err));
  for (int program = 0; program < GD_PROGRAM_COUNT; program++)
    GD_TRY(bind_program(h, plan, (enum gd_program)program, b, &any_async, err));
  return any_async && !h->async.started ? gd_async_start(&h->async, err) : GD_OK;
}

enum gd_status gd_host_bind(struct gd_backend *backend, const struct gd_plan *plan,
                            struct gd_bound **bound, struct gd_error *err) {
  struct gd_bound *b = gd_mem_alloc(1, sizeof *b);
  enum gd_status status =
      b ? bind_all(host_of(backend), plan, b, err) : gd_nomem(err, "while binding a plan");
  if (status != GD_OK) {
    gd_host_unbind(backend, b);
    b = NULL;
  }
  *bound = b;
  return status;
}

/* --- running ------------------------------------------------------------------------------- */

static void run_job(void *argument) {
  const struct job *job = argument;
  if (job->event)
    job->event->begin_ns = gd_clock_ns();
  job->kernel(&job->launch->args);
  if (job->event)
    job->event->end_ns = gd_clock_ns();
}

enum gd_status gd_host_run(struct gd_backend *backend, struct gd_bound *bound,
                           enum gd_program program, struct gd_error *err) {
  struct host *h = host_of(backend);
  struct job *jobs = bound->jobs[program];
  uint64_t before = h->async.pushed, last = before; /* this thread alone pushes */
  for (uint32_t i = 0; i < bound->n_jobs[program]; i++) {
    struct job *job = &jobs[i];
    if (job->launch->async) {
      last = gd_async_push(&h->async, run_job, job);
      continue;
    }
    if (job->waits)
      gd_async_wait(&h->async, before + job->waits);
    run_job(job);
  }
  if (last > before)
    gd_async_wait(&h->async, last);
  if (h->async_error.status == GD_OK)
    return GD_OK;
  return gd_fail(err, h->async_error.status, "%s", h->async_error.text);
}

/* A program is done when gd_host_run returns. */
enum gd_status gd_host_sync(struct gd_backend *backend, struct gd_error *err) {
  (void)backend;
  (void)err;
  return GD_OK;
}

const struct gd_event *gd_host_events(struct gd_backend *backend, const struct gd_bound *bound,
                                      enum gd_program program, uint32_t *count) {
  (void)backend;
  *count = bound->events[program] ? bound->n_jobs[program] : 0;
  return bound->events[program];
}
