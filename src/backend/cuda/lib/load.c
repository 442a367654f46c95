/*
 * Finding and loading NVIDIA's libraries. Each is looked for in $GPUDAYS_CUDA_PATH, on the loader's
 * path, in the usual CUDA folders, and in the wheels that PyTorch brings: many labs have nothing
 * else. A driver takes libraries of its own CUDA or an older one, so one of a newer major version
 * is passed over. What was loaded stays to the end of the process.
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <dlfcn.h>
#include <glob.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/cuda/lib/cublaslt.h"
#include "backend/cuda/lib/cudnn.h"
#include "backend/cuda/lib/nccl.h"
#include "backend/cuda/lib/nvml.h"
#include "backend/cuda/runtime/cuda_int.h"
#include "backend/libraries.h"
#include "base/switches.h"

enum { NAMES = 4, PATH_BYTES = 1024, REASON_BYTES = 384 };

struct library {
  const char *what;
  const char *names[NAMES]; /* newest first */
  const char *remedy;
  const char *without; /* what is done where there is none; NULL: nothing runs */
  const char *version; /* the function that tells it as a number; NULL */
  int (*cuda)(void *handle, const char *name); /* major CUDA that it is of, 0: not known; NULL */
  pthread_mutex_t mutex;
  bool tried;
  void *handle;
  char path[PATH_BYTES];     /* where it was found */
  char refused[PATH_BYTES];  /* the first that is there and does not load; "" */
  char reason[REASON_BYTES]; /* what the loader says of it */
  char newer[PATH_BYTES];    /* the first that is of a newer CUDA than the driver; "" */
  struct gd_error error;     /* why not */
};

/* Folders that may hold them: $VARIABLE/rest, or a pattern for glob(3). */
static const struct {
  const char *variable, *pattern;
} folders[] = {
    {"GPUDAYS_CUDA_PATH", ""},
    {NULL, NULL}, /* the loader's own path */
    {"CUDA_HOME", "/lib64"},
    {"CUDA_PATH", "/lib64"},
    {NULL, "/usr/local/cuda/lib64"},
    {NULL, "/usr/local/cuda-1[2-9]*/lib64"},
    {NULL, "/usr/lib/x86_64-linux-gnu"},
    {NULL, "/usr/lib/aarch64-linux-gnu"},
    {NULL, "/usr/lib64"},
    {NULL, "/usr/lib/wsl/lib"},
    {"VIRTUAL_ENV", "/lib/python3*/site-packages/nvidia/*/lib"},
    {"CONDA_PREFIX", "/lib"},
    {"CONDA_PREFIX", "/lib/python3*/site-packages/nvidia/*/lib"},
    {"HOME", "/.local/lib/python3*/site-packages/nvidia/*/lib"},
    {"HOME", "/.pyenv/versions/*/lib/python3*/site-packages/nvidia/*/lib"},
    {"HOME", "/*conda*/lib/python3*/site-packages/nvidia/*/lib"},
    {"HOME", "/*conda*/envs/*/lib/python3*/site-packages/nvidia/*/lib"},
    {NULL, "/opt/*/lib/python3*/site-packages/nvidia/*/lib"},
    {NULL, "/usr/local/lib/python3*/site-packages/nvidia/*/lib"},
    {NULL, "/usr/local/lib/python3*/dist-packages/nvidia/*/lib"},
    {NULL, "/usr/lib/python3*/*-packages/nvidia/*/lib"},
};

/*
 * A file that is there and does not load (a wrong architecture, a library that it needs in turn, no
 * permission) is not to be installed again: the loader's message is shown. On its own path the
 * loader begins with the bare name where it found none, and with a path or another name where it
 * did.
 */
static void note_refusal(struct library *library, const char *name) {
  const char *said = dlerror();
  bool is_there = strchr(library->path, '/') ? access(library->path, F_OK) == 0
                                             : said && strncmp(said, name, strlen(name)) != 0;
  if (!said || !is_there || library->reason[0])
    return;
  snprintf(library->refused, sizeof library->refused, "%s", library->path);
  snprintf(library->reason, sizeof library->reason, "%s", said);
}

/* --- which CUDA a library is of --------------------------------------------------------------- */

/* libnvrtc.so.13 */
static int cuda_of_name(void *handle, const char *name) {
  (void)handle;
  return (int)strtol(strrchr(name, '.') + 1, NULL, 10);
}

