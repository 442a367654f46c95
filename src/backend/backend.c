/*
 * The backends by name.
 */
#include "backend/backend.h"

#include <stdio.h>
#include <string.h>

static const struct gd_backend_ops *const all[] = {&gd_backend_cpu, &gd_backend_cuda,
                                                   &gd_backend_ref};
enum { COUNT = sizeof all / sizeof all[0] };

enum gd_status gd_backend_find(const char *name, const struct gd_backend_ops **ops,
                               struct gd_error *err) {
  char names[64];
  for (int i = 0; i < COUNT; i++)
    if (strcmp(name, all[i]->name) == 0) {
      *ops = all[i];
      return GD_OK;
    }
  return gd_fail(err, GD_BAD_INPUT, "unknown backend \"%s\"; there are %s", name,
                 gd_backend_names(names, sizeof names, "and"));
}

const char *gd_backend_names(char *text, size_t size, const char *word) {
  size_t length = 0;
  for (int i = 0; i < COUNT && length < size; i++)
    length += (size_t)snprintf(text + length, size - length, "%s%s%s%s",
                               i == 0          ? ""
                               : i + 1 < COUNT ? ", "
                                               : " ",
                               i > 0 && i + 1 == COUNT ? word : "",
                               i > 0 && i + 1 == COUNT ? " " : "", all[i]->name);
  return text;
}

bool gd_backend_is_gpu(const char *name) {
  return strcmp(name, gd_backend_cuda.name) == 0;
}

enum gd_status gd_backend_open(const char *name, const struct gd_backend_options *options,
                               struct gd_backend **backend, struct gd_error *err) {
  const struct gd_backend_ops *ops;
  GD_TRY(gd_backend_find(name, &ops, err));
  return ops->open(options, backend, err);
}

void gd_backend_close(struct gd_backend *backend) {
  if (backend)
    backend->ops->close(backend);
}

const char *gd_backend_default(void) {
  struct gd_backend *backend;
  if (gd_backend_open("cuda", &(struct gd_backend_options){0}, &backend, NULL) != GD_OK)
    return "cpu";
  gd_backend_close(backend);
  return "cuda";
}
