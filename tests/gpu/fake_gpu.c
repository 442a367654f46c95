/*
 * A GPU that computes nothing, for tests of what happens around the computation where there is no
 * real one: NVIDIA's driver, NVRTC, cuBLASLt, NCCL and NVML as one library. test_cuda_failures.sh
 * puts it under their names into a folder that GPUDAYS_CUDA_PATH names.
 *
 * Memory is counted over all processes, as a card's is: each says in a file of the folder
 * $GD_FAKE_GPU, which stands for the card, how much it has. Kernels and GEMMs do nothing; copies
 * and the host's work in a graph are done. A single number that is read back is 1, so that losses
 * and norms are plausible. With $GD_TEST_BREAK=FILE the process that comes first, and makes FILE,
 * loses its context at its fifth launch of a graph: this and every later call fail as after an
 * illegal address. With $GD_TEST_NVRTC=old the compiler knows no architecture, =broken it refuses
 * the text. With $GD_TEST_PIN=ERROR that is the answer to pinning a MiB or more of the host's
 * memory. With $GD_TEST_BUSY=FILE streams are busy while FILE is there, and FILE.asked is made when
 * somebody asks. With $GD_TEST_CLOCKS=BITS,MHZ NVML tells these reasons and this clock, of 1980.
 *
 * Events tell a clock on which a kernel takes 10 us. cuBLASLt proposes three algorithms: the second
 * ($GD_TEST_FASTEST=N: another) takes 100 us, the others 300; $GD_TEST_ALGORITHMS=FOLDER: a file
 * there for each that has run, $GD_TEST_KERNELS=FOLDER: one for each kernel that was launched, by
 * name. $GD_TEST_HOPPER=1: it is an sm_90, not an sm_80.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "backend/cuda/lib/cublaslt.h"
#include "backend/cuda/lib/nccl.h"
#include "backend/cuda/lib/nvml.h"

/* The loader's types are the headers': a difference does not compile. */
#define DECLARE(field, symbol, parameters) int symbol parameters;
GD_CU_FUNCTIONS(DECLARE)
GD_NVRTC_FUNCTIONS(DECLARE)
GD_CUBLASLT_FUNCTIONS(DECLARE)
GD_NCCL_FUNCTIONS(DECLARE)
GD_NVML_FUNCTIONS(DECLARE)

enum {
  BREAKS_AT = 5,
  ILLEGAL_ADDRESS = 700,
  INVALID_VALUE = 1,
  COMPILATION = 6,
  MOST_BLOCKS = 64,
  ALGORITHMS = 3
};
#define CARD_BYTES    (INT64_C(150) * 1000 * 1000 * 1000)
#define CONTEXT_BYTES (INT64_C(500) << 20)

static struct {
  CUdeviceptr at;
  size_t bytes;
} blocks[MOST_BLOCKS];
static bool has_context, is_broken;
static int launches;
static double clock_ms = 1; /* of the device */

/* --- memory --------------------------------------------------------------------------------- */

static int64_t held_here(void) {
  int64_t bytes = has_context ? CONTEXT_BYTES : 0;
  for (int i = 0; i < MOST_BLOCKS; i++)
    bytes += (int64_t)blocks[i].bytes;
  return bytes;
}

static const char *folder(void) {
  const char *path = getenv("GD_FAKE_GPU");
  return path ? path : "/tmp";
}

/* When a process began (proc(5)), in ticks; 0: it has ended. A number alone may be another one's by
   now: the files of those that were killed stay. */
static unsigned long long start_of(int pid) {
  char path[64], text[1024] = "";
  snprintf(path, sizeof path, "/proc/%d/stat", pid);
  FILE *file = fopen(path, "r");
  size_t length = file ? fread(text, 1, sizeof text - 1, file) : 0;
  if (file)
    fclose(file);
  text[length] = '\0';
  const char *at = strrchr(text, ')'); /* the second field may hold anything */
  if (at && strncmp(at, ") Z", 3) == 0)
    return 0;
  for (int field = 2; at && field < 22; field++)
    at = strchr(at + 1, ' ');
  return at ? strtoull(at, NULL, 10) : 0;
}

