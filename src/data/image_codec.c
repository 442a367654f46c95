/*
 * Decoding by libraries that are loaded; see image_codec.h. Their values are restated here, with
 * the header each is from: both APIs are stable (libturbojpeg.so.0, libpng16.so.16).
 */
#include "data/image_codec.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

/* turbojpeg.h: enum TJPF, enum TJCS, TJFLAG_LIMITSCANS (a progressive file of more than 500 scans
   takes minutes). */
enum { TJ_RGB = 0, TJ_CMYK = 11, TJ_COLOURS_CMYK = 3, TJ_COLOURS_YCCK = 4, TJ_LIMIT_SCANS = 32768 };

/* png.h: png_image, version 1. */
struct png_image {
  void *opaque;
  uint32_t version, width, height, format, flags, colormap_entries, warning_or_error;
  char message[64];
};
enum { PNG_VERSION = 1, PNG_ALPHA = 1, PNG_RGB = 2, PNG_16BIT_SRGB = 4, PNG_IS_ERROR = 2 };

static const int64_t most_pixels = INT64_C(1) << 28; /* a file of kilobytes may claim any size */

/* --- images -------------------------------------------------------------------------------- */

static enum gd_status reserve(uint8_t **block, size_t *capacity, size_t bytes,
                              struct gd_error *err) {
  if (bytes <= *capacity)
    return GD_OK;
  uint8_t *larger = gd_mem_alloc(1, bytes);
  if (!larger)
    return gd_nomem(err, "for an image");
  gd_mem_free(*block);
  *block = larger;
  *capacity = bytes;
  return GD_OK;
}

enum gd_status gd_image_reserve(struct gd_image *image, int64_t width, int64_t height,
                                struct gd_error *err) {
  GD_TRY(reserve(&image->rgb, &image->capacity, (size_t)(width * height * 3), err));
  image->width = width;
  image->height = height;
  return GD_OK;
}

void gd_image_free(struct gd_image *image) {
  gd_mem_free(image->rgb);
  *image = (struct gd_image){0};
}

/* --- libraries ----------------------------------------------------------------------------- */

/* ISO C has no cast from an object to a function pointer. */
static bool look_up(void *library, const char *symbol, void *to, size_t size) {
  void *address = dlsym(library, symbol);
  GD_ASSERT(size == sizeof address);
  memcpy(to, &address, sizeof address);
  return address != NULL;
}

void gd_image_codec_open(struct gd_image_codec *codec) {
  *codec = (struct gd_image_codec){0};
  struct gd_image_libraries *lib = &codec->lib;
  void *jpeg = dlopen("libturbojpeg.so.0", RTLD_NOW), *png = dlopen("libpng16.so.16", RTLD_NOW);
#define LOOK_UP(library, symbol, field) look_up(library, symbol, &lib->field, sizeof lib->field)
  lib->jpeg = jpeg && LOOK_UP(jpeg, "tjInitDecompress", tj_init) &&
              LOOK_UP(jpeg, "tjDecompressHeader3", tj_header) &&
              LOOK_UP(jpeg, "tjDecompress2", tj_decode) &&
              LOOK_UP(jpeg, "tjGetErrorStr2", tj_error) && LOOK_UP(jpeg, "tjDestroy", tj_destroy);
  lib->png = png && LOOK_UP(png, "png_image_begin_read_from_memory", png_begin) &&
             LOOK_UP(png, "png_image_finish_read", png_finish) &&
             LOOK_UP(png, "png_image_free", png_free);
#undef LOOK_UP
  if (lib->jpeg)
    codec->jpeg = lib->tj_init();
}

void gd_image_codec_close(struct gd_image_codec *codec) {
  if (codec->jpeg)
    codec->lib.tj_destroy(codec->jpeg);
  gd_mem_free(codec->four);
  gd_mem_free(codec->plain);
  *codec = (struct gd_image_codec){0};
}

enum gd_status gd_image_codec_check(const struct gd_image_codec *codec, bool jpeg, bool png,
                                    struct gd_error *err) {
  if (jpeg && !codec->jpeg)
    return gd_fail(err, GD_ENVIRONMENT,
                   "JPEG images need libjpeg-turbo, and libturbojpeg.so.0 was not found; install "
                   "it (Debian: apt-get install libturbojpeg0)");
  if (png && !codec->lib.png)
    return gd_fail(err, GD_ENVIRONMENT,
                   "PNG images need libpng, and libpng16.so.16 was not found; install it (Debian: "
                   "apt-get install libpng16-16)");
  return GD_OK;
}

/* --- JPEG ---------------------------------------------------------------------------------- */

/* Adobe's CMYK is stored inverted: a channel times its black, over 255, rounded as Pillow does. */
static void from_cmyk(const uint8_t *cmyk, int64_t count, uint8_t *rgb) {
  for (int64_t i = 0; i < count; i++)
    for (int c = 0; c < 3; c++) {
      uint32_t black = cmyk[4 * i + 3], ink = (255 - cmyk[4 * i + c]) * black + 128;
      rgb[3 * i + c] = (uint8_t)(black - ((ink + (ink >> 8)) >> 8));
    }
}

static enum gd_status broken(const char *name, const char *what, const char *reason,
                             struct gd_error *err) {
  return gd_fail(err, GD_BAD_INPUT, "%s cannot be decoded (%s): %s", name, what, reason);
}

static enum gd_status check_size(const char *name, int64_t width, int64_t height,
                                 struct gd_error *err) {
  if (width < 1 || height < 1 || width > most_pixels / height)
    return gd_fail(err, GD_BAD_INPUT, "%s says that it has %lld x %lld pixels", name,
                   (long long)width, (long long)height);
  return GD_OK;
}