/* cuDNN tells the runtime that it was built with: 13000. */
static int cuda_of_cudnn(void *handle, const char *name) {
  size_t (*ask)(void) = NULL;
  void *address = dlsym(handle, "cudnnGetCudartVersion");
  (void)name;
  memcpy(&ask, &address, sizeof address);
  return ask ? (int)(ask() / 1000) : 0;
}

struct text_search {
  const struct link_map *library;
  int major;
};

static int search_object(struct dl_phdr_info *object, size_t size, void *user) {
  static const char text[] = "+cuda";
  struct text_search *search = user;
  (void)size;
  if (strcmp(object->dlpi_name, search->library->l_name) != 0)
    return 0;
  for (int i = 0; i < object->dlpi_phnum && search->major == 0; i++) {
    const ElfW(Phdr) *segment = &object->dlpi_phdr[i];
    if (segment->p_type != PT_LOAD || !(segment->p_flags & PF_R) || segment->p_flags & PF_W)
      continue;
    const char *at = (const char *)object->dlpi_addr + segment->p_vaddr;
    const char *end = at + segment->p_filesz;
    while ((at = memmem(at, (size_t)(end - at), text, sizeof text - 1))) {
      at += sizeof text - 1;
      if (end - at > 3 && isdigit((unsigned char)at[0]) && isdigit((unsigned char)at[1])) {
        search->major = 10 * (at[0] - '0') + at[1] - '0';
        break;
      }
    }
  }
  return 1;
}

/* NCCL has no function for it, only the text of its version: "NCCL version 2.28.9+cuda13.0". */
static int cuda_of_nccl(void *handle, const char *name) {
  struct text_search search = {0};
  (void)name;
  if (dlinfo(handle, RTLD_DI_LINKMAP, &search.library) != 0)
    return 0;
  dl_iterate_phdr(search_object, &search);
  return search.major;
}

/* As 13000; 0: there is no driver, and any library will do. */
static int driver_cuda(void) {
  const struct gd_cu *cu = NULL;
  int version = 0;
  if (gd_cu_load(&cu, NULL) != GD_OK || !cu || cu->DriverGetVersion(&version) != CUDA_SUCCESS)
    return 0;
  return version;
}

static bool is_too_new(const struct library *library, const char *name) {
  enum { NEWEST_KNOWN = 13 };
  int driver = library->cuda ? driver_cuda() / 1000 : 0;
  /* Looking into NCCL takes a while, and a driver as new as can be takes all there are. */
  return driver > 0 && driver < NEWEST_KNOWN && library->cuda(library->handle, name) > driver;
}

static void *open_at(struct library *library, const char *folder) {
  for (int i = 0; i < NAMES && library->names[i] && !library->handle; i++) {
    snprintf(library->path, sizeof library->path, "%s%s%s", folder, folder[0] ? "/" : "",
             library->names[i]);
    library->handle = dlopen(library->path, RTLD_NOW | RTLD_LOCAL);
    if (!library->handle) {
      note_refusal(library, library->names[i]);
    } else if (is_too_new(library, library->names[i])) {
      if (!library->newer[0])
        snprintf(library->newer, sizeof library->newer, "%s", library->path);
      dlclose(library->handle);
      library->handle = NULL;
    }
  }
  return library->handle;
}

static void *open_in(struct library *library, const char *variable, const char *pattern) {
  const char *start = variable ? gd_env(variable) : "";
  char full[PATH_BYTES];
  glob_t found;
  if (!pattern)
    return open_at(library, "");
  if (!start || (variable && !start[0]) ||
      snprintf(full, sizeof full, "%s%s", start, pattern) >= (int)sizeof full)
    return NULL;
  if (glob(full, 0, NULL, &found) != 0)
    return NULL;
  for (size_t i = found.gl_pathc; i-- > 0 && !library->handle;) /* the highest version first */
    open_at(library, found.gl_pathv[i]);
  globfree(&found);
  return library->handle;
}

/* The end of a sentence about a library that is not there. */
static void say_without(const struct library *library, char *text, size_t size) {
  snprintf(text, size, "%s%s", library->without ? "; without it " : "",
           library->without ? library->without : "");
}

