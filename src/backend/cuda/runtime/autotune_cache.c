/*
 * The results of the autotuner and their file: see autotune.h.
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/runtime/autotune.h"
#include "base/cache.h"
#include "base/rng.h"
#include "base/strbuf.h"

enum {
  HEX_DIGITS = 16 * GD_CUDA_CHOICE_WORDS,
  LINE_BYTES = GD_CUDA_KEY_BYTES + HEX_DIGITS + GD_CUDA_NOTE_BYTES + 64
};

static struct gd_cuda_tuned *find(const struct gd_cuda_autotune *cache, const char *key) {
  for (uint32_t i = 0; i < cache->count; i++)
    if (strcmp(cache->at[i].key, key) == 0)
      return &cache->at[i];
  return NULL;
}

static struct gd_cuda_tuned *add(struct gd_cuda_autotune *cache, const char *key) {
  size_t bytes = strlen(key) + 1;
  char *copy = gd_mem_alloc(bytes, 1);
  if (!copy ||
      !gd_vec_reserve((void **)&cache->at, &cache->capacity, cache->count + 1, sizeof *cache->at)) {
    gd_mem_free(copy);
    return NULL;
  }
  memcpy(copy, key, bytes);
  struct gd_cuda_tuned *tuned = &cache->at[cache->count++];
  *tuned = (struct gd_cuda_tuned){.key = copy, .us = HUGE_VAL};
  return tuned;
}

static struct gd_cuda_tuned *use(struct gd_cuda_tuned *tuned) {
  if (tuned)
    tuned->used = true;
  return tuned;
}

struct gd_cuda_tuned *gd_cuda_tuned_find(const struct gd_cuda *cuda, const char *key) {
  return use(find(cuda->autotune, key));
}

struct gd_cuda_tuned *gd_cuda_tuned_add(struct gd_cuda *cuda, const char *key) {
  return use(add(cuda->autotune, key));
}

void gd_cuda_tuned_set(struct gd_cuda *cuda, struct gd_cuda_tuned *tuned, double us, double flops,
                       const char *what) {
  char rate[32] = "";
  if (flops > 0)
    snprintf(rate, sizeof rate, ", %.1f TFLOP/s", flops / us * 1e-6);
  snprintf(tuned->note, sizeof tuned->note, "%.3f us%s%s%.48s", us, rate, what[0] ? ", " : "",
           what);
  tuned->us = strtod(tuned->note, NULL); /* as the next process reads it: both choose alike */
  tuned->state = GD_CUDA_TUNED_TIMED;
  tuned->ran = cuda->autotune->changed = true;
}

/* --- the file -------------------------------------------------------------------------------- */

static bool parse_choice(const char *hex, uint64_t choice[GD_CUDA_CHOICE_WORDS]) {
  if (strspn(hex, "0123456789abcdef") != HEX_DIGITS)
    return false;
  for (int i = 0; i < GD_CUDA_CHOICE_WORDS; i++) {
    char word[17];
    snprintf(word, sizeof word, "%.16s", hex + (ptrdiff_t)(16 * i));
    choice[i] = strtoull(word, NULL, 16);
  }
  return true;
}

/* "key TAB choice TAB note TAB checksum of what is before". Cuts the line up. */
static void read_line(struct gd_cuda_autotune *cache, char *line) {
  uint64_t choice[GD_CUDA_CHOICE_WORDS];
  char *sum = strrchr(line, '\t');
  if (!sum)
    return;
  *sum++ = '\0';
  if (strtoull(sum, NULL, 16) != gd_hash_string(line))
    return;
  char *hex = strchr(line, '\t');
  if (!hex)
    return;
  *hex++ = '\0';
  if (!parse_choice(hex, choice) || find(cache, line))
    return;
  struct gd_cuda_tuned *tuned = add(cache, line);
  if (!tuned)
    return;
  memcpy(tuned->choice, choice, sizeof choice);
  tuned->state = GD_CUDA_TUNED_STORED;
  if (hex[HEX_DIGITS] == '\t') {
    snprintf(tuned->note, sizeof tuned->note, "%s", hex + HEX_DIGITS + 1);
    tuned->us = tuned->note[0] ? strtod(tuned->note, NULL) : HUGE_VAL;
  }
}

static void read_lines(struct gd_cuda_autotune *cache, FILE *file) {
  char line[LINE_BYTES];
  if (!file)
    return;
  while (fgets(line, sizeof line, file))
    read_line(cache, line);
  fclose(file);
}

static void read_file(struct gd_cuda_autotune *cache) {
  read_lines(cache, cache->path[0] ? gd_cache_open(cache->path) : NULL);
}