/* Appears whole: others may be counting. */
static void say_held(void) {
  char path[4096], part[4096 + 8];
  snprintf(path, sizeof path, "%s/%d", folder(), (int)getpid());
  snprintf(part, sizeof part, "%s.part", path);
  FILE *file = fopen(part, "w");
  if (!file)
    return;
  fprintf(file, "%lld %llu\n", (long long)held_here(), start_of((int)getpid()));
  fclose(file);
  rename(part, path);
}

static int64_t held_by_others(void) {
  int64_t bytes = 0;
  struct dirent *entry;
  DIR *list = opendir(folder());
  while (list && (entry = readdir(list))) {
    char path[4096], text[64] = "", *end;
    long pid = strtol(entry->d_name, &end, 10);
    if (*end || pid <= 0 || pid == getpid())
      continue;
    snprintf(path, sizeof path, "%s/%.64s", folder(), entry->d_name);
    FILE *file = fopen(path, "r");
    if (file && fgets(text, sizeof text, file)) {
      int64_t held = strtoll(text, &end, 10);
      bytes += strtoull(end, NULL, 10) == start_of((int)pid) ? held : 0;
    }
    if (file)
      fclose(file);
  }
  if (list)
    closedir(list);
  return bytes;
}

static int64_t free_bytes(void) {
  int64_t left = CARD_BYTES - held_by_others() - held_here();
  return left > 0 ? left : 0;
}

static int answer(void) {
  return is_broken ? ILLEGAL_ADDRESS : CUDA_SUCCESS;
}

int cuMemGetInfo_v2(size_t *left, size_t *total) {
  if (!has_context)
    return INVALID_VALUE;
  *left = (size_t)free_bytes();
  *total = (size_t)CARD_BYTES;
  return answer();
}

int cuMemAlloc_v2(CUdeviceptr *at, size_t bytes) {
  int i = 0;
  while (i < MOST_BLOCKS && blocks[i].at)
    i++;
  if (is_broken)
    return ILLEGAL_ADDRESS;
  if (i == MOST_BLOCKS || (int64_t)bytes > free_bytes())
    return CUDA_ERROR_OUT_OF_MEMORY;
  void *memory =
      mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED)
    return CUDA_ERROR_OUT_OF_MEMORY;
  madvise(memory, bytes, MADV_NOHUGEPAGE);
  *at = blocks[i].at = (CUdeviceptr)(uintptr_t)memory;
  blocks[i].bytes = bytes;
  say_held();
  return CUDA_SUCCESS;
}

int cuMemFree_v2(CUdeviceptr at) {
  for (int i = 0; i < MOST_BLOCKS && !is_broken; i++)
    if (blocks[i].at == at) {
      munmap((void *)(uintptr_t)at, blocks[i].bytes);
      blocks[i].at = 0;
      blocks[i].bytes = 0;
      say_held();
    }
  return answer();
}

static bool is_device(CUdeviceptr at) {
  for (int i = 0; i < MOST_BLOCKS; i++)
    if (blocks[i].at && at >= blocks[i].at && at < blocks[i].at + blocks[i].bytes)
      return true;
  return false;
}

/* Small pieces are always there. */
static int pin(size_t bytes) {
  const char *refusal = getenv("GD_TEST_PIN");
  return refusal && bytes >= 1 << 20 ? (int)strtol(refusal, NULL, 10) : answer();
}

