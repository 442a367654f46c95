/*
 * Images: decoded and resized as Pillow does it (tests/data/images, by tools/make_images.py), in an
 * order that threads, ranks and the kind of archive do not change; augmented as asked; and what is
 * broken is named.
 */
#define _POSIX_C_SOURCE 200809L
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "data/source.h"
#include "data/tar.h"
#include "support/ok.h"

#define IMAGES GD_SOURCE_DIR "/tests/data/images"

static char folder[256];

static int make_folder(void **state) {
  (void)state;
  const char *base = getenv("TMPDIR");
  snprintf(folder, sizeof folder, "%s/images-XXXXXX", base ? base : "/tmp");
  return mkdtemp(folder) ? 0 : -1;
}

static void read_file(const char *path, struct gd_strbuf *text) {
  struct gd_error err = {0};
  OK(gd_file_read(path, 1 << 20, text, &err));
}

static void write_file(const char *path, const char *bytes, size_t length) {
  FILE *file = fopen(path, "wb");
  assert_non_null(file);
  assert_int_equal(fwrite(bytes, 1, length, file), length);
  assert_int_equal(fclose(file), 0);
}

/* Width and height as little-endian uint32, then pixels: *text holds all, *image points into it. */
static void read_rgb(const char *path, struct gd_strbuf *text, struct gd_image *image) {
  int64_t sides[2] = {0};
  read_file(path, text);
  assert_true(text->length > 8);
  uint8_t *bytes = (uint8_t *)text->text;
  for (int i = 0; i < 8; i++)
    sides[i / 4] |= (int64_t)bytes[i] << 8 * (i % 4);
  *image = (struct gd_image){.rgb = bytes + 8, .width = sides[0], .height = sides[1]};
  assert_int_equal(text->length, 8 + 3 * sides[0] * sides[1]);
}

/* --- decoding and resizing ----------------------------------------------------------------- */

static void test_decode(void **state) {
  (void)state;
  static const char *const names[] = {"colour.png",  "grey.png",        "bits.png", "alpha.png",
                                      "palette.png", "gamma.png",       "deep.png", "colour.jpg",
                                      "full.jpg",    "progressive.jpg", "grey.jpg", "cmyk.jpg"};
  struct gd_image_codec codec;
  struct gd_image image = {0};
  struct gd_error err = {0};
  gd_image_codec_open(&codec);
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    char path[512];
    struct gd_strbuf file = {0}, reference = {0};
    struct gd_image right;
    snprintf(path, sizeof path, IMAGES "/codec/%s", names[i]);
    read_file(path, &file);
    snprintf(path, sizeof path, IMAGES "/codec/%s.rgb", names[i]);
    read_rgb(path, &reference, &right);
    OK(gd_image_decode(&codec, (uint8_t *)file.text, file.length, names[i], &image, &err));
    assert_int_equal(image.width, right.width);
    assert_int_equal(image.height, right.height);
    /* Versions of libjpeg-turbo round the inverse DCT differently, if at all; PNG is exact. */
    int most = strstr(names[i], ".jpg") ? 2 : 0;
    for (int64_t p = 0; p < 3 * right.width * right.height; p++)
      if (abs(image.rgb[p] - right.rgb[p]) > most)
        fail_msg("%s, byte %lld: %d, and Pillow has %d", names[i], (long long)p, image.rgb[p],
                 right.rgb[p]);
    /* Every shorter file is refused or, where only the end marker is gone, decoded; never read
       past. */
    for (size_t length = 0; length < file.length; length += 1 + length / 7) {
      uint8_t *cut = gd_mem_alloc(1, length + 1);
      assert_non_null(cut);
      memcpy(cut, file.text, length);
      err = (struct gd_error){0};
      enum gd_status status = gd_image_decode(&codec, cut, length, names[i], &image, &err);
      if (length + 64 < file.length)
        assert_int_equal(status, GD_BAD_INPUT);
      if (status != GD_OK)
        assert_non_null(strstr(err.text, names[i]));
      gd_mem_free(cut);
    }
    err = (struct gd_error){0};
    gd_strbuf_deinit(&file);
    gd_strbuf_deinit(&reference);
  }
  gd_image_free(&image);
  gd_image_codec_close(&codec);
}

