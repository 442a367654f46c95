/*
 * Token files of every format, and the order that samples come in.
 */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data/dataset.h"
#include "data/permute.h"
#include "support/ok.h"

static char folder[256];

static int make_folder(void **state) {
  (void)state;
  const char *base = getenv("TMPDIR");
  snprintf(folder, sizeof folder, "%s/dataset-XXXXXX", base ? base : "/tmp");
  return mkdtemp(folder) ? 0 : -1;
}

/* A file of that name; count pieces of size bytes behind head. */
static const char *put(const char *name, const void *head, size_t head_bytes, const void *body,
                       size_t body_bytes) {
  static char path[512];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *file = fopen(path, "wb");
  assert_non_null(file);
  if (head_bytes)
    assert_int_equal(fwrite(head, 1, head_bytes, file), head_bytes);
  if (body_bytes)
    assert_int_equal(fwrite(body, 1, body_bytes, file), body_bytes);
  assert_int_equal(fclose(file), 0);
  return path;
}

enum { COUNT = 1000 };
static uint16_t shorts[COUNT];
static uint32_t words[COUNT];

static void fill(void) {
  for (int i = 0; i < COUNT; i++)
    words[i] = shorts[i] = (uint16_t)(i * 7 % 997 + 300);
}

static void check_file(const char *path, int width, enum gd_token_format format, int found_width) {
  struct gd_token_file file;
  struct gd_error err = {0};
  int32_t ids[COUNT];
  OK(gd_token_file_open(&file, path, width, &err));
  assert_int_equal(file.format, format);
  assert_int_equal(file.width, found_width);
  assert_int_equal(file.count, COUNT);
  OK(gd_token_file_read(&file, 0, COUNT, 2000, ids, &err));
  for (int i = 0; i < COUNT; i++)
    assert_int_equal(ids[i], words[i]);
  gd_token_file_prefetch(&file, 10, 20);
  /* A vocabulary that is too small: file, position and id are named. */
  assert_int_equal(gd_token_file_read(&file, 0, COUNT, 305, ids, &err), GD_BAD_INPUT);
  assert_non_null(strstr(err.text, path));
  assert_non_null(strstr(err.text, "token 1 is 307"));
  gd_token_file_close(&file);
}

/* As Megatron-LM writes it: three sequences in two documents, of int32. */
#pragma pack(push, 1)
struct index {
  char magic[9];
  int64_t version;
  unsigned char dtype;
  int64_t sequences, documents;
  int32_t lengths[3];
  int64_t starts[3], firsts[3];
};
#pragma pack(pop)

static struct index good_index(void) {
  return (struct index){.magic = "MMIDIDX",
                        .version = 1,
                        .dtype = 4,
                        .sequences = 3,
                        .documents = 3,
                        .lengths = {500, 0, 500},
                        .starts = {0, 2000, 2000},
                        .firsts = {0, 2, 3}};
}

static void test_formats(void **state) {
  (void)state;
  int32_t header[256] = {20240520, 1, COUNT};
  char numpy[128];
  fill();
  check_file(put("raw16.bin", NULL, 0, shorts, sizeof shorts), 0, GD_TOKENS_RAW, 2);
  check_file(put("raw32.bin", NULL, 0, words, sizeof words), 0, GD_TOKENS_RAW, 4);
  check_file(put("raw32b.bin", NULL, 0, words, sizeof words), 4, GD_TOKENS_RAW, 4);
  check_file(put("llmc.bin", header, sizeof header, shorts, sizeof shorts), 0, GD_TOKENS_LLMC, 2);
  header[0] = 20240801;
  header[1] = 7;
  check_file(put("llama3.bin", header, sizeof header, words, sizeof words), 0, GD_TOKENS_LLMC, 4);
  memset(numpy, ' ', sizeof numpy);
  memcpy(numpy, "\x93NUMPY\x01\x00\x76\x00", 10);
  const char *dict = "{'descr': '<u2', 'fortran_order': False, 'shape': (1000,), }";
  memcpy(numpy + 10, dict, strlen(dict));
  numpy[127] = '\n';
  check_file(put("a.npy", numpy, sizeof numpy, shorts, sizeof shorts), 0, GD_TOKENS_NUMPY, 2);
  struct index index = good_index();
  put("mega.idx", &index, sizeof index, NULL, 0);
  check_file(put("mega.bin", NULL, 0, words, sizeof words), 0, GD_TOKENS_MEGATRON, 4);
  struct {
    struct index index;
    unsigned char modes[3];
  } multimodal = {index, {0}};
  put("mega.idx", &multimodal, sizeof multimodal, NULL, 0);
  check_file(put("mega.bin", NULL, 0, words, sizeof words), 0, GD_TOKENS_MEGATRON, 4);
}