int cuMemHostRegister_v2(void *at, size_t bytes, unsigned flags) {
  (void)at, (void)flags;
  return pin(bytes);
}
int cuMemHostUnregister(void *at) {
  (void)at;
  return answer();
}
int cuMemHostAlloc(void **at, size_t bytes, unsigned flags) {
  (void)flags;
  int result = pin(bytes);
  if (result != CUDA_SUCCESS)
    return result;
  *at = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  return *at ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
int cuMemFreeHost(void *at) {
  free(at);
  return answer();
}

/* --- work ----------------------------------------------------------------------------------- */

/* A copy, a clearing (from NULL), or work of the host. */
struct CUgraphNode_st {
  void *to;
  const void *from;
  size_t bytes;
  void (*run)(void *job);
  struct CUgraphNode_st *next;
};
struct CUgraph_st {
  struct CUgraphNode_st *first, **end;
  bool has_collectives;
};
static CUgraph capturing;

/*
 * From the first graph on, streams are busy while the file is there that GD_TEST_BUSY names, as
 * those of a rank are while another one stays away: until NCCL is aborted.
 */
static atomic_bool is_aborted;
static atomic_int live_graphs; /* with collectives */

static const char *busy_file(void) {
  const char *file = launches > 0 ? getenv("GD_TEST_BUSY") : NULL;
  return file && !atomic_load(&is_aborted) && access(file, F_OK) == 0 ? file : NULL;
}

static void wait_busy(void) {
  while (busy_file())
    usleep(1000);
}

/* Zeros cost no memory where they are whole pages. */
static void clear(char *at, size_t bytes) {
  char *first = (char *)(((uintptr_t)at + 4095) / 4096 * 4096);
  char *last = (char *)((uintptr_t)(at + bytes) / 4096 * 4096);
  if (first >= last) {
    memset(at, 0, bytes);
    return;
  }
  memset(at, 0, (size_t)(first - at));
  madvise(first, (size_t)(last - first), MADV_DONTNEED);
  memset(last, 0, (size_t)(at + bytes - last));
}

static void run_node(const struct CUgraphNode_st *node) {
  const float one = 1;
  if (node->run)
    node->run(node->to);
  else if (!node->from)
    clear(node->to, node->bytes);
  else if (node->bytes == sizeof one && is_device((CUdeviceptr)(uintptr_t)node->from) &&
           !is_device((CUdeviceptr)(uintptr_t)node->to))
    memcpy(node->to, &one, sizeof one);
  else
    memcpy(node->to, node->from, node->bytes);
}

static int put(struct CUgraphNode_st node) {
  if (is_broken)
    return ILLEGAL_ADDRESS;
  if (!capturing) {
    run_node(&node);
    return CUDA_SUCCESS;
  }
  struct CUgraphNode_st *copy = malloc(sizeof *copy);
  if (!copy)
    return CUDA_ERROR_OUT_OF_MEMORY;
  *copy = node;
  *capturing->end = copy;
  capturing->end = &copy->next;
  return CUDA_SUCCESS;
}

int cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  (void)stream;
  return put((struct CUgraphNode_st){
      .to = (void *)(uintptr_t)to, .from = (const void *)(uintptr_t)from, .bytes = bytes});
}

int cuMemsetD8Async(CUdeviceptr at, unsigned char value, size_t bytes, CUstream stream) {
  (void)stream;
  return value ? INVALID_VALUE
               : put((struct CUgraphNode_st){.to = (void *)(uintptr_t)at, .bytes = bytes});
}

int cuLaunchHostFunc(CUstream stream, void (*run)(void *job), void *job) {
  (void)stream;
  return put((struct CUgraphNode_st){.to = job, .run = run});
}

/* A file without content in the folder that a variable names, if it does. */
static void leave_mark(const char *variable, const char *name) {
  const char *folder = getenv(variable);
  char path[4096];
  if (folder && snprintf(path, sizeof path, "%s/%s", folder, name) < (int)sizeof path) {
    FILE *file = fopen(path, "w");
    if (file)
      fclose(file);
  }
}

int cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                   unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                   CUstream stream, void **params, void **extra) {
  (void)grid_x, (void)grid_y, (void)grid_z, (void)block_x, (void)block_y, (void)block_z,
      (void)shared_bytes, (void)stream, (void)params, (void)extra;
  clock_ms += 0.01;
  leave_mark("GD_TEST_KERNELS", (const char *)function);
  return answer();
}

int cuStreamBeginCapture_v2(CUstream stream, int mode) {
  (void)stream, (void)mode;
  capturing = calloc(1, sizeof *capturing);
  if (!capturing)
    return CUDA_ERROR_OUT_OF_MEMORY;
  capturing->end = &capturing->first;
  return answer();
}

