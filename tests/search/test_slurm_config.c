/*
 * slurm.json and the batch script: what is asked of SLURM, and what is said of a file that makes no
 * sense. tests/search/test_slurm.sh runs jobs.
 */
#define _POSIX_C_SOURCE 200809L
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "search/slurm_config.h"

static char path[4096];

/* Reads text as slurm.json; NULL: there is none. */
static enum gd_status load(const char *text, const struct gd_slurm_asked *asked,
                           struct gd_slurm_config *config, struct gd_error *err) {
  struct gd_slurm_asked whole = *asked;
  const char *folder = getenv("TMPDIR");
  snprintf(path, sizeof path, "%s/slurm-%ld.json", folder ? folder : "/tmp", (long)getpid());
  if (text) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
  }
  *err = (struct gd_error){0};
  whole.path = text ? path : NULL;
  enum gd_status status = gd_slurm_config_load(&whole, config, err);
  unlink(path);
  return status;
}

static void refused(const char *text, const char *device, const char *sentence) {
  struct gd_slurm_config config = {.cpus = 77};
  struct gd_error err;
  struct gd_slurm_asked asked = {.section = device};
  assert_int_equal(load(text, &asked, &config, &err), GD_BAD_INPUT);
  assert_int_equal(config.cpus, 77);
  if (!strstr(err.text, sentence))
    fail_msg("\"%s\" lacks \"%s\"", err.text, sentence);
}

static void script_is(const struct gd_slurm_config *config, const struct gd_slurm_script *script,
                      const char *expected) {
  struct gd_strbuf out = {0};
  gd_slurm_script_print(config, script, &out);
  assert_false(out.failed);
  assert_string_equal(out.text, expected);
  gd_strbuf_deinit(&out);
}

static void without_a_file_it_is_the_papers_share(void **state) {
  struct gd_slurm_config config;
  struct gd_error err;
  (void)state;
  setenv("XDG_CONFIG_HOME", "/nowhere/at/all", 1);
  assert_int_equal(load(NULL, &(struct gd_slurm_asked){.backend = "cpu"}, &config, &err), GD_OK);
  script_is(&config,
            &(struct gd_slurm_script){.name = "gpudays-ab",
                                      .program = "/opt/it's here/gpudays",
                                      .order = "/s/o",
                                      .result = "/s/r",
                                      .code = "/s/c",
                                      .ranks = 1,
                                      .nodes = 1,
                                      .timeout_s = 3600},
            "#!/bin/sh\n"
            "#SBATCH --job-name=gpudays-ab\n"
            "#SBATCH --nodes=1\n"
            "#SBATCH --ntasks=1\n"
            "#SBATCH --ntasks-per-node=1\n"
            "#SBATCH --cpus-per-task=4\n"
            "#SBATCH --mem=65536M\n"
            "#SBATCH --time=61\n"
            "#SBATCH --no-requeue\n"
            "srun --mpi='none' --kill-on-bad-exit=1 --cpus-per-task=4"
            " '/opt/it'\\''s here/gpudays' trial-rank '/s/o' '/s/r' 1 0\n"
            "code=$?\n"
            "echo $code > '/s/c'\n"
            "exit $code\n");
}

static void sections_add_to_the_default(void **state) {
  static const char text[] =
      "{\"default\": {\"account\": \"lab7\", \"time\": \"2:00:00\", \"extra\": [\"--qos=a b\"]},"
      " \"cpu\": {\"partition\": \"standard\"},"
      " \"a100\": {\"partition\": \"gpu\", \"constraint\": \"a100&ib\", \"cpus\": 8,"
      "            \"memory\": \"120GiB\", \"gres\": \"gpu:a100\", \"mpi\": \"pmix_v4\"}}";
  struct gd_slurm_config config;
  struct gd_error err;
  (void)state;
  assert_int_equal(load(text, &(struct gd_slurm_asked){.section = "a100"}, &config, &err), GD_OK);
  script_is(&config,
            &(struct gd_slurm_script){.name = "j",
                                      .program = "/g",
                                      .order = "/o",
                                      .result = "/r",
                                      .code = "/c",
                                      .ranks = 8,
                                      .nodes = 2,
                                      .gpus = true,
                                      .timeout_s = 60,
                                      .rank_timeout_s = 2.5},
            "#!/bin/sh\n"
            "#SBATCH --job-name=j\n"
            "#SBATCH --nodes=2\n"
            "#SBATCH --ntasks=8\n"
            "#SBATCH --ntasks-per-node=4\n"
            "#SBATCH --cpus-per-task=8\n"
            "#SBATCH --mem=491520M\n"
            "#SBATCH --gres=gpu:a100:4\n"
            "#SBATCH --time=2:00:00\n"
            "#SBATCH --partition=gpu\n"
            "#SBATCH --account=lab7\n"
            "#SBATCH --constraint=a100&ib\n"
            "#SBATCH --no-requeue\n"
            "#SBATCH --qos=a b\n"
            "srun --mpi='pmix_v4' --kill-on-bad-exit=1 --cpus-per-task=8"
            " '/g' trial-rank '/o' '/r' 8 2.5\n"
            "code=$?\n"
            "echo $code > '/c'\n"
            "exit $code\n");
  /* A device that nobody has named needs no section. */
  assert_int_equal(load(text, &(struct gd_slurm_asked){.backend = "ref"}, &config, &err), GD_OK);
  assert_string_equal(config.account, "lab7");
  assert_string_equal(config.partition, "");
  assert_int_equal(config.cpus, 4);
}

