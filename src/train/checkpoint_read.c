/*
 * Finding, checking and loading checkpoints; see checkpoint.h.
 */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "train/checkpoint_int.h"

const char *const gd_checkpoint_file[2] = {"model.safetensors", "optimizer.safetensors"};

bool gd_checkpoint_sum(json_t *state, char check[GD_HASH_TEXT]) {
  json_t *rest = json_copy(state);
  if (!rest)
    return false;
  json_object_del(rest, "check");
  struct gd_strbuf text = {0};
  bool done = gd_json_append(&text, rest, JSON_COMPACT | JSON_SORT_KEYS | JSON_REAL_PRECISION(17));
  json_decref(rest);
  if (done)
    gd_hash_hex(check, text.text);
  gd_strbuf_deinit(&text);
  return done;
}

static enum gd_status read_float(const struct gd_json *json, const char *key, float *value,
                                 struct gd_error *err) {
  double number = 0;
  GD_TRY(gd_json_number(json, json->root, key, 0, 1e30, &number, err));
  *value = (float)number;
  return GD_OK;
}

/* What programs before this one did not write: their checkpoints were all to go back to. */
static enum gd_status read_spikes(const struct gd_json *json, struct gd_checkpoint_facts *f,
                                  struct gd_error *err) {
  const json_t *scheduled = json_object_get(json->root, "scheduled");
  int64_t bad_in_row, roll_backs;
  f->scheduled = !scheduled || json_is_true(scheduled);
  if (!scheduled)
    return GD_OK;
  GD_TRY(gd_json_int(json, json->root, "bad_in_row", 0, 1 << 20, &bad_in_row, err));
  GD_TRY(gd_json_int(json, json->root, "roll_backs", 0, 1 << 20, &roll_backs, err));
  GD_TRY(gd_json_int(json, json->root, "judged_from", 0, INT64_MAX, &f->judged_from, err));
  f->bad_in_row = (int)bad_in_row;
  f->roll_backs = (int)roll_backs;
  return GD_OK;
}

static enum gd_status read_facts(const struct gd_json *json, struct gd_checkpoint_facts *f,
                                 struct gd_error *err) {
  char check[GD_HASH_TEXT];
  const char *found, *method;
  int64_t ranks, format;
  GD_TRY(gd_json_string(json, json->root, "check", &found, err));
  if (!gd_checkpoint_sum(json->root, check))
    return gd_nomem(err, "while reading a checkpoint");
  if (strcmp(check, found) != 0)
    return gd_fail(err, GD_BAD_INPUT, "%s is damaged: its checksum is another", json->file);
  GD_TRY(gd_json_int(json, json->root, "format", 1, 1, &format, err));
  GD_TRY(gd_json_int(json, json->root, "step", 0, INT64_MAX, &f->step, err));
  GD_TRY(gd_json_int(json, json->root, "first_sample", 0, INT64_MAX, &f->first, err));
  GD_TRY(gd_json_int(json, json->root, "ranks", 1, 1 << 20, &ranks, err));
  GD_TRY(gd_json_number(json, json->root, "loss", -1e30, 1e30, &f->loss, err));
  GD_TRY(gd_json_number(json, json->root, "eval_loss", -1e30, 1e30, &f->eval_loss, err));
  GD_TRY(gd_json_string(json, json->root, "method", &method, err));
  GD_TRY(read_float(json, "updates", &f->scalars.step, err));
  GD_TRY(read_float(json, "loss_scale", &f->scalars.loss_scale, err));
  GD_TRY(read_float(json, "good_steps", &f->scalars.good_steps, err));
  f->ranks = (int)ranks;
  snprintf(f->method, sizeof f->method, "%s", method);
  gd_binding_parse(json_object_get(json->root, "run"), &f->binding);
  return read_spikes(json, f, err);
}

enum gd_status gd_checkpoint_read_facts(const char *path, struct gd_checkpoint_facts *facts,
                                        struct gd_error *err) {
  struct gd_json json = {0};
  char name[GD_FILE_PATH];
  *facts = (struct gd_checkpoint_facts){0};
  snprintf(name, sizeof name, "%.4000s/state.json", path);
  GD_TRY(gd_json_load(&json, name, err));
  enum gd_status status = read_facts(&json, facts, err);
  gd_json_deinit(&json);
  return status;
}

