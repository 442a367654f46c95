/*
 * Reading and writing safetensors. A file is mapped and its header checked in full before anybody
 * sees a pointer: each tensor lies inside the file and has the bytes its dtype and shape need, and
 * the tensors cover the data section without overlap or hole, as the format demands. What the
 * numbers mean (which parameter, which family) is the caller's business.
 *
 * The checks hold for the file as it was when opened; a file that somebody shortens while it is
 * mapped cannot be guarded against.
 */
#define _POSIX_C_SOURCE 200809L
#include "model/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/strbuf.h"
#include "model/config.h"

/* The format's own limit on the header, which keeps a hostile one from filling memory. */
enum { LENGTH_BYTES = 8, HEADER_CAP_BYTES = 100 * 1000 * 1000 };
enum { NAME_BYTES = 96, SHAPE_BYTES = 192 };

static const struct dtype_row {
  const char *name;
  int bits;            /* an element; F4 and F6 are packed */
  enum gd_dtype dtype; /* GD_DTYPE_COUNT: none of ours */
} dtype_rows[] = {
    {"F32", 32, GD_DTYPE_F32},          {"BF16", 16, GD_DTYPE_BF16},
    {"F16", 16, GD_DTYPE_F16},          {"I32", 32, GD_DTYPE_I32},
    {"I64", 64, GD_DTYPE_COUNT},        {"F64", 64, GD_DTYPE_COUNT},
    {"U64", 64, GD_DTYPE_COUNT},        {"U32", 32, GD_DTYPE_COUNT},
    {"I16", 16, GD_DTYPE_COUNT},        {"U16", 16, GD_DTYPE_COUNT},
    {"I8", 8, GD_DTYPE_COUNT},          {"U8", 8, GD_DTYPE_COUNT},
    {"BOOL", 8, GD_DTYPE_COUNT},        {"C64", 64, GD_DTYPE_COUNT},
    {"F8_E4M3", 8, GD_DTYPE_COUNT},     {"F8_E5M2", 8, GD_DTYPE_COUNT},
    {"F8_E8M0", 8, GD_DTYPE_COUNT},     {"F8_E4M3FNUZ", 8, GD_DTYPE_COUNT},
    {"F8_E5M2FNUZ", 8, GD_DTYPE_COUNT}, {"F6_E2M3", 6, GD_DTYPE_COUNT},
    {"F6_E3M2", 6, GD_DTYPE_COUNT},     {"F4", 4, GD_DTYPE_COUNT},
};

static const struct dtype_row *find_dtype(const char *name) {
  for (size_t i = 0; i < sizeof dtype_rows / sizeof *dtype_rows; i++)
    if (strcmp(dtype_rows[i].name, name) == 0)
      return &dtype_rows[i];
  return NULL;
}

static const char *format_name(enum gd_dtype dtype) {
  for (size_t i = 0; i < sizeof dtype_rows / sizeof *dtype_rows; i++)
    if (dtype_rows[i].dtype == dtype)
      return dtype_rows[i].name;
  GD_ASSERT(!"dtype has a name in the format");
  return NULL;
}

/* One file's bytes while its header is read. */
struct part {
  const char *label;
  const unsigned char *data; /* the data section */
  int64_t data_bytes;
  int64_t data_at; /* where it starts in the file */
};

/* Where a tensor lies in the data section, for the check that tensors cover it. */
struct extent {
  int64_t begin, end;
  const char *name;
};

static enum gd_status out_of_memory(const char *label, struct gd_error *err) {
  return gd_nomem(err, "while reading the header of %s", label);
}

static const char *show_shape(char *text, size_t size, const struct gd_safetensor *tensor) {
  size_t length = 0;
  text[0] = '\0';
  for (uint32_t i = 0; i < tensor->rank; i++) {
    int wrote = snprintf(text + length, size - length, "%s%" PRId64, i ? "," : "", tensor->dims[i]);
    GD_ASSERT(wrote > 0 && (size_t)wrote < size - length);
    length += (size_t)wrote;
  }
  return text;
}

static enum gd_status tensor_failure(const struct part *part, const char *name, const char *what,
                                     struct gd_error *err) {
  char clean[NAME_BYTES];
  return gd_fail(err, GD_BAD_INPUT, "%s: tensor \"%s\": %s", part->label,
                 gd_json_excerpt(clean, sizeof clean, name), what);
}

