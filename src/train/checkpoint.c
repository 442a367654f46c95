/*
 * Writing checkpoints; see checkpoint.h. Reading them is in checkpoint_read.c.
 */
#define _GNU_SOURCE
#include "train/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/host_memory.h"
#include "base/hash.h"
#include "base/mem.h"
#include "train/checkpoint_int.h"

enum { PIECE_ELEMENTS = 1 << 22 }; /* 16 MiB: written and checked at a time */

static int rank_of(const struct gd_checkpoint_writer *w) {
  return w->comm ? gd_comm_rank(w->comm) : 0;
}

static enum gd_status agree(const struct gd_checkpoint_writer *w, enum gd_status status,
                            struct gd_error *err) {
  return w->comm ? gd_comm_agree(w->comm, status, err) : status;
}

static enum gd_status system_error(const char *what, const char *path, struct gd_error *err) {
  return gd_fail(err, GD_ENVIRONMENT, "%s cannot be %s: %s", path, what, strerror(errno));
}

/* --- folders ------------------------------------------------------------------------------- */

/* Removes a folder of files; deeper folders are none of ours. */
static void remove_folder(const char *path) {
  char name[GD_FILE_PATH + 256];
  DIR *folder = opendir(path);
  struct dirent *entry;
  if (!folder)
    return;
  while ((entry = readdir(folder)))
    if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
      snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
      unlink(name);
    }
  closedir(folder);
  rmdir(path);
}

static enum gd_status sync_folder(const char *path, struct gd_error *err) {
  int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  enum gd_status status = fd >= 0 && fsync(fd) == 0 ? GD_OK : system_error("synced", path, err);
  if (fd >= 0)
    close(fd);
  return status;
}

static int newest_first(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return x < y ? 1 : x > y ? -1 : 0;
}

int64_t *gd_checkpoint_steps(const char *folder, int *count) {
  DIR *open_folder = opendir(folder);
  struct dirent *entry;
  int64_t *steps = NULL;
  uint32_t capacity = 0, n = 0;
  while (open_folder && (entry = readdir(open_folder))) {
    char *end;
    if (strncmp(entry->d_name, "step-", 5) != 0)
      continue;
    int64_t step = strtoll(entry->d_name + 5, &end, 10);
    if (*end || end == entry->d_name + 5 ||
        !gd_vec_reserve((void **)&steps, &capacity, n + 1, sizeof *steps))
      continue;
    steps[n++] = step;
  }
  if (open_folder)
    closedir(open_folder);
  if (n > 0)
    qsort(steps, n, sizeof *steps, newest_first);
  *count = (int)n;
  return steps;
}

/* What becomes of one, newest first; kept counts those that stay. */
static bool stays(const struct gd_checkpoint_query *query, const struct gd_checkpoint_pruning *p,
                  const char *path, int64_t step, int *kept, bool *goes_back) {
  struct gd_checkpoint_facts facts = {0};
  char what[128];
  bool whole = gd_checkpoint_read_facts(path, &facts, NULL) == GD_OK;
  if (whole && query->binding &&
      gd_binding_differs(query->binding, &facts.binding, what, sizeof what))
    return true;
  if (step > p->behind && step != p->now)
    return false;
  bool back = whole && facts.scheduled && !*goes_back;
  *goes_back |= back;
  return (*kept)++ < p->keep || back || step == p->best;
}

void gd_checkpoint_prune(const struct gd_checkpoint_query *query,
                         const struct gd_checkpoint_pruning *pruning) {
  int count, kept = 0;
  bool goes_back = false;
  int64_t *steps = gd_checkpoint_steps(query->folder, &count);
  for (int i = 0; i < count; i++) {
    char path[GD_FILE_PATH];
    snprintf(path, sizeof path, "%.4000s/" GD_CHECKPOINT_NAME, query->folder, steps[i]);
    if (!stays(query, pruning, path, steps[i], &kept, &goes_back))
      remove_folder(path);
  }
  gd_mem_free(steps);
}

/* Parts that a killed process left. */
static void sweep_parts(const char *folder) {
  DIR *open_folder = opendir(folder);
  struct dirent *entry;
  char path[GD_FILE_PATH + 256];
  while (open_folder && (entry = readdir(open_folder)))
    if (strncmp(entry->d_name, ".part-", 6) == 0) {
      snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
      remove_folder(path);
    }
  if (open_folder)
    closedir(open_folder);
}