/* Looks once; the answer stays. */
static enum gd_status find(struct library *library, struct gd_error *err) {
  for (size_t i = 0; i < sizeof folders / sizeof *folders && !library->handle; i++)
    open_in(library, folders[i].variable, folders[i].pattern);
  if (library->handle)
    return GD_OK;
  char without[128];
  say_without(library, without, sizeof without);
  if (library->reason[0])
    return gd_fail(err, GD_ENVIRONMENT,
                   "%s (%.300s) does not load: %s; mend that, or %s and name its folder in "
                   "GPUDAYS_CUDA_PATH%s",
                   library->what, library->refused, library->reason, library->remedy, without);
  if (library->newer[0]) {
    int driver = driver_cuda();
    return gd_fail(err, GD_ENVIRONMENT,
                   "%s (%.300s) is of a newer CUDA than the driver, which is of %d.%d and takes "
                   "libraries up to CUDA %d; install such a one and name its folder in "
                   "GPUDAYS_CUDA_PATH, or a newer driver%s",
                   library->what, library->newer, driver / 1000, driver % 1000 / 10, driver / 1000,
                   without);
  }
  char names[256] = "";
  for (int i = 0; i < NAMES && library->names[i]; i++) {
    size_t used = strlen(names);
    snprintf(names + used, sizeof names - used, "%s%s", i > 0 ? " or " : "", library->names[i]);
  }
  return gd_fail(err, GD_ENVIRONMENT,
                 "%s was not found (%s); %s, or name its folder in GPUDAYS_CUDA_PATH%s",
                 library->what, names, library->remedy, without);
}

/* The name of a function in older versions of its library; NULL: it had none. */
static const char *older_name(const char *symbol) {
  return strcmp(symbol, "nvmlDeviceGetCurrentClocksEventReasons") == 0
             ? "nvmlDeviceGetCurrentClocksThrottleReasons"
             : NULL;
}

/* A missing symbol is remembered; ISO C has no cast from an object to a function pointer. */
static void look_up(struct library *library, const char *symbol, void *to, size_t size,
                    const char **missing) {
  void *address = dlsym(library->handle, symbol);
  if (!address && older_name(symbol))
    address = dlsym(library->handle, older_name(symbol));
  GD_ASSERT(size == sizeof address);
  if (!address && !*missing)
    *missing = symbol;
  memcpy(to, &address, sizeof address);
}

static void fail_old(struct library *library, const char *missing) {
  char without[128];
  say_without(library, without, sizeof without);
  gd_fail_at(&library->error, GD_ENVIRONMENT, __FILE__, __LINE__,
             "%s (%.300s) has no %s; it is too old: %s%s", library->what, library->path, missing,
             library->remedy, without);
}

#define DEFINE_LOADER(function, structure, functions, title, why, instead, version_symbol, major, \
                      ...)                                                                        \
  static struct library library_##function = {.what = (title),                                    \
                                              .names = {__VA_ARGS__},                             \
                                              .remedy = (why),                                    \
                                              .without = (instead),                               \
                                              .version = (version_symbol),                        \
                                              .cuda = (major),                                    \
                                              .mutex = PTHREAD_MUTEX_INITIALIZER};                \
  enum gd_status function(const struct structure **out, struct gd_error *err) {                   \
    static struct structure table;                                                                \
    struct library *library = &library_##function;                                                \
    const char *missing = NULL;                                                                   \
    pthread_mutex_lock(&library->mutex);                                                          \
    if (!library->tried && find(library, &library->error) == GD_OK) {                             \
      functions(LOOK_UP)                                                                          \
    }                                                                                             \
    if (missing)                                                                                  \
      fail_old(library, missing);                                                                 \
    library->tried = true;                                                                        \
    pthread_mutex_unlock(&library->mutex);                                                        \
    if (library->error.status != GD_OK)                                                           \
      return gd_fail(err, library->error.status, "%s", library->error.text);                      \
    *out = &table;                                                                                \
    return GD_OK;                                                                                 \
  }
