/*
 * JPEG and PNG files to RGB pixels, by libjpeg-turbo (its TurboJPEG API) and libpng (its simplified
 * API). Both are loaded when images are trained on, so that neither the build nor any other command
 * needs them. What a file is, its first bytes say, not its name: data sets have PNG files named
 * .jpg.
 *
 *   struct gd_image_codec codec;
 *   gd_image_codec_open(&codec);
 *   GD_TRY(gd_image_decode(&codec, bytes, size, "cat/1.jpg", &image, err));
 *   gd_image_free(&image);
 *   gd_image_codec_close(&codec);
 *
 * Pixels are those of Pillow's convert("RGB"): grey is repeated, alpha dropped, CMYK converted
 * without profiles, gamma and orientation ignored. 16-bit PNG are rounded to 8.
 */
#ifndef GD_DATA_IMAGE_CODEC_H
#define GD_DATA_IMAGE_CODEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Rows of RGB from the top, without gaps. The memory is kept for the next image. */
struct gd_image {
  uint8_t *rgb;
  size_t capacity;
  int64_t width, height;
};
/* Room for width x height; the pixels are undefined. GD_NOMEM_HOST. */
enum gd_status gd_image_reserve(struct gd_image *image, int64_t width, int64_t height,
                                struct gd_error *err) GD_MUST_USE;
void gd_image_free(struct gd_image *image); /* safe on a zeroed one */

/* One for each thread: it holds buffers. What was loaded stays until the process ends. */
struct gd_image_codec {
  struct gd_image_libraries {
    void *(*tj_init)(void);
    int (*tj_header)(void *handle, const unsigned char *bytes, unsigned long size, int *width,
                     int *height, int *subsampling, int *colours);
    int (*tj_decode)(void *handle, const unsigned char *bytes, unsigned long size,
                     unsigned char *to, int width, int pitch, int height, int format, int flags);
    char *(*tj_error)(void *handle);
    int (*tj_destroy)(void *handle);
    int (*png_begin)(void *image, const void *bytes, size_t size);
    int (*png_finish)(void *image, const void *background, void *to, int32_t row_bytes,
                      void *colours);
    void (*png_free)(void *image);
    bool jpeg, png; /* there */
  } lib;
  void *jpeg;     /* TurboJPEG's handle */
  uint8_t *four;  /* pixels of four channels */
  uint8_t *plain; /* a PNG without the chunks that Pillow ignores */
  size_t four_bytes, plain_bytes;
};
void gd_image_codec_open(struct gd_image_codec *codec);
void gd_image_codec_close(struct gd_image_codec *codec); /* safe on a zeroed one */
/* GD_ENVIRONMENT with the package, where the library for such files is missing. */
enum gd_status gd_image_codec_check(const struct gd_image_codec *codec, bool jpeg, bool png,
                                    struct gd_error *err) GD_MUST_USE;

/* GD_BAD_INPUT: neither JPEG nor PNG, damaged, cut. The name is for the sentence. */
enum gd_status gd_image_decode(struct gd_image_codec *codec, const uint8_t *bytes, size_t size,
                               const char *name, struct gd_image *image,
                               struct gd_error *err) GD_MUST_USE;

#endif
