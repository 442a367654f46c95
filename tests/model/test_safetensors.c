/*
 * safetensors: what a hostile, truncated or damaged file gets is a sentence; what a good one gives
 * is every tensor; what is written comes back, or nothing was written.
 */
#define _POSIX_C_SOURCE 200809L
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/safetensors.h"
#include "support/fault.h"
#include "support/scratch.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* A file in memory: the length, the header, then data_bytes bytes 0, 1, 2, ... */
struct image {
  unsigned char bytes[4096];
  int64_t length;
};

static void make_image(struct image *image, const char *header, int64_t data_bytes) {
  uint64_t length = strlen(header);
  assert_true(8 + (int64_t)length + data_bytes <= (int64_t)sizeof image->bytes);
  for (int i = 0; i < 8; i++)
    image->bytes[i] = (unsigned char)(length >> (8 * i));
  memcpy(image->bytes + 8, header, length);
  for (int64_t i = 0; i < data_bytes; i++)
    image->bytes[8 + (int64_t)length + i] = (unsigned char)i;
  image->length = 8 + (int64_t)length + data_bytes;
}

static const char good_header[] =
    "{\"__metadata__\":{\"format\":\"pt\"},"
    "\"b\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
    "\"a.weight\":{\"dtype\":\"BF16\",\"shape\":[3],\"data_offsets\":[24,30]},"
    "\"scalar\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[30,38]},"
    "\"empty\":{\"dtype\":\"F32\",\"shape\":[0,7],\"data_offsets\":[38,38]},"
    "\"half\":{\"dtype\":\"F4\",\"shape\":[4],\"data_offsets\":[38,40]}}   ";

static void test_good(void **state) {
  (void)state;
  struct image image;
  struct gd_safetensors file;
  struct gd_error err = {0};
  int64_t blocks = gd_mem_live_blocks();
  make_image(&image, good_header, 40);
  assert_int_equal(gd_safetensors_parse(&file, "good", image.bytes, image.length, &err), GD_OK);
  assert_int_equal(file.count, 5);
  for (uint32_t i = 1; i < file.count; i++)
    assert_true(strcmp(file.tensors[i - 1].name, file.tensors[i].name) < 0);
  const struct gd_safetensor *b = gd_safetensors_find(&file, "b");
  assert_non_null(b);
  assert_true(b->dtype_known && b->dtype == GD_DTYPE_F32);
  assert_int_equal(b->rank, 2);
  assert_int_equal(b->dims[1], 3);
  assert_int_equal(b->bytes, 24);
  assert_ptr_equal(b->data, image.bytes + image.length - 40);
  const struct gd_safetensor *scalar = gd_safetensors_find(&file, "scalar");
  assert_non_null(scalar);
  assert_int_equal(scalar->rank, 0);
  assert_false(scalar->dtype_known);
  assert_string_equal(scalar->dtype_name, "I64");
  assert_true(gd_safetensor_value(scalar, 0) == (float)0x2524232221201f1eLL);
  const struct gd_safetensor *half = gd_safetensors_find(&file, "half");
  assert_non_null(half);
  assert_true(isnan(gd_safetensor_value(half, 3)));
  assert_int_equal(gd_safetensors_find(&file, "empty")->bytes, 0);
  assert_null(gd_safetensors_find(&file, "c"));
  assert_null(gd_safetensors_find(&file, "__metadata__"));
  gd_safetensors_close(&file);
  gd_safetensors_close(&file);
  assert_int_equal(gd_mem_live_blocks(), blocks);

  make_image(&image, "{}", 0);
  assert_int_equal(gd_safetensors_parse(&file, "none", image.bytes, image.length, &err), GD_OK);
  assert_int_equal(file.count, 0);
  assert_null(gd_safetensors_find(&file, "a"));
  gd_safetensors_close(&file);
}

#define TENSOR(dtype, shape, offsets) \
  "{\"x\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}}"
#define OVERLAPPING                                                 \
  "{\"x\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}," \
  "\"y\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[2,6]}}"