static enum gd_status read_shape(const struct part *part, const json_t *info,
                                 struct gd_safetensor *tensor, struct gd_error *err) {
  char what[128];
  const json_t *shape = json_object_get(info, "shape");
  if (!json_is_array(shape))
    return tensor_failure(part, tensor->name, "shape is not an array of sizes", err);
  if (json_array_size(shape) > GD_SAFETENSORS_MAX_RANK) {
    char clean[NAME_BYTES];
    return gd_fail(err, GD_UNSUPPORTED,
                   "%s: tensor \"%s\": shape has %zu dims; at most %d are read", part->label,
                   gd_json_excerpt(clean, sizeof clean, tensor->name), json_array_size(shape),
                   GD_SAFETENSORS_MAX_RANK);
  }
  tensor->rank = (uint32_t)json_array_size(shape);
  for (uint32_t i = 0; i < tensor->rank; i++) {
    const json_t *dim = json_array_get(shape, i);
    if (!json_is_integer(dim) || json_integer_value(dim) < 0) {
      snprintf(what, sizeof what, "shape[%" PRIu32 "] is not a whole number of at least 0", i);
      return tensor_failure(part, tensor->name, what, err);
    }
    tensor->dims[i] = (int64_t)json_integer_value(dim);
  }
  return GD_OK;
}

static enum gd_status read_dtype(const struct part *part, const json_t *info,
                                 struct gd_safetensor *tensor, const struct dtype_row **row,
                                 struct gd_error *err) {
  char name[NAME_BYTES], clean[32];
  const char *dtype = json_string_value(json_object_get(info, "dtype"));
  if (!dtype)
    return tensor_failure(part, tensor->name, "dtype is not a string", err);
  *row = find_dtype(dtype);
  if (!*row)
    return gd_fail(
        err, GD_UNSUPPORTED,
        "%s: tensor \"%s\": dtype \"%s\" is not known; F32, BF16, F16, F64, I64, I32 and "
        "the format's smaller ones are",
        part->label, gd_json_excerpt(name, sizeof name, tensor->name),
        gd_json_excerpt(clean, sizeof clean, dtype));
  snprintf(tensor->dtype_name, sizeof tensor->dtype_name, "%s", (*row)->name);
  tensor->dtype_known = (*row)->dtype != GD_DTYPE_COUNT;
  tensor->dtype = (*row)->dtype;
  return GD_OK;
}

static enum gd_status read_offsets(const struct part *part, const json_t *info,
                                   struct gd_safetensor *tensor, struct extent *extent,
                                   struct gd_error *err) {
  char what[256];
  const json_t *offsets = json_object_get(info, "data_offsets");
  const json_t *begin = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);
  if (json_array_size(offsets) != 2 || !json_is_integer(begin) || !json_is_integer(end))
    return tensor_failure(part, tensor->name, "data_offsets is not [begin, end]", err);
  extent->begin = (int64_t)json_integer_value(begin);
  extent->end = (int64_t)json_integer_value(end);
  extent->name = tensor->name;
  if (extent->begin < 0 || extent->begin > extent->end) {
    snprintf(what, sizeof what, "data_offsets [%" PRId64 ",%" PRId64 "] is not a range",
             extent->begin, extent->end);
    return tensor_failure(part, tensor->name, what, err);
  }
  if (extent->end > part->data_bytes) {
    snprintf(what, sizeof what,
             "data_offsets [%" PRId64 ",%" PRId64 "] reach past the file, which holds %" PRId64
             " bytes of data from byte %" PRId64 " on; is the download complete?",
             extent->begin, extent->end, part->data_bytes, part->data_at);
    return tensor_failure(part, tensor->name, what, err);
  }
  tensor->data = part->data + extent->begin;
  tensor->bytes = extent->end - extent->begin;
  return GD_OK;
}

