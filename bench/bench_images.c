/*
 * How many images a core decodes, crops and normalises a second, as training does it. Images:
 * tools/make_images.py --speed FOLDER makes JPEGs of ImageNet's usual size.
 *
 *   bench_images FOLDER [SECONDS [AUGMENT]]
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "data/image_set.h"

enum { SIDE = 224 };

static enum gd_status measure(const char *folder, double seconds, const char *augment,
                              struct gd_error *err) {
  struct gd_image_set set;
  struct gd_image_work work;
  struct gd_image_options options = {
      .files = &folder, .n_files = 1, .height = SIDE, .width = SIDE, .classes = 1};
  GD_TRY(gd_augment_parse(augment, &options.augment, err));
  float *pixels = gd_mem_alloc((size_t)3 * SIDE * SIDE, sizeof *pixels), target;
  if (!pixels)
    return gd_nomem(err, "for an image");
  enum gd_status status = gd_image_set_open(&set, &options, NULL, err);
  if (status != GD_OK) {
    gd_mem_free(pixels);
    return status;
  }
  gd_image_work_init(&work);
  int64_t begin_ns = gd_clock_ns(), count = 0, decode_ns = 0;
  while (status == GD_OK && 1e-9 * (double)(gd_clock_ns() - begin_ns) < seconds)
    status = gd_image_set_sample(&set, &work, count++, pixels, &target, err);
  double all_s = 1e-9 * (double)(gd_clock_ns() - begin_ns) / (double)count;
  for (int64_t i = 0; status == GD_OK && i < count; i++) {
    const uint8_t *bytes;
    size_t size;
    status = gd_image_files_get(&set.files, i % set.files.count, &work.file, &bytes, &size, err);
    int64_t from_ns = gd_clock_ns();
    if (status == GD_OK)
      status = gd_image_decode(&work.codec, bytes, size, "image", &work.decoded, err);
    decode_ns += gd_clock_ns() - from_ns;
  }
  if (status == GD_OK)
    printf("%lld images: %.0f a second and core (%.2f ms each, of which decoding %.2f ms)\n",
           (long long)count, 1 / all_s, 1e3 * all_s, 1e-6 * (double)decode_ns / (double)count);
  gd_image_work_deinit(&work);
  gd_image_set_close(&set);
  gd_mem_free(pixels);
  return status;
}

int main(int argc, char **argv) {
  struct gd_error err = {0};
  if (argc < 2) {
    printf("bench_images needs a FOLDER of tools/make_images.py --speed: nothing measured\n");
    return 0;
  }
  if (measure(argv[1], argc > 2 ? strtod(argv[2], NULL) : 3, argc > 3 ? argv[3] : "crop,flip",
              &err) == GD_OK)
    return 0;
  fprintf(stderr, "%s\n", err.text);
  return 1;
}