static const struct {
  const char *header;
  int64_t data_bytes;
  enum gd_status status;
  const char *sentence;
} bad_headers[] = {
    {"", 0, GD_BAD_INPUT, "m: byte 8: the header does not start with '{'"},
    {"[]", 0, GD_BAD_INPUT, "m: byte 8: the header does not start with '{'"},
    {" {}", 0, GD_BAD_INPUT, "m: byte 8: the header does not start with '{'"},
    {"{\"x\":}", 0, GD_BAD_INPUT, "m: byte 14: the header is not JSON: unexpected token near '}'"},
    {"{\"x\"", 0, GD_BAD_INPUT,
     "m: byte 12: the header is not JSON: ':' expected near end of file"},
    {"{\"x\":{},\"x\":{}}", 0, GD_BAD_INPUT,
     "m: byte 19: the header is not JSON: duplicate object key near '\"x\"'"},
    {"{\"x\":3}", 0, GD_BAD_INPUT, "m: tensor \"x\": its entry is not an object"},
    {"{\"x\":{}}", 0, GD_BAD_INPUT, "m: tensor \"x\": dtype is not a string"},
    {"{\"a\\nb\":{}}", 0, GD_BAD_INPUT, "m: tensor \"a?b\": dtype is not a string"},
    {TENSOR("Q4\\u001b", "[]", "[0,4]"), 4, GD_UNSUPPORTED,
     "m: tensor \"x\": dtype \"Q4?\" is not known; F32, BF16, F16, F64, I64, I32 and the format's "
     "smaller ones are"},
    {TENSOR("F32", "4", "[0,4]"), 4, GD_BAD_INPUT,
     "m: tensor \"x\": shape is not an array of sizes"},
    {TENSOR("F32", "[1,1,1,1,1,1,1,1,1]", "[0,4]"), 4, GD_UNSUPPORTED,
     "m: tensor \"x\": shape has 9 dims; at most 8 are read"},
    {TENSOR("F32", "[1,-1]", "[0,4]"), 4, GD_BAD_INPUT,
     "m: tensor \"x\": shape[1] is not a whole number of at least 0"},
    {TENSOR("F32", "[1.0]", "[0,4]"), 4, GD_BAD_INPUT,
     "m: tensor \"x\": shape[0] is not a whole number of at least 0"},
    {TENSOR("F32", "[1]", "[0]"), 4, GD_BAD_INPUT,
     "m: tensor \"x\": data_offsets is not [begin, end]"},
    {TENSOR("F32", "[1]", "[0,4,8]"), 4, GD_BAD_INPUT,
     "m: tensor \"x\": data_offsets is not [begin, end]"},
    {TENSOR("F32", "[1]", "[0,\\\"4\\\"]"), 4, GD_BAD_INPUT, NULL},
    {TENSOR("F32", "[1]", "[4,0]"), 4, GD_BAD_INPUT,
     "m: tensor \"x\": data_offsets [4,0] is not a range"},
    {TENSOR("F32", "[1]", "[-4,0]"), 4, GD_BAD_INPUT,
     "m: tensor \"x\": data_offsets [-4,0] is not a range"},
    {TENSOR("F32", "[100]", "[0,400]"), 300, GD_BAD_INPUT,
     "m: tensor \"x\": data_offsets [0,400] reach past the file, which holds 300 bytes of data "
     "from "
     "byte 66 on; is the download complete?"},
    {TENSOR("F32", "[1]", "[9223372036854775807,9223372036854775807]"), 4, GD_BAD_INPUT, NULL},
    {TENSOR("F32", "[10,11]", "[0,400]"), 400, GD_BAD_INPUT,
     "m: tensor \"x\": data_offsets [0,400] hold 400 bytes but F32 [10,11] needs 440"},
    {TENSOR("I64", "[]", "[0,4]"), 4, GD_BAD_INPUT,
     "m: tensor \"x\": data_offsets [0,4] hold 4 bytes but I64 [] needs 8"},
    {TENSOR("F32", "[4611686018427387904,4611686018427387904]", "[0,0]"), 0, GD_BAD_INPUT,
     "m: tensor \"x\": F32 [4611686018427387904,4611686018427387904] has more elements than can be "
     "counted"},
    {TENSOR("F4", "[3]", "[0,2]"), 2, GD_BAD_INPUT,
     "m: tensor \"x\": F4 [3] does not fill whole bytes"},
    {OVERLAPPING, 6, GD_BAD_INPUT, "m: byte 115: tensors \"x\" [0,4] and \"y\" [2,6] overlap"},
    {"{\"x\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
     "\"y\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[6,10]}}",
     10, GD_BAD_INPUT, "m: byte 118: 2 bytes before tensor \"y\" belong to no tensor"},
    {TENSOR("U8", "[4]", "[0,4]"), 9, GD_BAD_INPUT,
     "m: byte 65: the last 5 bytes belong to no tensor"},
    {"{}", 1, GD_BAD_INPUT, "m: byte 10: the last 1 bytes belong to no tensor"},
    {"{\"__metadata__\":[]}", 0, GD_BAD_INPUT, "m: __metadata__ is not an object of strings"},
    {"{\"__metadata__\":{\"a\":1}}", 0, GD_BAD_INPUT, "m: __metadata__: \"a\" is not a string"},
};