static void test_resize(void **state) {
  (void)state;
  struct gd_strbuf source = {0};
  struct gd_image from, to = {0};
  struct gd_resizer resizer = {0};
  struct gd_error err = {0};
  int cases = 0;
  read_rgb(IMAGES "/codec/colour.png.rgb", &source, &from);
  DIR *list = opendir(IMAGES "/resize");
  assert_non_null(list);
  for (const struct dirent *entry; (entry = readdir(list));) {
    long long n[6];
    char path[1024];
    struct gd_strbuf text = {0};
    struct gd_image right;
    bool cubic = strncmp(entry->d_name, "bicubic-", 8) == 0;
    enum gd_filter filter = cubic ? GD_FILTER_BICUBIC : GD_FILTER_BILINEAR;
    if (sscanf(entry->d_name + (cubic ? 8 : 0), "%lld-%lld-%lld-%lld-to-%lld-%lld.rgb", &n[0],
               &n[1], &n[2], &n[3], &n[4], &n[5]) != 6)
      continue;
    snprintf(path, sizeof path, IMAGES "/resize/%s", entry->d_name);
    read_rgb(path, &text, &right);
    OK(gd_resize(&resizer, &from, (struct gd_box){n[0], n[1], n[2], n[3]}, filter, n[4], n[5], &to,
                 &err));
    assert_int_equal(to.width, right.width);
    assert_int_equal(to.height, right.height);
    assert_memory_equal(to.rgb, right.rgb, (size_t)(3 * to.width * to.height));
    gd_strbuf_deinit(&text);
    cases++;
  }
  closedir(list);
  assert_int_equal(cases, 16);
  gd_strbuf_deinit(&source);
  gd_image_free(&to);
  gd_resizer_free(&resizer);
}

/* What RandAugment does is what timm makes of the same image, byte by byte. */
static void test_changes(void **state) {
  (void)state;
  static const char *const names[GD_IMAGE_OP_COUNT] = {
      "AutoContrast", "Equalize",    "Invert", "Rotate",        "Posterize",
      "Solarize",     "SolarizeAdd", "Color",  "Contrast",      "Brightness",
      "Sharpness",    "ShearX",      "ShearY", "TranslateXRel", "TranslateYRel"};
  struct gd_strbuf list = {0}, reference = {0}, source = {0};
  struct gd_image from, right, image = {0}, buffer = {0};
  struct gd_error err = {0};
  int cases = 0, seen[GD_IMAGE_OP_COUNT] = {0};
  read_file(IMAGES "/rand/changes.txt", &list);
  read_rgb(IMAGES "/rand/changes.rgb", &reference, &right);
  read_rgb(IMAGES "/codec/colour.png.rgb", &source, &from);
  int64_t bytes = 3 * from.width * from.height;
  assert_int_equal(right.width, from.width);
  for (const char *line = list.text; *line; line += strcspn(line, "\n") + 1, cases++) {
    char name[32];
    double level;
    int increasing, negative, op = 0;
    assert_int_equal(sscanf(line, "%31s %lf %d %d", name, &level, &increasing, &negative), 4);
    while (strcmp(names[op], name) != 0)
      assert_in_range(++op, 1, GD_IMAGE_OP_COUNT - 1);
    seen[op]++;
    OK(gd_image_reserve(&image, from.width, from.height, &err));
    memcpy(image.rgb, from.rgb, (size_t)bytes);
    double value = gd_image_op_value((enum gd_image_op)op, level, increasing, negative);
    OK(gd_image_op_apply((enum gd_image_op)op, value, (const uint8_t[]){124, 116, 104}, &image,
                         &buffer, &err));
    assert_true((cases + 1) * from.height <= right.height);
    for (int64_t i = 0; i < bytes; i++)
      if (image.rgb[i] != right.rgb[cases * bytes + i])
        fail_msg("%.40s: byte %lld is %d, and timm has %d", name, (long long)i, image.rgb[i],
                 right.rgb[cases * bytes + i]);
  }
  assert_int_equal(cases * from.height, right.height);
  for (int op = 0; op < GD_IMAGE_OP_COUNT; op++)
    assert_true(seen[op] > 0);
  gd_image_free(&image);
  gd_image_free(&buffer);
  gd_strbuf_deinit(&list);
  gd_strbuf_deinit(&reference);
  gd_strbuf_deinit(&source);
}

/* Images of one colour, of one row, of one pixel: nothing is divided by zero or read past. */
static void test_small_changes(void **state) {
  (void)state;
  static const int64_t sides[][2] = {{1, 1}, {1, 5}, {7, 1}, {2, 2}, {3, 3}};
  struct gd_image image = {0}, buffer = {0};
  struct gd_error err = {0};
  const uint8_t fill[] = {40, 90, 200};
  for (int op = 0; op < GD_IMAGE_OP_COUNT; op++)
    for (size_t s = 0; s < sizeof sides / sizeof *sides; s++)
      for (int level = 0; level <= 10; level += 5) {
        enum gd_image_op change = (enum gd_image_op)op;
        int64_t pixels = sides[s][0] * sides[s][1];
        OK(gd_image_reserve(&image, sides[s][0], sides[s][1], &err));
        for (int64_t i = 0; i < pixels; i++)
          memcpy(image.rgb + 3 * i, fill, 3);
        OK(gd_image_op_apply(change, gd_image_op_value(change, level, true, level == 5), fill,
                             &image, &buffer, &err));
        bool stays = change == GD_IMAGE_AUTO_CONTRAST || change == GD_IMAGE_EQUALIZE ||
                     change == GD_IMAGE_SHARPNESS || change == GD_IMAGE_ROTATE ||
                     change >= GD_IMAGE_SHEAR_X;
        for (int64_t i = 0; i < pixels && stays; i++)
          assert_memory_equal(image.rgb + 3 * i, fill, 3);
      }
  gd_image_free(&image);
  gd_image_free(&buffer);
}

