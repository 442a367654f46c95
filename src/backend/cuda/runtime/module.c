/*
 * Kernels: from the embedded CUDA C files, or from generated text, to functions of the driver.
 *
 * A module is one source text built for one architecture; its key is the hash of that text, the
 * options of the compiler (the architecture is one), NVRTC's version and file, and the version of
 * this program. Modules are cached in memory by key, and on disk as cubins.
 * Binding a plan first notes every module it needs, then builds the missing ones in parallel,
 * since NVRTC takes a second for some and a program needs a few dozen.
 *
 * NVRTC's front end works behind one lock of the process, which leaves threads a factor of two or
 * three. So children of this process build first, and leave cubins in the cache on disk.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/cuda/runtime/cuda_int.h"
#include "backend/cuda/runtime/module.h"
#include "base/cache.h"
#include "base/embedded.h"
#include "gd_version.h"

enum { N_OPTIONS = 3, MOST_THREADS = 16 };

struct module {
  uint64_t key;
  char name[64];
  char ident[192]; /* file, types and defines of an embedded one: saves making its text again */
  char *source;    /* until it is built */
  char *cubin;     /* until it is loaded */
  size_t cubin_bytes;
  CUmodule loaded;
  struct gd_error error;
  struct module *next;
};

struct function {
  const struct module *module;
  char name[64];
  CUfunction function;
  struct function *next;
};

/* Of a kernel file's text. */
struct text_hash {
  char file[64];
  uint64_t hash;
  struct text_hash *next;
};

struct gd_cuda_modules {
  struct module *modules;
  struct function *functions;
  struct text_hash *hashes;
};

static enum gd_status no_memory(struct gd_error *err) {
  return gd_nomem(err, "while building CUDA kernels");
}

/* --- text ----------------------------------------------------------------------------------- */

/*
 * The text of kernels/<name>, and in the place of each line #include "<other>" that of kernels/
 * <other>: NVRTC sees one text, which is all that a module's key must be made of. No file may
 * include itself by way of others; one that is included twice guards itself, as everywhere.
 */
static enum gd_status append_file(const char *name, struct gd_strbuf *source,
                                  struct gd_error *err) {
  static const char include[] = "#include \"";
  char path[128];
  snprintf(path, sizeof path, "cuda/kernels/%s", name);
  const struct gd_embedded_file *file = gd_embedded_find(path);
  if (!file)
    return gd_fail(err, GD_INTERNAL, "the kernel file %s is not in this binary", path);
  const char *text = file->text;
  for (int line = 1; *text; line++) {
    size_t length = strcspn(text, "\n"), before = sizeof include - 1;
    if (strncmp(text, include, before) == 0) {
      char other[64];
      snprintf(other, sizeof other, "%.*s", (int)strcspn(text + before, "\"\n"), text + before);
      gd_strbuf_printf(source, "#line 1 \"%s\"\n", other);
      GD_TRY(append_file(other, source, err));
      gd_strbuf_printf(source, "#line %d \"%s\"\n", line + 1, name);
    } else {
      gd_strbuf_printf(source, "%.*s\n", (int)length, text);
    }
    text += length + (text[length] == '\n');
  }
  return GD_OK;
}

enum gd_status gd_cuda_prelude(struct gd_strbuf *source, struct gd_error *err) {
  return append_file("common.cuh", source, err);
}

enum gd_status gd_cuda_source(const struct gd_cuda_kernel *kernel, struct gd_strbuf *source,
                              struct gd_error *err) {
  char file[64];
  for (int i = 0; i < kernel->n_types; i++)
    gd_strbuf_printf(source, "#define T%d gd_%s\n", i, gd_dtype_name(kernel->types[i]));
  for (const char *at = kernel->defines; at && *at;) { /* "NAME=VALUE NAME=VALUE" */
    size_t length = strcspn(at, " "), name = strcspn(at, "= ");
    bool valued = name < length;
    gd_strbuf_printf(source, "#define %.*s %.*s\n", (int)name, at,
                     valued ? (int)(length - name - 1) : 1, valued ? at + name + 1 : "1");
    at += length + strspn(at + length, " ");
  }
  GD_TRY(gd_cuda_prelude(source, err));
  snprintf(file, sizeof file, "%s.cu", kernel->file);
  gd_strbuf_printf(source, "#line 1 \"%s\"\n", file);
  GD_TRY(append_file(file, source, err));
  return source->failed ? no_memory(err) : GD_OK;
}