/* A handle is stuck in the middle of the file that it failed on (2.1): the next one gets another.
 */
static enum gd_status broken_jpeg(struct gd_image_codec *codec, const char *name,
                                  struct gd_error *err) {
  enum gd_status status = broken(name, "JPEG", codec->lib.tj_error(codec->jpeg), err);
  codec->lib.tj_destroy(codec->jpeg);
  codec->jpeg = codec->lib.tj_init();
  return status;
}

static enum gd_status decode_jpeg(struct gd_image_codec *codec, const uint8_t *bytes, size_t size,
                                  const char *name, struct gd_image *image, struct gd_error *err) {
  const struct gd_image_libraries *lib = &codec->lib;
  int width = 0, height = 0, subsampling, colours = 0;
  /* Old versions fail on rare subsamplings after they have read the rest. */
  if (lib->tj_header(codec->jpeg, bytes, size, &width, &height, &subsampling, &colours) != 0 &&
      (width < 1 || height < 1))
    return broken_jpeg(codec, name, err);
  GD_TRY(check_size(name, width, height, err));
  GD_TRY(gd_image_reserve(image, width, height, err));
  bool cmyk = colours == TJ_COLOURS_CMYK || colours == TJ_COLOURS_YCCK;
  int64_t pixels = image->width * image->height;
  uint8_t *to = image->rgb;
  if (cmyk) {
    GD_TRY(reserve(&codec->four, &codec->four_bytes, (size_t)(4 * pixels), err));
    to = codec->four;
  }
  /* As Pillow: what is damaged inside is decoded as well as it goes, what is cut is refused. */
  int rc = lib->tj_decode(codec->jpeg, bytes, size, to, width, 0, height, cmyk ? TJ_CMYK : TJ_RGB,
                          TJ_LIMIT_SCANS);
  const char *reason = rc ? lib->tj_error(codec->jpeg) : "";
  if (rc && (strstr(reason, "Premature end") || !strstr(reason, "Corrupt JPEG data")))
    return broken_jpeg(codec, name, err);
  if (cmyk)
    from_cmyk(codec->four, pixels, image->rgb);
  return GD_OK;
}

/* --- PNG ----------------------------------------------------------------------------------- */

static uint32_t big_endian(const uint8_t *at) {
  return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

/* The chunks that pixels depend on: without the rest, above all gAMA, no colour is corrected. What
   is cut stays cut. */
static size_t copy_chunks(const uint8_t *bytes, size_t size, uint8_t *to) {
  static const char *const kept[] = {"IHDR", "PLTE", "tRNS", "IDAT", "IEND"};
  size_t at = 8, length = 8;
  memcpy(to, bytes, at);
  while (size - at >= 12) {
    size_t whole = (size_t)big_endian(bytes + at) + 12;
    if (whole > size - at)
      whole = size - at;
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
      if (memcmp(bytes + at + 4, kept[i], 4) == 0) {
        memcpy(to + length, bytes + at, whole);
        length += whole;
        break;
      }
    at += whole;
  }
  return length;
}

static enum gd_status decode_png(struct gd_image_codec *codec, const uint8_t *bytes, size_t size,
                                 const char *name, struct gd_image *image, struct gd_error *err) {
  const struct gd_image_libraries *lib = &codec->lib;
  struct png_image png = {.version = PNG_VERSION};
  GD_TRY(reserve(&codec->plain, &codec->plain_bytes, size, err));
  size_t plain = copy_chunks(bytes, size, codec->plain);
  if (!lib->png_begin(&png, codec->plain, plain))
    return broken(name, "PNG", png.message, err);
  bool alpha = (png.format & PNG_ALPHA) != 0;
  enum gd_status status = check_size(name, png.width, png.height, err);
  if (status == GD_OK)
    status = gd_image_reserve(image, png.width, png.height, err);
  int64_t pixels = image->width * image->height;
  if (status == GD_OK && alpha)
    status = reserve(&codec->four, &codec->four_bytes, (size_t)(4 * pixels), err);
  if (status != GD_OK) {
    lib->png_free(&png);
    return status;
  }
  png.format = PNG_RGB | (alpha ? PNG_ALPHA : 0);
  png.flags |= PNG_16BIT_SRGB;
  /* It frees what it holds, also when it fails. */
  if (!lib->png_finish(&png, NULL, alpha ? codec->four : image->rgb, 0, NULL) ||
      (png.warning_or_error & PNG_IS_ERROR))
    return broken(name, "PNG", png.message, err);
  for (int64_t i = 0; alpha && i < pixels; i++)
    memcpy(image->rgb + 3 * i, codec->four + 4 * i, 3);
  return GD_OK;
}

enum gd_status gd_image_decode(struct gd_image_codec *codec, const uint8_t *bytes, size_t size,
                               const char *name, struct gd_image *image, struct gd_error *err) {
  bool jpeg = size >= 3 && memcmp(bytes, "\xff\xd8\xff", 3) == 0;
  bool png = size >= 8 && memcmp(bytes, "\x89PNG\r\n\x1a\n", 8) == 0;
  if (!jpeg && !png)
    return gd_fail(err, GD_BAD_INPUT, "%s is neither JPEG nor PNG (%zu bytes)", name, size);
  GD_TRY(gd_image_codec_check(codec, jpeg, png, err));
  return jpeg ? decode_jpeg(codec, bytes, size, name, image, err)
              : decode_png(codec, bytes, size, name, image, err);
}