/* --- this rank's slices -------------------------------------------------------------------- */

static int file_of(enum gd_state_kind kind) {
  return kind == GD_STATE_PARAM ? 0 : 1;
}

/* Index of a parameter in the sorted list. */
static uint32_t place_of(const struct gd_checkpoint_writer *w, gd_tensor_id parameter) {
  const struct gd_tensor *tensors = w->run->plan[GD_RUN_FULL]->graph->tensors;
  uint32_t low = 0, high = w->n_parameters;
  while (low + 1 < high) {
    uint32_t middle = (low + high) / 2;
    if (strcmp(tensors[w->parameters[middle]].name, tensors[parameter].name) <= 0)
      low = middle;
    else
      high = middle;
  }
  GD_ASSERT(strcmp(tensors[w->parameters[low]].name, tensors[parameter].name) == 0);
  return low;
}

static enum gd_status write_at(int fd, const void *from, size_t bytes, int64_t offset,
                               const char *path, struct gd_error *err) {
  const char *at = from;
  while (bytes > 0) {
    ssize_t n = pwrite(fd, at, bytes, offset);
    if (n < 0 && errno == EINTR)
      continue;
    if (n <= 0)
      return system_error("written", path, err);
    at += n;
    bytes -= (size_t)n;
    offset += n;
  }
  return GD_OK;
}

/* All slices in pieces; the line of each piece goes into the list of checksums. */
static enum gd_status write_slices(struct gd_checkpoint_writer *w, const int *files,
                                   struct gd_strbuf *list, struct gd_error *err) {
  const float *at = w->copy;
  float *piece = at ? NULL : gd_mem_alloc(PIECE_ELEMENTS, sizeof *piece);
  enum gd_status status = at || piece ? GD_OK : gd_nomem(err, "while writing a checkpoint");
  for (uint32_t i = 0; i < w->slices.count && status == GD_OK; i++) {
    const struct gd_state_slice *slice = &w->slices.all[i];
    int file = file_of(slice->kind);
    int64_t start = w->offsets[slice->kind * w->n_parameters + place_of(w, slice->parameter)];
    for (int64_t done = 0; done < slice->count && status == GD_OK; done += PIECE_ELEMENTS) {
      int64_t count = slice->count - done < PIECE_ELEMENTS ? slice->count - done : PIECE_ELEMENTS;
      int64_t offset = start + (slice->first + done) * (int64_t)sizeof *at;
      size_t bytes = (size_t)count * sizeof *at;
      if (!w->copy)
        status = gd_state_read(w->run, slice, done, count, piece, err);
      const float *from = w->copy ? at : piece;
      if (status == GD_OK)
        status = write_at(files[file], from, bytes, offset, w->part, err);
      gd_strbuf_printf(list, "%016" PRIx64 " %d %" PRId64 " %zu\n", gd_hash_bytes(0, from, bytes),
                       file, offset, bytes);
      at = at ? at + count : NULL;
    }
  }
  gd_mem_free(piece);
  return status;
}

static enum gd_status write_files(struct gd_checkpoint_writer *w, struct gd_error *err) {
  struct gd_strbuf list = {0};
  char path[GD_FILE_PATH];
  int files[2] = {-1, -1};
  enum gd_status status = GD_OK;
  for (int i = 0; i < 2 && status == GD_OK; i++) {
    snprintf(path, sizeof path, "%.4000s/%s", w->part, gd_checkpoint_file[i]);
    files[i] = open(path, O_WRONLY | O_CLOEXEC);
    if (files[i] < 0)
      status = system_error("opened", path, err);
  }
  for (int i = 0; i < 2 && rank_of(w) == 0; i++)
    gd_strbuf_printf(&list, "%016" PRIx64 " %d 0 %zu\n", w->header_sum[i], i, w->header_bytes[i]);
  if (status == GD_OK)
    status = write_slices(w, files, &list, err);
  for (int i = 0; i < 2; i++)
    if (files[i] >= 0) {
      if (fsync(files[i]) != 0 && status == GD_OK)
        status = system_error("synced", w->part, err);
      close(files[i]);
    }
  gd_strbuf_append(&list, "end\n");
  if (status == GD_OK && list.failed)
    status = gd_nomem(err, "while writing a checkpoint");
  snprintf(path, sizeof path, "%.4000s/checksums-%d.txt", w->part, rank_of(w));
  if (status == GD_OK)
    status = gd_file_write(path, list.text, list.length, err);
  gd_strbuf_deinit(&list);
  return status;
}