enum gd_status gd_cuda_source_hash(struct gd_cuda *cuda, const char *file, uint64_t *hash,
                                   struct gd_error *err) {
  struct gd_strbuf text = {0};
  for (const struct text_hash *h = cuda->modules->hashes; h; h = h->next)
    if (strcmp(h->file, file) == 0) {
      *hash = h->hash;
      return GD_OK;
    }
  enum gd_status status = gd_cuda_source(&(struct gd_cuda_kernel){.file = file}, &text, err);
  struct text_hash *h = status == GD_OK ? gd_mem_alloc(1, sizeof *h) : NULL;
  if (status == GD_OK && !h)
    status = no_memory(err);
  if (status == GD_OK) {
    snprintf(h->file, sizeof h->file, "%s", file);
    h->hash = *hash = gd_cache_hash_text(0, text.text);
    h->next = cuda->modules->hashes;
    cuda->modules->hashes = h;
  }
  gd_strbuf_deinit(&text);
  return status;
}

/* --- building ------------------------------------------------------------------------------- */

/* The first lines of the compiler's log, for a sentence. */
static void read_log(const struct gd_nvrtc *nvrtc, nvrtcProgram program, char *text, size_t size) {
  size_t bytes = 0;
  char *log = nvrtc->GetProgramLogSize(program, &bytes) == 0 ? gd_mem_alloc(bytes + 1, 1) : NULL;
  text[0] = '\0';
  if (log && nvrtc->GetProgramLog(program, log) == 0) {
    for (char *at = log; *at; at++)
      *at = *at == '\n' ? ' ' : *at;
    snprintf(text, size, "%s", log);
  }
  gd_mem_free(log);
}

struct options {
  char arch[48];
  const char *list[N_OPTIONS];
};

static void set_options(struct options *options, int sm) {
  *options =
      (struct options){.list = {options->arch, "--std=c++17", "--extra-device-vectorization"}};
  /* With the instructions that sm_90 alone has: a cubin is for the exact architecture anyway. */
  snprintf(options->arch, sizeof options->arch, "--gpu-architecture=sm_%d%s", sm,
           sm == 90 ? "a" : "");
}

/* What the machine code depends on, apart from the text. NVRTC's version has two numbers, and its
   builds more: the file tells them apart. */
static uint64_t hash_compiler(const struct gd_nvrtc *nvrtc, int sm) {
  struct options options;
  int version[2] = {0};
  Dl_info library;
  void *symbol;
  set_options(&options, sm);
  nvrtc->Version(&version[0], &version[1]);
  uint64_t hash = gd_cache_hash(gd_cache_hash_text(0, GD_VERSION), version, sizeof version);
  memcpy(&symbol, &nvrtc->CompileProgram, sizeof symbol);
  if (dladdr(symbol, &library) != 0 && library.dli_fname)
    hash = gd_cache_hash_file(hash, library.dli_fname);
  for (int i = 0; i < N_OPTIONS; i++)
    hash = gd_cache_hash_text(hash, options.list[i]);
  return hash;
}

enum gd_status gd_cuda_compile(const char *name, const char *source, int sm, char **cubin,
                               size_t *bytes, struct gd_error *err) {
  const struct gd_nvrtc *nvrtc;
  nvrtcProgram program;
  struct options options;
  char log[768];
  *cubin = NULL;
  GD_TRY(gd_nvrtc_load(&nvrtc, err));
  set_options(&options, sm);
  if (nvrtc->CreateProgram(&program, source, name, 0, NULL, NULL) != 0)
    return no_memory(err);
  enum gd_status status = GD_OK;
  int result = nvrtc->CompileProgram(program, N_OPTIONS, options.list), major = 0, minor = 0;
  if (result == NVRTC_ERROR_INVALID_OPTION) { /* the others are as old as CUDA 12 */
    nvrtc->Version(&major, &minor);
    status = gd_fail(err, GD_ENVIRONMENT,
                     "NVRTC %d.%d does not know sm_%d; install a newer CUDA (pip install --upgrade "
                     "nvidia-cuda-nvrtc), or name its folder in GPUDAYS_CUDA_PATH",
                     major, minor, sm);
  } else if (result != 0) {
    read_log(nvrtc, program, log, sizeof log);
    status =
        gd_fail(err, GD_INTERNAL, "NVRTC refuses the kernels of %s for sm_%d: %s", name, sm, log);
  } else if (nvrtc->GetCUBINSize(program, bytes) != 0 || *bytes == 0 ||
             !(*cubin = gd_mem_alloc(*bytes, 1)) || nvrtc->GetCUBIN(program, *cubin) != 0) {
    gd_mem_free(*cubin);
    *cubin = NULL;
    status = gd_fail(err, GD_ENVIRONMENT, "NVRTC made no machine code for sm_%d of %s", sm, name);
  }
  nvrtc->DestroyProgram(&program);
  return status;
}

