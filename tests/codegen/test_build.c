/*
 * Building generated kernels: the cache is used, shared, and mended; a machine without a compiler,
 * with a broken one, or without a writable cache gets a sentence or a way round.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <math.h>

#include "codegen/codegen.h"
#include "support/fault.h"
#include "support/scratch.h"

enum { ROWS = 5, COLUMNS = 7, KERNELS = 3 };
static const char *original_path;

/* --- graphs with a few distinct kernels ------------------------------------------------------ */

static void add_fusion(struct gd_graph *graph, enum gd_activation function) {
  int64_t dims[2] = {ROWS, COLUMNS};
  struct gd_fusion fusion = {.n_in = 2, .n_out = 1, .rows = ROWS, .columns = COLUMNS};
  struct gd_graph *body = &fusion.body;
  gd_graph_init(body);
  gd_tensor_id a = gd_graph_leaf(body, GD_ROLE_INPUT, "a", GD_DTYPE_F32, 2, dims);
  gd_tensor_id b = gd_graph_leaf(body, GD_ROLE_INPUT, "b", GD_DTYPE_F32, 2, dims);
  fusion.out[0] = gd_activate(body, gd_add(body, a, b), function);
  gd_graph_fusion(graph, &fusion);
}

/* Four fusions, two of which are the same kernel. */
static void make_graph(struct gd_graph *graph) {
  gd_graph_init(graph);
  add_fusion(graph, GD_ACTIVATION_RELU);
  add_fusion(graph, GD_ACTIVATION_SILU);
  add_fusion(graph, GD_ACTIVATION_RELU);
  add_fusion(graph, GD_ACTIVATION_TANH);
}

static void check_relu(const struct gd_codegen *code) {
  float a[ROWS * COLUMNS], b[ROWS * COLUMNS], y[ROWS * COLUMNS];
  for (int i = 0; i < ROWS * COLUMNS; i++) {
    a[i] = i == 3 ? NAN : (float)i;
    b[i] = -12.5F;
  }
  const struct gd_fused_kernel *kernel = gd_codegen_kernel(code, 2);
  assert_ptr_equal(kernel->function, gd_codegen_kernel(code, 0)->function);
  kernel->function((const void *[]){a, b}, (void *[]){y}, kernel->streams, 0, ROWS, NULL, NULL);
  for (int i = 0; i < ROWS * COLUMNS; i++)
    assert_true(i == 3 ? isnan(y[i]) : y[i] == (i < 13 ? 0.0F : (float)i - 12.5F));
}

/* Builds, checks and frees; the number of kernels compiled. */
static int build(struct gd_error *err) {
  struct gd_graph graph;
  struct gd_codegen *code = NULL;
  struct gd_codegen_stats stats;
  make_graph(&graph);
  enum gd_status status = gd_codegen_build(&graph, &code, err);
  gd_graph_deinit(&graph);
  if (status != GD_OK)
    return -(int)status;
  check_relu(code);
  gd_codegen_stats(code, &stats);
  assert_int_equal(stats.n_fusions, 4);
  assert_int_equal(stats.n_kernels, KERNELS);
  gd_codegen_free(code);
  return (int)stats.n_compiled;
}

/* --- surroundings ---------------------------------------------------------------------------- */

/* A compiler that writes down that it was run. */
static void use_logging_compiler(void) {
  char script[1200];
  snprintf(script, sizeof script,
           "#!/bin/sh\n[ \"$1\" = --version ] || echo run >>'%s'\n"
           "if [ \"$1\" = --version ]; then cat '%s'; exit; fi\nexec cc \"$@\"\n",
           scratch_path("log"), scratch_path("version"));
  scratch_write_text("version", "1.0");
  scratch_write_text("bin/mycc", script);
  assert_int_equal(chmod(scratch_path("bin/mycc"), 0700), 0);
  setenv("CC", scratch_path("bin/mycc"), 1);
}

static int compiler_runs(void) {
  int runs = 0, c;
  FILE *log = fopen(scratch_path("log"), "r");
  if (!log)
    return 0;
  while ((c = fgetc(log)) != EOF)
    runs += c == '\n';
  fclose(log);
  return runs;
}