static void refuse(const char *path, int width, const char *why) {
  struct gd_token_file file;
  struct gd_error err = {0};
  assert_int_equal(gd_token_file_open(&file, path, width, &err), GD_BAD_INPUT);
  if (!strstr(err.text, why))
    fail_msg("\"%s\" lacks \"%s\"", err.text, why);
  assert_null(file.map);
}

static void test_refused(void **state) {
  (void)state;
  int32_t header[256] = {20240520, 1, 5000};
  char numpy[128];
  fill();
  refuse(put("cut.bin", header, sizeof header, shorts, sizeof shorts), 0, "the file is cut");
  refuse(put("empty.bin", NULL, 0, NULL, 0), 0, "is empty");
  refuse(put("odd.bin", NULL, 0, shorts, 1001), 0, "no whole number of ids");
  refuse(put("text.txt", NULL, 0, "All work and no play\n", 21), 0, "is text");
  refuse(folder, 0, "is no regular file");
  refuse("/nonexistent/file", 0, "No such file");
  memset(numpy, ' ', sizeof numpy);
  memcpy(numpy, "\x93NUMPY\x01\x00\x76\x00", 10);
  const char *dict = "{'descr': '<f4', 'fortran_order': False, 'shape': (1000,), }";
  memcpy(numpy + 10, dict, strlen(dict));
  refuse(put("f.npy", numpy, sizeof numpy, words, sizeof words), 0, "little-endian integers");
  refuse(put("short.npy", numpy, 12, NULL, 0), 0, "cut or damaged");
}

/* Everything that a header or an index says is looked at before anything is trained. */
static void test_headers(void **state) {
  (void)state;
  int32_t header[256] = {20240520, 7, COUNT};
  fill();
  refuse(put("v.bin", header, sizeof header, shorts, sizeof shorts), 0,
         "says version 7 at byte 4, and llm.c writes 1");
  header[1] = 1;
  header[2] = COUNT - 1;
  refuse(put("less.bin", header, sizeof header, shorts, sizeof shorts), 0,
         "says 999 tokens of 2 bytes, and 2000 bytes follow");
  header[2] = COUNT;
  refuse(put("odd.bin", header, sizeof header, shorts, sizeof shorts - 1), 0,
         "says 1000 tokens of 2 bytes, and 1999 bytes follow");
  /* A raw file of uint32 that lost two bytes is none of uint16; likewise one byte, or three. */
  for (size_t lost = 1; lost < 4; lost++)
    refuse(put("raw.bin", NULL, 0, words, sizeof words - lost), 0,
           "no whole number of ids of 4 bytes: the file is cut in token 999");
  struct gd_token_file file;
  struct gd_error err = {0};
  OK(gd_token_file_open(&file, put("raw.bin", NULL, 0, words, sizeof words - 2), 2, &err));
  gd_token_file_close(&file);
  OK(gd_token_file_open(&file, put("raw.bin", NULL, 0, shorts, sizeof shorts - 2), 0, &err));
  assert_int_equal(file.width, 2);
  gd_token_file_close(&file);
}

static int width_of(const void *ids, size_t bytes) {
  struct gd_token_file file;
  struct gd_error err = {0};
  OK(gd_token_file_open(&file, put("width.bin", NULL, 0, ids, bytes), 0, &err));
  int width = file.width;
  gd_token_file_close(&file);
  return width;
}

/* Ids so small that upper and lower halves look alike, and files that begin with padding. */
static void test_small_ids(void **state) {
  (void)state;
  enum { MANY = 20000 };
  static uint32_t wide[MANY];
  static uint16_t narrow[2 * MANY];
  for (int i = 0; i < MANY; i++) {
    wide[i] = (uint32_t)(i * 7 % 4); /* bases of DNA */
    narrow[2 * i] = (uint16_t)(i * 7 % 4);
    narrow[2 * i + 1] = (uint16_t)(i * 5 % 4);
  }
  assert_int_equal(width_of(wide, sizeof wide), 4);
  assert_int_equal(width_of(wide, 400), 4);
  assert_int_equal(width_of(narrow, sizeof narrow), 2);
  assert_int_equal(width_of(narrow, sizeof narrow - 2), 2);
  refuse(put("dna.bin", NULL, 0, wide, sizeof wide - 2), 0, "the file is cut in token 19999");
  memset(wide, 0, MANY / 2 * sizeof *wide);
  memset(narrow, 0, (MANY + 2) * sizeof *narrow);
  assert_int_equal(width_of(wide, sizeof wide), 4);
  assert_int_equal(width_of(narrow, sizeof narrow), 2);
  for (int i = MANY / 2; i < MANY; i++) {
    wide[i] = (uint32_t)(100000 + i);
    narrow[2 * i] = narrow[2 * i + 1] = (uint16_t)(i % 50000);
  }
  assert_int_equal(width_of(wide, sizeof wide), 4);
  assert_int_equal(width_of(narrow, sizeof narrow), 2);
  memset(narrow, 0, sizeof narrow);
  assert_int_equal(width_of(narrow, sizeof narrow), 2);
}

