/*
 * Lists of images; see image_files.h.
 */
#define _GNU_SOURCE
#include "data/image_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/compare.h"
#include "base/file.h"
#include "data/tar.h"

enum { MOST_DEPTH = 16 };                         /* folders below a class */
static const size_t most_bytes = (size_t)1 << 30; /* of an image file */

static bool ends_with(const char *name, const char *end) {
  size_t length = strlen(name), tail = strlen(end);
  return length >= tail && strcasecmp(name + length - tail, end) == 0;
}

/* Whether a name is that of an image; notes which kinds there are. */
static bool is_image(struct gd_image_files *files, const char *name) {
  bool jpeg = ends_with(name, ".jpg") || ends_with(name, ".jpeg"), png = ends_with(name, ".png");
  files->jpeg |= jpeg;
  files->png |= png;
  return jpeg || png;
}

static enum gd_status add_entry(struct gd_image_files *files, const char *name,
                                struct gd_image_entry entry, struct gd_error *err) {
  if (files->count >= UINT32_MAX / 2)
    return gd_fail(err, GD_BAD_INPUT, "more than %" PRId64 " images", files->count);
  entry.name = gd_arena_copy_string(&files->arena, name);
  if (!entry.name || !gd_vec_reserve((void **)&files->entries, &files->capacity,
                                     (uint32_t)files->count + 1, sizeof *files->entries))
    return gd_nomem(err, "while listing images");
  files->entries[files->count++] = entry;
  return GD_OK;
}

/* --- folders ------------------------------------------------------------------------------- */

static int compare_entries(const void *a, const void *b) {
  const struct gd_image_entry *x = a, *y = b;
  if (x->class_number != y->class_number)
    return x->class_number < y->class_number ? -1 : 1;
  return strcmp(x->name, y->name);
}

static enum gd_status cannot_read(const char *path, struct gd_error *err) {
  return gd_fail(err, errno == ENOMEM ? GD_ENVIRONMENT : GD_BAD_INPUT, "%s cannot be read: %s",
                 path, strerror(errno));
}

static bool is_folder(const char *path, const struct dirent *entry) {
  struct stat facts;
  if (entry->d_type != DT_UNKNOWN && entry->d_type != DT_LNK)
    return entry->d_type == DT_DIR;
  return stat(path, &facts) == 0 && S_ISDIR(facts.st_mode);
}

/* Images of a class, and of the folders below. */
static enum gd_status list_class(struct gd_image_files *files, const char *path,
                                 int32_t class_number, int depth, struct gd_error *err) {
  DIR *folder = depth > MOST_DEPTH ? NULL : opendir(path);
  if (depth > MOST_DEPTH)
    return gd_fail(err, GD_BAD_INPUT, "%s lies %d folders below its class", path, depth);
  if (!folder)
    return cannot_read(path, err);
  enum gd_status status = GD_OK;
  const struct dirent *entry;
  while (status == GD_OK && (entry = readdir(folder))) {
    char below[GD_FILE_PATH];
    int length = snprintf(below, sizeof below, "%s/%s", path, entry->d_name);
    if (entry->d_name[0] == '.')
      continue;
    if (length >= (int)sizeof below)
      status = gd_fail(err, GD_BAD_INPUT, "the path %.64s... is too long", below);
    else if (is_folder(below, entry))
      status = list_class(files, below, class_number, depth + 1, err);
    else if (is_image(files, entry->d_name))
      status = add_entry(files, below + strlen(files->folder) + 1,
                         (struct gd_image_entry){.class_number = class_number, .shard = -1}, err);
  }
  closedir(folder);
  return status;
}

static enum gd_status list_names(struct gd_image_files *files, struct gd_error *err) {
  DIR *folder = opendir(files->folder);
  const struct dirent *entry;
  if (!folder)
    return cannot_read(files->folder, err);
  enum gd_status status = GD_OK;
  while (status == GD_OK && (entry = readdir(folder))) {
    char path[GD_FILE_PATH];
    snprintf(path, sizeof path, "%.3800s/%s", files->folder, entry->d_name);
    if (entry->d_name[0] == '.' || !is_folder(path, entry))
      continue;
    char *name = gd_arena_copy_string(&files->arena, entry->d_name);
    if (!name || !gd_vec_reserve((void **)&files->classes, &files->classes_capacity,
                                 files->n_classes + 1, sizeof *files->classes))
      status = gd_nomem(err, "while listing images");
    else
      files->classes[files->n_classes++] = name;
  }
  closedir(folder);
  if (status == GD_OK && files->n_classes == 0)
    status = gd_fail(err, GD_BAD_INPUT,
                     "%s has no folders: images of a class are in a folder with its name",
                     files->folder);
  if (status == GD_OK)
    qsort(files->classes, files->n_classes, sizeof *files->classes, gd_compare_texts);
  return status;
}

