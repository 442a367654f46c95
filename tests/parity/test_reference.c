/*
 * Parity with transformers: every committed reference, on every backend, in every precision, naive
 * and under free-lunch, and proof that the comparison can fail. In 16 bits on ref, and with kernels
 * there, a run takes a third of the references (support/sample.h).
 */
#define _POSIX_C_SOURCE 200809L
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "exec/reference.h"
#include "model/safetensors.h"
#include "support/sample.h"
#include "support/scratch.h"

static const char *const references = GD_SOURCE_DIR "/tests/reference";

/* The number of a reference must not depend on the order of the folder. */
static uint64_t number_of(const char *name) {
  uint64_t sum = 0;
  for (; *name; name++)
    sum = 31 * sum + (unsigned char)*name;
  return sum;
}

static void verify_all(const char *backend, enum gd_precision precision, const char *name,
                       uint64_t parts) {
  struct gd_method method;
  struct gd_error bad = {0};
  assert_int_equal(gd_method_parse(name, &method, &bad), GD_OK);
  struct dirent *entry;
  int seen = 0;
  DIR *folder = opendir(references);
  assert_non_null(folder);
  while ((entry = readdir(folder))) {
    char path[600];
    struct stat info;
    snprintf(path, sizeof path, "%s/%s", references, entry->d_name);
    if (entry->d_name[0] == '.' || stat(path, &info) != 0 || !S_ISDIR(info.st_mode) ||
        !sample_has(number_of(entry->d_name), parts))
      continue;
    struct gd_verify_options options = {
        .backend = backend, .precision = precision, .method = method};
    struct gd_verify_result result;
    struct gd_error err = {0};
    if (gd_verify(path, &options, &result, &err) != GD_OK)
      fail_msg("%s", err.text);
    print_message("%-16s %s %s %s: loss %.1e, gradients %.1e (worst %.1e %s), trajectory %.1e\n",
                  entry->d_name, name, backend, gd_precision_name(precision), result.loss_error,
                  result.together_error, result.worst_error, result.worst_parameter,
                  result.trajectory_error);
    assert_true(result.ok);
    assert_true(result.parameters > 20 && result.trajectory_error >= 0);
    seen++;
  }
  closedir(folder);
  assert_true(seen >= (parts == 1 ? 5 : 1));
}

static void test_ref_fp32(void **state) {
  (void)state;
  verify_all("ref", GD_PRECISION_FP32, "naive", 1);
}
static void test_cpu_fp32(void **state) {
  (void)state;
  verify_all("cpu", GD_PRECISION_FP32, "naive", 1);
}
static void test_ref_16_bit(void **state) {
  (void)state;
  verify_all("ref", GD_PRECISION_BF16, "naive", 3);
  verify_all("ref", GD_PRECISION_FP16, "naive", 3);
}
static void test_cpu_16_bit(void **state) {
  (void)state;
  verify_all("cpu", GD_PRECISION_BF16, "naive", 1);
  verify_all("cpu", GD_PRECISION_FP16, "naive", 1);
}

/* Fused kernels, generated kernels and recomputation: the same numbers. */
static void test_free_lunch(void **state) {
  (void)state;
  verify_all("cpu", GD_PRECISION_FP32, "free-lunch+ckpt", 1);
  verify_all("cpu", GD_PRECISION_BF16, "free-lunch+ckpt", 1);
  verify_all("ref", GD_PRECISION_FP32, "kernels", 3);
}

/* --- the comparison can fail ---------------------------------------------------------------- */

static void copy_file(const char *from, const char *to) {
  char buffer[65536];
  size_t got;
  FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
  assert_non_null(in);
  assert_non_null(out);
  while ((got = fread(buffer, 1, sizeof buffer, in)) > 0)
    assert_int_equal(fwrite(buffer, 1, got, out), got);
  fclose(in);
  fclose(out);
}

