/*
 * Names of methods, and the search space.
 */
#include "pass/method.h"

#include <stdio.h>
#include <string.h>

static const char *const sharding_names[GD_SHARDING_COUNT] = {
    [GD_SHARDING_NONE] = "",       [GD_SHARDING_ZERO1] = "zero1", [GD_SHARDING_ZERO2] = "zero2",
    [GD_SHARDING_ZERO3] = "zero3", [GD_SHARDING_FSDP2] = "fsdp2", [GD_SHARDING_FSDP3] = "fsdp3",
};

const char *gd_sharding_name(enum gd_sharding sharding) {
  GD_ASSERT(sharding < GD_SHARDING_COUNT);
  return sharding_names[sharding];
}

static bool is_word(const char *part, size_t length, const char *word) {
  return strlen(word) == length && memcmp(part, word, length) == 0;
}

/* Whether one part of a name is known; a second sharding is *clash. */
static bool take_part(struct gd_method *method, const char *part, size_t length, bool *naive,
                      bool *clash) {
  if (is_word(part, length, "naive"))
    *naive = true;
  else if (is_word(part, length, "free-lunch"))
    method->compile = method->kernels = method->tf32 = true;
  else if (is_word(part, length, "compile"))
    method->compile = true;
  else if (is_word(part, length, "kernels"))
    method->kernels = true;
  else if (is_word(part, length, "tf32"))
    method->tf32 = true;
  else if (is_word(part, length, "ckpt"))
    method->ckpt = true;
  else if (is_word(part, length, "offload"))
    method->offload = true;
  else {
    int found = GD_SHARDING_NONE;
    for (int i = GD_SHARDING_ZERO1; i < GD_SHARDING_COUNT; i++)
      if (is_word(part, length, sharding_names[i]))
        found = i;
    if (found == GD_SHARDING_NONE)
      return false;
    *clash |= method->sharding != GD_SHARDING_NONE && (int)method->sharding != found;
    method->sharding = (enum gd_sharding)found;
  }
  return true;
}

enum gd_status gd_method_parse(const char *text, struct gd_method *method, struct gd_error *err) {
  bool naive = false, clash = false;
  *method = (struct gd_method){0};
  for (const char *part = text;;) {
    size_t length = strcspn(part, "+");
    if (!take_part(method, part, length, &naive, &clash))
      return gd_fail(err, GD_BAD_INPUT,
                     "unknown part \"%.*s\" of method \"%s\"; there are naive, free-lunch, "
                     "compile, kernels, tf32, ckpt, zero1, zero2, zero3, fsdp2, fsdp3 and offload, "
                     "joined by +",
                     (int)(length > 32 ? 32 : length), part, text);
    if (part[length] == '\0')
      break;
    part += length + 1;
  }
  if (clash)
    return gd_fail(err, GD_BAD_INPUT, "method \"%s\" names two shardings; choose one", text);
  if (naive && (method->compile || method->kernels || method->tf32))
    return gd_fail(err, GD_BAD_INPUT,
                   "method \"%s\" is naive and not naive; leave out one of the two", text);
  if (method->offload && method->sharding == GD_SHARDING_NONE)
    return gd_fail(err, GD_BAD_INPUT,
                   "method \"%s\" offloads but shards nothing; add zero1, zero2, zero3, fsdp2 or "
                   "fsdp3",
                   text);
  return GD_OK;
}

const char *gd_method_name(const struct gd_method *method, char name[GD_METHOD_NAME]) {
  static const char *const bases[8] = {"naive", "compile",      "kernels",      "compile+kernels",
                                       "tf32",  "compile+tf32", "kernels+tf32", "free-lunch"};
  const char *base = bases[method->compile | method->kernels << 1 | method->tf32 << 2];
  snprintf(name, GD_METHOD_NAME, "%s%s%s%s%s", base, method->ckpt ? "+ckpt" : "",
           method->sharding ? "+" : "", sharding_names[method->sharding],
           method->offload ? "+offload" : "");
  return name;
}

int gd_method_space(bool several, struct gd_method methods[GD_METHODS_MOST]) {
  int count = 0;
  for (int sharding = 0; sharding < GD_SHARDING_COUNT; sharding++)
    for (int offload = 0; offload < 2; offload++)
      for (int ckpt = 0; ckpt < 2; ckpt++) {
        bool sharded = sharding != GD_SHARDING_NONE;
        if ((offload && !sharded) || (sharded && !offload && !several))
          continue;
        GD_ASSERT(count < GD_METHODS_MOST);
        methods[count++] = (struct gd_method){.compile = true,
                                              .kernels = true,
                                              .tf32 = true,
                                              .ckpt = ckpt,
                                              .sharding = (enum gd_sharding)sharding,
                                              .offload = offload};
      }
  return count;
}