static int set_up(void **state) {
  unsetenv("TMPDIR"); /* before the folder is made, which may go there */
  int made = scratch_setup(state);
  setenv("PATH", original_path, 1);
  unsetenv("CC");
  setenv("XDG_CACHE_HOME", scratch_path("cache"), 1);
  return made;
}

/* The path of the nth object in the cache, in the order of names. */
static void nth_object(int n, char *path, size_t size) {
  struct dirent **entries;
  const char *folder = scratch_path("cache/gpudays/kernels");
  int count = scandir(folder, &entries, NULL, alphasort), seen = 0;
  path[0] = '\0';
  for (int i = 0; i < count; i++) {
    const char *name = entries[i]->d_name;
    assert_null(strstr(name, ".c")); /* nothing temporary is left */
    assert_null(strstr(name, ".log"));
    if (strstr(name, ".so") && seen++ == n)
      snprintf(path, size, "%s/%s", folder, name);
    (free)(entries[i]);
  }
  (free)(entries);
  assert_true(path[0] != '\0');
}

/* --- tests ----------------------------------------------------------------------------------- */

static void test_cache(void **state) {
  struct gd_error err = {0};
  (void)state;
  use_logging_compiler();
  assert_int_equal(build(&err), KERNELS);
  assert_int_equal(compiler_runs(), KERNELS);
  assert_int_equal(build(&err), 0);
  assert_int_equal(compiler_runs(), KERNELS);
  assert_int_equal(scratch_count("cache/gpudays/kernels"), KERNELS);
  /* The compiler behind a script is another one, as ccache's may be; what an environment adds. */
  scratch_write_text("version", "2.0");
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    setenv("C_INCLUDE_PATH", "/nowhere", 1);
    _exit(build(&err) == KERNELS ? 0 : 1);
  }
  int status = -1;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
  assert_int_equal(compiler_runs(), 2 * KERNELS);
  assert_int_equal(scratch_count("cache/gpudays/kernels"), 2 * KERNELS);
  /* Another compiler, another kernel. */
  unsetenv("CC");
  assert_int_equal(build(&err), KERNELS);
  assert_int_equal(scratch_count("cache/gpudays/kernels"), 3 * KERNELS);
}

static void damage(int n, int how) {
  char path[1200], other[1200];
  nth_object(n, path, sizeof path);
  FILE *file = fopen(path, how == 0 ? "r+b" : "wb");
  assert_non_null(file);
  if (how == 0) { /* a bit in the middle */
    fseek(file, 5000, SEEK_SET);
    int c = fgetc(file);
    fseek(file, 5000, SEEK_SET);
    fputc(c ^ 4, file);
  } else if (how == 1) { /* no object at all */
    fputs("\177ELF, but not really", file);
  } else if (how == 2) { /* whole, but the kernel of something else */
    char buffer[65536];
    size_t got;
    nth_object(n + 1, other, sizeof other);
    FILE *from = fopen(other, "rb");
    assert_non_null(from);
    while ((got = fread(buffer, 1, sizeof buffer, from)) > 0)
      assert_int_equal(fwrite(buffer, 1, got, file), got);
    fclose(from);
  }
  fclose(file); /* how 3: empty */
}

static void test_damaged_files(void **state) {
  struct gd_error err = {0};
  (void)state;
  assert_int_equal(build(&err), KERNELS);
  for (int how = 0; how < 4; how++) {
    damage(1, how);
    assert_int_equal(build(&err), 1);
    assert_int_equal(build(&err), 0);
  }
}

static void test_no_compiler(void **state) {
  struct gd_error err = {0}, why = {0};
  (void)state;
  setenv("PATH", scratch_path("nowhere"), 1);
  assert_int_equal(build(&err), -GD_UNSUPPORTED);
  assert_non_null(strstr(err.text, "no C compiler was found"));
  assert_non_null(strstr(err.text, "install gcc"));
  assert_false(gd_codegen_available(&why));
  assert_int_equal(why.status, GD_UNSUPPORTED);
  setenv("PATH", "", 1);
  assert_false(gd_codegen_available(NULL));
  setenv("PATH", original_path, 1);
  assert_true(gd_codegen_available(&err));
}