static void test_bad_headers(void **state) {
  (void)state;
  struct image image;
  struct gd_safetensors file;
  int64_t blocks = gd_mem_live_blocks();
  for (size_t i = 0; i < COUNT(bad_headers); i++) {
    struct gd_error err = {0};
    make_image(&image, bad_headers[i].header, bad_headers[i].data_bytes);
    enum gd_status status = gd_safetensors_parse(&file, "m", image.bytes, image.length, &err);
    assert_int_equal(status, bad_headers[i].status);
    if (bad_headers[i].sentence)
      assert_string_equal(err.text, bad_headers[i].sentence);
    assert_null(file.tensors);
    assert_int_equal(gd_mem_live_blocks(), blocks);
  }
}

static void expect_start(const void *bytes, int64_t length, const char *sentence) {
  struct gd_safetensors file;
  struct gd_error err = {0};
  assert_int_equal(gd_safetensors_parse(&file, "m", bytes, length, &err), GD_BAD_INPUT);
  assert_string_equal(err.text, sentence);
}

static void test_bad_start(void **state) {
  (void)state;
  struct image image;
  expect_start("abc", 3,
               "m: byte 0: the file has 3 bytes and a safetensors file starts with 8; is the "
               "download complete?");
  make_image(&image, good_header, 40);
  image.bytes[1] = 2; /* the header's length becomes 512 and more */
  expect_start(image.bytes, 308,
               "m: byte 8: the header is 587 bytes but the file ends after 300; is the download "
               "complete?");
  memset(image.bytes, 0xff, 8);
  expect_start(
      image.bytes, image.length,
      "m: byte 0: a header of 18446744073709551615 bytes is past the format's limit of 100 "
      "MB; is this a safetensors file?");
  expect_start("version https://git-lfs.github.com/spec/v1\n", 43,
               "m: byte 0: this is a Git LFS pointer, not the file itself; run git lfs pull");
  expect_start("PK\x03\x04 and so on", 12,
               "m: byte 0: this is a zip archive (a PyTorch checkpoint?); convert it to "
               "safetensors");
  expect_start(
      "{\"a\": {}}", 9,
      "m: byte 0: this is JSON text, without the 8 bytes of header length that come first");
}

/* Every prefix of a good file is refused, from exactly as many bytes as there are. */
static void test_truncated(void **state) {
  (void)state;
  struct image image;
  struct gd_safetensors file;
  int64_t blocks = gd_mem_live_blocks();
  make_image(&image, good_header, 40);
  for (int64_t length = 0; length < image.length; length++) {
    struct gd_error err = {0};
    unsigned char *copy = gd_mem_alloc((size_t)length, 1); /* so that ASan sees the end */
    memcpy(copy, image.bytes, (size_t)length);
    assert_int_equal(gd_safetensors_parse(&file, "m", copy, length, &err), GD_BAD_INPUT);
    gd_mem_free(copy);
  }
  assert_int_equal(gd_mem_live_blocks(), blocks);
}

/* Every byte of the header changed in several ways: refused, or every tensor is inside the file. */
static void test_damaged(void **state) {
  (void)state;
  static const unsigned char changes[] = {0x01, 0x02, 0x08, 0x10, 0x20, 0x80, 0xff};
  struct image image, damaged;
  struct gd_safetensors file;
  make_image(&image, good_header, 40);
  for (int64_t at = 0; at < image.length - 40; at++)
    for (size_t change = 0; change < COUNT(changes); change++) {
      struct gd_error err = {0};
      damaged = image;
      damaged.bytes[at] ^= changes[change];
      if (gd_safetensors_parse(&file, "m", damaged.bytes, damaged.length, &err) != GD_OK)
        continue;
      for (uint32_t i = 0; i < file.count; i++) {
        const unsigned char *data = file.tensors[i].data;
        assert_true(data >= damaged.bytes);
        assert_true(data + file.tensors[i].bytes <= damaged.bytes + damaged.length);
      }
      gd_safetensors_close(&file);
    }
}