/* The number of a class: its place, or that which the training data has for its name. */
static enum gd_status number_of(const struct gd_image_files *files, uint32_t place,
                                const struct gd_image_files *known, int32_t *number,
                                struct gd_error *err) {
  *number = (int32_t)place;
  if (!known || !known->classes)
    return GD_OK;
  const char **found = bsearch(&files->classes[place], known->classes, known->n_classes,
                               sizeof *known->classes, gd_compare_texts);
  if (!found)
    return gd_fail(err, GD_BAD_INPUT,
                   "%s/%s is a class that the training data %s does not have; rename or remove it",
                   files->folder, files->classes[place], known->folder);
  ptrdiff_t at = found - known->classes;
  *number = known->numbers ? known->numbers[at] : (int32_t)at;
  return GD_OK;
}

static enum gd_status list_folder(struct gd_image_files *files, int64_t classes,
                                  const struct gd_image_files *known, struct gd_error *err) {
  GD_TRY(list_names(files, err));
  bool by_name = known && known->classes;
  if (!by_name && files->n_classes != classes)
    return gd_fail(err, GD_BAD_INPUT,
                   "%s has %u classes (%s to %s), and the model %" PRId64
                   ": give a folder with the model's config.json whose num_labels is %u (and "
                   "without id2label) as MODEL, or other images",
                   files->folder, files->n_classes, files->classes[0],
                   files->classes[files->n_classes - 1], classes, files->n_classes);
  for (uint32_t i = 0; i < files->n_classes; i++) {
    char path[GD_FILE_PATH];
    int64_t before = files->count;
    int32_t number;
    snprintf(path, sizeof path, "%.3000s/%.1000s", files->folder, files->classes[i]);
    GD_TRY(number_of(files, i, known, &number, err));
    GD_TRY(list_class(files, path, number, 1, err));
    if (files->count == before && !known)
      return gd_fail(err, GD_BAD_INPUT, "%s has no images (.jpg, .jpeg, .png)", path);
  }
  if (files->count > 0)
    qsort(files->entries, (size_t)files->count, sizeof *files->entries, compare_entries);
  return GD_OK;
}

/* --- shards -------------------------------------------------------------------------------- */

