/*
 * From source text to functions: the system's C compiler, a cache on disk, and dlopen.
 *
 * A kernel is one shared object named by the hash of everything that determines it: source,
 * compiler, flags, CPU. It is written under a temporary name and renamed, so that processes may
 * share the folder; a trailer with a checksum behind the object's own bytes (which the loader does
 * not look at) tells a whole file from a damaged or foreign one, which is built again. Where the
 * folder cannot be written, a private one serves and is removed.
 *
 * Kernels hold no threads: the caller shares rows out. So any compiler will do, whatever OpenMP
 * library it has or lacks, and there is one pool of threads.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cache.h"
#include "base/clock.h"
#include "base/rng.h"
#include "codegen/codegen_int.h"

extern char **environ;

/* -march=native is safe: the CPU is part of the key. Without errno and traps, square roots and
   selections vectorise; NaN and infinity keep their meaning. */
static const char *const flags[] = {
    "-std=gnu11",
    "-O3",
    "-march=native",
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
  char path[1200]; /* of the shared object */
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
  return gd_fail(err, GD_ENVIRONMENT, "out of memory while generating kernels");
}

/* --- hashes --------------------------------------------------------------------------------- */

enum { HASH_START = 0 };

static uint64_t hash_text(uint64_t hash, const char *text) {
  return gd_cache_hash(hash, text, strlen(text) + 1);
}

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
        hash = hash_text(hash, line);
  fclose(file);
  return hash;
}

/* --- the compiler --------------------------------------------------------------------------- */