static enum gd_status read_tensor(const struct part *part, const json_t *info,
                                  struct gd_safetensor *tensor, struct extent *extent,
                                  struct gd_error *err) {
  char what[256 + SHAPE_BYTES], shape[SHAPE_BYTES];
  const struct dtype_row *row = NULL;
  if (!json_is_object(info))
    return tensor_failure(part, tensor->name, "its entry is not an object", err);
  GD_TRY(read_dtype(part, info, tensor, &row, err));
  GD_TRY(read_shape(part, info, tensor, err));
  GD_TRY(read_offsets(part, info, tensor, extent, err));
  int64_t bits = row->bits;
  bool fits = true;
  for (uint32_t i = 0; i < tensor->rank; i++)
    fits = fits && gd_size_mul(bits, tensor->dims[i], &bits);
  show_shape(shape, sizeof shape, tensor);
  if (!fits) {
    snprintf(what, sizeof what, "%s [%s] has more elements than can be counted", row->name, shape);
    return tensor_failure(part, tensor->name, what, err);
  }
  if (bits % 8 != 0) {
    snprintf(what, sizeof what, "%s [%s] does not fill whole bytes", row->name, shape);
    return tensor_failure(part, tensor->name, what, err);
  }
  if (tensor->bytes != bits / 8) {
    snprintf(what, sizeof what,
             "data_offsets [%" PRId64 ",%" PRId64 "] hold %" PRId64
             " bytes but %s [%s] needs %" PRId64,
             extent->begin, extent->end, tensor->bytes, row->name, shape, bits / 8);
    return tensor_failure(part, tensor->name, what, err);
  }
  return GD_OK;
}

static int compare_extents(const void *a, const void *b) {
  const struct extent *x = a, *y = b;
  if (x->begin != y->begin)
    return x->begin < y->begin ? -1 : 1;
  if (x->end != y->end)
    return x->end < y->end ? -1 : 1;
  return strcmp(x->name, y->name); /* empty tensors share a place; the order must not vary */
}

static int compare_tensors(const void *a, const void *b) {
  const struct gd_safetensor *x = a, *y = b;
  return strcmp(x->name, y->name);
}

static enum gd_status check_cover(const struct part *part, struct extent *extents, uint32_t count,
                                  struct gd_error *err) {
  char name[NAME_BYTES], previous[NAME_BYTES];
  int64_t covered = 0;
  qsort(extents, count, sizeof *extents, compare_extents);
  for (uint32_t i = 0; i < count; i++) {
    const struct extent *at = &extents[i];
    gd_json_excerpt(name, sizeof name, at->name);
    if (at->begin < covered) {
      const struct extent *before = &extents[i - 1];
      return gd_fail(err, GD_BAD_INPUT,
                     "%s: byte %" PRId64 ": tensors \"%s\" [%" PRId64 ",%" PRId64
                     "] and \"%s\" [%" PRId64 ",%" PRId64 "] overlap",
                     part->label, part->data_at + at->begin,
                     gd_json_excerpt(previous, sizeof previous, before->name), before->begin,
                     before->end, name, at->begin, at->end);
    }
    if (at->begin > covered)
      return gd_fail(err, GD_BAD_INPUT,
                     "%s: byte %" PRId64 ": %" PRId64
                     " bytes before tensor \"%s\" belong to no tensor",
                     part->label, part->data_at + covered, at->begin - covered, name);
    covered = at->end;
  }
  if (covered != part->data_bytes)
    return gd_fail(err, GD_BAD_INPUT,
                   "%s: byte %" PRId64 ": the last %" PRId64 " bytes belong to no tensor",
                   part->label, part->data_at + covered, part->data_bytes - covered);
  return GD_OK;
}

static enum gd_status check_metadata(const struct part *part, json_t *metadata,
                                     struct gd_error *err) {
  const char *key;
  json_t *value;
  if (!json_is_object(metadata))
    return gd_fail(err, GD_BAD_INPUT, "%s: __metadata__ is not an object of strings", part->label);
  json_object_foreach(metadata, key, value) {
    char clean[NAME_BYTES];
    if (!json_is_string(value))
      return gd_fail(err, GD_BAD_INPUT, "%s: __metadata__: \"%s\" is not a string", part->label,
                     gd_json_excerpt(clean, sizeof clean, key));
  }
  return GD_OK;
}

