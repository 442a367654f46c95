/*
 * From source text to functions: the system's C compiler, a cache on disk, and dlopen.
 *
 * A kernel is one shared object named by the hash of everything that determines it: source,
 * compiler, flags, CPU, and the version of this program. It is compiled in a folder of this process
 * and copied into the cache (base/cache.h). The cache appends a trailer to the object, which the
 * loader ignores.
 *
 * Kernels start no threads: the caller gives each of its threads some rows. So the compiler needs
 * no OpenMP library, and there is one pool of threads.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cache.h"
#include "base/clock.h"
#include "base/cpus.h"
#include "base/process.h"
#include "base/rng.h"
#include "base/scratch.h"
#include "base/switches.h"
#include "codegen/codegen_int.h"
#include "gd_version.h"

extern char **environ;

/* Without errno and traps, square roots and selections vectorise; NaN and infinity keep their
   meaning. */
static const char *const flags[] = {
    "-std=gnu11",
    "-O3",
    "-ffp-contract=fast",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fopenmp-simd",
    "-fPIC",
    "-shared",
    "-w",
#if defined(__x86_64__)
    "-mprefer-vector-width=512",
#endif
};
enum { N_FLAGS = sizeof flags / sizeof *flags, MAX_WORDS = 8, MOST_JOBS = 16 };

/* -march=native is safe: the CPU is part of the key. GPUDAYS_ISA asks for less; what it calls
   avx512_bf16 and amx is about GEMMs. */
static const char *march(void) {
#if defined(__x86_64__)
  static const char *const levels[][2] = {
      {"plain", "-march=x86-64"}, {"avx2", "-march=x86-64-v3"}, {"avx512", "-march=x86-64-v4"}};
  const char *name = gd_env("GPUDAYS_ISA");
  for (size_t i = 0; name && i < sizeof levels / sizeof *levels; i++)
    if (strcmp(name, levels[i][0]) == 0)
      return levels[i][1];
#endif
  return "-march=native";
}

struct compiler {
  char path[1024];       /* of the first word, as found on PATH */
  char words[1024];      /* $CC, cut at blanks */
  char *word[MAX_WORDS]; /* in words; word[0] is path */
  int n_words;
  uint64_t key; /* its identity, flags and CPU */
};

struct object { /* one distinct kernel */
  char *source; /* in the arena, without the prelude */
  uint64_t key;
  char path[PATH_MAX]; /* of the shared object */
  void *handle;
  gd_fused_rows *function;
};

struct gd_codegen {
  struct gd_arena arena;
  struct gd_fused_kernel *kernels; /* by fusion */
  struct object *objects;
  uint32_t n_objects;
  struct gd_codegen_stats stats;
};

static enum gd_status no_memory(struct gd_error *err) {
  return gd_nomem(err, "while generating kernels");
}

/* --- hashes --------------------------------------------------------------------------------- */

/* What -march=native depends on: the model and the features of the CPU. */
static uint64_t hash_cpu(uint64_t hash) {
  static const char *const fields[] = {"model name", "flags", "Features", "CPU part"};
  char line[8192];
  FILE *file = fopen("/proc/cpuinfo", "re");
  if (!file)
    return hash;
  while (fgets(line, sizeof line, file) && line[0] != '\n') /* the first processor only */
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
      if (strncmp(line, fields[i], strlen(fields[i])) == 0)
        hash = gd_cache_hash_text(hash, line);
  fclose(file);
  return hash;
}

/* --- the compiler --------------------------------------------------------------------------- */

/* An executable file of that name, on PATH where it has no slash. */
static bool find_program(const char *name, char *path, size_t size) {
  const char *folders = gd_env("PATH");
  if (strchr(name, '/')) {
    snprintf(path, size, "%s", name);
    return access(path, X_OK) == 0;
  }
  for (const char *at = folders ? folders : ""; *at;) {
    size_t length = strcspn(at, ":");
    struct stat info;
    int written = snprintf(path, size, "%.*s/%s", (int)length, at, name);
    if (length > 0 && written > 0 && (size_t)written < size && access(path, X_OK) == 0 &&
        stat(path, &info) == 0 && S_ISREG(info.st_mode))
      return true;
    at += length + (at[length] == ':');
  }
  return false;
}