/* --- samples ------------------------------------------------------------------------------- */

enum { SIDE = 16, PIXELS = 3 * SIDE * SIDE, CLASSES = 2, TRAIN = 12, EVAL = 6 };
static const char *const train_folder = IMAGES "/train", *const eval_folder = IMAGES "/eval";

static struct gd_image_options options_of(const char *const *path, const char *augment) {
  struct gd_image_options options = {.files = path,
                                     .n_files = 1,
                                     .height = SIDE,
                                     .width = SIDE,
                                     .classes = CLASSES,
                                     .seed = 5,
                                     .threads = 2};
  struct gd_error err = {0};
  OK(gd_augment_parse(augment, &options.augment, &err));
  return options;
}

struct sample {
  float pixels[PIXELS], targets[CLASSES];
};

/* Samples first .. first + count, one after the other, by no threads. */
static void make_samples(const struct gd_image_options *options, int64_t first, int count,
                         struct sample *samples) {
  struct gd_image_set set;
  struct gd_image_work work;
  struct gd_error err = {0};
  OK(gd_image_set_open(&set, options, NULL, &err));
  gd_image_work_init(&work);
  for (int i = 0; i < count; i++)
    OK(gd_image_set_sample(&set, &work, first + i, samples[i].pixels, samples[i].targets, &err));
  gd_image_work_deinit(&work);
  gd_image_set_close(&set);
}

/* The transform of evaluation by hand: the shorter side to 16 * 256 / 224 = 18, then the middle. */
static void test_evaluation(void **state) {
  (void)state;
  struct gd_image_options options = options_of(&eval_folder, "none");
  struct sample samples[EVAL + 2];
  struct gd_image_codec codec;
  struct gd_image image = {0}, scaled = {0};
  struct gd_resizer resizer = {0};
  struct gd_strbuf file = {0};
  struct gd_error err = {0};
  static const float mean[] = {0.485f, 0.456f, 0.406f}, deviation[] = {0.229f, 0.224f, 0.225f};
  options.evaluates = true;
  options.smoothing = 0.1; /* of training alone */
  make_samples(&options, 0, EVAL + 2, samples);
  gd_image_codec_open(&codec);
  read_file(IMAGES "/eval/cold/1.jpg", &file);
  OK(gd_image_decode(&codec, (uint8_t *)file.text, file.length, "1.jpg", &image, &err));
  assert_int_equal(image.width, 35);
  assert_int_equal(image.height, 26);
  OK(gd_resize(&resizer, &image, (struct gd_box){0, 0, 35, 26}, GD_FILTER_BILINEAR, 24, 18, &scaled,
               &err));
  for (int c = 0; c < 3; c++)
    for (int y = 0; y < SIDE; y++)
      for (int x = 0; x < SIDE; x++) {
        float byte = (float)scaled.rgb[((y + 1) * 24 + x + 4) * 3 + c];
        assert_float_equal(samples[1].pixels[(c * SIDE + y) * SIDE + x],
                           (byte / 255 - mean[c]) / deviation[c], 1e-6);
      }
  for (int i = 0; i < EVAL + 2; i++) { /* three of each class; behind them, nothing that counts */
    assert_float_equal(samples[i].targets[0], i < 3, 0);
    assert_float_equal(samples[i].targets[1], i >= 3 && i < 6, 0);
  }
  gd_strbuf_deinit(&file);
  gd_image_free(&image);
  gd_image_free(&scaled);
  gd_resizer_free(&resizer);
  gd_image_codec_close(&codec);
}

/* Every epoch has every image once, in an order of its own. */
static void test_order(void **state) {
  (void)state;
  struct gd_image_options options = options_of(&train_folder, "crop,flip");
  struct gd_image_set set;
  struct gd_error err = {0};
  int64_t order[3][TRAIN], epoch;
  OK(gd_image_set_open(&set, &options, NULL, &err));
  assert_int_equal(set.files.count, TRAIN);
  assert_int_equal(set.files.n_classes, CLASSES);
  assert_string_equal(set.files.classes[0], "cold");
  for (int e = 0; e < 3; e++) {
    int seen[TRAIN] = {0};
    for (int i = 0; i < TRAIN; i++) {
      order[e][i] = gd_image_set_locate(&set, e * TRAIN + i, &epoch);
      assert_int_equal(epoch, e);
      assert_int_equal(seen[order[e][i]]++, 0);
    }
  }
  assert_memory_not_equal(order[0], order[1], sizeof order[0]);
  assert_memory_not_equal(order[1], order[2], sizeof order[0]);
  gd_image_set_close(&set);
}