static void refuse_index(const struct index *index, size_t bytes, const char *why) {
  put("bad.idx", index, bytes, NULL, 0);
  refuse(put("bad.bin", NULL, 0, words, sizeof words), 0, why);
}

static void test_index(void **state) {
  (void)state;
  struct index x = good_index();
  fill();
  refuse_index(&x, 33, "is no index of Megatron-LM");
  refuse_index(&x, sizeof x - 1, "the index is cut or damaged");
  refuse_index(&x, sizeof x - 24, "says 3 sequences and 3 documents, and 36 bytes follow");
  x.version = 2;
  refuse_index(&x, sizeof x, "says version 2 at byte 9");
  x = good_index();
  x.dtype = 6; /* float64 */
  refuse_index(&x, sizeof x, "has no token ids");
  x = good_index();
  x.sequences = INT64_MAX / 2;
  refuse_index(&x, sizeof x, "the index is cut or damaged");
  x = good_index();
  x.documents = -1;
  refuse_index(&x, sizeof x, "the index is cut or damaged");
  x = good_index();
  x.lengths[1] = -7;
  refuse_index(&x, sizeof x, "sequence 1 has -7 tokens: the index is damaged at byte 38");
  x = good_index();
  x.starts[1] = 1996;
  refuse_index(&x, sizeof x,
               "sequence 1 begins at byte 1996, and the one before ends at 2000: the index is "
               "damaged at byte 54");
  x = good_index();
  x.lengths[2] = 499;
  refuse_index(&x, sizeof x, "has sequences of 3996 bytes, and ");
  x = good_index();
  x.firsts[1] = 4;
  refuse_index(&x, sizeof x, "document 1 begins at sequence 4 of 3");
  x = good_index();
  x.firsts[2] = 2;
  refuse_index(&x, sizeof x, "document 2 begins at sequence 2 of 3");
}

/* A file of 100 GB costs no more than its first page. */
static void test_large(void **state) {
  (void)state;
  struct gd_token_file file;
  struct gd_error err = {0};
  const char *path = put("large.bin", NULL, 0, shorts, sizeof shorts);
  int32_t id = -1;
  if (truncate(path, INT64_C(100000000000)) != 0)
    skip();
  OK(gd_token_file_open(&file, path, 2, &err));
  assert_int_equal(file.count, INT64_C(50000000000));
  OK(gd_token_file_read(&file, file.count - 1, 1, 10, &id, &err));
  assert_int_equal(id, 0);
  gd_token_file_close(&file);
  unlink(path);
}

static void test_permutation(void **state) {
  (void)state;
  static const uint64_t counts[] = {1, 2, 3, 5, 64, 1000, 4097};
  for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
    for (uint64_t key = 0; key < 3; key++) {
      bool seen[4097] = {false};
      uint64_t fixed = 0;
      for (uint64_t i = 0; i < counts[c]; i++) {
        uint64_t at = gd_permute(key, counts[c], i);
        assert_true(at < counts[c] && !seen[at]);
        seen[at] = true;
        fixed += at == i;
      }
      assert_true(counts[c] < 64 || fixed < counts[c] / 8); /* about one is expected */
    }
  assert_true(gd_permute(1, UINT64_C(1) << 40, 12345) < UINT64_C(1) << 40);
}

static void open_data(struct gd_dataset *data, const char *const *files, int n, bool causal,
                      uint64_t seed) {
  struct gd_error err = {0};
  OK(gd_dataset_open(data,
                     &(struct gd_dataset_options){.files = files,
                                                  .n_files = n,
                                                  .seq = 11,
                                                  .vocabulary = 2000,
                                                  .causal = causal,
                                                  .mask_token = 1999,
                                                  .seed = seed},
                     &err));
}