static void test_broken_compiler(void **state) {
  struct gd_error err = {0}, why = {0};
  (void)state;
  scratch_write_text("bin/bad", "#!/bin/sh\necho 'license expired' >&2\nexit 1\n");
  assert_int_equal(chmod(scratch_path("bin/bad"), 0700), 0);
  setenv("CC", scratch_path("bin/bad"), 1);
  assert_int_equal(build(&err), -GD_UNSUPPORTED);
  assert_non_null(strstr(err.text, "license expired"));
  assert_false(gd_codegen_available(&why));
  assert_int_equal(scratch_count("cache/gpudays/kernels"), 0);
  /* A CC that is not there: the usual names are tried. */
  setenv("CC", "/no/such/cc", 1);
  assert_true(gd_codegen_available(&err));
  /* Arguments in CC. */
  setenv("CC", "cc -DGD_SOMETHING=1", 1);
  assert_int_equal(build(&err), KERNELS);
}

/* Temporary files of a compiler that is killed are in the folder of the build, which is removed or
   swept, and never in the user's TMPDIR. */
static void test_compiler_temporaries(void **state) {
  struct gd_error err = {0};
  (void)state;
  scratch_write_text("tmp/keep", "");
  setenv("TMPDIR", scratch_path("tmp"), 1);
  scratch_write_text("bin/killed", "#!/bin/sh\n[ \"$1\" = --version ] && exit\n"
                                   "echo half >\"$TMPDIR/ccHalf.s\"\nkill -9 $$\n");
  assert_int_equal(chmod(scratch_path("bin/killed"), 0700), 0);
  setenv("CC", scratch_path("bin/killed"), 1);
  assert_int_equal(build(&err), -GD_UNSUPPORTED);
  assert_int_equal(scratch_count("tmp"), 1);
  assert_int_equal(scratch_count("cache/gpudays/kernels"), 0);
}

static void test_unwritable_cache(void **state) {
  struct gd_error err = {0};
  (void)state;
  scratch_write_text("file", "not a folder");
  scratch_write_text("tmp/keep", "");
  setenv("XDG_CACHE_HOME", scratch_path("file"), 1);
  setenv("TMPDIR", scratch_path("tmp"), 1);
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) { /* for the process alone */
    bool kept = build(&err) == KERNELS && build(&err) == 0 && scratch_count("tmp") == 2;
    exit(kept ? 0 : 1);
  }
  int status = -1;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
  assert_int_equal(scratch_count("tmp"), 1);
  setenv("TMPDIR", scratch_path("file"), 1); /* then /tmp */
  assert_int_equal(build(&err), KERNELS);
}

/* What others may have put there is not run: a folder that they can write in is not read at all. */
static void test_foreign_folder(void **state) {
  struct gd_error err = {0};
  char path[1200];
  (void)state;
  use_logging_compiler();
  assert_int_equal(build(&err), KERNELS);
  assert_int_equal(chmod(scratch_path("cache/gpudays"), 0777), 0);
  assert_int_equal(build(&err), KERNELS);
  assert_int_equal(chmod(scratch_path("cache/gpudays"), 0700), 0);
  assert_int_equal(build(&err), 0);
  nth_object(0, path, sizeof path);
  assert_int_equal(chmod(path, 0666), 0); /* one file */
  assert_int_equal(build(&err), 1);
  assert_int_equal(build(&err), 0);
}

/* A FIFO, a folder and a link in the place of an object: it is built again, and nothing waits. */
static void test_no_regular_file(void **state) {
  struct gd_error err = {0};
  char path[1200], kept[1200];
  (void)state;
  assert_int_equal(build(&err), KERNELS);
  for (int how = 0; how < 4; how++) {
    nth_object(1, path, sizeof path);
    snprintf(kept, sizeof kept, "%s", scratch_path("kept.so"));
    assert_int_equal(rename(path, kept), 0);
    assert_int_equal(how == 0   ? mkfifo(path, 0600)
                     : how == 1 ? mkdir(path, 0700)
                                : symlink(how == 2 ? kept : "/nowhere", path),
                     0);
    assert_int_equal(build(&err), 1);
    assert_int_equal(build(&err), 0);
  }
  /* One that cannot even be replaced: the kernel is used all the same. */
  assert_int_equal(unlink(path), 0);
  assert_int_equal(mkdir(path, 0700), 0);
  char inside[1300];
  snprintf(inside, sizeof inside, "%s/x", path);
  assert_int_equal(mkdir(inside, 0700), 0);
  assert_int_equal(build(&err), 1);
}