/* The header's entries into the arena, sorted by name. */
static enum gd_status read_entries(const struct part *part, json_t *header, struct gd_arena *arena,
                                   struct gd_safetensor **tensors, uint32_t *count,
                                   struct gd_error *err) {
  size_t entries = json_object_size(header);
  uint32_t used = 0;
  const char *key;
  json_t *info;
  enum gd_status status = GD_OK;
  struct gd_safetensor *list = gd_arena_alloc(arena, entries, sizeof *list);
  struct extent *extents = gd_mem_alloc(entries, sizeof *extents);
  if (!list || !extents) {
    status = out_of_memory(part->label, err);
    goto done;
  }
  json_object_foreach(header, key, info) {
    if (strcmp(key, "__metadata__") == 0) {
      status = check_metadata(part, info, err);
    } else {
      list[used].name = gd_arena_copy_string(arena, key);
      status = list[used].name ? read_tensor(part, info, &list[used], &extents[used], err)
                               : out_of_memory(part->label, err);
      used++;
    }
    if (status != GD_OK)
      goto done;
  }
  status = check_cover(part, extents, used, err);
  if (status != GD_OK)
    goto done;
  qsort(list, used, sizeof *list, compare_tensors);
  *tensors = list;
  *count = used;
done:
  gd_mem_free(extents);
  return status;
}

/* What people hand over by mistake, told by its first bytes; NULL when it is none of those. */
static const char *known_mistake(const unsigned char *data, int64_t bytes) {
  static const struct {
    const char *start, *remedy;
  } mistakes[] = {
      {"version https://git-lfs", "a Git LFS pointer, not the file itself; run git lfs pull"},
      {"PK\x03\x04", "a zip archive (a PyTorch checkpoint?); convert it to safetensors"},
      {"GGUF", "a GGUF file; a safetensors file is needed"},
      {"<!DOCTYPE", "a web page; is the download's address right?"},
      {"{", "JSON text, without the 8 bytes of header length that come first"},
  };
  for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++) {
    size_t length = strlen(mistakes[i].start);
    if (bytes >= (int64_t)length && memcmp(data, mistakes[i].start, length) == 0)
      return mistakes[i].remedy;
  }
  return NULL;
}

static enum gd_status check_length(const char *label, const unsigned char *data, int64_t bytes,
                                   int64_t *header_bytes, struct gd_error *err) {
  uint64_t length = 0;
  if (bytes < LENGTH_BYTES)
    return gd_fail(err, GD_BAD_INPUT,
                   "%s: byte 0: the file has %" PRId64
                   " bytes and a safetensors file starts with 8; is the download complete?",
                   label, bytes);
  for (int i = LENGTH_BYTES - 1; i >= 0; i--)
    length = length << 8 | data[i];
  if (length > HEADER_CAP_BYTES) {
    const char *mistake = known_mistake(data, bytes);
    if (mistake)
      return gd_fail(err, GD_BAD_INPUT, "%s: byte 0: this is %s", label, mistake);
    return gd_fail(err, GD_BAD_INPUT,
                   "%s: byte 0: a header of %" PRIu64
                   " bytes is past the format's limit of 100 MB; is this a safetensors file?",
                   label, length);
  }
  if (length > (uint64_t)(bytes - LENGTH_BYTES))
    return gd_fail(err, GD_BAD_INPUT,
                   "%s: byte 8: the header is %" PRIu64 " bytes but the file ends after %" PRId64
                   "; is the download complete?",
                   label, length, bytes - LENGTH_BYTES);
  if (length == 0 || data[LENGTH_BYTES] != '{')
    return gd_fail(err, GD_BAD_INPUT, "%s: byte 8: the header does not start with '{'", label);
  *header_bytes = (int64_t)length;
  return GD_OK;
}

/* One file's bytes to its tensors, which stay in the arena and point into the bytes. */
static enum gd_status read_part(const char *label, const void *bytes_of_file, int64_t bytes,
                                struct gd_arena *arena, struct gd_safetensor **tensors,
                                uint32_t *count, struct gd_error *err) {
  char text[JSON_ERROR_TEXT_LENGTH];
  const unsigned char *data = bytes_of_file;
  int64_t header_bytes = 0;
  json_error_t error = {0};
  GD_TRY(check_length(label, data, bytes, &header_bytes, err));
  json_t *header = json_loadb((const char *)data + LENGTH_BYTES, (size_t)header_bytes,
                              JSON_REJECT_DUPLICATES, &error);
  /* jansson says nothing at all at the places where its own allocation failed. */
  if (!header && (error.text[0] == '\0' || json_error_code(&error) == json_error_out_of_memory))
    return out_of_memory(label, err);
  if (!header)
    return gd_fail(err, GD_BAD_INPUT, "%s: byte %d: the header is not JSON: %s", label,
                   LENGTH_BYTES + error.position, gd_json_excerpt(text, sizeof text, error.text));
  struct part part = {
      .label = label,
      .data = data + LENGTH_BYTES + header_bytes,
      .data_bytes = bytes - LENGTH_BYTES - header_bytes,
      .data_at = LENGTH_BYTES + header_bytes,
  };
  enum gd_status status = read_entries(&part, header, arena, tensors, count, err);
  json_decref(header);
  return status;
}