/* Variables that change what a compiler generates (GCC's and Clang's manuals). */
static const char *const variables[] = {
    "CPATH",           "C_INCLUDE_PATH",       "COMPILER_PATH",    "LIBRARY_PATH",
    "GCC_EXEC_PREFIX", "CCC_OVERRIDE_OPTIONS", "SOURCE_DATE_EPOCH"};

/* What the compiler says of its version, asked once a process for each command. */
static uint64_t hash_version(const struct compiler *compiler, uint64_t command) {
  static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  static struct { uint64_t command, version; } asked;
  const char *arguments[MAX_WORDS + 2] = {0};
  struct gd_process_output output = {0};
  for (int i = 0; i < compiler->n_words; i++)
    arguments[i] = compiler->word[i];
  arguments[compiler->n_words] = "--version";
  pthread_mutex_lock(&mutex);
  uint64_t version = gd_cache_hash_text(command, "");
  if (asked.command == command) {
    version = asked.version;
  } else {
    if (gd_process_run(arguments, 10, &output, NULL) == GD_OK && output.out.text) {
      version = asked.version = gd_cache_hash_text(command, output.out.text);
      asked.command = command;
    }
    gd_process_output_deinit(&output);
  }
  pthread_mutex_unlock(&mutex);
  return version;
}

/*
 * The compiler is identified by its file and by the version that it prints. The file alone is not
 * enough: it may be a link, a script or ccache, and stay the same when the compiler changes.
 */
static void identify(struct compiler *compiler) {
  uint64_t key = gd_cache_hash_file(gd_cache_hash_text(0, GD_VERSION), compiler->path);
  for (int i = 1; i < compiler->n_words; i++)
    key = gd_cache_hash_text(key, compiler->word[i]);
  for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
    const char *value = gd_env(variables[i]);
    key = gd_cache_hash_text(key, value ? value : "");
  }
  key = hash_version(compiler, key);
  for (int i = 0; i < N_FLAGS; i++)
    key = gd_cache_hash_text(key, flags[i]);
  key = gd_cache_hash_text(key, march());
  compiler->key = hash_cpu(key);
}

static void cut_words(struct compiler *compiler, const char *command) {
  snprintf(compiler->words, sizeof compiler->words, "%s", command);
  compiler->n_words = 0;
  for (char *at = compiler->words; compiler->n_words < MAX_WORDS - 1;) {
    at += strspn(at, " \t");
    if (*at == '\0')
      break;
    compiler->word[compiler->n_words++] = at;
    at += strcspn(at, " \t");
    if (*at != '\0')
      *at++ = '\0';
  }
}

static enum gd_status find_compiler(struct compiler *compiler, struct gd_error *err) {
  const char *names[] = {gd_env("CC"), "cc", "gcc", "clang"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    if (!names[i])
      continue;
    cut_words(compiler, names[i]);
    if (compiler->n_words == 0 ||
        !find_program(compiler->word[0], compiler->path, sizeof compiler->path))
      continue;
    compiler->word[0] = compiler->path;
    identify(compiler);
    return GD_OK;
  }
  return gd_fail(err, GD_UNSUPPORTED,
                 "no C compiler was found (looked for $CC, cc, gcc and clang on PATH), so kernels "
                 "cannot be generated; install gcc or set CC");
}

/* --- files ---------------------------------------------------------------------------------- */

/* Where objects are kept, and where this process compiles the missing ones: the latter is empty
   until then. */
struct folder {
  char path[1024];
  struct gd_scratch work;
};

static bool load(struct object *object) {
  object->handle = dlopen(object->path, RTLD_NOW | RTLD_LOCAL);
  if (!object->handle)
    return false;
  void *symbol = dlsym(object->handle, "gd_rows");
  memcpy(&object->function, &symbol, sizeof symbol);
  if (!symbol) {
    dlclose(object->handle);
    object->handle = NULL;
  }
  return symbol != NULL;
}

/* --- compiling ------------------------------------------------------------------------------ */

struct job {
  struct object *object;
  pid_t pid;
  char source[PATH_MAX], object_file[PATH_MAX], log[PATH_MAX];
};

