/*
 * The host runtime: ref and cpu are the same machine with different kernel tables.
 *
 * Memory is one anonymous mapping per arena. Pages come into being when a kernel first touches
 * them, so the process's resident set is the proof that a run uses what its plan says.
 */
#define _GNU_SOURCE
#include <omp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "backend/backend.h"
#include "backend/cpu/isa.h"
#include "backend/kernel.h"
#include "codegen/codegen.h"

struct mapping {
  void *data;
  int64_t bytes;
};

struct host {
  struct gd_backend base;
  const gd_kernel *kernels;
  int threads;
  struct mapping device, host;
};

/* One launch: a kernel and its resolved arguments. */
struct launch {
  gd_kernel kernel;
  struct gd_kernel_args args;
};

struct gd_bound {
  struct gd_arena arena;
  struct gd_codegen *code; /* NULL: the graph has no fused ops */
  struct launch *launches[GD_PROGRAM_COUNT];
  uint32_t n_launches[GD_PROGRAM_COUNT];
};

static struct host *host_of(struct gd_backend *backend) {
  return (struct host *)backend;
}

static int usable_threads(const struct gd_backend_options *options) {
  cpu_set_t set;
  if (options->threads > 0)
    return options->threads;
  int limit = omp_get_max_threads(); /* honours OMP_NUM_THREADS */
  int cpus = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : limit;
  return cpus < limit ? cpus : limit;
}

/* A field of /proc/meminfo or 0. */
static int64_t meminfo_bytes(const char *field) {
  char line[256];
  int64_t kib = 0;
  FILE *file = fopen("/proc/meminfo", "r");
  if (!file)
    return 0;
  while (fgets(line, sizeof line, file))
    if (strncmp(line, field, strlen(field)) == 0) {
      kib = strtoll(line + strlen(field), NULL, 10);
      break;
    }
  fclose(file);
  return kib * 1024;
}

/* A container's memory limit, where there is one below the machine's. */
static int64_t cgroup_limit_bytes(void) {
  static const char *const files[] = {"/sys/fs/cgroup/memory.max",
                                      "/sys/fs/cgroup/memory/memory.limit_in_bytes"};
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
    char line[64];
    FILE *file = fopen(files[i], "r");
    if (!file)
      continue;
    char *got = fgets(line, sizeof line, file);
    fclose(file);
    if (got && line[0] >= '0' && line[0] <= '9')
      return strtoll(line, NULL, 10);
  }
  return INT64_MAX;
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
  int64_t available = meminfo_bytes("MemAvailable:"), limit = cgroup_limit_bytes();
  info->memory_bytes = available < limit ? available : limit;
}

static double cpu_peak_flops(struct gd_backend *backend, enum gd_dtype dtype) {
  return gd_isa_peak_flops(dtype, host_of(backend)->threads, gd_isa_detect());
}

/* ref makes no claim of speed: 0 means that no utilisation is reported. */
static double ref_peak_flops(struct gd_backend *backend, enum gd_dtype dtype) {
  (void)backend;
  (void)dtype;
  return 0;
}

static void cpu_caps(const struct gd_backend_options *options, struct gd_caps *caps) {
  const int64_t many = 1 << 20; /* columns: enough that the slope alone is left */
  int threads = usable_threads(options);
  *caps =
      (struct gd_caps){.backend = "cpu",
                       .alignment_bytes = 64,
                       .workspace_bytes = gd_cpu_workspace_bytes(threads, 0),
                       .column_bytes = (gd_cpu_workspace_bytes(threads, many) + many - 1) / many,
                       .compile = true,
                       .dtype = {[GD_DTYPE_F32] = true, [GD_DTYPE_BF16] = true}};
}

static void ref_caps(const struct gd_backend_options *options, struct gd_caps *caps) {
  (void)options;
  *caps = (struct gd_caps){
      .backend = "ref",
      .alignment_bytes = 64,
      .dtype = {[GD_DTYPE_F32] = true, [GD_DTYPE_BF16] = true, [GD_DTYPE_F16] = true}};
}

static enum gd_status open_with(const struct gd_backend_ops *ops, const gd_kernel *kernels,
                                int threads, struct gd_backend **backend, struct gd_error *err) {
  struct host *h = gd_mem_alloc(1, sizeof *h);
  if (!h)
    return gd_fail(err, GD_ENVIRONMENT, "out of memory while opening the %s backend", ops->name);
  h->base.ops = ops;
  h->kernels = kernels;
  h->threads = threads;
  *backend = &h->base;
  return GD_OK;
}

static enum gd_status cpu_open(const struct gd_backend_options *options,
                               struct gd_backend **backend, struct gd_error *err) {
  return open_with(&gd_backend_cpu, gd_cpu_kernels, usable_threads(options), backend, err);
}