enum gd_status gd_safetensors_parse(struct gd_safetensors *file, const char *label,
                                    const void *data, int64_t bytes, struct gd_error *err) {
  *file = (struct gd_safetensors){0};
  gd_json_excerpt(file->path, sizeof file->path, label);
  enum gd_status status =
      read_part(file->path, data, bytes, &file->arena, &file->tensors, &file->count, err);
  if (status != GD_OK)
    gd_safetensors_close(file);
  return status;
}

static enum gd_status map_file(const char *path, struct gd_safetensors_map *map,
                               struct gd_error *err) {
  struct stat about;
  enum gd_status status = GD_OK;
  /* Without O_NONBLOCK a named pipe would wait here for a writer. */
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0)
    return gd_fail(err, GD_BAD_INPUT, "%s: cannot be opened: %s", path, strerror(errno));
  if (fstat(fd, &about) != 0) {
    status = gd_fail(err, GD_BAD_INPUT, "%s: cannot be read: %s", path, strerror(errno));
  } else if (!S_ISREG(about.st_mode)) {
    status = gd_fail(err, GD_BAD_INPUT, "%s: not a file of bytes; name a safetensors file", path);
  } else if (about.st_size == 0) { /* mmap refuses to map nothing */
    status = gd_fail(err, GD_BAD_INPUT, "%s: the file is empty; is the download complete?", path);
  } else {
    void *data = mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED)
      status = gd_fail(err, GD_ENVIRONMENT, "%s: cannot be mapped: %s", path, strerror(errno));
    else
      *map = (struct gd_safetensors_map){.data = data, .bytes = (int64_t)about.st_size};
  }
  close(fd);
  return status;
}

static enum gd_status open_single(struct gd_safetensors *file, const char *path,
                                  struct gd_error *err) {
  file->maps = gd_arena_alloc(&file->arena, 1, sizeof *file->maps);
  if (!file->maps)
    return out_of_memory(path, err);
  GD_TRY(map_file(path, &file->maps[0], err));
  file->map_count = 1;
  return read_part(path, file->maps[0].data, file->maps[0].bytes, &file->arena, &file->tensors,
                   &file->count, err);
}

/* A file that the index names, opened when it is first met. */
struct shard {
  const char *name; /* borrowed from the index */
  struct gd_safetensor *tensors;
  uint32_t count;
};

struct shards {
  const char *folder; /* with its '/', or empty */
  struct shard *list;
  uint32_t count, capacity;
};

static enum gd_status open_shard(struct gd_safetensors *file, const struct gd_json *index,
                                 struct shards *shards, const char *name,
                                 const struct shard **found, struct gd_error *err) {
  char clean[NAME_BYTES];
  for (uint32_t i = 0; i < shards->count; i++)
    if (strcmp(shards->list[i].name, name) == 0) {
      *found = &shards->list[i];
      return GD_OK;
    }
  /* An index must not reach out of its folder. */
  if (name[0] == '\0' || strchr(name, '/'))
    return gd_fail(err, GD_BAD_INPUT,
                   "%s: weight_map: \"%s\" is not the name of a file next to the index",
                   index->file, gd_json_excerpt(clean, sizeof clean, name));
  if (!gd_vec_reserve((void **)&shards->list, &shards->capacity, shards->count + 1,
                      sizeof *shards->list))
    return out_of_memory(index->file, err);
  const char *path = gd_arena_printf(&file->arena, "%s%s", shards->folder, name);
  struct gd_safetensors_map *maps =
      gd_arena_alloc(&file->arena, file->map_count + (size_t)1, sizeof *maps);
  if (!path || !maps)
    return out_of_memory(index->file, err);
  if (file->map_count > 0)
    memcpy(maps, file->maps, file->map_count * sizeof *maps);
  file->maps = maps;
  struct shard *shard = &shards->list[shards->count];
  struct gd_safetensors_map *map = &maps[file->map_count];
  GD_TRY(map_file(path, map, err));
  file->map_count++;
  GD_TRY(read_part(path, map->data, map->bytes, &file->arena, &shard->tensors, &shard->count, err));
  shard->name = name;
  shards->count++;
  *found = shard;
  return GD_OK;
}