static enum gd_status write_source(const char *path, const char *kernel, struct gd_error *err) {
  struct gd_strbuf text = {0};
  gd_emit_prelude(&gd_dialect_c, &text);
  gd_strbuf_append(&text, kernel);
  FILE *file = text.failed ? NULL : fopen(path, "wxe"); /* in a folder that is ours alone */
  enum gd_status status = GD_OK;
  if (!file || fwrite(text.text, 1, text.length, file) != text.length)
    status = gd_fail(err, GD_ENVIRONMENT, "cannot write %s: %s", path, strerror(errno));
  if (file && fclose(file) != 0 && status == GD_OK)
    status = gd_fail(err, GD_ENVIRONMENT, "cannot write %s: %s", path, strerror(errno));
  gd_strbuf_deinit(&text);
  return status;
}

/* The first line that the compiler wrote, for a sentence. */
static void read_log(const char *path, char *line, size_t size) {
  FILE *file = fopen(path, "re");
  if (!file || !fgets(line, (int)size, file))
    snprintf(line, size, "no message");
  line[strcspn(line, "\n")] = '\0';
  if (file)
    fclose(file);
}

/* The environment of this process with TMPDIR set to the compiler's folder, which is removed later:
 * a compiler that is killed leaves no temporary files behind. NULL when memory is out. */
static char **make_environment(const char *folder) {
  size_t count = 0, kept = 0, length = strlen(folder) + sizeof "TMPDIR=";
  while (environ[count])
    count++;
  char **list = gd_mem_alloc(1, (count + 2) * sizeof *list + length);
  if (!list)
    return NULL;
  char *temporary = (char *)(list + count + 2);
  snprintf(temporary, length, "TMPDIR=%s", folder);
  for (size_t i = 0; i < count; i++)
    if (strncmp(environ[i], "TMPDIR=", 7) != 0)
      list[kept++] = environ[i];
  list[kept++] = temporary;
  list[kept] = NULL;
  return list;
}

static enum gd_status start_job(struct job *job, const struct compiler *compiler,
                                const struct folder *folder, struct object *object,
                                struct gd_error *err) {
  char *argv[MAX_WORDS + N_FLAGS + 8];
  int n = 0;
  job->object = object;
  if (snprintf(job->object_file, sizeof job->object_file, "%s/%016" PRIx64 ".so", folder->work.path,
               object->key) >= (int)sizeof job->object_file - 8)
    return gd_fail(err, GD_ENVIRONMENT, "the path %.64s... is too long for generated kernels",
                   folder->work.path);
  size_t stem = strlen(job->object_file) - 3;
  snprintf(job->source, sizeof job->source, "%.*s.c", (int)stem, job->object_file);
  snprintf(job->log, sizeof job->log, "%.*s.txt", (int)stem, job->object_file);
  GD_TRY(write_source(job->source, object->source, err));
  for (int i = 0; i < compiler->n_words; i++)
    argv[n++] = compiler->word[i];
  for (int i = 0; i < N_FLAGS; i++)
    memcpy(&argv[n++], &flags[i],
           sizeof *argv); /* execv's arguments are not const, and not changed */
  memcpy(&argv[n++], &(const char *){march()}, sizeof *argv);
  argv[n++] = job->source;
  argv[n++] = (char[]){"-o"};
  argv[n++] = job->object_file;
  argv[n] = NULL;
  char **environment = make_environment(folder->work.path);
  if (!environment)
    return no_memory(err);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, job->log, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  int failure = posix_spawn(&job->pid, compiler->path, &actions, NULL, argv, environment);
  posix_spawn_file_actions_destroy(&actions);
  gd_mem_free(environment);
  if (failure)
    return gd_fail(err, GD_UNSUPPORTED,
                   "the C compiler %s cannot be run (%s), so kernels cannot "
                   "be generated; set CC to one that works",
                   compiler->path, strerror(failure));
  return GD_OK;
}

/* Waits for a compiler and takes over its result. An object that cannot be written to the cache is
   loaded from the folder it was compiled in. */
static enum gd_status end_job(struct job *job, const struct compiler *compiler,
                              struct gd_error *err) {
  int status = 0;
  char line[300];
  pid_t got;
  do
    got = waitpid(job->pid, &status, 0);
  while (got < 0 && errno == EINTR);
  bool compiled = got == job->pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  job->pid = 0;
  if (!compiled) {
    read_log(job->log, line, sizeof line);
    return gd_fail(err, GD_UNSUPPORTED,
                   "the C compiler %s does not compile a generated kernel (%s); set CC to one that "
                   "does",
                   compiler->path, line);
  }
  if (!gd_cache_adopt(job->object_file, job->object->path, job->object->key))
    snprintf(job->object->path, sizeof job->object->path, "%s", job->object_file);
  return GD_OK;
}