/* Crops lie inside, have the areas and ratios that they may have, and flips are half of all. */
static void test_crops(void **state) {
  (void)state;
  struct gd_image_options options = options_of(&train_folder, "crop,flip");
  struct gd_image_set set;
  struct gd_error err = {0};
  enum { DRAWS = 2000 };
  int flips = 0, large = 0;
  OK(gd_image_set_open(&set, &options, NULL, &err));
  for (int i = 0; i < DRAWS; i++) {
    int64_t width, height;
    bool mirrored, again;
    struct gd_box box = gd_image_crop(&set, i, 500, 375, &width, &height, &mirrored);
    struct gd_box same = gd_image_crop(&set, i, 500, 375, &width, &height, &again);
    double area = (double)(box.width * box.height) / (500 * 375);
    double ratio = (double)box.width / (double)box.height;
    assert_memory_equal(&box, &same, sizeof box);
    assert_int_equal(mirrored, again);
    assert_true(box.left >= 0 && box.top >= 0 && box.left + box.width <= 500 &&
                box.top + box.height <= 375);
    assert_true(area > 0.078 && area <= 1 && ratio > 0.745 && ratio < 1.345);
    flips += mirrored;
    large += area > 0.54; /* the middle of 0.08 to 1; larger ones fit less often */
  }
  assert_in_range(flips, DRAWS / 2 - 150, DRAWS / 2 + 150); /* 6 deviations */
  assert_in_range(large, DRAWS / 4, DRAWS / 2);
  /* An image that no ratio fits: the middle, as torchvision falls back to. */
  int64_t width, height;
  bool mirrored;
  struct gd_box box = gd_image_crop(&set, 1, 1000, 2, &width, &height, &mirrored);
  assert_true(box.width <= 3 && box.height <= 2 && box.width > 0 && box.height > 0);
  gd_image_set_close(&set);
}

/* One or many threads, a rank or its share, a going back: the samples of an index are the same. */
static void test_threads(void **state) {
  (void)state;
  enum { COUNT = 3 * TRAIN };
  static struct sample right[COUNT], got[COUNT];
  const char *const augment = "crop,bicubic,flip,rand-m9-mstd0.5-inc1,noise=0.5,mixup=0.8,cutmix=1";
  struct gd_source_options options = {.images = options_of(&train_folder, augment)};
  options.images.smoothing = 0.1;
  make_samples(&options.images, 0, COUNT, right);
  for (int threads = 1; threads <= 5; threads += 2)
    for (int ranks = 1; ranks <= 3; ranks++)
      for (int rank = 0; rank < ranks; rank++) {
        struct gd_source source;
        struct gd_error err = {0};
        int64_t batch = 6, local = batch / ranks, first;
        options.images.threads = threads;
        OK(gd_source_open(&source, &options, NULL, &err));
        assert_int_equal(source.samples, TRAIN);
        OK(gd_source_follow(&source, rank * local, local, batch, &err));
        for (int leg = 0; leg < 2; leg++) /* the second one begins in the middle again */
          for (first = leg * 2 * batch; first < COUNT; first += batch)
            for (int64_t i = first + rank * local; i < first + (rank + 1) * local; i++) {
              double labels;
              OK(gd_source_count(&source, i, 1, &labels, &err));
              assert_float_equal(labels, 1, 0);
              OK(gd_source_read(&source, i, 1, got[i].pixels, got[i].targets, &err));
              assert_memory_equal(&got[i], &right[i], sizeof *got);
            }
        gd_source_close(&source);
      }
}

/* --- what --augment says ------------------------------------------------------------------- */