static enum gd_status ref_open(const struct gd_backend_options *options,
                               struct gd_backend **backend, struct gd_error *err) {
  (void)options;
  return open_with(&gd_backend_ref, gd_ref_kernels, 1, backend, err);
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

static void host_close(struct gd_backend *backend) {
  struct host *h = host_of(backend);
  unmap(&h->device);
  unmap(&h->host);
  gd_mem_free(h);
}

static enum gd_status host_reserve(struct gd_backend *backend, int64_t device_bytes,
                                   int64_t host_bytes, struct gd_error *err) {
  struct host *h = host_of(backend);
  unmap(&h->device);
  unmap(&h->host);
  GD_TRY(map(&h->device, "device", device_bytes, err));
  return map(&h->host, "host", host_bytes, err);
}

static void *host_memory(struct gd_backend *backend) {
  return host_of(backend)->host.data;
}

static struct gd_view view_of(const struct host *h, const struct gd_plan *plan, gd_tensor_id id) {
  if (id == GD_NONE)
    return (struct gd_view){0};
  const struct gd_tensor *t = &plan->graph->tensors[id];
  GD_ASSERT(plan->offset_bytes[id] >= 0);
  GD_ASSERT(plan->offset_bytes[id] + gd_tensor_bytes(plan->graph, id) <= h->device.bytes);
  return (struct gd_view){.data = (char *)h->device.data + plan->offset_bytes[id],
                          .dtype = t->dtype,
                          .rank = t->rank,
                          .dims = t->dims,
                          .elements = gd_tensor_elements(plan->graph, id)};
}

static bool bind_op(const struct host *h, const struct gd_plan *plan, gd_op_id id,
                    struct gd_bound *bound, struct launch *launch) {
  const struct gd_op *op = &plan->graph->ops[id];
  struct gd_view *views =
      gd_arena_alloc(&bound->arena, (size_t)op->n_in + op->n_out, sizeof *views);
  if (!views)
    return false;
  for (uint32_t i = 0; i < op->n_in; i++)
    views[i] = view_of(h, plan, op->in[i]);
  for (uint32_t i = 0; i < op->n_out; i++)
    views[op->n_in + i] = view_of(h, plan, op->out[i]);
  *launch =
      (struct launch){.kernel = h->kernels[op->kind],
                      .args = {.attr = &op->attr,
                               .fused = op->kind == GD_OP_fused
                                            ? gd_codegen_kernel(bound->code, op->attr.fused.fusion)
                                            : NULL,
                               .n_in = op->n_in,
                               .n_out = op->n_out,
                               .in = views,
                               .out = views + op->n_in,
                               .workspace = (char *)h->device.data + plan->workspace_at,
                               .workspace_bytes = plan->bytes[GD_CATEGORY_WORKSPACE],
                               .threads = h->threads}};
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
  bool ok = b != NULL;
  GD_ASSERT(plan->device_bytes <= h->device.bytes);
  if (ok && plan->graph->n_fusions > 0) {
    enum gd_status status =
        h->kernels == gd_cpu_kernels
            ? gd_codegen_build(plan->graph, &b->code, err)
            : gd_fail(err, GD_UNSUPPORTED, "the %s backend has no generated kernels",
                      backend->ops->name);
    if (status != GD_OK) {
      host_unbind(backend, b);
      return status;
    }
  }
  for (int program = 0; ok && program < GD_PROGRAM_COUNT; program++) {
    uint32_t n = plan->n_order[program];
    b->launches[program] = gd_arena_alloc(&b->arena, n, sizeof *b->launches[program]);
    b->n_launches[program] = n;
    ok = b->launches[program] != NULL;
    for (uint32_t i = 0; ok && i < n; i++)
      ok = bind_op(h, plan, plan->order[program][i], b, &b->launches[program][i]);
  }
  if (!ok) {
    host_unbind(backend, b);
    return gd_fail(err, GD_ENVIRONMENT, "out of memory while binding a plan");
  }
  *bound = b;
  return GD_OK;
}

static enum gd_status host_run(struct gd_backend *backend, struct gd_bound *bound,
                               enum gd_program program, struct gd_error *err) {
  (void)backend;
  (void)err;
  const struct launch *launches = bound->launches[program];
  for (uint32_t i = 0; i < bound->n_launches[program]; i++)
    launches[i].kernel(&launches[i].args);
  return GD_OK;
}

/* Kernels return when they are done. */
static enum gd_status host_sync(struct gd_backend *backend, struct gd_error *err) {
  (void)backend;
  (void)err;
  return GD_OK;
}

static enum gd_status host_write(struct gd_backend *backend, int64_t offset_bytes, const void *from,
                                 int64_t bytes, struct gd_error *err) {
  struct host *h = host_of(backend);
  (void)err;
  GD_ASSERT(offset_bytes >= 0 && offset_bytes + bytes <= h->device.bytes);
  memcpy((char *)h->device.data + offset_bytes, from, (size_t)bytes);
  return GD_OK;
}

static enum gd_status host_read(struct gd_backend *backend, int64_t offset_bytes, void *to,
                                int64_t bytes, struct gd_error *err) {
  struct host *h = host_of(backend);
  (void)err;
  GD_ASSERT(offset_bytes >= 0 && offset_bytes + bytes <= h->device.bytes);
  memcpy(to, (char *)h->device.data + offset_bytes, (size_t)bytes);
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
    .bind = host_bind,
    .unbind = host_unbind,
    .run = host_run,
    .sync = host_sync,
    .write = host_write,
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
    .bind = host_bind,
    .unbind = host_unbind,
    .run = host_run,
    .sync = host_sync,
    .write = host_write,
    .read = host_read,
};

enum gd_status gd_backend_find(const char *name, const struct gd_backend_ops **ops,
                               struct gd_error *err) {
  static const struct gd_backend_ops *const all[] = {&gd_backend_cpu, &gd_backend_ref};
  for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
    if (strcmp(name, all[i]->name) == 0) {
      *ops = all[i];
      return GD_OK;
    }
  return gd_fail(err, GD_BAD_INPUT, "unknown backend \"%s\"; there are cpu and ref", name);
}

enum gd_status gd_backend_open(const char *name, const struct gd_backend_options *options,
                               struct gd_backend **backend, struct gd_error *err) {
  const struct gd_backend_ops *ops;
  GD_TRY(gd_backend_find(name, &ops, err));
  return ops->open(options, backend, err);
}

void gd_backend_close(struct gd_backend *backend) {
  if (backend)
    backend->ops->close(backend);
}