static void *write_in_thread(void *user) {
  struct gd_checkpoint_writer *w = user;
  w->status = write_files(w, &w->error);
  atomic_store(&w->written, true);
  return NULL;
}

/* --- begin --------------------------------------------------------------------------------- */

/* The headers of both files, the same on all ranks, and where every tensor goes. */
static enum gd_status lay_out(struct gd_checkpoint_writer *w, struct gd_strbuf headers[2],
                              int64_t bytes[2], struct gd_error *err) {
  const struct gd_graph *graph = w->run->plan[GD_RUN_FULL]->graph;
  uint32_t n;
  GD_TRY(gd_state_parameters(graph, &w->parameters, &w->n_parameters, err));
  n = w->n_parameters;
  struct gd_arena arena = {0};
  struct gd_safetensor_out *outs = gd_arena_alloc(&arena, GD_STATE_KINDS * (size_t)n, sizeof *outs);
  w->offsets = gd_mem_alloc(GD_STATE_KINDS * (size_t)n + 1, sizeof *w->offsets);
  enum gd_status status =
      outs && w->offsets ? GD_OK : gd_nomem(err, "while preparing a checkpoint");
  for (uint32_t i = 0; i < GD_STATE_KINDS * n && status == GD_OK; i++) {
    const struct gd_tensor *t = &graph->tensors[w->parameters[i % n]];
    outs[i] = (struct gd_safetensor_out){
        .name =
            gd_arena_printf(&arena, "%s%s", gd_state_prefix((enum gd_state_kind)(i / n)), t->name),
        .dtype = GD_DTYPE_F32,
        .rank = t->rank,
        .dims = t->dims};
    if (!outs[i].name)
      status = gd_nomem(err, "while preparing a checkpoint");
  }
  if (status == GD_OK)
    status = gd_safetensors_layout(gd_checkpoint_file[0], outs, n, &headers[0], w->offsets,
                                   &bytes[0], err);
  if (status == GD_OK)
    status = gd_safetensors_layout(gd_checkpoint_file[1], outs + n, 2 * n, &headers[1],
                                   w->offsets + n, &bytes[1], err);
  gd_arena_deinit(&arena);
  return status;
}

/* Reserves the whole length, so that a full disk is known before anything is copied. */
static enum gd_status create_file(const char *path, const struct gd_strbuf *header, int64_t bytes,
                                  struct gd_error *err) {
  int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (fd < 0)
    return system_error("created", path, err);
  enum gd_status status = write_at(fd, header->text, header->length, 0, path, err);
  int refused = status == GD_OK ? posix_fallocate(fd, 0, bytes) : 0;
  if (refused == EOPNOTSUPP || refused == EINVAL) /* a file system without it */
    refused = ftruncate(fd, bytes) == 0 ? 0 : errno;
  if (refused)
    status = gd_fail(err, GD_ENVIRONMENT, "%s cannot be given %" PRId64 " bytes: %s", path, bytes,
                     strerror(refused));
  close(fd);
  return status;
}

static enum gd_status create_part(struct gd_checkpoint_writer *w, const struct gd_strbuf *headers,
                                  const int64_t *bytes, struct gd_error *err) {
  char path[GD_FILE_PATH];
  sweep_parts(w->folder);
  GD_TRY(gd_file_make_folder(w->part, err));
  for (int i = 0; i < 2; i++) {
    snprintf(path, sizeof path, "%.4000s/%s", w->part, gd_checkpoint_file[i]);
    GD_TRY(create_file(path, &headers[i], bytes[i], err));
  }
  snprintf(path, sizeof path, "%.4000s/config.json", w->part);
  return gd_file_write(path, w->config_text, strlen(w->config_text), err);
}

static int64_t count_elements(const struct gd_state_slices *slices) {
  int64_t elements = 0;
  for (uint32_t i = 0; i < slices->count; i++)
    elements += slices->all[i].count;
  return elements;
}