/* The pieces of one list, against the files. */
static enum gd_status check_pieces(const char *list_path, const char *text, FILE *files[2],
                                   struct gd_error *err) {
  char *buffer = NULL;
  size_t room = 0;
  bool ended = false;
  enum gd_status status = GD_OK;
  for (const char *line = text; *line && status == GD_OK && !ended; line = strchr(line, '\n') + 1) {
    uint64_t sum;
    int file;
    int64_t offset;
    size_t bytes;
    ended = strcmp(line, "end\n") == 0;
    if (ended)
      break;
    if (sscanf(line, "%" SCNx64 " %d %" SCNd64 " %zu", &sum, &file, &offset, &bytes) != 4 ||
        !strchr(line, '\n') || file < 0 || file > 1 || bytes > (size_t)1 << 30) {
      status = gd_fail(err, GD_BAD_INPUT, "%s is damaged", list_path);
      break;
    }
    if (bytes > room) {
      gd_mem_free(buffer);
      buffer = gd_mem_alloc(bytes, 1);
      room = buffer ? bytes : 0;
    }
    if (!buffer)
      status = gd_nomem(err, "while checking a checkpoint");
    else if (fseeko(files[file], offset, SEEK_SET) != 0 ||
             fread(buffer, 1, bytes, files[file]) != bytes)
      status = gd_fail(err, GD_BAD_INPUT, "%s is cut", gd_checkpoint_file[file]);
    else if (gd_hash_bytes(0, buffer, bytes) != sum)
      status = gd_fail(err, GD_BAD_INPUT, "%s is damaged at byte %" PRId64 " or after",
                       gd_checkpoint_file[file], offset);
  }
  gd_mem_free(buffer);
  if (status == GD_OK && !ended)
    status = gd_fail(err, GD_BAD_INPUT, "%s is cut", list_path);
  return status;
}

static enum gd_status check_list(const char *path, int number, const char *expected, FILE *files[2],
                                 struct gd_error *err) {
  char list_path[GD_FILE_PATH], sum[32];
  struct gd_strbuf text = {0};
  snprintf(list_path, sizeof list_path, "%.4000s/checksums-%d.txt", path, number);
  enum gd_status status = gd_file_read(list_path, GD_CHECKPOINT_LIST_BYTES, &text, err);
  snprintf(sum, sizeof sum, "%016" PRIx64, gd_hash_bytes(0, text.text, text.length));
  if (status == GD_OK && (!expected || strcmp(sum, expected) != 0))
    status = gd_fail(err, GD_BAD_INPUT, "%s is damaged: its checksum is another", list_path);
  if (status == GD_OK)
    status = check_pieces(list_path, text.text, files, err);
  gd_strbuf_deinit(&text);
  return status;
}

static enum gd_status check_lists(const char *path, const json_t *sums, int rank, int ranks,
                                  int count, struct gd_error *err) {
  FILE *files[2] = {NULL, NULL};
  char name[GD_FILE_PATH];
  enum gd_status status = GD_OK;
  for (int i = 0; i < 2 && status == GD_OK; i++) {
    snprintf(name, sizeof name, "%.4000s/%s", path, gd_checkpoint_file[i]);
    files[i] = gd_file_open(name, "r");
    if (!files[i])
      status = gd_fail(err, GD_BAD_INPUT, "%s is missing, or no file", gd_checkpoint_file[i]);
  }
  for (int i = rank; i < count && status == GD_OK; i += ranks)
    status = check_list(path, i, json_string_value(json_array_get(sums, (size_t)i)), files, err);
  for (int i = 0; i < 2; i++)
    if (files[i])
      fclose(files[i]);
  return status;
}

/* The checksums of all that was written, in state.json. */
static enum gd_status check_bytes(const char *path, int rank, int ranks, int count,
                                  struct gd_error *err) {
  struct gd_json json = {0};
  char name[GD_FILE_PATH];
  snprintf(name, sizeof name, "%.4000s/state.json", path);
  GD_TRY(gd_json_load(&json, name, err));
  enum gd_status status =
      check_lists(path, json_object_get(json.root, "checksums"), rank, ranks, count, err);
  gd_json_deinit(&json);
  return status;
}

static bool is_foreign(const struct gd_checkpoint_query *query,
                       const struct gd_checkpoint_facts *facts, char *what, size_t size) {
  return query->binding && gd_binding_differs(query->binding, &facts->binding, what, size);
}

int64_t gd_checkpoint_best(const struct gd_checkpoint_query *query) {
  int count;
  int64_t best = -1, *steps = gd_checkpoint_steps(query->folder, &count);
  double lowest = HUGE_VAL;
  for (int i = count - 1; i >= 0; i--) { /* oldest first */
    struct gd_checkpoint_facts facts;
    char path[GD_FILE_PATH], what[128];
    snprintf(path, sizeof path, "%.4000s/" GD_CHECKPOINT_NAME, query->folder, steps[i]);
    if (gd_checkpoint_read_facts(path, &facts, NULL) == GD_OK && facts.eval_loss > 0 &&
        facts.eval_loss < lowest && !is_foreign(query, &facts, what, sizeof what)) {
      lowest = facts.eval_loss;
      best = steps[i];
    }
  }
  gd_mem_free(steps);
  return best;
}