/* Compiles the objects that have no function yet, a few at a time, oldest first. */
static enum gd_status compile_missing(struct gd_codegen *code, const struct compiler *compiler,
                                      struct folder *folder, struct gd_error *err) {
  enum gd_status result = GD_OK;
  struct job *jobs = gd_mem_alloc(MOST_JOBS, sizeof *jobs);
  if (!jobs)
    return no_memory(err);
  int cpus = gd_cpus(1), most = cpus < MOST_JOBS ? cpus : MOST_JOBS;
  int first = 0, running = 0;
  for (uint32_t i = 0; i < code->n_objects || running > 0;) {
    bool start = i < code->n_objects && running < most && result == GD_OK;
    if (start && code->objects[i].function) {
      i++;
      continue;
    }
    if (start) {
      struct job *job = &jobs[(first + running) % MOST_JOBS];
      if (!folder->work.path[0])
        result = gd_scratch_open(&folder->work, folder->path, "build-", err);
      if (result == GD_OK)
        result = start_job(job, compiler, folder, &code->objects[i], err);
      running += result == GD_OK;
      code->stats.n_compiled += result == GD_OK;
      i++;
      continue;
    }
    if (running == 0)
      break;
    enum gd_status ended = end_job(&jobs[first], compiler, err);
    result = result == GD_OK ? ended : result;
    first = (first + 1) % MOST_JOBS;
    running--;
  }
  gd_mem_free(jobs);
  for (uint32_t i = 0; i < code->n_objects && result == GD_OK; i++)
    if (!code->objects[i].function && !load(&code->objects[i]))
      result = gd_fail(err, GD_ENVIRONMENT, "a generated kernel cannot be loaded: %s", dlerror());
  return result;
}

static enum gd_status build_objects(struct gd_codegen *code, struct gd_error *err) {
  struct compiler *compiler = gd_mem_alloc(1, sizeof *compiler);
  struct folder *folder = gd_mem_alloc(1, sizeof *folder);
  struct gd_strbuf prelude = {0};
  enum gd_status status = compiler && folder ? find_compiler(compiler, err) : no_memory(err);
  if (status == GD_OK && !gd_cache_folder("kernels", folder->path, sizeof folder->path))
    status = gd_fail(err, GD_ENVIRONMENT,
                     "there is no folder for generated kernels: neither the cache nor TMPDIR nor "
                     "/tmp can be written; set TMPDIR to a folder of your own");
  if (status == GD_OK) {
    gd_emit_prelude(&gd_dialect_c, &prelude);
    uint64_t base = prelude.failed ? 0 : gd_cache_hash_text(compiler->key, prelude.text);
    gd_strbuf_deinit(&prelude);
    for (uint32_t i = 0; i < code->n_objects; i++) {
      struct object *object = &code->objects[i];
      object->key = gd_cache_hash_text(base, object->source);
      snprintf(object->path, sizeof object->path, "%s/%016" PRIx64 ".so", folder->path,
               object->key);
      if (gd_cache_is_whole(object->path, object->key))
        load(object); /* one that cannot be loaded is built again */
    }
    status = compile_missing(code, compiler, folder, err);
    gd_scratch_remove(&folder->work); /* a loaded object needs no file */
  }
  gd_mem_free(compiler);
  gd_mem_free(folder);
  return status;
}

/* --- kernels -------------------------------------------------------------------------------- */

static bool has_room(struct gd_codegen *code, uint32_t n_fusions) {
  code->kernels = gd_arena_alloc(&code->arena, n_fusions, sizeof *code->kernels);
  code->objects = gd_arena_alloc(&code->arena, (size_t)n_fusions + 1, sizeof *code->objects);
  return code->kernels && code->objects;
}

/* The object with this source, a new one if need be; NULL when memory is out. */
static struct object *object_for(struct gd_codegen *code, const char *source) {
  for (uint32_t i = 0; i < code->n_objects; i++)
    if (strcmp(code->objects[i].source, source) == 0)
      return &code->objects[i];
  struct object *object = &code->objects[code->n_objects];
  object->source = gd_arena_copy_string(&code->arena, source);
  if (!object->source)
    return NULL;
  code->n_objects++;
  return object;
}