int cuStreamEndCapture(CUstream stream, CUgraph *graph) {
  (void)stream;
  *graph = capturing;
  capturing = NULL;
  return answer();
}

/* Graph and executable one are the same thing here: the second lives on. */
int cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags) {
  (void)flags;
  *exec = (CUgraphExec)(void *)graph;
  if (graph->has_collectives)
    atomic_fetch_add(&live_graphs, 1);
  return answer();
}
int cuGraphExecDestroy(CUgraphExec exec) {
  CUgraph graph = (CUgraph)(void *)exec;
  wait_busy();
  if (graph->has_collectives)
    atomic_fetch_sub(&live_graphs, 1);
  for (struct CUgraphNode_st *node = graph->first, *next; node; node = next) {
    next = node->next;
    free(node);
  }
  free(graph);
  return answer();
}
int cuGraphDestroy(CUgraph graph) {
  (void)graph;
  return answer();
}

static bool is_first(const char *path) {
  int file = path ? open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600) : -1;
  if (file >= 0)
    close(file);
  return file >= 0;
}

int cuGraphLaunch(CUgraphExec exec, CUstream stream) {
  (void)stream;
  if (++launches == BREAKS_AT && is_first(getenv("GD_TEST_BREAK")))
    is_broken = true;
  if (is_broken)
    return CUDA_SUCCESS; /* as it is: the next call tells */
  usleep(2000);
  for (struct CUgraphNode_st *node = ((CUgraph)(void *)exec)->first; node; node = node->next)
    run_node(node);
  return CUDA_SUCCESS;
}

/* --- the rest of the driver ----------------------------------------------------------------- */