int64_t gd_checkpoint_bytes(int64_t parameters) {
  return 3 * (int64_t)sizeof(float) * parameters;
}

void gd_checkpoint_reserve(struct gd_checkpoint_writer *w, struct gd_run *run) {
  const struct gd_backend_ops *ops = run->backend->ops;
  struct gd_state_slices slices;
  struct gd_error unused = {0};
  int64_t ranks = w->comm ? gd_comm_size(w->comm) : 1;
  GD_ASSERT(!w->pinned);
  if (!ops->pin || w->synchronous ||
      gd_state_list(run->plan[GD_RUN_FULL]->graph, true, &slices, &unused) != GD_OK)
    return;
  int64_t bytes = count_elements(&slices) * (int64_t)sizeof *w->pinned;
  gd_state_slices_free(&slices);
  if (bytes > 0 && bytes <= gd_host_memory_bytes() / 2 / ranks)
    w->pinned = ops->pin(run->backend, bytes);
  w->pinned_bytes = w->pinned ? bytes : 0;
  w->run = run;
}

void gd_checkpoint_release(struct gd_checkpoint_writer *w) {
  GD_ASSERT(!w->active);
  if (w->pinned)
    w->run->backend->ops->unpin(w->run->backend, w->pinned, w->pinned_bytes);
  w->pinned = NULL;
}

/* Everything into host memory, where there is room; a slice after the other. */
static enum gd_status copy_state(struct gd_checkpoint_writer *w, struct gd_error *err) {
  int64_t elements = count_elements(&w->slices);
  w->copy = w->pinned;
  GD_ASSERT(!w->pinned || elements * (int64_t)sizeof *w->copy == w->pinned_bytes);
  if (!w->pinned && !w->synchronous)
    w->copy = gd_mem_alloc((size_t)elements + 1, sizeof *w->copy);
  float *at = w->copy;
  for (uint32_t i = 0; i < w->slices.count && at; i++) {
    GD_TRY(gd_state_read(w->run, &w->slices.all[i], 0, w->slices.all[i].count, at, err));
    at += w->slices.all[i].count;
  }
  return GD_OK;
}

static void forget(struct gd_checkpoint_writer *w) {
  gd_state_slices_free(&w->slices);
  if (w->copy != w->pinned)
    gd_mem_free(w->copy);
  gd_mem_free(w->offsets);
  gd_mem_free(w->parameters);
  w->copy = NULL;
  w->offsets = NULL;
  w->parameters = NULL;
  w->active = w->threaded = false;
}

static enum gd_status prepare(struct gd_checkpoint_writer *w, struct gd_error *err) {
  struct gd_strbuf headers[2] = {{0}};
  int64_t bytes[2];
  enum gd_status status = gd_state_read_scalars(w->run, &w->facts.scalars, err);
  if (status == GD_OK)
    status = lay_out(w, headers, bytes, err);
  for (int i = 0; i < 2 && status == GD_OK; i++) {
    w->header_bytes[i] = headers[i].length;
    w->header_sum[i] = gd_hash_bytes(0, headers[i].text, headers[i].length);
  }
  if (status == GD_OK && rank_of(w) == 0)
    status = create_part(w, headers, bytes, err);
  gd_strbuf_deinit(&headers[0]);
  gd_strbuf_deinit(&headers[1]);
  if (status == GD_OK)
    status = gd_state_list(w->run->plan[GD_RUN_FULL]->graph, true, &w->slices, err);
  return status;
}

enum gd_status gd_checkpoint_begin(struct gd_checkpoint_writer *w, struct gd_run *run,
                                   const struct gd_checkpoint_facts *facts, struct gd_error *err) {
  GD_ASSERT(!w->active);
  w->run = run;
  w->facts = *facts;
  w->status = GD_OK;
  w->error = (struct gd_error){0};
  atomic_store(&w->written, false);
  snprintf(w->part, sizeof w->part, "%.4000s/.part-" GD_CHECKPOINT_NAME, w->folder, facts->step);
  snprintf(w->path, sizeof w->path, "%.4000s/" GD_CHECKPOINT_NAME, w->folder, facts->step);
  enum gd_status status = agree(w, prepare(w, err), err);
  if (status == GD_OK)
    status = agree(w, copy_state(w, err), err);
  if (status != GD_OK) {
    if (rank_of(w) == 0)
      remove_folder(w->part);
    forget(w);
    return status;
  }
  w->active = true;
  w->threaded = w->copy && pthread_create(&w->thread, NULL, write_in_thread, w) == 0;
  if (!w->threaded)
    write_in_thread(w);
  return GD_OK;
}