static const struct gd_safetensor *find_tensor(const struct gd_safetensor *tensors, uint32_t count,
                                               const char *name) {
  struct gd_safetensor key = {.name = name};
  if (count == 0)
    return NULL;
  return bsearch(&key, tensors, count, sizeof *tensors, compare_tensors);
}

/* Tensors are taken from where the index says they are; what it does not list is left out. */
static enum gd_status read_index(struct gd_safetensors *file, const struct gd_json *index,
                                 struct shards *shards, struct gd_error *err) {
  json_t *weights = json_object_get(index->root, "weight_map");
  const char *name;
  json_t *value;
  if (!json_is_object(weights))
    return gd_json_mismatch(index, index->root, "weight_map", "an object of file names", err);
  file->tensors = gd_arena_alloc(&file->arena, json_object_size(weights), sizeof *file->tensors);
  if (!file->tensors)
    return out_of_memory(index->file, err);
  json_object_foreach(weights, name, value) {
    const struct shard *shard = NULL;
    if (!json_is_string(value))
      return gd_json_mismatch(index, weights, name, "a file name", err);
    enum gd_status status = open_shard(file, index, shards, json_string_value(value), &shard, err);
    if (!shard)
      return status;
    const struct gd_safetensor *tensor = find_tensor(shard->tensors, shard->count, name);
    if (!tensor) {
      char clean[NAME_BYTES], clean_shard[NAME_BYTES];
      return gd_fail(
          err, GD_BAD_INPUT,
          "%s: weight_map: %s does not have tensor \"%s\"; do the files belong together?",
          index->file, gd_json_excerpt(clean_shard, sizeof clean_shard, shard->name),
          gd_json_excerpt(clean, sizeof clean, name));
    }
    file->tensors[file->count++] = *tensor;
  }
  qsort(file->tensors, file->count, sizeof *file->tensors, compare_tensors);
  return GD_OK;
}

static enum gd_status open_index(struct gd_safetensors *file, const char *path,
                                 struct gd_error *err) {
  struct gd_json index = {0};
  struct shards shards = {0};
  const char *slash = strrchr(path, '/');
  enum gd_status status = gd_json_load(&index, path, err);
  if (status != GD_OK)
    return status;
  shards.folder = gd_arena_printf(&file->arena, "%.*s", slash ? (int)(slash - path) + 1 : 0, path);
  status = shards.folder ? read_index(file, &index, &shards, err) : out_of_memory(path, err);
  gd_mem_free(shards.list);
  gd_json_deinit(&index);
  return status;
}

static enum gd_status open_folder(struct gd_safetensors *file, const char *path,
                                  struct gd_error *err) {
  const char *slash = gd_name_ends(path, "/") ? "" : "/";
  const char *index =
      gd_arena_printf(&file->arena, "%s%smodel.safetensors.index.json", path, slash);
  const char *single = gd_arena_printf(&file->arena, "%s%smodel.safetensors", path, slash);
  if (!index || !single)
    return out_of_memory(path, err);
  if (!gd_file_is_missing(single))
    return open_single(file, single, err);
  if (!gd_file_is_missing(index))
    return open_index(file, index, err);
  return gd_fail(err, GD_BAD_INPUT,
                 "%s: the folder has neither model.safetensors nor model.safetensors.index.json",
                 path);
}

enum gd_status gd_safetensors_open(struct gd_safetensors *file, const char *path,
                                   struct gd_error *err) {
  struct stat about;
  enum gd_status status;
  *file = (struct gd_safetensors){0};
  gd_json_excerpt(file->path, sizeof file->path, path);
  if (stat(path, &about) == 0 && S_ISDIR(about.st_mode))
    status = open_folder(file, path, err);
  else if (gd_name_ends(path, ".index.json"))
    status = open_index(file, path, err);
  else
    status = open_single(file, path, err);
  if (status != GD_OK)
    gd_safetensors_close(file);
  return status;
}

const struct gd_safetensor *gd_safetensors_find(const struct gd_safetensors *file,
                                                const char *name) {
  return find_tensor(file->tensors, file->count, name);
}