/* --slurm-device, --backend and --gpu, the section that they choose, and the job's backend. */
static void the_jobs_backend_is_the_jobs(void **state) {
  static const char many[] = "{\"default\": {\"account\": \"lab7\"}, \"cpu\": {},"
                             " \"a100\": {\"partition\": \"gpu\"},"
                             " \"fast\": {\"gpu\": \"h100\", \"gres\": \"gpu:h100\"},"
                             " \"big\": {\"backend\": \"cpu\"}}";
  static const char one[] = "{\"default\": {\"account\": \"lab7\"}, \"a100\": {}}";
  static const struct {
    const char *text;
    struct gd_slurm_asked asked;
    const char *device, *backend;
  } cases[] = {
      {many, {.section = "a100"}, "a100", "cuda"},
      {many, {.section = "cpu"}, "cpu", "cpu"},
      {many, {.section = "big"}, "big", "cpu"},
      {many, {.section = "big", .backend = "cuda"}, "big", "cuda"},
      {many, {.section = "fast", .backend = "cpu"}, "fast", "cpu"},
      {many, {.backend = "cpu"}, "cpu", "cpu"},
      {many, {.backend = "ref"}, "ref", "ref"}, /* no section is of it: the defaults */
      {many, {.gpu = "a100"}, "a100", "cuda"},
      {many, {.gpu = "h100"}, "fast", "cuda"},
      {many, {.gpu = "l40"}, "cuda", "cuda"},
      {one, {.backend = "cuda"}, "a100", "cuda"},
      {one, {.backend = "cpu"}, "cpu", "cpu"},
      {one, {.section = NULL}, "a100", "cuda"},
      {"{\"default\": {\"backend\": \"cpu\"}}", {.section = NULL}, "cpu", "cpu"},
      {NULL, {.backend = "cuda"}, "cuda", "cuda"},
      {NULL, {.gpu = "h100"}, "cuda", "cuda"},
  };
  struct gd_slurm_config config;
  struct gd_error err;
  (void)state;
  setenv("XDG_CONFIG_HOME", "/nowhere/at/all", 1);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    if (load(cases[i].text, &cases[i].asked, &config, &err) != GD_OK)
      fail_msg("case %zu: %s", i, err.text);
    assert_string_equal(config.device, cases[i].device);
    assert_string_equal(config.backend, cases[i].backend);
  }
  refused(many, NULL, "several sections fit; --slurm-device says which the jobs are for: cpu, ");
  refused(NULL, NULL,
          "cannot tell whether the jobs of --slurm run on GPUs: add --backend cuda or cpu");
  refused("{\"default\": {}}", NULL, "cannot tell whether the jobs of --slurm run on GPUs");
  refused("{\"a\": {\"backend\": \"gpu\"}}", "a",
          "a.backend is \"gpu\"; expected cuda, cpu or ref");
}

static void mistakes_are_named(void **state) {
  (void)state;
  refused("{\"cpu\": {\"partion\": \"x\"}}", "cpu",
          ".json: \"partion\" of cpu is unknown; there are");
  refused("{\"cpu\": {\"cpus\": \"four\"}}", "cpu",
          ".json: cpu.cpus is \"four\"; expected a whole");
  refused("{\"cpu\": {\"cpus\": 0}}", "cpu", "cpu.cpus is 0; expected a whole number from 1");
  refused("{\"cpu\": {\"memory\": 64}}", "cpu", "cpu.memory is 64; expected a size");
  refused("{\"cpu\": {\"memory\": \"lots\"}}", "cpu", "cpu.memory is \"lots\"; expected a size");
  refused("{\"cpu\": {\"partition\": [\"a\"]}}", "cpu", "cpu.partition is an array of 1; expected");
  refused("{\"cpu\": {\"partition\": \"a b\"}}", "cpu", "expected a word without blanks");
  refused("{\"cpu\": {\"partition\": \"a\\nrm\"}}", "cpu", "expected a string without control");
  refused("{\"cpu\": {\"mpi\": \"pmix x\"}}", "cpu", "expected a word without blanks");
  refused("{\"cpu\": {\"extra\": \"--qos=a\"}}", "cpu",
          "cpu.extra is \"--qos=a\"; expected up to 16");
  refused("{\"cpu\": {\"extra\": [\"qos\"]}}", "cpu", "extra[0] of cpu is qos; expected an option");
  refused("{\"cpu\": {\"extra\": [\"-x\", \"-y\\nrm\"]}}", "cpu", "extra[1] of cpu is -y?rm;");
  refused("{\"cpu\": {}, \"h100\": 3}", "cpu", ".json: h100 is 3; expected an object of settings");
  refused("{\"cpu\": {}, \"a100\": {}}", "h100",
          "has no section \"h100\" (--slurm-device); it has: ");
  refused("{\"cpu\": ", "cpu", "is the file complete?");
  refused(NULL, "h100",
          "--slurm-device h100 is a section of slurm.json, and there is no such file");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(without_a_file_it_is_the_papers_share),
                                     cmocka_unit_test(sections_add_to_the_default),
                                     cmocka_unit_test(the_jobs_backend_is_the_jobs),
                                     cmocka_unit_test(mistakes_are_named)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