bool gd_checkpoint_is_written(const struct gd_checkpoint_writer *w) {
  return w->active && atomic_load(&w->written);
}

/* --- end ----------------------------------------------------------------------------------- */

static enum gd_status add_checksums(const struct gd_checkpoint_writer *w, json_t *state,
                                    struct gd_error *err) {
  json_t *sums = json_array();
  enum gd_status status = GD_OK;
  for (int rank = 0; rank < w->facts.ranks && status == GD_OK; rank++) {
    char path[GD_FILE_PATH], sum[32];
    struct gd_strbuf text = {0};
    snprintf(path, sizeof path, "%.4000s/checksums-%d.txt", w->part, rank);
    status = gd_file_read(path, GD_CHECKPOINT_LIST_BYTES, &text, err);
    snprintf(sum, sizeof sum, "%016" PRIx64, gd_hash_bytes(0, text.text, text.length));
    json_array_append_new(sums, json_string(sum));
    gd_strbuf_deinit(&text);
  }
  json_object_set_new(state, "checksums", sums);
  return status;
}

static enum gd_status write_state(const struct gd_checkpoint_writer *w, struct gd_error *err) {
  const struct gd_checkpoint_facts *f = &w->facts;
  char check[GD_HASH_TEXT], path[GD_FILE_PATH];
  json_t *state = json_pack(
      "{s:i,s:I,s:I,s:f,s:f,s:s,s:i,s:f,s:f,s:f,s:b,s:i,s:i,s:I}", "format", 1, "step",
      (json_int_t)f->step, "first_sample", (json_int_t)f->first, "loss", f->loss, "eval_loss",
      f->eval_loss, "method", f->method, "ranks", f->ranks, "updates", (double)f->scalars.step,
      "loss_scale", (double)f->scalars.loss_scale, "good_steps", (double)f->scalars.good_steps,
      "scheduled", f->scheduled, "bad_in_row", f->bad_in_row, "roll_backs", f->roll_backs,
      "judged_from", (json_int_t)f->judged_from);
  enum gd_status status = state ? add_checksums(w, state, err) : gd_nomem(err, "for state.json");
  if (state && f->binding.known)
    json_object_set_new(state, "run", gd_binding_object(&f->binding));
  if (status == GD_OK && !gd_checkpoint_sum(state, check))
    status = gd_nomem(err, "for state.json");
  struct gd_strbuf text = {0};
  if (status == GD_OK) {
    json_object_set_new(state, "check", json_string(check));
    if (!gd_json_append(&text, state, JSON_INDENT(2) | JSON_REAL_PRECISION(17)))
      status = gd_nomem(err, "for state.json");
  }
  snprintf(path, sizeof path, "%.4000s/state.json", w->part);
  if (status == GD_OK)
    status = gd_file_write(path, text.text, text.length, err);
  gd_strbuf_deinit(&text);
  json_decref(state);
  return status;
}

static enum gd_status publish(const struct gd_checkpoint_writer *w, struct gd_error *err) {
  GD_TRY(write_state(w, err));
  GD_TRY(sync_folder(w->part, err));
  remove_folder(w->path); /* of the same step, before a roll-back */
  if (rename(w->part, w->path) != 0)
    return system_error("put in its place", w->part, err);
  return sync_folder(w->folder, err);
}

enum gd_status gd_checkpoint_end(struct gd_checkpoint_writer *w, struct gd_error *err) {
  if (!w->active)
    return GD_OK;
  if (w->threaded)
    pthread_join(w->thread, NULL);
  if (w->status != GD_OK && err)
    *err = w->error;
  enum gd_status status = agree(w, w->status, err);
  if (status == GD_OK) {
    if (rank_of(w) == 0)
      status = publish(w, err);
    status = agree(w, status, err);
  }
  if (status != GD_OK && rank_of(w) == 0)
    remove_folder(w->part);
  forget(w);
  return status;
}