static void copy_reference(const char *name, char *folder, size_t size) {
  static const char *const files[] = {"config.json", "model.safetensors", "batch.safetensors",
                                      "reference.safetensors", "recipe.json"};
  static int copies;
  char copy[32];
  snprintf(copy, sizeof copy, "copy%d/config.json", copies++);
  scratch_write_text(copy, "{}"); /* makes the folder */
  *strchr(copy, '/') = '\0';
  snprintf(folder, size, "%s", scratch_path(copy));
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
    char from[700], to[700];
    snprintf(from, sizeof from, "%s/%s/%s", references, name, files[i]);
    snprintf(to, sizeof to, "%s/%s", folder, files[i]);
    copy_file(from, to);
  }
}

/* Multiplies one element of a stored F32 tensor, in place in the file. */
static void disturb(const char *folder, const char *file, const char *tensor, float factor) {
  char path[700];
  struct gd_safetensors stored;
  struct gd_error err = {0};
  snprintf(path, sizeof path, "%s/%s", folder, file);
  assert_int_equal(gd_safetensors_open(&stored, path, &err), GD_OK);
  const struct gd_safetensor *found = gd_safetensors_find(&stored, tensor);
  assert_non_null(found);
  long at = (long)((const char *)found->data - (const char *)stored.maps[0].data);
  float value = gd_safetensor_value(found, 0) * factor;
  gd_safetensors_close(&stored);
  FILE *out = fopen(path, "r+b");
  assert_non_null(out);
  fseek(out, at, SEEK_SET);
  assert_int_equal(fwrite(&value, sizeof value, 1, out), 1);
  fclose(out);
}

static void expect_miss(const char *file, const char *tensor, float factor) {
  char folder[600];
  struct gd_verify_options options = {.backend = "ref", .precision = GD_PRECISION_FP32};
  struct gd_verify_result result;
  struct gd_error err = {0};
  copy_reference("neox-parallel", folder, sizeof folder);
  assert_int_equal(gd_verify(folder, &options, &result, &err), GD_OK);
  assert_true(result.ok);
  disturb(folder, file, tensor, factor);
  assert_int_equal(gd_verify(folder, &options, &result, &err), GD_OK);
  assert_false(result.ok);
}

static void test_misses_are_seen(void **state) {
  (void)state;
  expect_miss("reference.safetensors", "loss", 1.0001f);
  expect_miss("reference.safetensors", "losses", 1.001f);
  expect_miss("reference.safetensors", "grad.gpt_neox.final_layer_norm.weight", 1.1f);
  expect_miss("model.safetensors", "gpt_neox.layers.0.attention.dense.weight", 3.0f);
}

static void test_bad_folders(void **state) {
  char folder[600], path[700];
  struct gd_verify_options options = {.backend = "ref", .precision = GD_PRECISION_FP32};
  struct gd_verify_result result;
  struct gd_error err = {0};
  (void)state;
  assert_int_equal(gd_verify("/nonexistent", &options, &result, &err), GD_BAD_INPUT);
  copy_reference("neox-tied", folder, sizeof folder);
  snprintf(path, sizeof path, "%s/model.safetensors", folder);
  assert_int_equal(truncate(path, 1000), 0);
  err = (struct gd_error){0};
  assert_int_equal(gd_verify(folder, &options, &result, &err), GD_BAD_INPUT);
  assert_non_null(strstr(err.text, "model.safetensors"));
  copy_reference("neox-tied", folder, sizeof folder); /* weights of another model */
  snprintf(path, sizeof path, "%s/model.safetensors", folder);
  copy_file(GD_SOURCE_DIR "/tests/reference/neox-serial/model.safetensors", path);
  err = (struct gd_error){0};
  assert_int_equal(gd_verify(folder, &options, &result, &err), GD_BAD_INPUT);
  assert_non_null(strstr(err.text, "tensor"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_ref_fp32),    cmocka_unit_test(test_cpu_fp32),
      cmocka_unit_test(test_ref_16_bit),  cmocka_unit_test(test_cpu_16_bit),
      cmocka_unit_test(test_free_lunch),  cmocka_unit_test(test_misses_are_seen),
      cmocka_unit_test(test_bad_folders),
  };
  return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