void gd_safetensors_close(struct gd_safetensors *file) {
  for (uint32_t i = 0; i < file->map_count; i++)
    munmap(file->maps[i].data, (size_t)file->maps[i].bytes);
  gd_arena_deinit(&file->arena);
  *file = (struct gd_safetensors){0};
}

/* The numeric types that are none of ours, by their name in the format. */
static float foreign_value(const char *dtype, const unsigned char *at) {
  union {
    double f64;
    int64_t i64;
    uint64_t u64;
    uint32_t u32;
    int16_t i16;
    uint16_t u16;
    int8_t i8;
    uint8_t u8;
  } value;
#define GD_LOAD(name, field)                      \
  if (strcmp(dtype, name) == 0) {                 \
    memcpy(&value.field, at, sizeof value.field); \
    return (float)value.field;                    \
  }
  GD_LOAD("I64", i64)
  GD_LOAD("F64", f64)
  GD_LOAD("U64", u64)
  GD_LOAD("U32", u32)
  GD_LOAD("I16", i16)
  GD_LOAD("U16", u16)
  GD_LOAD("I8", i8)
  GD_LOAD("U8", u8)
  GD_LOAD("BOOL", u8)
#undef GD_LOAD
  return NAN;
}

float gd_safetensor_value(const struct gd_safetensor *tensor, int64_t i) {
  const unsigned char *data = tensor->data;
  if (tensor->dtype_known) {
    unsigned char element[8] __attribute__((aligned(8)));
    int64_t size = gd_dtype_bytes(tensor->dtype);
    GD_ASSERT(i >= 0 && i < tensor->bytes / size);
    memcpy(element, data + i * size, (size_t)size); /* the mapping may be unaligned */
    return gd_dtype_load(tensor->dtype, element, 0);
  }
  const struct dtype_row *row = find_dtype(tensor->dtype_name);
  GD_ASSERT(row && i >= 0 && i < tensor->bytes * 8 / row->bits);
  return row->bits % 8 == 0 ? foreign_value(tensor->dtype_name, data + i * (row->bits / 8)) : NAN;
}

/* --- writing ------------------------------------------------------------------------------- */

static void append_json_string(struct gd_strbuf *out, const char *text) {
  gd_strbuf_append(out, "\"");
  for (; *text; text++) {
    if (*text == '"' || *text == '\\')
      gd_strbuf_printf(out, "\\%c", *text);
    else if ((unsigned char)*text < 0x20)
      gd_strbuf_printf(out, "\\u%04x", (unsigned)(unsigned char)*text);
    else
      gd_strbuf_printf(out, "%c", *text);
  }
  gd_strbuf_append(out, "\"");
}

/* A tensor to write and where it goes. */
struct placement {
  const struct gd_safetensor_out *tensor;
  int64_t bytes;
};

/* Larger elements first, so that every tensor is aligned to its element; then by name. */
static int compare_placements(const void *a, const void *b) {
  const struct placement *x = a, *y = b;
  int64_t x_size = gd_dtype_bytes(x->tensor->dtype), y_size = gd_dtype_bytes(y->tensor->dtype);
  if (x_size != y_size)
    return x_size > y_size ? -1 : 1;
  return strcmp(x->tensor->name, y->tensor->name);
}

static int compare_names(const void *a, const void *b) {
  const struct placement *x = a, *y = b;
  return strcmp(x->tensor->name, y->tensor->name);
}

static enum gd_status place_tensors(const char *path, const struct gd_safetensor_out *tensors,
                                    uint32_t count, struct placement *placements,
                                    struct gd_error *err) {
  for (uint32_t i = 0; i < count; i++) {
    int64_t bytes = gd_dtype_bytes(tensors[i].dtype);
    bool fits = tensors[i].rank <= GD_SAFETENSORS_MAX_RANK;
    for (uint32_t d = 0; fits && d < tensors[i].rank; d++)
      fits = tensors[i].dims[d] >= 0 && gd_size_mul(bytes, tensors[i].dims[d], &bytes);
    if (!fits)
      return gd_fail(err, GD_BAD_INPUT, "%s: tensor \"%s\" has a shape that cannot be written",
                     path, tensors[i].name);
    placements[i] = (struct placement){.tensor = &tensors[i], .bytes = bytes};
  }
  qsort(placements, count, sizeof *placements, compare_names);
  for (uint32_t i = 1; i < count; i++)
    if (compare_names(&placements[i - 1], &placements[i]) == 0)
      return gd_fail(err, GD_BAD_INPUT, "%s: tensor \"%s\" is given twice", path,
                     placements[i].tensor->name);
  qsort(placements, count, sizeof *placements, compare_placements);
  return GD_OK;
}