static enum gd_status map_shard(struct gd_image_shard *shard, struct gd_error *err) {
  struct stat facts;
  int fd = open(shard->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO must not hang */
  if (fd < 0)
    return gd_fail(err, GD_BAD_INPUT, "%s: %s", shard->path, strerror(errno));
  enum gd_status status = GD_OK;
  if (fstat(fd, &facts) != 0 || !S_ISREG(facts.st_mode) || facts.st_size == 0)
    status =
        gd_fail(err, GD_BAD_INPUT,
                "%s is neither a folder of images nor a tar archive, and the model is trained on "
                "images",
                shard->path);
  if (status == GD_OK) {
    void *map = mmap(NULL, (size_t)facts.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED)
      status =
          gd_fail(err, GD_ENVIRONMENT, "%s cannot be mapped: %s", shard->path, strerror(errno));
    else {
      shard->map = map;
      shard->bytes = facts.st_size;
    }
  }
  close(fd);
  return status;
}

/* A sample of a shard: members with one name up to the first dot. */
struct group {
  char name[GD_TAR_NAME];  /* without the extension */
  char image[GD_TAR_NAME]; /* empty: none */
  struct gd_image_entry entry;
};

static enum gd_status end_group(struct gd_image_files *files, const struct gd_image_shard *shard,
                                struct group *group, struct gd_error *err) {
  if (group->image[0] && group->entry.class_number < 0)
    return gd_fail(err, GD_BAD_INPUT, "%s: %s has no class: no %s.cls is next to it", shard->path,
                   group->image, group->name);
  if (!group->image[0])
    return GD_OK;
  if ((uint32_t)group->entry.class_number >= files->n_classes)
    files->n_classes = (uint32_t)group->entry.class_number + 1;
  return add_entry(files, group->image, group->entry, err);
}

static enum gd_status read_class(const struct gd_image_shard *shard,
                                 const struct gd_tar_member *member, int64_t classes,
                                 int32_t *number, struct gd_error *err) {
  const uint8_t *text = shard->map + member->first;
  int64_t value = 0, i = 0, length = member->bytes;
  while (length > 0 && (text[length - 1] == '\n' || text[length - 1] == ' '))
    length--;
  for (; i < length && text[i] >= '0' && text[i] <= '9' && value < INT32_MAX; i++)
    value = value * 10 + (text[i] - '0');
  if (length == 0 || i < length)
    return gd_fail(err, GD_BAD_INPUT, "%s: %s is no number of a class", shard->path, member->name);
  if (value >= classes)
    return gd_fail(err, GD_BAD_INPUT,
                   "%s: %s says class %" PRId64 ", and the model has %" PRId64
                   " classes, from 0 on: give a folder with its config.json and another num_labels "
                   "as MODEL, or other images",
                   shard->path, member->name, value, classes);
  *number = (int32_t)value;
  return GD_OK;
}

/* Where the extension begins: at the first dot of the last part of the name. */
static size_t stem_of(const char *name) {
  const char *slash = strrchr(name, '/'), *dot = strchr(slash ? slash + 1 : name, '.');
  return dot ? (size_t)(dot - name) : strlen(name);
}

static enum gd_status list_shard(struct gd_image_files *files, int32_t number, int64_t classes,
                                 struct gd_error *err) {
  const struct gd_image_shard *shard = &files->shards[number];
  struct gd_tar tar = {.bytes = shard->map, .size = shard->bytes, .path = shard->path};
  struct gd_tar_member member;
  struct group group = {.entry = {.class_number = -1}};
  enum gd_status status;
  struct gd_tar first = tar;
  if (!gd_tar_next(&first, &member, &status, NULL) && status != GD_OK && first.at == 0)
    return gd_fail(
        err, GD_BAD_INPUT,
        "%s is neither a folder of images nor a tar archive, and the model is trained on "
        "images",
        shard->path);
  while (gd_tar_next(&tar, &member, &status, err)) {
    size_t stem = stem_of(member.name);
    const char *extension = member.name + stem;
    bool image = is_image(files, extension);
    if (!image && strcmp(extension, ".cls") != 0)
      continue;
    if (strlen(group.name) != stem || memcmp(group.name, member.name, stem) != 0) {
      GD_TRY(end_group(files, shard, &group, err));
      group = (struct group){.entry = {.class_number = -1, .shard = number}};
      memcpy(group.name, member.name, stem);
    }
    if (!image) {
      GD_TRY(read_class(shard, &member, classes, &group.entry.class_number, err));
    } else if (group.image[0]) {
      return gd_fail(err, GD_BAD_INPUT, "%s: %s and %s are two images of one sample", shard->path,
                     group.image, member.name);
    } else {
      memcpy(group.image, member.name, sizeof group.image);
      group.entry.first = member.first;
      group.entry.bytes = member.bytes;
    }
  }
  GD_TRY(status);
  return end_group(files, shard, &group, err);
}

static enum gd_status list_shards(struct gd_image_files *files, const char *const *paths, int n,
                                  int64_t classes, struct gd_error *err) {
  files->shards = gd_mem_alloc((size_t)n, sizeof *files->shards);
  if (!files->shards)
    return gd_nomem(err, "while listing images");
  files->n_shards = n;
  for (int i = 0; i < n; i++) {
    struct stat facts;
    files->shards[i].path = gd_arena_copy_string(&files->arena, paths[i]);
    if (!files->shards[i].path)
      return gd_nomem(err, "while listing images");
    if (stat(paths[i], &facts) == 0 && S_ISDIR(facts.st_mode))
      return gd_fail(err, GD_BAD_INPUT,
                     "%s is a folder among %d paths: images are in one folder, or in tar archives",
                     paths[i], n);
    GD_TRY(map_shard(&files->shards[i], err));
    GD_TRY(list_shard(files, i, classes, err));
  }
  return GD_OK;
}

/* --- both ---------------------------------------------------------------------------------- */

/* The name without a slash at its end; NULL: no memory. */
static const char *take_folder(struct gd_image_files *files, const char *path) {
  char *folder = gd_arena_copy_string(&files->arena, path);
  for (size_t length = folder ? strlen(folder) : 0; length > 1 && folder[length - 1] == '/';)
    folder[--length] = '\0';
  return folder;
}

enum gd_status gd_image_files_open_classes(struct gd_image_files *files, const char *folder,
                                           struct gd_error *err) {
  *files = (struct gd_image_files){0};
  files->folder = take_folder(files, folder);
  enum gd_status status =
      files->folder ? list_names(files, err) : gd_nomem(err, "while listing images");
  if (status != GD_OK)
    gd_image_files_close(files);
  return status;
}

static bool is_one_folder(const char *const *paths, int n) {
  struct stat facts;
  return n == 1 && stat(paths[0], &facts) == 0 && S_ISDIR(facts.st_mode);
}

struct named {
  const char *name; /* first: gd_compare_texts compares it */
  int32_t number;
};

static enum gd_status take_names(struct gd_image_files *files, const char *const *names,
                                 int64_t count, struct gd_error *err) {
  struct named *sorted = gd_arena_alloc(&files->arena, (size_t)count, sizeof *sorted);
  files->numbers = gd_arena_alloc(&files->arena, (size_t)count, sizeof *files->numbers);
  if (!sorted || !files->numbers ||
      !gd_vec_reserve((void **)&files->classes, &files->classes_capacity, (uint32_t)count,
                      sizeof *files->classes))
    return gd_nomem(err, "while listing images");
  for (int64_t i = 0; i < count; i++)
    sorted[i] = (struct named){names[i], (int32_t)i};
  qsort(sorted, (size_t)count, sizeof *sorted, gd_compare_texts);
  for (int64_t i = 0; i < count; i++) {
    files->classes[i] = sorted[i].name;
    files->numbers[i] = sorted[i].number;
  }
  files->n_classes = (uint32_t)count;
  return GD_OK;
}

enum gd_status gd_image_files_match_classes(struct gd_image_files *files, const char *const *names,
                                            int64_t count, const char *const *paths, int n,
                                            struct gd_error *err) {
  struct gd_image_files own;
  *files = (struct gd_image_files){0};
  if (count < 1 || count > INT32_MAX || !is_one_folder(paths, n))
    return GD_OK;
  GD_TRY(gd_image_files_open_classes(&own, paths[0], err));
  enum gd_status status = take_names(files, names, count, err);
  bool all = status == GD_OK;
  for (uint32_t i = 0; all && i < own.n_classes; i++)
    all = bsearch(&own.classes[i], files->classes, files->n_classes, sizeof *files->classes,
                  gd_compare_texts) != NULL;
  gd_image_files_close(&own);
  if (!all)
    gd_image_files_close(files);
  return status;
}

enum gd_status gd_image_files_open(struct gd_image_files *files, const char *const *paths, int n,
                                   int64_t classes, const struct gd_image_files *known,
                                   struct gd_error *err) {
  enum gd_status status;
  *files = (struct gd_image_files){0};
  GD_ASSERT(n > 0);
  if (is_one_folder(paths, n)) {
    files->folder = take_folder(files, paths[0]);
    status = files->folder ? list_folder(files, classes, known, err)
                           : gd_nomem(err, "while listing images");
  } else {
    status = list_shards(files, paths, n, classes, err);
  }
  if (status == GD_OK && files->count == 0)
    status = gd_fail(err, GD_BAD_INPUT, "%s has no images (.jpg, .jpeg, .png)", paths[0]);
  if (status != GD_OK)
    gd_image_files_close(files);
  return status;
}

void gd_image_files_close(struct gd_image_files *files) {
  for (int i = 0; i < files->n_shards; i++)
    if (files->shards[i].map)
      munmap((void *)(uintptr_t)files->shards[i].map, (size_t)files->shards[i].bytes);
  gd_mem_free(files->shards);
  gd_mem_free(files->entries);
  gd_mem_free((void *)files->classes);
  gd_arena_deinit(&files->arena);
  *files = (struct gd_image_files){0};
}

const char *gd_image_files_name(const struct gd_image_files *files, int64_t image, char *text,
                                size_t size) {
  const struct gd_image_entry *entry = &files->entries[image];
  if (entry->shard < 0)
    snprintf(text, size, "%s/%s", files->folder, entry->name);
  else
    snprintf(text, size, "%s: %s", files->shards[entry->shard].path, entry->name);
  return text;
}

enum gd_status gd_image_files_get(const struct gd_image_files *files, int64_t image,
                                  struct gd_strbuf *buffer, const uint8_t **bytes, size_t *size,
                                  struct gd_error *err) {
  const struct gd_image_entry *entry = &files->entries[image];
  char path[2 * GD_FILE_PATH];
  if (entry->shard >= 0) {
    *bytes = files->shards[entry->shard].map + entry->first;
    *size = (size_t)entry->bytes;
    return GD_OK;
  }
  buffer->length = 0;
  GD_TRY(
      gd_file_read(gd_image_files_name(files, image, path, sizeof path), most_bytes, buffer, err));
  *bytes = (const uint8_t *)buffer->text;
  *size = buffer->length;
  return GD_OK;
}
