/*
 * The file of choices: see choices.h.
 */
#define _GNU_SOURCE
#include "backend/cuda/choices.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cache.h"
#include "base/rng.h"
#include "base/strbuf.h"

enum {
  ALGO_WORDS = sizeof(cublasLtMatmulAlgo_t) / sizeof(uint64_t),
  HEX_DIGITS = 16 * ALGO_WORDS,
};

struct gd_cuda_choice *gd_cuda_choice_find(const struct gd_cuda_choices *choices, const char *key) {
  for (uint32_t i = 0; i < choices->count; i++)
    if (strcmp(choices->at[i].key, key) == 0)
      return &choices->at[i];
  return NULL;
}

struct gd_cuda_choice *gd_cuda_choice_add(struct gd_cuda_choices *choices, const char *key) {
  size_t bytes = strlen(key) + 1;
  char *copy = gd_mem_alloc(bytes, 1);
  if (!copy || !gd_vec_reserve((void **)&choices->at, &choices->capacity, choices->count + 1,
                               sizeof *choices->at)) {
    gd_mem_free(copy);
    return NULL;
  }
  memcpy(copy, key, bytes);
  struct gd_cuda_choice *choice = &choices->at[choices->count++];
  *choice = (struct gd_cuda_choice){.key = copy};
  return choice;
}

static bool parse_algo(const char *hex, cublasLtMatmulAlgo_t *algo) {
  if (strspn(hex, "0123456789abcdef") != HEX_DIGITS)
    return false;
  for (int i = 0; i < ALGO_WORDS; i++) {
    char word[17];
    snprintf(word, sizeof word, "%.16s", hex + (ptrdiff_t)(16 * i));
    algo->data[i] = strtoull(word, NULL, 16);
  }
  return true;
}

/* "key TAB algorithm TAB note TAB checksum of what is before". Cuts the line up. */
static void take_line(struct gd_cuda_choices *choices, char *line) {
  cublasLtMatmulAlgo_t algo;
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
  if (!parse_algo(hex, &algo) || gd_cuda_choice_find(choices, line))
    return;
  struct gd_cuda_choice *choice = gd_cuda_choice_add(choices, line);
  if (choice) {
    if (hex[HEX_DIGITS] == '\t')
      snprintf(choice->note, sizeof choice->note, "%s", hex + HEX_DIGITS + 1);
    choice->algo = algo;
    choice->state = GD_CUDA_CHOICE_STORED;
  }
}

static void read_choices(struct gd_cuda_choices *choices) {
  char line[GD_CUDA_KEY_BYTES + HEX_DIGITS + GD_CUDA_NOTE_BYTES + 64];
  FILE *file = choices->path[0] ? gd_cache_open(choices->path) : NULL;
  if (!file)
    return;
  while (fgets(line, sizeof line, file))
    take_line(choices, line);
  fclose(file);
}

/* Keeps what other processes have written since. A cache: failures cost a second tuning. */
static void write_choices(struct gd_cuda_choices *choices) {
  char line[GD_CUDA_KEY_BYTES + HEX_DIGITS + GD_CUDA_NOTE_BYTES + 64];
  struct gd_strbuf text = {0};
  if (!choices->changed || !choices->path[0])
    return;
  read_choices(choices);
  for (uint32_t i = 0; i < choices->count; i++) {
    const struct gd_cuda_choice *choice = &choices->at[i];
    if (choice->state != GD_CUDA_CHOICE_TIMED && choice->state != GD_CUDA_CHOICE_STORED)
      continue;
    int at = snprintf(line, sizeof line, "%s\t", choice->key);
    for (int w = 0; w < ALGO_WORDS; w++)
      at += snprintf(line + at, sizeof line - (size_t)at, "%016" PRIx64, choice->algo.data[w]);
    snprintf(line + at, sizeof line - (size_t)at, "\t%s", choice->note);
    gd_strbuf_printf(&text, "%s\t%016" PRIx64 "\n", line, gd_hash_string(line));
  }
  if (text.text && !text.failed)
    (void)gd_cache_put(choices->path, text.text, text.length);
  gd_strbuf_deinit(&text);
}

static void find_file(const struct gd_cuda *cuda, const struct gd_cublaslt *lt,
                      struct gd_cuda_choices *choices) {
  static const int parts[] = {CUBLASLT_MAJOR_VERSION, CUBLASLT_MINOR_VERSION, CUBLASLT_PATCH_LEVEL};
  char folder[1024], name[96] = "";
  int version[3] = {0};
  if (cuda->cu->DeviceGetName(name, sizeof name, cuda->device) != CUDA_SUCCESS || !name[0])
    return;
  for (int i = 0; i < 3; i++)
    if (lt->GetProperty(parts[i], &version[i]) != CUBLAS_STATUS_SUCCESS)
      return;
  for (char *at = name; *at; at++)
    if (!strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-", *at))
      *at = '_';
  if (gd_cache_folder("cuda", folder, sizeof folder))
    snprintf(choices->path, sizeof choices->path, "%s/products-by-noise-%s-cublaslt-%d.%d.%d.txt",
             folder, name, version[0], version[1], version[2]);
}

void gd_cuda_choices_open(const struct gd_cuda *cuda, const struct gd_cublaslt *lt,
                          struct gd_cuda_choices *choices) {
  *choices = (struct gd_cuda_choices){0};
  if (!cuda->deterministic)
    find_file(cuda, lt, choices);
  read_choices(choices);
}

void gd_cuda_choices_close(struct gd_cuda_choices *choices) {
  write_choices(choices);
  for (uint32_t i = 0; i < choices->count; i++)
    gd_mem_free(choices->at[i].key);
  gd_mem_free(choices->at);
  *choices = (struct gd_cuda_choices){0};
}