int cuInit(unsigned flags) {
  (void)flags;
  return CUDA_SUCCESS;
}
int cuDriverGetVersion(int *version) {
  const char *other = getenv("GD_TEST_DRIVER");
  *version = other ? (int)strtol(other, NULL, 10) : 13000;
  return CUDA_SUCCESS;
}
int cuGetErrorName(int error, const char **text) {
  *text = error == ILLEGAL_ADDRESS ? "CUDA_ERROR_ILLEGAL_ADDRESS" : "CUDA_ERROR_OTHER";
  return CUDA_SUCCESS;
}
int cuGetErrorString(int error, const char **text) {
  *text = error == ILLEGAL_ADDRESS ? "an illegal memory access was encountered" : "another error";
  return CUDA_SUCCESS;
}
int cuDeviceGetCount(int *count) {
  *count = 1;
  return CUDA_SUCCESS;
}
int cuDeviceGet(CUdevice *device, int ordinal) {
  *device = ordinal;
  return CUDA_SUCCESS;
}
int cuDeviceGetName(char *name, int size, CUdevice device) {
  const char *other = getenv("GD_TEST_NAME"); /* of the catalogue */
  (void)device;
  snprintf(name, (size_t)size, "%s", other ? other : "GPU that computes nothing");
  return CUDA_SUCCESS;
}
int cuDeviceGetAttribute(int *value, int attribute, CUdevice device) {
  (void)device;
  *value = attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
               ? (getenv("GD_TEST_HOPPER") ? 9 : 8)
           : attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR             ? 0
           : attribute == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT                 ? 132
           : attribute == CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN    ? 166912
           : attribute == CU_DEVICE_ATTRIBUTE_CLOCK_RATE /* no rate is too good */ ? 2000000000
                                                                                   : 0;
  return CUDA_SUCCESS;
}
int cuDeviceGetUuid_v2(unsigned char uuid[16], CUdevice device) {
  size_t length = strlen(folder());
  (void)device;
  memset(uuid, 7, 16);
  memcpy(uuid, folder() + (length > 16 ? length - 16 : 0), length > 16 ? 16 : length);
  return CUDA_SUCCESS;
}
int cuDeviceGetPCIBusId(char *bus_id, int size, CUdevice device) {
  (void)device;
  snprintf(bus_id, (size_t)size, "0000:07:00.0");
  return CUDA_SUCCESS;
}
int cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
  (void)device;
  *bytes = (size_t)CARD_BYTES;
  return CUDA_SUCCESS;
}
int cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
  static int one;
  (void)device;
  if (!has_context && free_bytes() < CONTEXT_BYTES)
    return CUDA_ERROR_OUT_OF_MEMORY;
  has_context = true;
  say_held();
  *context = (CUcontext)(void *)&one;
  return answer();
}
int cuCtxSetCurrent(CUcontext context) {
  (void)context;
  return answer();
}
int cuCtxSynchronize(void) {
  wait_busy();
  return answer();
}
int cuStreamCreate(CUstream *stream, unsigned flags) {
  static int one;
  (void)flags;
  *stream = (CUstream)(void *)&one;
  return answer();
}
int cuStreamDestroy_v2(CUstream stream) {
  (void)stream;
  return answer();
}
int cuStreamQuery(CUstream stream) {
  const char *busy = busy_file();
  char asked[4096];
  (void)stream;
  if (!busy)
    return answer();
  snprintf(asked, sizeof asked, "%s.%d", busy, (int)getpid());
  is_first(asked);
  return CUDA_ERROR_NOT_READY;
}
int cuStreamSynchronize(CUstream stream) {
  (void)stream;
  wait_busy();
  return answer();
}
int cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
  (void)stream, (void)event, (void)flags;
  return answer();
}
int cuEventCreate(CUevent *event, unsigned flags) {
  (void)flags;
  *event = calloc(1, sizeof(double));
  return answer();
}
int cuEventDestroy_v2(CUevent event) {
  free(event);
  return answer();
}
int cuEventRecord(CUevent event, CUstream stream) {
  (void)stream;
  memcpy(event, &clock_ms, sizeof clock_ms);
  return answer();
}
int cuEventSynchronize(CUevent event) {
  (void)event;
  return answer();
}
int cuEventElapsedTime(float *milliseconds, CUevent begin, CUevent end) {
  double from, to;
  memcpy(&from, begin, sizeof from);
  memcpy(&to, end, sizeof to);
  *milliseconds = (float)(to - from);
  return answer();
}
int cuModuleLoadData(CUmodule *module, const void *image) {
  static int one;
  (void)image;
  *module = (CUmodule)(void *)&one;
  return answer();
}
int cuModuleUnload(CUmodule module) {
  (void)module;
  return answer();
}
int cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
  (void)module;
  *function = (CUfunction)(void *)strdup(name); /* for as long as the process lives */
  return answer();
}
int cuFuncGetAttribute(int *value, int attribute, CUfunction function) {
  (void)attribute, (void)function;
  *value = 0;
  return answer();
}
int cuFuncSetAttribute(CUfunction function, int attribute, int value) {
  (void)function, (void)attribute, (void)value;
  return answer();
}

/* --- NVRTC ---------------------------------------------------------------------------------- */

int nvrtcVersion(int *major, int *minor) {
  *major = 13;
  *minor = 0;
  return 0;
}
int nvrtcCreateProgram(nvrtcProgram *program, const char *source, const char *name, int headers,
                       const char *const *header_texts, const char *const *header_names) {
  static int one;
  (void)source, (void)name, (void)headers, (void)header_texts, (void)header_names;
  *program = (nvrtcProgram)(void *)&one;
  return 0;
}
int nvrtcCompileProgram(nvrtcProgram program, int options, const char *const *option_texts) {
  const char *kind = getenv("GD_TEST_NVRTC");
  (void)program, (void)options, (void)option_texts;
  return !kind ? 0 : strcmp(kind, "old") == 0 ? NVRTC_ERROR_INVALID_OPTION : COMPILATION;
}
int nvrtcGetProgramLogSize(nvrtcProgram program, size_t *bytes) {
  (void)program;
  *bytes = 1;
  return 0;
}
int nvrtcGetProgramLog(nvrtcProgram program, char *log) {
  (void)program;
  *log = '\0';
  return 0;
}
int nvrtcGetCUBINSize(nvrtcProgram program, size_t *bytes) {
  (void)program;
  *bytes = 8;
  return 0;
}
int nvrtcGetCUBIN(nvrtcProgram program, char *cubin) {
  (void)program;
  memcpy(cubin, "nothing", 8);
  return 0;
}
int nvrtcDestroyProgram(nvrtcProgram *program) {
  *program = NULL;
  return 0;
}