static bool is_result(const struct gd_cuda_tuned *tuned) {
  return tuned->state == GD_CUDA_TUNED_TIMED || tuned->state == GD_CUDA_TUNED_STORED;
}

static void append_line(struct gd_strbuf *text, const struct gd_cuda_tuned *tuned) {
  char line[LINE_BYTES];
  int at = snprintf(line, sizeof line, "%s\t", tuned->key);
  for (int w = 0; w < GD_CUDA_CHOICE_WORDS; w++)
    at += snprintf(line + at, sizeof line - (size_t)at, "%016" PRIx64, tuned->choice[w]);
  snprintf(line + at, sizeof line - (size_t)at, "\t%s", tuned->note);
  gd_strbuf_printf(text, "%s\t%016" PRIx64 "\n", line, gd_hash_string(line));
}

/* Keeps what other processes have written since. A cache: a failure costs timing it again. */
static void write_file(struct gd_cuda_autotune *cache) {
  struct gd_strbuf text = {0};
  if (!cache->changed || !cache->path[0])
    return;
  read_file(cache);
  for (uint32_t i = 0; i < cache->count; i++)
    if (is_result(&cache->at[i]))
      append_line(&text, &cache->at[i]);
  if (text.text && !text.failed)
    (void)gd_cache_put(cache->path, text.text, text.length);
  gd_strbuf_deinit(&text);
}

/* One file per GPU; where nothing is timed there is none. Ranks time apart, and keep their own. */
static void find_files(const struct gd_cuda *cuda, struct gd_cuda_autotune *cache) {
  char folder[1024], name[96] = "";
  if (!gd_cuda_autotunes(cuda) || !cuda->cu || /* tests that only compile have no driver */
      cuda->cu->DeviceGetName(name, sizeof name, cuda->device) != CUDA_SUCCESS || !name[0])
    return;
  for (char *at = name; *at; at++)
    if (!strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-", *at))
      *at = '_';
  if (gd_cache_folder("cuda", folder, sizeof folder))
    snprintf(cache->path, sizeof cache->path, "%s/autotune-%s.txt", folder, name);
  if (cuda->choices)
    snprintf(cache->kept_path, sizeof cache->kept_path, "%.3900s/%s-rank%d.txt", cuda->choices,
             name, cuda->comm ? gd_comm_rank(cuda->comm) : 0);
}

/* All of it is written again: it also has what other plans of the run use. */
static void read_kept(struct gd_cuda_autotune *cache) {
  if (cache->kept_path[0])
    read_lines(cache, gd_file_open(cache->kept_path, "r"));
  cache->kept = cache->count;
  for (uint32_t i = 0; i < cache->count; i++)
    cache->at[i].used = true;
}

enum gd_status gd_cuda_autotune_keep(struct gd_cuda *cuda, struct gd_error *err) {
  struct gd_cuda_autotune *cache = cuda->autotune;
  struct gd_strbuf text = {0};
  uint32_t count = 0;
  if (!cache || !cache->kept_path[0])
    return GD_OK;
  for (uint32_t i = 0; i < cache->count; i++)
    if (cache->at[i].used && is_result(&cache->at[i])) {
      append_line(&text, &cache->at[i]);
      count++;
    }
  enum gd_status status = text.failed ? gd_nomem(err, "while keeping choices") : GD_OK;
  /* One that is supported no more may have been timed again. */
  if (status == GD_OK && text.text && (count > cache->kept || cache->changed)) {
    status = gd_file_make_folder(cuda->choices, err);
    if (status == GD_OK)
      status = gd_file_write(cache->kept_path, text.text, text.length, err);
    cache->kept = count;
  }
  gd_strbuf_deinit(&text);
  return status;
}

enum gd_status gd_cuda_autotune_open(struct gd_cuda *cuda, struct gd_error *err) {
  if (cuda->autotune)
    return GD_OK;
  cuda->autotune = gd_mem_alloc(1, sizeof *cuda->autotune);
  if (!cuda->autotune)
    return gd_nomem(err, "while opening the autotune cache");
  find_files(cuda, cuda->autotune);
  read_kept(cuda->autotune);
  read_file(cuda->autotune);
  return GD_OK;
}

void gd_cuda_autotune_close(struct gd_cuda *cuda) {
  struct gd_cuda_autotune *cache = cuda->autotune;
  if (!cache)
    return;
  write_file(cache);
  for (uint32_t i = 0; i < cache->count; i++)
    gd_mem_free(cache->at[i].key);
  gd_mem_free(cache->at);
  gd_mem_free(cache);
  cuda->autotune = NULL;
}
