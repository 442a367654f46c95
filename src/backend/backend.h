/*
 * A backend: one device that can hold a plan's arenas and run its programs: ref, cpu and cuda, each
 * a const struct gd_backend_ops. Executors see this header only.
 *
 *   struct gd_backend *backend;
 *   GD_TRY(gd_backend_open("cpu", &(struct gd_backend_options){0}, &backend, err));
 *   gd_backend_close(backend);
 */
#ifndef GD_BACKEND_BACKEND_H
#define GD_BACKEND_BACKEND_H

#include "comm/comm.h"
#include "ir/caps.h"
#include "ir/graph.h"
#include "plan/plan.h"

struct gd_backend_options {
  int threads;          /* 0: as many as the process may use */
  struct gd_comm *comm; /* borrowed; NULL: one rank */
  bool trace;           /* record when each op begins and ends: gd_backend_ops.events */
  /* A folder that keeps what is chosen by its time, for who must have the same choices again;
     borrowed until it is closed; NULL: none. */
  const char *choices;
};

/* When an op of a program ran, in the last run of that program. */
struct gd_event {
  gd_op_id op;
  int64_t begin_ns, end_ns;
  bool async; /* on the communication stream, not in that of the computation */
};

struct gd_backend;
struct gd_bound; /* a plan bound to memory: programs with resolved addresses */

struct gd_device_info {
  char name[128];            /* "AMD EPYC 9654 (2 threads, avx512_bf16)" */
  int64_t memory_bytes;      /* default limit of the device arena */
  int64_t host_memory_bytes; /* likewise of the host arena */
  int threads;
  char kernels[24];     /* of a CPU: "avx512_bf16", "ref" */
  bool multiplies_bf16; /* likewise: by an instruction */
  int devices; /* that ranks of this machine are spread over; 0: they share what there is */
  unsigned char uuid[16]; /* of a GPU; zeros: it is none */
  int sharing; /* ranks of the job that have one device, where most do; 0: there is no job */
};

/* What lowers the clocks of a device. */
enum {
  GD_CLOCKS_IDLE = 1 << 0,        /* nothing runs */
  GD_CLOCKS_SETTING = 1 << 1,     /* application clocks, locked clocks */
  GD_CLOCKS_POWER_CAP = 1 << 2,   /* the limit of its power: usual under load */
  GD_CLOCKS_SLOWDOWN = 1 << 3,    /* the hardware protects itself: heat, or power */
  GD_CLOCKS_THERMAL = 1 << 4,     /* heat, by hardware or driver */
  GD_CLOCKS_POWER_BRAKE = 1 << 5, /* the power supply asks for it */
  GD_CLOCKS_REASONS = 6,
  GD_CLOCKS_BAD = GD_CLOCKS_SLOWDOWN | GD_CLOCKS_THERMAL | GD_CLOCKS_POWER_BRAKE,
};

/* At one moment; 0 where it is not told. */
struct gd_clocks {
  unsigned reasons;
  int mhz, max_mhz; /* of the multiprocessors */
  double power_w, power_limit_w;
};

struct gd_backend_ops {
  const char *name;
  /* Needs no device: what the planner must know. */
  void (*caps)(const struct gd_backend_options *options, struct gd_caps *caps);
  enum gd_status (*open)(const struct gd_backend_options *options, struct gd_backend **backend,
                         struct gd_error *err);
  void (*close)(struct gd_backend *backend);
  void (*describe)(struct gd_backend *backend, struct gd_device_info *info);
  /* Highest multiply-add rate this device can reach in that dtype, measured or from its record. */
  double (*peak_flops)(struct gd_backend *backend, enum gd_dtype dtype, bool tf32);

  /* One device arena and one host arena, zeroed; both are freed by close or by the next reserve. */
  enum gd_status (*reserve)(struct gd_backend *backend, int64_t device_bytes, int64_t host_bytes,
                            struct gd_error *err);
  void *(*host_memory)(struct gd_backend *backend);
  /* Bytes of device memory in use, as the system or the driver counts them: what came with the
     reserved arenas, and all else (program, context, libraries). -1: not known. */
  void (*usage)(struct gd_backend *backend, int64_t *plan_bytes, int64_t *runtime_bytes);

  /* Resolves a plan against the reserved arenas; whatever may allocate or compile happens here.
     Before anything is written: algorithms may be timed in the arenas, which are then cleared. */
  enum gd_status (*bind)(struct gd_backend *backend, const struct gd_plan *plan,
                         struct gd_bound **bound, struct gd_error *err);
  void (*unbind)(struct gd_backend *backend, struct gd_bound *bound);
  /* Starts a program; `sync` waits for all that was started. Nothing allocates here. */
  enum gd_status (*run)(struct gd_backend *backend, struct gd_bound *bound, enum gd_program program,
                        struct gd_error *err);
  enum gd_status (*sync)(struct gd_backend *backend, struct gd_error *err);
  /* The recorded events of a program and their number; NULL where nothing is recorded. */
  const struct gd_event *(*events)(struct gd_backend *backend, const struct gd_bound *bound,
                                   enum gd_program program, uint32_t *count);

  /* Bytes between the caller's memory and an offset of an arena. */
  enum gd_status (*write)(struct gd_backend *backend, enum gd_space space, int64_t offset_bytes,
                          const void *from, int64_t bytes, struct gd_error *err);
  enum gd_status (*clear)(struct gd_backend *backend, enum gd_space space, int64_t offset_bytes,
                          int64_t bytes, struct gd_error *err); /* to zeros */
  enum gd_status (*read)(struct gd_backend *backend, enum gd_space space, int64_t offset_bytes,
                         void *to, int64_t bytes, struct gd_error *err);

  /* Optional, NULL: any memory of the host will do. Memory that `read` fills at the full rate of
     the link; NULL where there is none to be had. `unpin` gives it back. */
  void *(*pin)(struct gd_backend *backend, int64_t bytes);
  void (*unpin)(struct gd_backend *backend, void *at, int64_t bytes);

  /* Optional, NULL: the device has no clocks to tell. Called from any thread while a bound plan
     runs, which it must not slow down. False: not known. */
  bool (*clocks)(struct gd_backend *backend, struct gd_clocks *now);
};

struct gd_backend {
  const struct gd_backend_ops *ops;
};

extern const struct gd_backend_ops gd_backend_ref;
extern const struct gd_backend_ops gd_backend_cpu;
extern const struct gd_backend_ops gd_backend_cuda;

/* The backend of that name, or GD_BAD_INPUT that lists the names there are. */
enum gd_status gd_backend_find(const char *name, const struct gd_backend_ops **ops,
                               struct gd_error *err) GD_MUST_USE;
enum gd_status gd_backend_open(const char *name, const struct gd_backend_options *options,
                               struct gd_backend **backend, struct gd_error *err) GD_MUST_USE;
void gd_backend_close(struct gd_backend *backend); /* NULL is fine */
/* "cpu, cuda or ref", with that word before the last. Returns the text. */
const char *gd_backend_names(char *text, size_t size, const char *word);
/* Whether a backend of that name computes on GPUs, where each rank has a device of its own; the
   others share the CPUs. False for a name that there is not. */
bool gd_backend_is_gpu(const char *name);
/* The fastest one that works here: cuda where there is a GPU, else cpu. */
const char *gd_backend_default(void);

#endif