static void test_values(void **state) {
  (void)state;
  static const struct {
    const char *dtype;
    int size;
    unsigned char bytes[8]; /* element 1; element 0 is zeros */
    float value;
  } cases[] = {
      {"F32", 4, {0, 0, 0xc0, 0xbf}, -1.5f},
      {"BF16", 2, {0xc0, 0xbf}, -1.5f},
      {"F16", 2, {0, 0xbe}, -1.5f},
      {"I32", 4, {0x9c, 0xff, 0xff, 0xff}, -100},
      {"I64", 8, {0x9c, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, -100},
      {"F64", 8, {0, 0, 0, 0, 0, 0, 0xf8, 0xbf}, -1.5f},
      {"U64", 8, {0, 0, 0, 0, 0, 0, 0, 0x80}, 0x1p63f},
      {"U32", 4, {0, 0, 0, 0x80}, 0x1p31f},
      {"I16", 2, {0xfe, 0xff}, -2},
      {"U16", 2, {0xfe, 0xff}, 65534},
      {"I8", 1, {0xfe}, -2},
      {"U8", 1, {0xfe}, 254},
      {"BOOL", 1, {1}, 1},
  };
  for (size_t i = 0; i < COUNT(cases); i++) {
    struct image image;
    struct gd_safetensors file;
    struct gd_error err = {0};
    char header[256];
    /* One byte in front leaves the tensor unaligned. */
    int length = snprintf(header, sizeof header,
                          "{\"p\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
                          "\"x\":{\"dtype\":\"%s\",\"shape\":[2],\"data_offsets\":[1,%d]}}",
                          cases[i].dtype, 1 + 2 * cases[i].size);
    make_image(&image, header, 1 + 2 * cases[i].size);
    memset(image.bytes + 8 + length, 0, 1 + (size_t)cases[i].size);
    memcpy(image.bytes + 8 + length + 1 + cases[i].size, cases[i].bytes, (size_t)cases[i].size);
    assert_int_equal(gd_safetensors_parse(&file, "m", image.bytes, image.length, &err), GD_OK);
    const struct gd_safetensor *x = gd_safetensors_find(&file, "x");
    assert_non_null(x);
    assert_true(gd_safetensor_value(x, 0) == 0.0f);
    assert_true(gd_safetensor_value(x, 1) == cases[i].value);
    gd_safetensors_close(&file);
  }
}

static void test_files(void **state) {
  (void)state;
  struct gd_safetensors file;
  struct gd_error err = {0};
  int64_t blocks = gd_mem_live_blocks();
  assert_int_equal(gd_safetensors_open(&file, scratch_path("none.safetensors"), &err),
                   GD_BAD_INPUT);
  assert_non_null(strstr(err.text, "cannot be opened: No such file or directory"));
  err = (struct gd_error){0};
  scratch_write("empty.safetensors", "", 0);
  assert_int_equal(gd_safetensors_open(&file, scratch_path("empty.safetensors"), &err),
                   GD_BAD_INPUT);
  assert_non_null(strstr(err.text, "the file is empty; is the download complete?"));
  err = (struct gd_error){0};
  assert_int_equal(gd_safetensors_open(&file, "/dev/null", &err), GD_BAD_INPUT);
  assert_string_equal(err.text, "/dev/null: not a file of bytes; name a safetensors file");
  err = (struct gd_error){0};
  assert_int_equal(mkfifo(scratch_path("pipe"), 0600), 0);
  assert_int_equal(gd_safetensors_open(&file, scratch_path("pipe"), &err), GD_BAD_INPUT);
  err = (struct gd_error){0};
  assert_int_equal(gd_safetensors_open(&file, scratch_path(""), &err), GD_BAD_INPUT);
  assert_non_null(strstr(
      err.text, ": the folder has neither model.safetensors nor model.safetensors.index.json"));
  assert_int_equal(gd_mem_live_blocks(), blocks);
}

static const int64_t dims_23[] = {2, 3}, dims_5[] = {5}, dims_04[] = {0, 4};
static const float values_23[] = {1, 2, 3, 4, 5, 6};
static const uint16_t values_5[] = {0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0};
static const int32_t value_1[] = {-100};

static const struct gd_safetensor_out outs[] = {
    {"z.half", GD_DTYPE_BF16, 1, dims_5, values_5},
    {"w \"quoted\" \\ \n", GD_DTYPE_F32, 2, dims_23, values_23},
    {"label", GD_DTYPE_I32, 0, NULL, value_1},
    {"nothing", GD_DTYPE_F16, 2, dims_04, NULL},
};

static void check_outs(const struct gd_safetensors *file, size_t first, size_t count) {
  for (size_t i = first; i < first + count; i++) {
    const struct gd_safetensor *tensor = gd_safetensors_find(file, outs[i].name);
    assert_non_null(tensor);
    assert_true(tensor->dtype_known);
    assert_int_equal(tensor->dtype, outs[i].dtype);
    assert_int_equal(tensor->rank, outs[i].rank);
    for (uint32_t d = 0; d < tensor->rank; d++)
      assert_int_equal(tensor->dims[d], outs[i].dims[d]);
    if (tensor->bytes > 0)
      assert_memory_equal(tensor->data, outs[i].data, (size_t)tensor->bytes);
    assert_int_equal((uintptr_t)tensor->data % (uintptr_t)gd_dtype_bytes(tensor->dtype), 0);
  }
}

static void test_write(void **state) {
  (void)state;
  struct gd_safetensors file;
  struct gd_error err = {0};
  const char *path = scratch_path("written/model.safetensors");
  scratch_write_text("written/model.safetensors", "what was there before");
  for (int round = 0; round < 2; round++) {
    assert_int_equal(gd_safetensors_write(path, outs, COUNT(outs), &err), GD_OK);
    assert_int_equal(gd_safetensors_open(&file, path, &err), GD_OK);
    assert_int_equal(file.count, COUNT(outs));
    check_outs(&file, 0, COUNT(outs));
    gd_safetensors_close(&file);
  }
  assert_int_equal(scratch_count("written"), 1);
  /* By its folder too, with and without the last slash. */
  assert_int_equal(gd_safetensors_open(&file, scratch_path("written"), &err), GD_OK);
  gd_safetensors_close(&file);
  assert_int_equal(gd_safetensors_open(&file, scratch_path("written/"), &err), GD_OK);
  gd_safetensors_close(&file);
  assert_int_equal(gd_safetensors_write(path, NULL, 0, &err), GD_OK);
  assert_int_equal(gd_safetensors_open(&file, path, &err), GD_OK);
  assert_int_equal(file.count, 0);
  gd_safetensors_close(&file);
}

static void test_write_failures(void **state) {
  (void)state;
  static const int64_t huge[] = {INT64_MAX / 2, 3}, negative[] = {-1};
  struct gd_error err = {0};
  struct stat about;
  assert_int_equal(gd_safetensors_write(scratch_path("no/folder/x"), outs, 1, &err),
                   GD_ENVIRONMENT);
  assert_non_null(strstr(err.text, "no/folder/x: No such file or directory"));
  err = (struct gd_error){0};
  scratch_write_text("file", "text");
  assert_int_equal(gd_safetensors_write(scratch_path("file/x"), outs, 1, &err), GD_ENVIRONMENT);
  assert_non_null(strstr(err.text, "Not a directory"));
  err = (struct gd_error){0};
  scratch_write_text("full/taken/file", "text");
  assert_int_equal(gd_safetensors_write(scratch_path("full/taken"), outs, 1, &err), GD_BAD_INPUT);
  assert_non_null(strstr(err.text, "full/taken is a folder; name a file"));
  assert_int_equal(scratch_count("full"), 1);

  struct gd_safetensor_out twice[] = {outs[0], outs[0]};
  err = (struct gd_error){0};
  assert_int_equal(gd_safetensors_write(scratch_path("x"), twice, 2, &err), GD_BAD_INPUT);
  assert_non_null(strstr(err.text, "tensor \"z.half\" is given twice"));
  struct gd_safetensor_out shapes[] = {{"h", GD_DTYPE_F32, 2, huge, NULL},
                                       {"n", GD_DTYPE_F32, 1, negative, NULL}};
  for (int i = 0; i < 2; i++) {
    err = (struct gd_error){0};
    assert_int_equal(gd_safetensors_write(scratch_path("x"), shapes + i, 1, &err), GD_BAD_INPUT);
  }
  assert_int_not_equal(stat(scratch_path("x"), &about), 0);
}

/* The limit on file sizes stands in for a full disk: the write stops halfway with a reason. */
static void test_full_disk(void **state) {
  (void)state;
  enum { ELEMENTS = 100000 };
  static const int64_t dims[] = {ELEMENTS};
  struct rlimit before, small;
  struct gd_error err = {0};
  struct gd_safetensors file;
  float *values = gd_mem_alloc(ELEMENTS, sizeof *values);
  struct gd_safetensor_out large = {"large", GD_DTYPE_F32, 1, dims, values};
  scratch_write_text("disk/.keep", "");
  assert_int_equal(gd_safetensors_write(scratch_path("disk/model"), outs, 1, &err), GD_OK);

  void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
  small = before;
  small.rlim_cur = 10000;
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
  enum gd_status status = gd_safetensors_write(scratch_path("disk/model"), &large, 1, &err);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
  signal(SIGXFSZ, handler);

  assert_int_equal(status, GD_ENVIRONMENT);
  assert_non_null(strstr(err.text, strerror(EFBIG)));
  assert_int_equal(scratch_count("disk"), 2); /* no temporary file stays behind */
  err = (struct gd_error){0};
  assert_int_equal(gd_safetensors_open(&file, scratch_path("disk/model"), &err), GD_OK);
  check_outs(&file, 0, 1); /* and the old file is as it was */
  gd_safetensors_close(&file);
  gd_mem_free(values);
}

static void write_shards(void) {
  struct gd_error err = {0};
  scratch_write_text("shards/model.safetensors.index.json",
                     "{\"metadata\": {\"total_size\": 38}, \"weight_map\": {"
                     "\"z.half\": \"model-1.safetensors\","
                     "\"w \\\"quoted\\\" \\\\ \\n\": \"model-1.safetensors\","
                     "\"label\": \"model-2.safetensors\"}}");
  assert_int_equal(gd_safetensors_write(scratch_path("shards/model-1.safetensors"), outs, 2, &err),
                   GD_OK);
  assert_int_equal(
      gd_safetensors_write(scratch_path("shards/model-2.safetensors"), outs + 2, 2, &err), GD_OK);
}

static void test_shards(void **state) {
  (void)state;
  static const char *const ways[] = {"shards", "shards/", "shards/model.safetensors.index.json"};
  struct gd_safetensors file;
  write_shards();
  for (size_t i = 0; i < COUNT(ways); i++) {
    struct gd_error err = {0};
    assert_int_equal(gd_safetensors_open(&file, scratch_path(ways[i]), &err), GD_OK);
    assert_int_equal(file.count, 3);
    assert_int_equal(file.map_count, 2);
    check_outs(&file, 0, 3);
    assert_null(gd_safetensors_find(&file, "nothing")); /* in a shard, not in the index */
    gd_safetensors_close(&file);
  }
}

static void test_bad_shards(void **state) {
  (void)state;
  static const struct {
    const char *index, *sentence;
  } cases[] = {
      {"{}", "weight_map is missing; expected an object of file names"},
      {"{\"weight_map\": {\"label\": 3}}", "weight_map.label is 3; expected a file name"},
      {"{\"weight_map\": {\"label\": \"../model-2.safetensors\"}}",
       "weight_map: \"../model-2.safetensors\" is not the name of a file next to the index"},
      {"{\"weight_map\": {\"label\": \"\"}}",
       "weight_map: \"\" is not the name of a file next to the index"},
      {"{\"weight_map\": {\"label\": \"model-3.safetensors\"}}",
       "model-3.safetensors: cannot be opened: No such file or directory"},
      {"{\"weight_map\": {\"label\": \"model-1.safetensors\"}}",
       "weight_map: model-1.safetensors does not have tensor \"label\"; do the files belong "
       "together?"},
      {"{\"weight_map\": {\"label\": \"..\"}}", "not a file of bytes; name a safetensors file"},
      {"{\"weight_map\": ", "is the file complete?"},
  };
  struct gd_safetensors file;
  int64_t blocks = gd_mem_live_blocks();
  write_shards();
  for (size_t i = 0; i < COUNT(cases); i++) {
    struct gd_error err = {0};
    scratch_write_text("shards/bad.index.json", cases[i].index);
    assert_int_equal(gd_safetensors_open(&file, scratch_path("shards/bad.index.json"), &err),
                     GD_BAD_INPUT);
    if (!strstr(err.text, cases[i].sentence))
      fail_msg("%s\nexpected: %s", err.text, cases[i].sentence);
    assert_int_equal(gd_mem_live_blocks(), blocks);
  }
}

/* What the safetensors library of Python wrote, read here and written again. */
static void test_reference(void **state) {
  (void)state;
  static const char *const files[] = {"neox-tied/model", "neox-tied/batch", "neox-tied/reference",
                                      "neox-v4-config/model"};
  for (size_t i = 0; i < COUNT(files); i++) {
    char path[1024];
    struct gd_safetensors file, again;
    struct gd_error err = {0};
    snprintf(path, sizeof path, "%s/tests/reference/%s.safetensors", GD_SOURCE_DIR, files[i]);
    if (gd_safetensors_open(&file, path, &err) != GD_OK)
      fail_msg("%s", err.text);
    assert_true(file.count >= 2);
    struct gd_safetensor_out *copies = gd_mem_alloc(file.count, sizeof *copies);
    uint32_t count = 0;
    for (uint32_t t = 0; t < file.count; t++) {
      const struct gd_safetensor *tensor = &file.tensors[t];
      if (tensor->dtype_known)
        copies[count++] = (struct gd_safetensor_out){tensor->name, tensor->dtype, tensor->rank,
                                                     tensor->dims, tensor->data};
    }
    assert_true(count >= 2);
    const char *copy = scratch_path("copy.safetensors");
    assert_int_equal(gd_safetensors_write(copy, copies, count, &err), GD_OK);
    assert_int_equal(gd_safetensors_open(&again, copy, &err), GD_OK);
    assert_int_equal(again.count, count);
    for (uint32_t t = 0; t < count; t++) {
      const struct gd_safetensor *tensor = gd_safetensors_find(&again, copies[t].name);
      assert_non_null(tensor);
      assert_memory_equal(tensor->data, copies[t].data, (size_t)tensor->bytes);
    }
    gd_safetensors_close(&again);
    gd_mem_free(copies);
    gd_safetensors_close(&file);
  }
}

static enum gd_status open_once(void *context, struct gd_error *err) {
  struct gd_safetensors file = {0};
  enum gd_status status = gd_safetensors_open(&file, context, err);
  gd_safetensors_close(&file);
  return status;
}

static enum gd_status write_once(void *context, struct gd_error *err) {
  return gd_safetensors_write(context, outs, COUNT(outs), err);
}

static void test_memory(void **state) {
  (void)state;
  char path[1024];
  write_shards();
  snprintf(path, sizeof path, "%s", scratch_path("shards"));
  assert_int_equal(fault_sweep(open_once, path), GD_OK);
  snprintf(path, sizeof path, "%s", scratch_path("shards/model-1.safetensors"));
  assert_int_equal(fault_sweep(open_once, path), GD_OK);
  struct image image;
  make_image(&image, OVERLAPPING, 6);
  scratch_write("bad.safetensors", image.bytes, (size_t)image.length);
  snprintf(path, sizeof path, "%s", scratch_path("bad.safetensors"));
  assert_int_equal(fault_sweep(open_once, path), GD_BAD_INPUT);
  scratch_write_text("memory/.keep", "");
  snprintf(path, sizeof path, "%s", scratch_path("memory/model"));
  assert_int_equal(fault_sweep(write_once, path), GD_OK);
  assert_int_equal(scratch_count("memory"), 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_good),           cmocka_unit_test(test_bad_headers),
      cmocka_unit_test(test_bad_start),      cmocka_unit_test(test_truncated),
      cmocka_unit_test(test_damaged),        cmocka_unit_test(test_values),
      cmocka_unit_test(test_files),          cmocka_unit_test(test_write),
      cmocka_unit_test(test_write_failures), cmocka_unit_test(test_full_disk),
      cmocka_unit_test(test_shards),         cmocka_unit_test(test_bad_shards),
      cmocka_unit_test(test_reference),      cmocka_unit_test(test_memory),
  };
  return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
