/*
 * The safetensors format: an 8-byte little-endian header length, a JSON header, then raw tensors.
 * Files are memory-mapped: opening a 14 GB checkpoint costs its header. A sharded checkpoint opens
 * as one file, by its folder or by its model.safetensors.index.json.
 *
 *   struct gd_safetensors file;
 *   GD_TRY(gd_safetensors_open(&file, "model.safetensors", err));
 *   const struct gd_safetensor *w = gd_safetensors_find(&file, "embed_out.weight");
 *   gd_safetensors_close(&file);
 */
#ifndef GD_MODEL_SAFETENSORS_H
#define GD_MODEL_SAFETENSORS_H

#include "base/mem.h"
#include "base/status.h"
#include "base/strbuf.h"
#include "ir/dtype.h"

enum { GD_SAFETENSORS_MAX_RANK = 8 };

struct gd_safetensor {
  const char *name;
  enum gd_dtype dtype; /* of F32, BF16, F16 and I32 */
  bool dtype_known;    /* false for the format's others (I64, F64, BOOL, U8, ...) */
  char dtype_name[16]; /* as the format spells it */
  uint32_t rank;
  int64_t dims[GD_SAFETENSORS_MAX_RANK];
  const void *data; /* in the mapping; may be unaligned */
  int64_t bytes;
};

struct gd_safetensors_map {
  void *data;
  int64_t bytes;
};

struct gd_safetensors {
  struct gd_arena arena;
  struct gd_safetensors_map *maps; /* one a file, in the arena */
  uint32_t map_count;
  struct gd_safetensor *tensors; /* sorted by name */
  uint32_t count;
  char path[512];
};

/*
 * path: a file, an index of shards (*.index.json), or a folder with model.safetensors.index.json or
 * model.safetensors in it. Whatever is malformed is GD_BAD_INPUT with the file and the byte offset
 * or the tensor and field; every tensor of an open file lies whole inside it. On failure the
 * structure is left zeroed.
 */
enum gd_status gd_safetensors_open(struct gd_safetensors *file, const char *path,
                                   struct gd_error *err) GD_MUST_USE;
/* The same over memory that the caller keeps (fuzzing, tests). */
enum gd_status gd_safetensors_parse(struct gd_safetensors *file, const char *label,
                                    const void *data, int64_t bytes,
                                    struct gd_error *err) GD_MUST_USE;
const struct gd_safetensor *gd_safetensors_find(const struct gd_safetensors *file,
                                                const char *name);
void gd_safetensors_close(struct gd_safetensors *file); /* safe on a zeroed one */
/* Element i as float whatever the dtype and alignment (I64 and F64 included); NaN for the types
   that have no float here (C64 and those under 16 bits of floating point). */
float gd_safetensor_value(const struct gd_safetensor *tensor, int64_t i);

/*
 * Writes a file whole or not at all (temporary name in the same folder, fsync, rename). A full disk
 * or a folder that cannot be written to is GD_ENVIRONMENT; names that repeat or sizes past the
 * format's are GD_BAD_INPUT.
 */
struct gd_safetensor_out {
  const char *name;
  enum gd_dtype dtype;
  uint32_t rank;
  const int64_t *dims;
  const void *data;
};
enum gd_status gd_safetensors_write(const char *path, const struct gd_safetensor_out *tensors,
                                    uint32_t count, struct gd_error *err) GD_MUST_USE;

/*
 * The same for a file that several processes write at once. Appends the header, and leaves where
 * each tensor begins in the file (offsets, one a tensor) and how long it will be. data is not read.
 */
enum gd_status gd_safetensors_layout(const char *path, const struct gd_safetensor_out *tensors,
                                     uint32_t count, struct gd_strbuf *header, int64_t *offsets,
                                     int64_t *bytes, struct gd_error *err) GD_MUST_USE;

#endif