/* From the disk or from the compiler. Runs on several threads, each with its own module. */
static void build(struct module *module, int sm) {
  module->cubin = gd_cache_read("cuda", module->key, &module->cubin_bytes);
  if (!module->cubin && gd_cuda_compile(module->name, module->source, sm, &module->cubin,
                                        &module->cubin_bytes, &module->error) == GD_OK)
    gd_cache_write("cuda", module->key, module->cubin, module->cubin_bytes);
}

struct crew {
  pthread_mutex_t mutex;
  struct module *next; /* to be built by whoever comes */
  int sm;
};

static bool wants_building(const struct module *module) {
  return !module->loaded && !module->cubin && module->error.status == GD_OK;
}

/*
 * Builds missing modules until none is left that nobody took: some take a hundred times as long as
 * others, so each child takes the next one when it is done. All children count the same list.
 */
static void build_in_turn(struct module *modules, int sm, atomic_int *next) {
  int at = 0, mine = atomic_fetch_add(next, 1);
  for (struct module *m = modules; m; m = m->next)
    if (wants_building(m) && at++ == mine) {
      build(m, sm);
      mine = atomic_fetch_add(next, 1);
    }
}

/* A child does nothing but compile and write files: it must not touch the driver, which does not
   survive a fork. What one fails at is left to the threads, for the message. */