/* --- cuBLASLt ------------------------------------------------------------------------------- */

static int one_of_all;

int cublasLtCreate(cublasLtHandle_t *handle) {
  *handle = (cublasLtHandle_t)(void *)&one_of_all;
  return 0;
}
int cublasLtDestroy(cublasLtHandle_t handle) {
  (void)handle;
  return 0;
}
int cublasLtGetProperty(int type, int *value) {
  *value = type == CUBLASLT_MAJOR_VERSION ? 13 : 0;
  return 0;
}
int cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *desc, int compute_type, int scale_type) {
  (void)compute_type, (void)scale_type;
  *desc = (cublasLtMatmulDesc_t)(void *)&one_of_all;
  return 0;
}
int cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
  (void)desc;
  return 0;
}
int cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, int attribute, const void *value,
                                   size_t bytes) {
  (void)desc, (void)attribute, (void)value, (void)bytes;
  return 0;
}
int cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, int type, uint64_t rows,
                               uint64_t columns, int64_t ld) {
  (void)type, (void)rows, (void)columns, (void)ld;
  *layout = (cublasLtMatrixLayout_t)(void *)&one_of_all;
  return 0;
}
int cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  (void)layout;
  return 0;
}
int cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout, int attribute,
                                     const void *value, size_t bytes) {
  (void)layout, (void)attribute, (void)value, (void)bytes;
  return 0;
}
int cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference) {
  *preference = (cublasLtMatmulPreference_t)(void *)&one_of_all;
  return 0;
}
int cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  (void)preference;
  return 0;
}
int cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference, int attribute,
                                         const void *value, size_t bytes) {
  (void)preference, (void)attribute, (void)value, (void)bytes;
  return 0;
}
int cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                   cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                   cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                   cublasLtMatmulPreference_t preference, int wanted,
                                   cublasLtMatmulHeuristicResult_t *results, int *found) {
  (void)handle, (void)desc, (void)a, (void)b, (void)c, (void)d, (void)preference;
  *found = wanted < ALGORITHMS ? wanted : ALGORITHMS;
  for (int i = 0; i < *found; i++) {
    memset(&results[i], 0, sizeof results[i]);
    results[i].algo.data[0] = (uint64_t)i;
  }
  return 0;
}
int cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                            cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                            cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                            const cublasLtMatmulAlgo_t *algo,
                            cublasLtMatmulHeuristicResult_t *result) {
  (void)handle, (void)desc, (void)a, (void)b, (void)c, (void)d, (void)algo;
  memset(result, 0, sizeof *result);
  return 0;
}
int cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha,
                   const void *a, cublasLtMatrixLayout_t a_layout, const void *b,
                   cublasLtMatrixLayout_t b_layout, const void *beta, const void *c,
                   cublasLtMatrixLayout_t c_layout, void *d, cublasLtMatrixLayout_t d_layout,
                   const cublasLtMatmulAlgo_t *algo, void *workspace, size_t workspace_bytes,
                   CUstream stream) {
  (void)handle, (void)desc, (void)alpha, (void)a, (void)a_layout, (void)b, (void)b_layout;
  (void)beta, (void)c, (void)c_layout, (void)d, (void)d_layout, (void)workspace;
  (void)workspace_bytes, (void)stream;
  const char *fastest = getenv("GD_TEST_FASTEST");
  char name[16];
  clock_ms += algo->data[0] + 1 == (fastest ? strtoull(fastest, NULL, 10) : 2) ? 0.1 : 0.3;
  snprintf(name, sizeof name, "%d", (int)algo->data[0] + 1);
  leave_mark("GD_TEST_ALGORITHMS", name);
  return answer() == CUDA_SUCCESS ? 0 : 14; /* CUBLAS_STATUS_INTERNAL_ERROR */
}