void gd_fused_describe(const struct gd_lowered *l, struct gd_fused_kernel *kernel) {
  const struct gd_fusion *f = l->fusion;
  kernel->row_count = f->rows;
  kernel->columns = f->columns;
  kernel->buffer_floats = gd_lower_buffer_floats(l);
  kernel->n_sums = l->n_sums;
  for (uint32_t i = 0; i < f->n_in; i++)
    if (gd_tensor_elements(&f->body, i) == f->rows * f->columns)
      kernel->row_bytes += f->columns * gd_dtype_bytes(f->body.tensors[i].dtype);
  for (uint32_t i = 0; i < f->n_out; i++) {
    kernel->sum_of[i] = l->results[i].kind == GD_RESULT_SUM ? l->results[i].sum : GD_NONE;
    if (l->results[i].kind == GD_RESULT_FULL)
      kernel->row_bytes += f->columns * gd_dtype_bytes(f->body.tensors[f->out[i]].dtype);
  }
  for (uint32_t i = 0; i < l->n_dropouts; i++)
    kernel->streams[i] = l->dropouts[i].stream;
}

bool gd_codegen_works(const struct gd_caps *caps, struct gd_error *why) {
  if (!caps->compile)
    return gd_fail(why, GD_UNSUPPORTED, "the %s backend runs no generated kernels",
                   caps->backend) == GD_OK;
  return !caps->needs_cc || gd_codegen_available(why);
}

enum gd_status gd_codegen_build(const struct gd_graph *graph, struct gd_codegen **code,
                                struct gd_error *err) {
  int64_t begin_ns = gd_clock_ns();
  enum gd_status status = GD_OK;
  struct gd_codegen *c = gd_mem_alloc(1, sizeof *c);
  struct gd_lowered *lowered = gd_mem_alloc(1, sizeof *lowered);
  uint32_t *object_of = gd_mem_alloc(graph->n_fusions, sizeof *object_of);
  if (!c || !lowered || !object_of || !has_room(c, graph->n_fusions))
    status = no_memory(err);
  for (uint32_t i = 0; i < graph->n_fusions && status == GD_OK; i++) {
    struct gd_strbuf text = {0};
    if (!gd_lower(&graph->fusions[i], lowered)) {
      status = gd_fail(err, GD_INTERNAL, "fusion %u cannot be a kernel", i);
      break;
    }
    gd_emit(&gd_dialect_c, lowered, &text);
    struct object *object = text.failed ? NULL : object_for(c, text.text);
    gd_strbuf_deinit(&text);
    if (!object) {
      status = no_memory(err);
      break;
    }
    object_of[i] = (uint32_t)(object - c->objects);
    gd_fused_describe(lowered, &c->kernels[i]);
  }
  if (status == GD_OK && c->n_objects > 0)
    status = build_objects(c, err);
  for (uint32_t i = 0; i < graph->n_fusions && status == GD_OK; i++)
    c->kernels[i].function = c->objects[object_of[i]].function;
  gd_mem_free(lowered);
  gd_mem_free(object_of);
  if (status != GD_OK) {
    gd_codegen_free(c);
    return status;
  }
  c->stats.n_fusions = graph->n_fusions;
  c->stats.n_kernels = c->n_objects;
  c->stats.build_ns = gd_clock_ns() - begin_ns;
  *code = c;
  return GD_OK;
}

const struct gd_fused_kernel *gd_codegen_kernel(const struct gd_codegen *code, uint32_t fusion) {
  GD_ASSERT(fusion < code->stats.n_fusions);
  return &code->kernels[fusion];
}

void gd_codegen_stats(const struct gd_codegen *code, struct gd_codegen_stats *stats) {
  *stats = code->stats;
}

void gd_codegen_free(struct gd_codegen *code) {
  if (!code)
    return;
  for (uint32_t i = 0; code->objects && i < code->n_objects; i++)
    if (code->objects[i].handle)
      dlclose(code->objects[i].handle);
  gd_arena_deinit(&code->arena);
  gd_mem_free(code);
}

bool gd_codegen_available(struct gd_error *why) {
  struct gd_codegen *c = gd_mem_alloc(1, sizeof *c);
  enum gd_status status = c && has_room(c, 1) ? GD_OK : no_memory(why);
  if (status == GD_OK && !object_for(c, "void gd_rows(void) {}\n"))
    status = no_memory(why);
  if (status == GD_OK)
    status = build_objects(c, why);
  gd_codegen_free(c);
  return status == GD_OK;
}