#define LOOK_UP(field, symbol, parameters) \
  look_up(library, #symbol, &table.field, sizeof table.field, &missing);

DEFINE_LOADER(gd_cu_load, gd_cu, GD_CU_FUNCTIONS, "NVIDIA driver", "install NVIDIA's driver", NULL,
              NULL, NULL, "libcuda.so.1")
DEFINE_LOADER(gd_cu_nodes_load, gd_cu_nodes, GD_CU_NODE_FUNCTIONS, "NVIDIA driver",
              "install a newer one", NULL, NULL, NULL, "libcuda.so.1")
DEFINE_LOADER(gd_nvrtc_load, gd_nvrtc, GD_NVRTC_FUNCTIONS, "NVRTC",
              "install CUDA 12 or 13 (pip install nvidia-cuda-nvrtc)", NULL, NULL, cuda_of_name,
              "libnvrtc.so.13", "libnvrtc.so.12")
DEFINE_LOADER(gd_cublaslt_load, gd_cublaslt, GD_CUBLASLT_FUNCTIONS, "cuBLASLt",
              "install CUDA 12 or 13 (pip install nvidia-cublas)", NULL, "cublasLtGetVersion",
              cuda_of_name, "libcublasLt.so.13", "libcublasLt.so.12")
DEFINE_LOADER(gd_cudnn_load, gd_cudnn, GD_CUDNN_FUNCTIONS, "cuDNN",
              "install cuDNN 9 (pip install nvidia-cudnn-cu13)",
              "attention is by gpudays' own kernels", "cudnnGetVersion", cuda_of_cudnn,
              "libcudnn.so.9")
DEFINE_LOADER(gd_nccl_load, gd_nccl, GD_NCCL_FUNCTIONS, "NCCL",
              "install NCCL 2 (pip install nvidia-nccl-cu13)", "ranks exchange through host memory",
              NULL, cuda_of_nccl, "libnccl.so.2")
DEFINE_LOADER(gd_nvml_load, gd_nvml, GD_NVML_FUNCTIONS, "NVML", "install it with NVIDIA's driver",
              "the GPU's clocks are not watched", NULL, NULL, "libnvidia-ml.so.1")
#undef LOOK_UP

static size_t version_number(const struct library *library) {
  size_t (*ask)(void) = NULL;
  void *address =
      library->handle && library->version ? dlsym(library->handle, library->version) : NULL;
  memcpy(&ask, &address, sizeof address);
  return ask ? ask() : 0;
}

size_t gd_cudnn_version(void) {
  return version_number(&library_gd_cudnn_load);
}

/* "13.0" of the numbers that the libraries answer with. */
static void read_version(const struct library *library, char *text, size_t size) {
  size_t version = version_number(library);
  if (version > 0)
    snprintf(text, size, "%zu.%zu.%zu", version / 10000, version / 100 % 100, version % 100);
}

void gd_libraries(void (*show)(void *user, const struct gd_library *library), void *user) {
  static struct library *const all[] = {&library_gd_cu_load,       &library_gd_nvrtc_load,
                                        &library_gd_cublaslt_load, &library_gd_cudnn_load,
                                        &library_gd_nccl_load,     &library_gd_nvml_load};
  const struct gd_cu *cu;
  const struct gd_nvrtc *nvrtc;
  const struct gd_cublaslt *lt;
  const struct gd_cudnn *dnn;
  const struct gd_nccl *nccl;
  const struct gd_nvml *nvml;
  enum gd_status found[] = {gd_cu_load(&cu, NULL),       gd_nvrtc_load(&nvrtc, NULL),
                            gd_cublaslt_load(&lt, NULL), gd_cudnn_load(&dnn, NULL),
                            gd_nccl_load(&nccl, NULL),   gd_nvml_load(&nvml, NULL)};
  for (size_t i = 0; i < sizeof found / sizeof *found; i++) {
    struct gd_library entry = {.name = all[i]->what,
                               .missing = all[i]->error.text,
                               .without = all[i]->without,
                               .only_watches = all[i] == &library_gd_nvml_load};
    int major = 0, minor = 0;
    if (found[i] == GD_OK) {
      entry.path = all[i]->path;
      read_version(all[i], entry.version, sizeof entry.version);
    }
    if (i == 0 && entry.path && cu->DriverGetVersion(&major) == CUDA_SUCCESS)
      snprintf(entry.version, sizeof entry.version, "CUDA %d.%d", major / 1000, major % 1000 / 10);
    if (i == 1 && entry.path && nvrtc->Version(&major, &minor) == 0)
      snprintf(entry.version, sizeof entry.version, "%d.%d", major, minor);
    if (i == 4 && entry.path && nccl->GetVersion(&major) == ncclSuccess)
      snprintf(entry.version, sizeof entry.version, "%d.%d.%d", major / 10000, major / 100 % 100,
               major % 100);
    if (i == 5 && entry.path)
      nvml->SystemGetNVMLVersion(entry.version, sizeof entry.version);
    show(user, &entry);
  }
}

bool gd_libraries_driver(void) {
  const struct gd_cu *cu;
  return gd_cu_load(&cu, NULL) == GD_OK;
}
