/*
 * The backends by name.
 */
#include "backend/backend.h"

#include <string.h>

enum gd_status gd_backend_find(const char *name, const struct gd_backend_ops **ops,
                               struct gd_error *err) {
  static const struct gd_backend_ops *const all[] = {&gd_backend_cpu, &gd_backend_cuda,
                                                     &gd_backend_ref};
  for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
    if (strcmp(name, all[i]->name) == 0) {
      *ops = all[i];
      return GD_OK;
    }
  return gd_fail(err, GD_BAD_INPUT, "unknown backend \"%s\"; there are cpu, cuda and ref", name);
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