/* Every token but the first is predicted once an epoch, in an order of the seed and the epoch. */
static void test_epoch(void **state) {
  (void)state;
  struct gd_dataset data;
  struct gd_error err = {0};
  char a[512], b[512];
  fill();
  snprintf(a, sizeof a, "%s", put("a.bin", NULL, 0, shorts, sizeof shorts));
  snprintf(b, sizeof b, "%s", put("b.bin", NULL, 0, shorts, 501 * sizeof *shorts));
  const char *files[] = {a, b};
  open_data(&data, files, 2, true, 7);
  assert_int_equal(data.sequences, 99 + 50);
  for (int64_t epoch = 0; epoch < 2; epoch++) {
    bool seen[2][99] = {{false}};
    int in_place = 0;
    for (int64_t i = 0; i < data.sequences; i++) {
      struct gd_sample sample;
      int32_t ids[11], labels[11];
      gd_dataset_locate(&data, epoch * data.sequences + i, &sample);
      assert_int_equal(sample.epoch, epoch);
      assert_false(seen[sample.part][sample.sequence]);
      seen[sample.part][sample.sequence] = true;
      in_place += sample.part == 0 && sample.sequence == i;
      OK(gd_dataset_read(&data, epoch * data.sequences + i, ids, labels, &err));
      for (int j = 0; j < 11; j++) {
        assert_int_equal(ids[j], words[sample.sequence * 10 + j]);
        assert_int_equal(labels[j], ids[j]);
      }
    }
    assert_true(in_place < 20);
  }
  struct gd_sample first, second;
  gd_dataset_locate(&data, 0, &first);
  gd_dataset_locate(&data, data.sequences, &second);
  assert_true(first.sequence != second.sequence || first.part != second.part);
  gd_dataset_close(&data);
}

static void test_weights(void **state) {
  (void)state;
  struct gd_dataset data;
  char a[520], b[520];
  fill();
  snprintf(a, sizeof a, "%s:3", put("a.bin", NULL, 0, shorts, sizeof shorts));
  snprintf(b, sizeof b, "%s:1", put("b.bin", NULL, 0, shorts, 501 * sizeof *shorts));
  const char *files[] = {a, b};
  open_data(&data, files, 2, true, 7);
  int64_t count[2] = {0, 0}, epochs = 0;
  bool seen[99] = {false};
  for (int64_t i = 0; i < 4000; i++) {
    struct gd_sample sample;
    gd_dataset_locate(&data, i, &sample);
    count[sample.part]++;
    if (sample.part == 0 && sample.epoch == 0) {
      assert_false(seen[sample.sequence]);
      seen[sample.sequence] = true;
    }
    epochs = sample.part == 1 && sample.epoch > epochs ? sample.epoch : epochs;
    assert_true(labs(count[0] - 3 * count[1]) <= 4); /* any stretch has the proportions */
  }
  assert_int_equal(epochs, 19); /* 1,000 samples of 50 sequences */
  gd_dataset_close(&data);
}

/* 15 % of the tokens are predicted: of these 80 % masked, 10 % random, 10 % as they were; and not
   the same ones in the next epoch. */
static void test_masks(void **state) {
  (void)state;
  struct gd_dataset data;
  struct gd_error err = {0};
  static uint16_t many[200001];
  char a[512];
  int64_t predicted = 0, masked = 0, kept = 0, same = 0;
  for (int i = 0; i < 200001; i++)
    many[i] = (uint16_t)(i % 1900);
  snprintf(a, sizeof a, "%s", put("m.bin", NULL, 0, many, sizeof many));
  const char *files[] = {a};
  open_data(&data, files, 1, false, 3);
  assert_int_equal(data.stride, 11);
  bool *before = calloc((size_t)data.sequences * 11, sizeof *before); // NOLINT: a test's own
  assert_non_null(before);
  for (int64_t i = 0; i < 2 * data.sequences; i++) {
    int32_t ids[11], labels[11];
    struct gd_sample sample;
    gd_dataset_locate(&data, i, &sample);
    OK(gd_dataset_read(&data, i, ids, labels, &err));
    for (int j = 0; j < 11; j++) {
      int64_t at = sample.sequence * 11 + j;
      if (labels[j] == -100) {
        assert_int_equal(ids[j], many[at]);
        continue;
      }
      assert_int_equal(labels[j], many[at]);
      predicted++;
      masked += ids[j] == 1999;
      kept += ids[j] == many[at];
      same += sample.epoch == 1 && before[at];
      before[at] |= sample.epoch == 0;
    }
  }
  double tokens = 22.0 * (double)data.sequences, n = (double)predicted;
  free(before); // NOLINT: a test's own
  /* One label at least in every sequence of 11: 0.85^11 of them have it by force. */
  assert_true(n / tokens > 0.155 && n / tokens < 0.175);
  assert_true((double)masked / n > 0.78 && (double)masked / n < 0.82);
  assert_true((double)kept / n > 0.08 && (double)kept / n < 0.12);
  assert_true((double)same / n < 0.2);
  gd_dataset_close(&data);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_formats),     cmocka_unit_test(test_refused),
      cmocka_unit_test(test_headers),     cmocka_unit_test(test_small_ids),
      cmocka_unit_test(test_index),       cmocka_unit_test(test_large),
      cmocka_unit_test(test_permutation), cmocka_unit_test(test_epoch),
      cmocka_unit_test(test_weights),     cmocka_unit_test(test_masks),
  };
  return cmocka_run_group_tests(tests, make_folder, NULL);
}