static void build_in_children(const struct gd_cuda *cuda) {
  _Static_assert(ATOMIC_INT_LOCK_FREE == 2, "processes share the counter");
  char folder[1024];
  pid_t children[MOST_THREADS];
  int wanted = 0, n = 0;
  for (struct module *m = cuda->modules->modules; m; m = m->next) {
    if (wants_building(m))
      m->cubin = gd_cache_read("cuda", m->key, &m->cubin_bytes);
    wanted += wants_building(m);
  }
  long cores = sysconf(_SC_NPROCESSORS_ONLN);
  int most = cores < MOST_THREADS ? (int)cores : MOST_THREADS;
  if (most > wanted / 2)
    most = wanted / 2;
  if (most < 2 || cuda->comm || !gd_cache_folder("cuda", folder, sizeof folder))
    return;
  atomic_int *next =
      mmap(NULL, sizeof *next, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (next == MAP_FAILED)
    return;
  for (; n < most; n++) {
    children[n] = fork();
    if (children[n] < 0)
      break;
    if (children[n] > 0)
      continue;
    build_in_turn(cuda->modules->modules, cuda->sm, next);
    _exit(0);
  }
  for (int i = 0; i < n; i++)
    while (waitpid(children[i], NULL, 0) < 0 && errno == EINTR)
      continue;
  munmap(next, sizeof *next);
}

static void *work(void *argument) {
  struct crew *crew = argument;
  for (;;) {
    pthread_mutex_lock(&crew->mutex);
    while (crew->next && !wants_building(crew->next))
      crew->next = crew->next->next;
    struct module *module = crew->next;
    if (module)
      crew->next = module->next;
    pthread_mutex_unlock(&crew->mutex);
    if (!module)
      return NULL;
    build(module, crew->sm);
  }
}

static enum gd_status load(struct gd_cuda *cuda, struct module *module, struct gd_error *err) {
  if (module->loaded)
    return GD_OK;
  if (wants_building(module))
    build(module, cuda->sm);
  if (module->error.status != GD_OK)
    return gd_fail(err, module->error.status, "%s", module->error.text);
  GD_TRY(gd_cuda_check(cuda, cuda->cu->ModuleLoadData(&module->loaded, module->cubin),
                       "loading kernels", err));
  gd_mem_free(module->cubin);
  gd_mem_free(module->source);
  module->cubin = module->source = NULL;
  return GD_OK;
}

enum gd_status gd_cuda_modules_compile(struct gd_cuda *cuda, int *count, struct gd_error *err) {
  struct crew crew = {
      .mutex = PTHREAD_MUTEX_INITIALIZER, .next = cuda->modules->modules, .sm = cuda->sm};
  pthread_t threads[MOST_THREADS];
  int missing = 0, n = 0;
  build_in_children(cuda);
  for (struct module *m = cuda->modules->modules; m; m = m->next) /* before anybody builds them */
    missing += wants_building(m);
  while (n < missing && n < MOST_THREADS && pthread_create(&threads[n], NULL, work, &crew) == 0)
    n++;
  work(&crew); /* here too: there may be no thread to be had */
  for (int i = 0; i < n; i++)
    pthread_join(threads[i], NULL);
  *count = 0;
  for (struct module *m = cuda->modules->modules; m; m = m->next) {
    if (m->error.status != GD_OK)
      return gd_fail(err, m->error.status, "%s", m->error.text);
    ++*count;
  }
  return GD_OK;
}

enum gd_status gd_cuda_modules_build(struct gd_cuda *cuda, struct gd_error *err) {
  int count;
  GD_TRY(gd_cuda_modules_compile(cuda, &count, err));
  for (struct module *m = cuda->modules->modules; m; m = m->next)
    GD_TRY(load(cuda, m, err));
  return GD_OK;
}

/* --- modules by key ------------------------------------------------------------------------- */

static void free_module(const struct gd_cuda *cuda, struct module *m) {
  if (m->loaded)
    cuda->cu->ModuleUnload(m->loaded);
  gd_mem_free(m->cubin);
  gd_mem_free(m->source);
  gd_mem_free(m);
}

static bool any_named(const struct module *from, const struct module *end, const char *name) {
  for (; from != end; from = from->next)
    if (strcmp(from->name, name) == 0)
      return true;
  return false;
}

void gd_cuda_modules_keep(struct gd_cuda *cuda, int every, int which) {
  struct module **at = &cuda->modules->modules;
  for (int i = 0; *at; i++) {
    struct module *m = *at;
    if (i % every == which || !any_named(cuda->modules->modules, m, m->name)) {
      at = &m->next;
      continue;
    }
    *at = m->next;
    free_module(cuda, m);
  }
}

enum gd_status gd_cuda_modules_open(struct gd_cuda *cuda, struct gd_error *err) {
  cuda->modules = gd_mem_alloc(1, sizeof *cuda->modules);
  return cuda->modules ? GD_OK : no_memory(err);
}

void gd_cuda_modules_close(struct gd_cuda *cuda) {
  if (!cuda->modules)
    return;
  for (struct module *m = cuda->modules->modules, *next; m; m = next) {
    next = m->next;
    free_module(cuda, m);
  }
  for (struct function *f = cuda->modules->functions, *next; f; f = next) {
    next = f->next;
    gd_mem_free(f);
  }
  for (struct text_hash *h = cuda->modules->hashes, *next; h; h = next) {
    next = h->next;
    gd_mem_free(h);
  }
  gd_mem_free(cuda->modules);
  cuda->modules = NULL;
}

static enum gd_status find_module(struct gd_cuda *cuda, const char *name, const char *source,
                                  struct module **found, struct gd_error *err) {
  const struct gd_nvrtc *nvrtc;
  GD_TRY(gd_nvrtc_load(&nvrtc, err));
  size_t length = strlen(source) + 1;
  uint64_t key = gd_cache_hash(hash_compiler(nvrtc, cuda->sm), source, length);
  for (struct module *m = cuda->modules->modules; m; m = m->next)
    if (m->key == key) {
      *found = m;
      return GD_OK;
    }
  struct module *m = gd_mem_alloc(1, sizeof *m);
  char *copy = gd_mem_alloc(length, 1);
  if (!m || !copy) {
    gd_mem_free(m);
    gd_mem_free(copy);
    return no_memory(err);
  }
  memcpy(copy, source, length);
  m->key = key;
  m->source = copy;
  snprintf(m->name, sizeof m->name, "%s", name);
  m->next = cuda->modules->modules;
  cuda->modules->modules = m;
  *found = m;
  return GD_OK;
}

static enum gd_status find_function(struct gd_cuda *cuda, struct module *module, const char *name,
                                    CUfunction *function, struct gd_error *err) {
  for (const struct function *f = cuda->modules->functions; f; f = f->next)
    if (f->module == module && strcmp(f->name, name) == 0) {
      *function = f->function;
      return GD_OK;
    }
  GD_TRY(load(cuda, module, err));
  struct function *f = gd_mem_alloc(1, sizeof *f);
  if (!f)
    return no_memory(err);
  f->module = module;
  snprintf(f->name, sizeof f->name, "%s", name);
  enum gd_status status = gd_cuda_check(
      cuda, cuda->cu->ModuleGetFunction(&f->function, module->loaded, name), name, err);
  /* More shared memory than 48 KiB must be asked for; asking does not take it. */
  if (status == GD_OK)
    status = gd_cuda_check(
        cuda,
        cuda->cu->FuncSetAttribute(f->function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                   cuda->shared_bytes - gd_cuda_static_shared(cuda, f->function)),
        name, err);
  if (status != GD_OK) {
    gd_mem_free(f);
    return status;
  }
  f->next = cuda->modules->functions;
  cuda->modules->functions = f;
  *function = f->function;
  return GD_OK;
}

int gd_cuda_static_shared(const struct gd_cuda *cuda, CUfunction function) {
  int bytes = 0;
  if (cuda->cu->FuncGetAttribute(&bytes, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, function) !=
      CUDA_SUCCESS)
    return 0;
  return bytes;
}

enum gd_status gd_cuda_text_note(struct gd_cuda *cuda, const char *source, struct gd_error *err) {
  struct module *module;
  return find_module(cuda, "fused", source, &module, err);
}

enum gd_status gd_cuda_text_function(struct gd_cuda *cuda, const char *source, const char *name,
                                     CUfunction *function, struct gd_error *err) {
  struct module *module;
  GD_TRY(find_module(cuda, "fused", source, &module, err));
  return find_function(cuda, module, name, function, err);
}

/* --- launching ------------------------------------------------------------------------------ */

static enum gd_status module_of(struct gd_cuda *cuda, const struct gd_cuda_kernel *kernel,
                                struct module **module, struct gd_error *err) {
  struct gd_strbuf source = {0};
  char ident[192];
  int length =
      snprintf(ident, sizeof ident, "%s %s", kernel->file, kernel->defines ? kernel->defines : "");
  for (int i = 0; i < kernel->n_types && length < (int)sizeof ident; i++)
    length += snprintf(ident + length, sizeof ident - (size_t)length, " %s",
                       gd_dtype_name(kernel->types[i]));
  GD_ASSERT(length < (int)sizeof ident);
  for (struct module *m = cuda->modules->modules; m; m = m->next)
    if (strcmp(m->ident, ident) == 0) {
      *module = m;
      return GD_OK;
    }
  enum gd_status status = gd_cuda_source(kernel, &source, err);
  if (status == GD_OK)
    status = find_module(cuda, kernel->file, source.text, module, err);
  if (status == GD_OK)
    snprintf((*module)->ident, sizeof(*module)->ident, "%s", ident);
  gd_strbuf_deinit(&source);
  return status;
}

enum gd_status gd_cuda_launch_function(const struct gd_cuda_call *call, CUfunction function,
                                       const char *name, struct gd_cuda_grid grid, void **params) {
  struct gd_cuda *cuda = call->cuda;
  if (grid.x <= 0 || grid.threads <= 0)
    return GD_OK;
  GD_ASSERT(grid.x <= INT32_MAX && grid.y <= 65535 && grid.z <= 65535);
  return gd_cuda_check(
      cuda,
      cuda->cu->LaunchKernel(function, (unsigned)grid.x, grid.y > 0 ? (unsigned)grid.y : 1,
                             grid.z > 0 ? (unsigned)grid.z : 1, (unsigned)grid.threads, 1, 1,
                             (unsigned)grid.shared_bytes, call->stream, params, NULL),
      name, call->err);
}

enum gd_status gd_cuda_launch_now(const struct gd_cuda_call *call,
                                  const struct gd_cuda_kernel *kernel, struct gd_cuda_grid grid,
                                  void **params) {
  struct module *module;
  CUfunction function;
  GD_TRY(module_of(call->cuda, kernel, &module, call->err));
  if (call->stage == GD_CUDA_COLLECT)
    return GD_OK;
  GD_TRY(find_function(call->cuda, module, kernel->name, &function, call->err));
  return gd_cuda_launch_function(call, function, kernel->name, grid, params);
}

enum gd_status gd_cuda_launch(const struct gd_cuda_call *call, const struct gd_cuda_kernel *kernel,
                              struct gd_cuda_grid grid, void **params) {
  if (call->stage == GD_CUDA_TUNE)
    return GD_OK;
  return gd_cuda_launch_now(call, kernel, grid, params);
}
