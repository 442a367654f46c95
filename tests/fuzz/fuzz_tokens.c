/*
 * Any bytes as a token file: refused with a sentence, or all its ids can be read. The first two
 * bytes say how many of the others are Megatron-LM's index next to it; none: there is no index.
 */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data/token_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char folder[256], paths[2][300]; /* FILE.bin, FILE.idx */

static void remove_folder(void) {
  unlink(paths[0]);
  unlink(paths[1]);
  rmdir(folder);
}

static void make_folder(void) {
  const char *base = getenv("TMPDIR");
  snprintf(folder, sizeof folder, "%.200s/fuzz-tokens-XXXXXX", base ? base : "/tmp");
  GD_ASSERT(mkdtemp(folder));
  snprintf(paths[0], sizeof paths[0], "%s/a.bin", folder);
  snprintf(paths[1], sizeof paths[1], "%s/a.idx", folder);
  atexit(remove_folder);
}

static void put(const char *path, const uint8_t *data, size_t size) {
  FILE *file = fopen(path, "wb");
  GD_ASSERT(file && fwrite(data, 1, size, file) == size && fclose(file) == 0);
}

static void read_all(const struct gd_token_file *file) {
  struct gd_error err = {0};
  int32_t ids[256];
  GD_ASSERT(file->count > 0 && file->first_byte >= 0);
  GD_ASSERT(file->first_byte + file->count * file->width <= file->map_bytes);
  for (int64_t first = 0; first < file->count; first += 256) {
    int64_t count = file->count - first < 256 ? file->count - first : 256;
    enum gd_status status = gd_token_file_read(file, first, count, 1 << 20, ids, &err);
    GD_ASSERT(status == err.status && (status == GD_OK || status == GD_BAD_INPUT));
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  struct gd_token_file file;
  struct gd_error err = {0};
  if (size < 2)
    return 0;
  if (!folder[0])
    make_folder();
  size_t index = (size_t)data[0] | (size_t)data[1] << 8;
  index = index < size - 2 ? index : size - 2;
  if (index > 0)
    put(paths[1], data + 2, index);
  else
    unlink(paths[1]);
  put(paths[0], data + 2 + index, size - 2 - index);
  enum gd_status status = gd_token_file_open(&file, paths[0], 0, &err);
  GD_ASSERT(status == err.status);
  if (status == GD_OK)
    read_all(&file);
  else
    GD_ASSERT(status == GD_BAD_INPUT && err.text[0] && !strchr(err.text, '\n'));
  gd_token_file_close(&file);
  return 0;
}