/* An executable file of that name, on PATH where it has no slash. */
static bool find_program(const char *name, char *path, size_t size) {
  const char *folders = getenv("PATH");
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

/* A new version of a compiler is another file. */
static void identify(struct compiler *compiler) {
  struct stat info = {0};
  uint64_t key = hash_text(HASH_START, compiler->path);
  if (stat(compiler->path, &info) == 0) {
    char facts[96];
    snprintf(facts, sizeof facts, "%" PRId64 " %" PRId64 ".%09ld", (int64_t)info.st_size,
             (int64_t)info.st_mtim.tv_sec, info.st_mtim.tv_nsec);
    key = hash_text(key, facts);
  }
  for (int i = 1; i < compiler->n_words; i++)
    key = hash_text(key, compiler->word[i]);
  for (int i = 0; i < N_FLAGS; i++)
    key = hash_text(key, flags[i]);
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
  const char *names[] = {getenv("CC"), "cc", "gcc", "clang"};
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

/* --- folders -------------------------------------------------------------------------------- */

struct folder {
  char path[1024];
  bool is_private; /* removed when the kernels are loaded */
};

static enum gd_status find_folder(struct folder *folder, struct gd_error *err) {
  const char *tmp = getenv("TMPDIR");
  folder->is_private = false;
  if (gd_cache_folder("kernels", folder->path, sizeof folder->path))
    return GD_OK;
  folder->is_private = true;
  snprintf(folder->path, sizeof folder->path, "%s/gpudays-kernels-XXXXXX",
           tmp && tmp[0] == '/' ? tmp : "/tmp");
  if (!mkdtemp(folder->path))
    return gd_fail(err, GD_ENVIRONMENT, "cannot create %s for generated kernels: %s; set TMPDIR",
                   folder->path, strerror(errno));
  return GD_OK;
}

/* --- files ---------------------------------------------------------------------------------- */

struct trailer {
  char magic[8];
  uint64_t key, checksum; /* of the bytes before it */
};
static const char magic[8] = {'g', 'd', 'k', 'e', 'r', 'n', '0', '1'};

/* The whole file, from gd_mem_alloc; NULL where it cannot be read. */
static char *read_whole(const char *path, size_t *bytes) {
  struct stat info;
  char *text = NULL;
  FILE *file = fopen(path, "rbe");
  if (!file)
    return NULL;
  if (fstat(fileno(file), &info) == 0 && info.st_size > 0 && info.st_size < 1 << 28) {
    *bytes = (size_t)info.st_size;
    text = gd_mem_alloc(*bytes + 1, 1);
    if (text && fread(text, 1, *bytes, file) != *bytes) {
      gd_mem_free(text);
      text = NULL;
    }
  }
  fclose(file);
  return text;
}

static bool is_whole(const struct object *object) {
  size_t bytes = 0;
  struct trailer trailer;
  char *text = read_whole(object->path, &bytes);
  bool whole = text && bytes > sizeof trailer;
  if (whole) {
    memcpy(&trailer, text + bytes - sizeof trailer, sizeof trailer);
    whole = memcmp(trailer.magic, magic, sizeof magic) == 0 && trailer.key == object->key &&
            trailer.checksum == gd_cache_hash(HASH_START, text, bytes - sizeof trailer);
  }
  gd_mem_free(text);
  return whole;
}

/* Adds the trailer to a fresh object and moves it to its place. */
static bool finish_file(const struct object *object, const char *temporary) {
  size_t bytes = 0;
  char *text = read_whole(temporary, &bytes);
  if (!text)
    return false;
  struct trailer trailer = {.key = object->key, .checksum = gd_cache_hash(HASH_START, text, bytes)};
  memcpy(trailer.magic, magic, sizeof magic);
  gd_mem_free(text);
  FILE *file = fopen(temporary, "abe");
  bool ok = file && fwrite(&trailer, sizeof trailer, 1, file) == 1;
  if (file && fclose(file) != 0)
    ok = false;
  return ok && rename(temporary, object->path) == 0;
}

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
  char source[1300], object_file[1300], log[1300];
};

static bool write_source(const char *path, const char *kernel) {
  struct gd_strbuf text = {0};
  gd_emit_prelude(&gd_dialect_c, &text);
  gd_strbuf_append(&text, kernel);
  FILE *file = fopen(path, "we");
  bool ok = file && !text.failed && fwrite(text.text, 1, text.length, file) == text.length;
  if (file && fclose(file) != 0)
    ok = false;
  gd_strbuf_deinit(&text);
  return ok;
}

static enum gd_status start_job(struct job *job, const struct compiler *compiler,
                                struct object *object, struct gd_error *err) {
  char *argv[MAX_WORDS + N_FLAGS + 8];
  int n = 0;
  job->object = object;
  snprintf(job->source, sizeof job->source, "%s.%ld.c", object->path, (long)getpid());
  snprintf(job->object_file, sizeof job->object_file, "%s.%ld.so", object->path, (long)getpid());
  snprintf(job->log, sizeof job->log, "%s.%ld.log", object->path, (long)getpid());
  if (!write_source(job->source, object->source)) {
    unlink(job->source);
    return gd_fail(err, GD_ENVIRONMENT, "cannot write %s: %s", job->source, strerror(errno));
  }
  for (int i = 0; i < compiler->n_words; i++)
    argv[n++] = compiler->word[i];
  for (int i = 0; i < N_FLAGS; i++)
    memcpy(&argv[n++], &flags[i],
           sizeof *argv); /* execv's arguments are not const, and not changed */
  argv[n++] = job->source;
  argv[n++] = (char[]){"-o"};
  argv[n++] = job->object_file;
  argv[n] = NULL;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, job->log, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  int failure = posix_spawn(&job->pid, compiler->path, &actions, NULL, argv, environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failure) {
    unlink(job->source);
    return gd_fail(err, GD_UNSUPPORTED,
                   "the C compiler %s cannot be run (%s), so kernels cannot "
                   "be generated; set CC to one that works",
                   compiler->path, strerror(failure));
  }
  return GD_OK;
}

/* Waits for it, and takes its result over. */
static enum gd_status end_job(struct job *job, const struct compiler *compiler,
                              struct gd_error *err) {
  int status = 0;
  enum gd_status result = GD_OK;
  pid_t got;
  do
    got = waitpid(job->pid, &status, 0);
  while (got < 0 && errno == EINTR);
  if (got != job->pid || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    size_t bytes = 0;
    char *log = read_whole(job->log, &bytes);
    size_t length = log ? strcspn(log, "\n") : 0;
    result = gd_fail(err, GD_UNSUPPORTED,
                     "the C compiler %s does not compile a generated kernel (%.*s); set CC to one "
                     "that does",
                     compiler->path, (int)(length < 300 ? length : 300), log ? log : "no message");
    gd_mem_free(log);
  } else if (!finish_file(job->object, job->object_file)) {
    result =
        gd_fail(err, GD_ENVIRONMENT, "cannot write %s: %s", job->object->path, strerror(errno));
  }
  unlink(job->source);
  unlink(job->object_file);
  unlink(job->log);
  job->pid = 0;
  return result;
}

static int usable_jobs(void) {
  cpu_set_t set;
  int cpus = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  return cpus < MOST_JOBS ? cpus : MOST_JOBS;
}

/* Compiles the objects that have no function yet, a few at a time, oldest first. */
static enum gd_status compile_missing(struct gd_codegen *code, const struct compiler *compiler,
                                      struct gd_error *err) {
  enum gd_status result = GD_OK;
  struct job *jobs = gd_mem_alloc(MOST_JOBS, sizeof *jobs);
  if (!jobs)
    return no_memory(err);
  int most = usable_jobs(), first = 0, running = 0;
  for (uint32_t i = 0; i < code->n_objects || running > 0;) {
    bool start = i < code->n_objects && running < most && result == GD_OK;
    if (start && code->objects[i].function) {
      i++;
      continue;
    }
    if (start) {
      struct job *job = &jobs[(first + running) % MOST_JOBS];
      result = start_job(job, compiler, &code->objects[i], err);
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
  struct gd_strbuf prelude = {0};
  struct folder folder;
  if (!compiler)
    return no_memory(err);
  enum gd_status status = find_compiler(compiler, err);
  if (status == GD_OK)
    status = find_folder(&folder, err);
  if (status != GD_OK) {
    gd_mem_free(compiler);
    return status;
  }
  gd_emit_prelude(&gd_dialect_c, &prelude);
  uint64_t base = prelude.failed ? 0 : hash_text(compiler->key, prelude.text);
  gd_strbuf_deinit(&prelude);
  for (uint32_t i = 0; i < code->n_objects; i++) {
    struct object *object = &code->objects[i];
    object->key = hash_text(base, object->source);
    snprintf(object->path, sizeof object->path, "%s/%016" PRIx64 ".so", folder.path, object->key);
    if (is_whole(object))
      load(object); /* one that cannot be loaded is built again */
  }
  status = compile_missing(code, compiler, err);
  gd_mem_free(compiler);
  if (folder.is_private) { /* a loaded object needs no file */
    for (uint32_t i = 0; i < code->n_objects; i++)
      unlink(code->objects[i].path);
    rmdir(folder.path);
  }
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