/* The 8 bytes of length and the header, padded so that the data is aligned. */
static enum gd_status write_header(const char *path, const struct placement *placements,
                                   uint32_t count, struct gd_strbuf *out, struct gd_error *err) {
  int64_t at = 0;
  gd_strbuf_append(out, "        {"); /* the length goes into the first eight */
  for (uint32_t i = 0; i < count; i++) {
    const struct gd_safetensor_out *tensor = placements[i].tensor;
    int64_t end;
    if (!gd_size_add(at, placements[i].bytes, &end))
      return gd_fail(err, GD_BAD_INPUT, "%s: the tensors have more bytes than can be counted",
                     path);
    if (i > 0)
      gd_strbuf_append(out, ",");
    append_json_string(out, tensor->name);
    gd_strbuf_printf(out, ":{\"dtype\":\"%s\",\"shape\":[", format_name(tensor->dtype));
    for (uint32_t d = 0; d < tensor->rank; d++)
      gd_strbuf_printf(out, "%s%" PRId64, d ? "," : "", tensor->dims[d]);
    gd_strbuf_printf(out, "],\"data_offsets\":[%" PRId64 ",%" PRId64 "]}", at, end);
    at = end;
  }
  gd_strbuf_append(out, "}");
  while (!out->failed && out->length % 8 != 0)
    gd_strbuf_append(out, " ");
  if (out->failed)
    return gd_nomem(err, "while writing the header of %s", path);
  uint64_t length = out->length - LENGTH_BYTES;
  if (length > HEADER_CAP_BYTES)
    return gd_fail(err, GD_BAD_INPUT,
                   "%s: the header would be %" PRIu64 " bytes, past the format's limit of 100 MB",
                   path, length);
  for (int i = 0; i < LENGTH_BYTES; i++)
    out->text[i] = (char)(unsigned char)(length >> (8 * i));
  return GD_OK;
}

static enum gd_status write_file(const char *path, const struct gd_strbuf *header,
                                 const struct placement *placements, uint32_t count,
                                 struct gd_error *err) {
  struct gd_file_out out;
  GD_TRY(gd_file_begin(&out, path, err));
  fwrite(header->text, 1, header->length, out.stream);
  for (uint32_t i = 0; i < count && !ferror(out.stream); i++)
    if (placements[i].bytes > 0) /* an empty one may have no data */
      fwrite(placements[i].tensor->data, 1, (size_t)placements[i].bytes, out.stream);
  return gd_file_end(&out, GD_OK, err);
}

enum gd_status gd_safetensors_write(const char *path, const struct gd_safetensor_out *tensors,
                                    uint32_t count, struct gd_error *err) {
  struct gd_arena arena = {0};
  struct gd_strbuf header = {0};
  enum gd_status status;
  struct placement *placements = gd_arena_alloc(&arena, count, sizeof *placements);
  if (!placements) {
    status = gd_nomem(err, "while writing the header of %s", path);
    goto done;
  }
  status = place_tensors(path, tensors, count, placements, err);
  if (status == GD_OK)
    status = write_header(path, placements, count, &header, err);
  if (status == GD_OK)
    status = write_file(path, &header, placements, count, err);
done:
  gd_strbuf_deinit(&header);
  gd_arena_deinit(&arena);
  return status;
}

enum gd_status gd_safetensors_layout(const char *path, const struct gd_safetensor_out *tensors,
                                     uint32_t count, struct gd_strbuf *header, int64_t *offsets,
                                     int64_t *bytes, struct gd_error *err) {
  struct placement *placements = gd_mem_alloc((size_t)count + 1, sizeof *placements);
  if (!placements)
    return gd_fail(err, GD_ENVIRONMENT, "%s: memory ran out while writing its header", path);
  enum gd_status status = place_tensors(path, tensors, count, placements, err);
  if (status == GD_OK)
    status = write_header(path, placements, count, header, err);
  *bytes = (int64_t)header->length;
  for (uint32_t i = 0; i < count && status == GD_OK; i++) {
    offsets[placements[i].tensor - tensors] = *bytes;
    *bytes += placements[i].bytes;
  }
  gd_mem_free(placements);
  return status;
}
