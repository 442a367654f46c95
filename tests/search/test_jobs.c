/*
 * What trials in jobs are planned for, by what is said and by what the section says.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "search/jobs.h"

static const int64_t gib = (int64_t)1 << 30;

static struct gd_slurm_config config_of(const char *backend, const char *device, const char *gpu) {
  struct gd_slurm_config config = {.cpus = 8, .memory_bytes = 16 * gib};
  snprintf(config.backend, sizeof config.backend, "%s", backend);
  snprintf(config.device, sizeof config.device, "%s", device);
  snprintf(config.gpu, sizeof config.gpu, "%s", gpu);
  return config;
}

static void on_cpus_a_rank_has_its_jobs_memory(void **state) {
  struct gd_slurm_config config = config_of("cpu", "cpu", "");
  struct gd_job_place place = {0};
  (void)state;
  gd_job_place_complete(&config, &place);
  assert_null(place.gpu);
  assert_false(place.any_gpu);
  assert_int_equal(place.nodes, 0);
  assert_int_equal(place.threads, 8);
  assert_int_equal(place.device_bytes, 15 * gib);
  assert_int_equal(place.host_bytes, 15 * gib);
}

static void what_is_said_stays(void **state) {
  struct gd_slurm_config config = config_of("cpu", "cpu", "");
  struct gd_job_place place = {.nodes = 3, .threads = 2, .device_bytes = 5, .host_bytes = 7};
  (void)state;
  gd_job_place_complete(&config, &place);
  assert_int_equal(place.nodes, 3);
  assert_int_equal(place.threads, 2);
  assert_int_equal(place.device_bytes, 5);
  assert_int_equal(place.host_bytes, 7);
}

static void check_gpu(struct gd_slurm_config config, const char *said, const char *gpu, bool any,
                      int64_t nodes) {
  struct gd_job_place place = {.gpu = said};
  gd_job_place_complete(&config, &place);
  assert_string_equal(place.gpu, gpu);
  assert_int_equal(place.any_gpu, any);
  assert_int_equal(place.nodes, nodes);
  assert_int_equal(place.device_bytes, 0); /* the GPU's own */
  assert_int_equal(place.host_bytes, 15 * gib);
}

static void the_gpu_is_the_one_that_is_named(void **state) {
  (void)state;
  check_gpu(config_of("cuda", "fast", "h100"), NULL, "h100", false, 0);
  check_gpu(config_of("cuda", "a6000", ""), NULL, "a6000", false, 0);
  check_gpu(config_of("cuda", "fast", "h100"), "h200", "h200", false, 0);
}

static void a_gpu_that_nothing_names_has_a_stand_in(void **state) {
  (void)state;
  check_gpu(config_of("cuda", "cuda", ""), NULL, "a100", true, 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(on_cpus_a_rank_has_its_jobs_memory),
      cmocka_unit_test(what_is_said_stays),
      cmocka_unit_test(the_gpu_is_the_one_that_is_named),
      cmocka_unit_test(a_gpu_that_nothing_names_has_a_stand_in),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