static void test_augment(void **state) {
  (void)state;
  static struct sample plain[40], changed[40];
  struct gd_error err = {0};
  struct gd_augment a;
  OK(gd_augment_parse("none", &a, &err));
  assert_false(a.crop || a.flip || a.erase > 0 || a.mixup > 0 || a.cutmix > 0);
  OK(gd_augment_parse("flip,erase=0.25", &a, &err));
  assert_true(!a.crop && a.flip && fabs(a.erase - 0.25) < 1e-12);
  assert_false(a.noise || a.bicubic);
  OK(gd_augment_parse("crop,bicubic,noise=0.5", &a, &err));
  assert_true(a.noise && a.bicubic && fabs(a.erase - 0.5) < 1e-12);
  static const char *const wrong[] = {"",        "crops", "erase",     "erase=2",
                                      "mixup=x", "crop,", "none,flip", "erase=0.1,noise=0.1"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
    assert_int_equal(gd_augment_parse(wrong[i], &a, &err), GD_BAD_INPUT);

  /* Without crops and flips a sample is that of evaluation. */
  struct gd_image_options options = options_of(&train_folder, "none");
  make_samples(&options, 0, 40, plain);
  /* Flips: every sample is itself or its mirror image, and both come. */
  options = options_of(&train_folder, "flip");
  make_samples(&options, 0, 40, changed);
  int mirrored = 0;
  for (int i = 0; i < 40; i++) {
    bool same = memcmp(plain[i].pixels, changed[i].pixels, sizeof plain[i].pixels) == 0;
    for (int row = 0; row < 3 * SIDE; row++)
      for (int x = 0; x < SIDE; x++) {
        int other = same ? x : SIDE - 1 - x;
        assert_float_equal(changed[i].pixels[row * SIDE + x], plain[i].pixels[row * SIDE + other],
                           0);
      }
    mirrored += !same;
  }
  assert_in_range(mirrored, 5, 35);
  /* Label smoothing: 0.1 over two classes. */
  options.smoothing = 0.1;
  make_samples(&options, 0, 4, changed);
  for (int i = 0; i < 4; i++)
    for (int v = 0; v < CLASSES; v++)
      assert_float_equal(changed[i].targets[v], plain[i].targets[v] > 0 ? 0.95f : 0.05f, 1e-7);
}

/* What is drawn for RandAugment: each operation as often, each carried out half of the time, both
   ways, with magnitudes around the one that is asked for; and samples are changed just so. */
static void test_rand(void **state) {
  (void)state;
  enum { DRAWS = 15000, COUNT = 24 };
  static struct sample plain[COUNT], changed[COUNT];
  struct gd_image_options options = options_of(&train_folder, "rand-m9-mstd0.5-inc1");
  struct gd_image_set set;
  struct gd_error err = {0};
  int times[GD_IMAGE_OP_COUNT] = {0}, of_length[3] = {0}, right = 0;
  double sum = 0, squares = 0;
  assert_int_equal(options.augment.rand.ops, 2);
  assert_true(options.augment.rand.increasing && options.augment.rand.deviation == 0.5);
  assert_true(options.augment.rand.probability == 0.5);
  OK(gd_image_set_open(&set, &options, NULL, &err));
  for (int64_t i = 0; i < DRAWS; i++) {
    struct gd_image_change changes[GD_RAND_MOST_OPS];
    int n = gd_image_changes(&set, i, changes);
    of_length[n]++;
    for (int c = 0; c < n; c++) {
      times[changes[c].op]++;
      if (changes[c].op != GD_IMAGE_ROTATE)
        continue;
      double level = fabs(changes[c].value) / 3;
      right += changes[c].value > 0;
      sum += level;
      squares += level * level;
      assert_true(level <= 10);
    }
  }
  assert_in_range(of_length[1], DRAWS / 2 - 370,
                  DRAWS / 2 + 370); /* 6 deviations; likewise below */
  assert_in_range(of_length[0], DRAWS / 4 - 320, DRAWS / 4 + 320);
  for (int op = 0; op < GD_IMAGE_OP_COUNT; op++)
    assert_in_range(times[op], 1000 - 190, 1000 + 190);
  double n = times[GD_IMAGE_ROTATE], mean = sum / n, deviation = sqrt(squares / n - mean * mean);
  assert_in_range(right, n / 2 - 100, n / 2 + 100);
  assert_true(fabs(mean - 9) < 0.1 && fabs(deviation - 0.48) < 0.07); /* 2.3 % are cut at 10 */

  make_samples(&options, 0, COUNT, changed);
  options.augment = (struct gd_augment){0};
  make_samples(&options, 0, COUNT, plain);
  for (int64_t i = 0; i < COUNT; i++) {
    struct gd_image_change changes[GD_RAND_MOST_OPS];
    bool same = memcmp(&plain[i], &changed[i], sizeof *plain) == 0;
    int count = gd_image_changes(&set, i, changes);
    if (count == 0)
      assert_true(same);
    if (count == 1 && changes[0].op == GD_IMAGE_INVERT)
      for (int p = 0; p < PIXELS; p++) {
        int c = p / (SIDE * SIDE);
        assert_float_equal(plain[i].pixels[p] + changed[i].pixels[p],
                           set.value[c][0] + set.value[c][255], 1e-5);
      }
  }
  assert_int_equal(set.mean[0] * 65536 + set.mean[1] * 256 + set.mean[2],
                   124 * 65536 + 116 * 256 + 104);
  set.options.evaluates = true;
  assert_int_equal(gd_image_changes(&set, 3, (struct gd_image_change[GD_RAND_MOST_OPS]){0}), 0);
  gd_image_set_close(&set);

  struct gd_augment a;
  OK(gd_augment_parse("crop,rand,flip", &a, &err));
  assert_true(a.crop && a.flip && a.rand.ops == 2 && a.rand.magnitude == 10 &&
              a.rand.deviation == 0 && !a.rand.increasing);
  OK(gd_augment_parse("rand-m7.5-n3-p0.25-mstd1-inc0", &a, &err));
  assert_true(a.rand.ops == 3 && a.rand.magnitude == 7.5 && a.rand.deviation == 1 &&
              a.rand.probability == 0.25 && !a.rand.increasing);
  static const char *const wrong[] = {"rand-",     "rand-m",   "rand-m11",  "rand-n0",
                                      "rand-n2.5", "rand-x3",  "rand-inc2", "rand-p1.5",
                                      "randm9",    "rand-m9x", "rand-m-1",  "rand-mnan"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
    assert_int_equal(gd_augment_parse(wrong[i], &a, &err), GD_BAD_INPUT);
}

/* One rectangle of 2 % to 33 % of the pixels is 0 in all channels, the rest is as it was. */
static void test_erase(void **state) {
  (void)state;
  static struct sample plain[40], changed[40];
  struct gd_image_options options = options_of(&train_folder, "none");
  make_samples(&options, 0, 40, plain);
  options = options_of(&train_folder, "erase=0.5");
  make_samples(&options, 0, 40, changed);
  int erased = 0;
  for (int i = 0; i < 40; i++) {
    int left = SIDE, right = -1, top = SIDE, bottom = -1, zeros = 0;
    for (int y = 0; y < SIDE; y++)
      for (int x = 0; x < SIDE; x++) {
        bool zero = true;
        for (int c = 0; c < 3; c++)
          zero &= changed[i].pixels[(c * SIDE + y) * SIDE + x] == 0;
        for (int c = 0; c < 3 && !zero; c++)
          assert_float_equal(changed[i].pixels[(c * SIDE + y) * SIDE + x],
                             plain[i].pixels[(c * SIDE + y) * SIDE + x], 0);
        if (!zero)
          continue;
        zeros++;
        left = x < left ? x : left, right = x > right ? x : right;
        top = y < top ? y : top, bottom = y > bottom ? y : bottom;
      }
    if (zeros == 0)
      continue;
    erased++;
    assert_int_equal(zeros, (right - left + 1) * (bottom - top + 1));
    assert_in_range(zeros, SIDE * SIDE / 64, SIDE * SIDE / 2);
  }
  assert_in_range(erased, 5, 35);

  /* Noise: the same rectangles with normal values, another for each sample. */
  static struct sample noisy[40];
  double sum = 0, squares = 0;
  int n = 0;
  options = options_of(&train_folder, "noise=0.5");
  make_samples(&options, 0, 40, noisy);
  for (int i = 0; i < 40; i++)
    for (int k = 0; k < PIXELS; k++) {
      double x = (double)noisy[i].pixels[k];
      if (changed[i].pixels[k] != 0) {
        assert_float_equal(noisy[i].pixels[k], plain[i].pixels[k], 0);
        continue;
      }
      sum += x, squares += x * x, n++;
    }
  assert_in_range(n, 1000, 15000);
  assert_true(fabs(sum / n) < 6 / sqrt(n)); /* 6 deviations; of the variance, sqrt(2 / n) is one */
  assert_true(fabs(squares / n - 1) < 6 * sqrt(2.0 / n));
}

/* Pairs 2k, 2k + 1 are mixed with each other by one share, which is in their targets too. */
static void test_mix(void **state) {
  (void)state;
  enum { COUNT = 60 };
  static struct sample plain[COUNT], changed[COUNT];
  struct gd_image_options options = options_of(&train_folder, "none");
  make_samples(&options, 0, COUNT, plain);
  options = options_of(&train_folder, "mixup=1");
  make_samples(&options, 0, COUNT, changed);
  double sum = 0;
  int told = 0; /* pairs of two classes, whose targets show the share */
  for (int i = 0; i < COUNT; i++) {
    const struct sample *a = &plain[i], *b = &plain[i ^ 1];
    assert_float_equal(changed[i].targets[0] + changed[i].targets[1], 1, 1e-6);
    if (a->targets[0] == b->targets[0])
      continue;
    float share = changed[i].targets[a->targets[0] > 0 ? 0 : 1];
    assert_float_equal(changed[i ^ 1].targets[b->targets[0] > 0 ? 0 : 1], share, 1e-6);
    told++;
    sum += (double)share;
    for (int p = 0; p < PIXELS; p++)
      assert_float_equal(changed[i].pixels[p], share * a->pixels[p] + (1 - share) * b->pixels[p],
                         1e-5);
  }
  assert_in_range(told, 10, COUNT);
  assert_true(sum / told > 0.25 && sum / told < 0.75);

  options = options_of(&train_folder, "cutmix=1");
  make_samples(&options, 0, COUNT, changed);
  told = 0;
  for (int i = 0; i < COUNT; i++) {
    const struct sample *a = &plain[i], *b = &plain[i ^ 1];
    int others = 0;
    for (int at = 0; at < SIDE * SIDE; at++) {
      bool mine = true, theirs = true;
      for (int c = 0; c < 3; c++) {
        float value = changed[i].pixels[c * SIDE * SIDE + at];
        mine &= value == a->pixels[c * SIDE * SIDE + at];
        theirs &= value == b->pixels[c * SIDE * SIDE + at];
      }
      assert_true(mine || theirs);
      others += !mine;
    }
    if (a->targets[0] == b->targets[0])
      continue;
    told++; /* pixels that both have count for neither: the share may be a little larger */
    float share = changed[i].targets[a->targets[0] > 0 ? 1 : 0];
    assert_true((double)share * SIDE * SIDE >= others - 1e-3);
    assert_true((double)share * SIDE * SIDE <= others + 4);
  }
  assert_in_range(told, 10, COUNT);
}

/* --- archives ------------------------------------------------------------------------------ */

static void tar_add(FILE *tar, const char *name, char type, const char *bytes, size_t size) {
  unsigned char header[512] = {0};
  unsigned sum = 0;
  static const char zeros[512];
  snprintf((char *)header, 100, "%s", name);
  snprintf((char *)header + 100, 8, "%07o", 0644);
  snprintf((char *)header + 124, 12, "%011zo", size);
  memset(header + 148, ' ', 8);
  header[156] = (unsigned char)type;
  memcpy(header + 257,
         "ustar\0"
         "00",
         8);
  for (int i = 0; i < 512; i++)
    sum += header[i];
  snprintf((char *)header + 148, 8, "%06o", sum);
  assert_int_equal(fwrite(header, 1, 512, tar), 512);
  assert_int_equal(fwrite(bytes, 1, size, tar), size);
  if (size % 512)
    assert_int_equal(fwrite(zeros, 1, 512 - size % 512, tar), 512 - size % 512);
}

/* The images of a set as a WebDataset shard, in its order; long: names of pax and GNU tar. */
static const char *make_shard(const char *name, const struct gd_image_files *files, bool longer) {
  static char path[512];
  static const char zeros[1024];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *tar = fopen(path, "wb");
  assert_non_null(tar);
  for (int64_t i = 0; i < files->count; i++) {
    struct gd_strbuf file = {0};
    struct gd_error err = {0};
    const uint8_t *bytes;
    size_t size;
    char stem[300], member[340], text[420];
    const char *dot = strrchr(files->entries[i].name, '.');
    OK(gd_image_files_get(files, i, &file, &bytes, &size, &err));
    snprintf(stem, sizeof stem, "%s%06lld", longer ? "a/long/name/" : "", (long long)i);
    for (int k = 0; longer && k < 20; k++)
      snprintf(stem + strlen(stem), sizeof stem - strlen(stem), "-0123456789");
    snprintf(member, sizeof member, "%s%s", stem, dot);
    if (longer && i % 2) {
      tar_add(tar, "././@LongLink", 'L', member, strlen(member) + 1);
    } else if (longer) {
      int length = snprintf(text, sizeof text, "%zu path=%s\n", strlen(member) + 10, member);
      tar_add(tar, "pax", 'x', text, (size_t)length);
    }
    tar_add(tar, longer ? "short" : member, '0', (const char *)bytes, size);
    snprintf(member, sizeof member, "%s.json", stem);
    if (!longer)
      tar_add(tar, member, '0', "{}", 2); /* is passed over */
    snprintf(member, sizeof member, "%s.cls", stem);
    if (longer)
      tar_add(tar, "././@LongLink", 'L', member, strlen(member) + 1);
    snprintf(text, sizeof text, "%d\n", files->entries[i].class_number);
    tar_add(tar, longer ? "short" : member, '0', text, strlen(text));
    gd_strbuf_deinit(&file);
  }
  assert_int_equal(fwrite(zeros, 1, sizeof zeros, tar), sizeof zeros);
  assert_int_equal(fclose(tar), 0);
  return path;
}

static void test_shards(void **state) {
  (void)state;
  static struct sample right[TRAIN], got[TRAIN];
  struct gd_image_options options = options_of(&train_folder, "crop,flip");
  struct gd_image_set set;
  struct gd_error err = {0};
  make_samples(&options, 7, TRAIN, right);
  OK(gd_image_set_open(&set, &options, NULL, &err));
  for (int longer = 0; longer < 2; longer++) {
    const char *path = make_shard("shard.tar", &set.files, longer);
    struct gd_image_options shard = options_of(&path, "crop,flip");
    make_samples(&shard, 7, TRAIN, got);
    assert_memory_equal(got, right, sizeof got);
  }
  gd_image_set_close(&set);
}

/* --- what is wrong ------------------------------------------------------------------------- */

static void refuse(const char *path, int64_t classes, const char *sentence) {
  struct gd_image_options options = options_of(&path, "none");
  struct gd_image_set set;
  struct gd_error err = {0};
  options.classes = classes;
  assert_int_equal(gd_image_set_open(&set, &options, NULL, &err), GD_BAD_INPUT);
  if (!strstr(err.text, sentence))
    fail_msg("\"%s\" lacks \"%s\"", err.text, sentence);
}

static void refuse_tar(const char *sentence, const char *const *members, int n) {
  char path[512];
  snprintf(path, sizeof path, "%s/wrong.tar", folder);
  FILE *tar = fopen(path, "wb");
  assert_non_null(tar);
  for (int i = 0; i < n; i += 2)
    tar_add(tar, members[i], '0', members[i + 1], strlen(members[i + 1]));
  assert_int_equal(fclose(tar), 0);
  refuse(path, CLASSES, sentence);
}
#define REFUSE_TAR(sentence, ...)                          \
  refuse_tar(sentence, (const char *const[]){__VA_ARGS__}, \
             (int)(sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *)))

static void test_wrong(void **state) {
  (void)state;
  char path[512];
  struct gd_error err = {0};
  refuse(train_folder, 3, "has 2 classes (cold to warm), and the model 3");
  refuse(IMAGES "/train/cold", CLASSES, "has no folders");
  refuse(IMAGES "/nothing", CLASSES, "No such file");
  refuse(IMAGES "/codec/colour.png", CLASSES, "neither a folder of images nor a tar archive");
  snprintf(path, sizeof path, "%s/two/a", folder);
  OK(gd_file_make_folder(path, &err));
  snprintf(path, sizeof path, "%s/two/b", folder);
  OK(gd_file_make_folder(path, &err));
  snprintf(path, sizeof path, "%s/two", folder);
  refuse(path, CLASSES, "/two/a has no images");
  REFUSE_TAR("1.png has no class", "1.png", "x");
  REFUSE_TAR("1.cls says class 2, and the model has 2", "1.cls", "2", "1.png", "x");
  REFUSE_TAR("1.cls is no number", "1.png", "x", "1.cls", "cat");
  REFUSE_TAR("1.png and 1.jpg are two images", "1.png", "x", "1.jpg", "x", "1.cls", "0");
  REFUSE_TAR("has no images", "1.txt", "x");

  /* An evaluation with a class of its own. */
  struct gd_image_set train, eval;
  struct gd_image_options options = options_of(&train_folder, "none");
  OK(gd_image_set_open(&train, &options, NULL, &err));
  const char *other = path;
  struct gd_image_options eval_options = options_of(&other, "none");
  assert_int_equal(gd_image_set_open(&eval, &eval_options, &train.files, &err), GD_BAD_INPUT);
  assert_non_null(strstr(err.text, "/two/a is a class that the training data"));
  gd_image_set_close(&train);

  /* A broken image is named when its sample is asked for, not before. */
  for (int i = 0; i < 2; i++) {
    snprintf(path, sizeof path, "%s/two/%c/x.jpg", folder, 'a' + i);
    write_file(path, "GIF89a, or so", 13);
  }
  snprintf(path, sizeof path, "%s/two", folder);
  struct gd_source_options source_options = {.images = options_of(&other, "crop")};
  struct gd_source source;
  static struct sample sample;
  OK(gd_source_open(&source, &source_options, NULL, &err));
  OK(gd_source_follow(&source, 0, 1, 1, &err));
  assert_int_equal(gd_source_read(&source, 0, 1, sample.pixels, sample.targets, &err),
                   GD_BAD_INPUT);
  assert_non_null(strstr(err.text, "/x.jpg is neither JPEG nor PNG"));
  gd_source_close(&source);
}

/* Every request for memory fails once; nothing is left over. */
static void test_out_of_memory(void **state) {
  (void)state;
  struct gd_image_options options = options_of(&train_folder, "crop,flip,mixup=1");
  static struct sample sample;
  int64_t before = gd_mem_live_blocks();
  bool failed = true;
  for (int64_t nth = 1; failed; nth++) {
    struct gd_image_set set;
    struct gd_image_work work;
    struct gd_error err = {0};
    gd_mem_fail_after(nth);
    failed = gd_image_set_open(&set, &options, NULL, &err) != GD_OK;
    if (!failed) {
      gd_image_work_init(&work);
      failed = gd_image_set_sample(&set, &work, 3, sample.pixels, sample.targets, &err) != GD_OK;
      gd_image_work_deinit(&work);
      gd_image_set_close(&set);
    }
    gd_mem_fail_after(0);
    assert_int_equal(gd_mem_live_blocks(), before);
    assert_true(nth < 1000);
  }
}

int main(void) {
  struct gd_image_codec codec;
  struct gd_error err = {0};
  gd_image_codec_open(&codec);
  enum gd_status status = gd_image_codec_check(&codec, true, true, &err);
  gd_image_codec_close(&codec);
  if (status != GD_OK) {
    printf("skipped: %s\n", err.text);
    return 77;
  }
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_decode),        cmocka_unit_test(test_resize),
      cmocka_unit_test(test_changes),       cmocka_unit_test(test_small_changes),
      cmocka_unit_test(test_rand),          cmocka_unit_test(test_evaluation),
      cmocka_unit_test(test_order),         cmocka_unit_test(test_crops),
      cmocka_unit_test(test_threads),       cmocka_unit_test(test_augment),
      cmocka_unit_test(test_erase),         cmocka_unit_test(test_mix),
      cmocka_unit_test(test_shards),        cmocka_unit_test(test_wrong),
      cmocka_unit_test(test_out_of_memory),
  };
  return cmocka_run_group_tests(tests, make_folder, NULL);
}