/* Rank 0's list of steps, on all ranks: another may see the folder a moment later. */
static enum gd_status share_steps(const char *folder, struct gd_comm *comm, int64_t **steps,
                                  int *count, struct gd_error *err) {
  int64_t n = 0;
  *steps = !comm || gd_comm_rank(comm) == 0 ? gd_checkpoint_steps(folder, count) : NULL;
  if (!comm)
    return GD_OK;
  n = *steps ? *count : 0;
  GD_TRY(gd_comm_broadcast(comm, &n, sizeof n, 0, err));
  if (!*steps && n > 0)
    *steps = gd_mem_alloc((size_t)n, sizeof **steps);
  *count = (int)n;
  GD_TRY(gd_comm_agree(comm, n == 0 || *steps ? GD_OK : gd_nomem(err, "for checkpoints"), err));
  return n > 0 ? gd_comm_broadcast(comm, *steps, n * (int64_t)sizeof **steps, 0, err) : GD_OK;
}

/* One of them: GD_OK where it is to be taken, GD_UNSUPPORTED where it is none that is looked for,
   else with what is wrong. All ranks come to the same. */
static enum gd_status look(const struct gd_checkpoint_query *query, struct gd_comm *comm,
                           struct gd_checkpoint *checkpoint, bool *foreign, struct gd_error *err) {
  int rank = comm ? gd_comm_rank(comm) : 0, ranks = comm ? gd_comm_size(comm) : 1;
  struct gd_checkpoint_facts *facts = &checkpoint->facts;
  char what[128];
  enum gd_status status = gd_checkpoint_read_facts(checkpoint->path, facts, err);
  *foreign = status == GD_OK && is_foreign(query, facts, what, sizeof what);
  if (*foreign)
    status =
        gd_fail(err, GD_BAD_INPUT, "it is of another run (its %s is not that of run.json)", what);
  else if (status == GD_OK && query->scheduled && !facts->scheduled)
    status = gd_fail(err, GD_UNSUPPORTED, "it does not lie on the schedule");
  if (comm)
    status = gd_comm_agree(comm, status, err);
  if (status == GD_OK) {
    status = check_bytes(checkpoint->path, rank, ranks, facts->ranks, err);
    if (comm)
      status = gd_comm_agree(comm, status, err);
  }
  return status;
}

enum gd_status gd_checkpoint_find(const struct gd_checkpoint_query *query, struct gd_comm *comm,
                                  bool *found, struct gd_checkpoint *checkpoint,
                                  struct gd_checkpoint_passed *passed, struct gd_error *err) {
  int count = 0;
  int64_t *steps = NULL;
  *found = false;
  *checkpoint = (struct gd_checkpoint){0};
  enum gd_status status = share_steps(query->folder, comm, &steps, &count, err);
  for (int i = 0; i < count && !*found && status == GD_OK; i++) {
    struct gd_error why = {0};
    bool foreign = false;
    snprintf(checkpoint->path, sizeof checkpoint->path, "%.4000s/" GD_CHECKPOINT_NAME,
             query->folder, steps[i]);
    enum gd_status whole = look(query, comm, checkpoint, &foreign, &why);
    if (comm && gd_comm_has_failed(comm)) {
      *err = why;
      status = why.status;
    }
    *found = whole == GD_OK;
    if (passed && !*found && whole != GD_UNSUPPORTED) {
      passed->count++;
      passed->foreign += foreign;
      gd_strbuf_printf(&passed->lines, "checkpoint %s is left out: %s\n", checkpoint->path,
                       why.text);
    }
  }
  gd_mem_free(steps);
  return status;
}

/* No more tensors than the model has: those of a deeper one would be left out silently. */
static enum gd_status check_tensors(const struct gd_checkpoint *checkpoint,
                                    const struct gd_run *run, const struct gd_safetensors files[2],
                                    struct gd_error *err) {
  gd_tensor_id *ids = NULL;
  uint32_t count;
  GD_TRY(gd_state_parameters(run->plan[GD_RUN_FULL]->graph, &ids, &count, err));
  gd_mem_free(ids);
  if (files[0].count == count && files[1].count == 2 * count)
    return GD_OK;
  return gd_fail(err, GD_BAD_INPUT,
                 "%s has %u parameters and %u moments, and the model of run.json %u parameters: is "
                 "it another model's?",
                 checkpoint->path, files[0].count, files[1].count, count);
}

enum gd_status gd_checkpoint_load(const struct gd_checkpoint *checkpoint, struct gd_run *run,
                                  const struct gd_family *family, struct gd_error *err) {
  struct gd_safetensors files[2];
  memset(files, 0, sizeof files);
  char path[GD_FILE_PATH];
  enum gd_status status = GD_OK;
  for (int i = 0; i < 2 && status == GD_OK; i++) {
    snprintf(path, sizeof path, "%.4000s/%s", checkpoint->path, gd_checkpoint_file[i]);
    status = gd_safetensors_open(&files[i], path, err);
  }
  if (status == GD_OK)
    status = check_tensors(checkpoint, run, files, err);
  if (status == GD_OK)
    status = gd_state_restore(run, family, &files[0], &files[1], &checkpoint->facts.scalars, err);
  gd_safetensors_close(&files[0]);
  gd_safetensors_close(&files[1]);
  return status;
}