static void make_old(const char *name) {
  struct timespec times[2] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};
  assert_int_equal(utimensat(AT_FDCWD, scratch_path(name), times, AT_SYMLINK_NOFOLLOW), 0);
}

/* What killed processes left goes; what is being written stays. */
static void test_leftovers(void **state) {
  static const char *const old[] = {".tmp-abcdef", "0123456789abcdef.so.77.c",
                                    "0123456789abcdef.so.77.log", "build-AbCdEf/x.c"};
  struct gd_error err = {0};
  char path[128];
  (void)state;
  for (size_t i = 0; i < sizeof old / sizeof *old; i++) {
    snprintf(path, sizeof path, "cache/gpudays/kernels/%s", old[i]);
    scratch_write_text(path, "x");
    make_old(path);
  }
  make_old("cache/gpudays/kernels/build-AbCdEf");
  scratch_write_text("cache/gpudays/kernels/.tmp-ghijkl", "x");
  chmod(scratch_path("cache"), 0700);
  chmod(scratch_path("cache/gpudays"), 0700);
  chmod(scratch_path("cache/gpudays/kernels"), 0700);
  assert_int_equal(build(&err), KERNELS);
  assert_int_equal(scratch_count("cache/gpudays/kernels"), KERNELS + 1);
}

/* HOME serves where XDG_CACHE_HOME is not set. */
static void test_home(void **state) {
  struct gd_error err = {0};
  (void)state;
  const char *home = getenv("HOME");
  char *kept = home ? strdup(home) : NULL;
  unsetenv("XDG_CACHE_HOME");
  setenv("HOME", scratch_path(""), 1);
  assert_int_equal(build(&err), KERNELS);
  assert_int_equal(scratch_count(".cache/gpudays/kernels"), KERNELS);
  if (kept)
    setenv("HOME", kept, 1);
  (free)(kept);
}

/* Processes that build the same at once: all succeed, and one set of files is there. */
static void test_processes(void **state) {
  enum { PROCESSES = 4 };
  pid_t children[PROCESSES];
  struct gd_error err = {0};
  (void)state;
  for (int i = 0; i < PROCESSES; i++) {
    children[i] = fork();
    assert_true(children[i] >= 0);
    if (children[i] == 0)
      _exit(build(&err) >= 0 ? 0 : 1);
  }
  for (int i = 0; i < PROCESSES; i++) {
    int status = -1;
    assert_int_equal(waitpid(children[i], &status, 0), children[i]);
    assert_int_equal(status, 0);
  }
  assert_int_equal(build(&err), 0);
  assert_int_equal(scratch_count("cache/gpudays/kernels"), KERNELS);
}

static enum gd_status attempt(void *context, struct gd_error *err) {
  struct gd_codegen *code = NULL;
  enum gd_status status = gd_codegen_build(context, &code, err);
  gd_codegen_free(code);
  return status;
}

static void test_out_of_memory(void **state) {
  struct gd_graph graph;
  struct gd_error err = {0};
  (void)state;
  assert_int_equal(build(&err), KERNELS); /* so that the attempts find them */
  make_graph(&graph);
  assert_int_equal(fault_sweep(attempt, &graph), GD_OK);
  gd_graph_deinit(&graph);
  assert_int_equal(gd_mem_live_blocks(), 0);
}

int main(void) {
  original_path = getenv("PATH") ? strdup(getenv("PATH")) : "";
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, scratch_teardown)
  const struct CMUnitTest tests[] = {
      TEST(test_cache),
      TEST(test_damaged_files),
      TEST(test_no_compiler),
      TEST(test_broken_compiler),
      TEST(test_compiler_temporaries),
      TEST(test_unwritable_cache),
      TEST(test_home),
      TEST(test_processes),
      TEST(test_out_of_memory),
      TEST(test_foreign_folder),
      TEST(test_no_regular_file),
      TEST(test_leftovers),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