/* --- NCCL ----------------------------------------------------------------------------------- */

int ncclGetVersion(int *version) {
  *version = 23003;
  return ncclSuccess;
}
int ncclGetUniqueId(ncclUniqueId *id) {
  memset(id, 7, sizeof *id);
  return ncclSuccess;
}
/* While the file that GD_TEST_INIT names is there, one rank has not come. */
int ncclCommInitRank(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank) {
  const char *waits = getenv("GD_TEST_INIT");
  (void)ranks, (void)id, (void)rank;
  while (waits && access(waits, F_OK) == 0)
    usleep(1000);
  *comm = (ncclComm_t)(void *)&one_of_all;
  return ncclSuccess;
}
int ncclCommDestroy(ncclComm_t comm) {
  (void)comm;
  return ncclSuccess;
}
/* As NCCL does it: kernels end at once, then it waits for every graph that uses it to go. */
int ncclCommAbort(ncclComm_t comm) {
  (void)comm;
  atomic_store(&is_aborted, true);
  while (atomic_load(&live_graphs) > 0)
    usleep(1000);
  return ncclSuccess;
}
int ncclCommGetAsyncError(ncclComm_t comm, int *error) {
  (void)comm;
  *error = ncclSuccess;
  return ncclSuccess;
}
static int collect(void) {
  if (capturing)
    capturing->has_collectives = true;
  return ncclSuccess;
}
int ncclAllReduce(const void *send, void *receive, size_t count, int type, int op, ncclComm_t comm,
                  CUstream stream) {
  (void)send, (void)receive, (void)count, (void)type, (void)op, (void)comm, (void)stream;
  return collect();
}
int ncclReduceScatter(const void *send, void *receive, size_t count, int type, int op,
                      ncclComm_t comm, CUstream stream) {
  (void)send, (void)receive, (void)count, (void)type, (void)op, (void)comm, (void)stream;
  return collect();
}
int ncclAllGather(const void *send, void *receive, size_t count, int type, ncclComm_t comm,
                  CUstream stream) {
  (void)send, (void)receive, (void)count, (void)type, (void)comm, (void)stream;
  return collect();
}

/* --- NVML ----------------------------------------------------------------------------------- */

static void read_clocks(unsigned long long *reasons, unsigned *mhz) {
  const char *text = getenv("GD_TEST_CLOCKS");
  char *end;
  *reasons = 0;
  *mhz = 1980;
  if (!text)
    return;
  *reasons = strtoull(text, &end, 0);
  if (*end == ',')
    *mhz = (unsigned)strtoul(end + 1, NULL, 10);
}

int nvmlInit_v2(void) {
  return NVML_SUCCESS;
}
int nvmlShutdown(void) {
  return NVML_SUCCESS;
}
int nvmlSystemGetNVMLVersion(char *version, unsigned size) {
  snprintf(version, size, "13.580.65");
  return NVML_SUCCESS;
}
int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *device) {
  *device = (nvmlDevice_t)(void *)&one_of_all;
  return strcmp(bus_id, "0000:07:00.0") == 0 ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}
int nvmlDeviceGetClockInfo(nvmlDevice_t device, int type, unsigned *clock) {
  unsigned long long reasons;
  (void)device;
  read_clocks(&reasons, clock);
  return type == NVML_CLOCK_SM ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}
int nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, int type, unsigned *clock) {
  (void)device;
  *clock = 1980;
  return type == NVML_CLOCK_SM ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}
int nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t device, unsigned long long *reasons) {
  unsigned mhz;
  (void)device;
  read_clocks(reasons, &mhz);
  return NVML_SUCCESS;
}
int nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t device, unsigned *limit) {
  (void)device;
  *limit = 700000;
  return NVML_SUCCESS;
}
int nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned *power) {
  (void)device;
  *power = 650000;
  return NVML_SUCCESS;
}
