/*
 * What is here; see findings.h.
 */
#include "backend/findings.h"

#include <math.h>
#include <stdio.h>

#include "backend/libraries.h"

static enum gd_status look_at_cpu(int threads, struct gd_findings *to, struct gd_error *err) {
  struct gd_backend *backend;
  GD_TRY(gd_backend_open("cpu", &(struct gd_backend_options){.threads = threads}, &backend, err));
  backend->ops->describe(backend, &to->cpu.info);
  to->cpu.isa = to->cpu.info.kernels;
  to->cpu.multiplies_bf16 = to->cpu.info.multiplies_bf16;
  to->cpu.fp32_flops = backend->ops->peak_flops(backend, GD_DTYPE_F32, false);
  to->cpu.bf16_flops = backend->ops->peak_flops(backend, GD_DTYPE_BF16, false);
  gd_backend_close(backend);
  return GD_OK;
}

static void look_at_gpu(struct gd_findings *to) {
  struct gd_backend *backend;
  struct gd_error why = {0};
  to->gpu.bf16_flops = to->gpu.tf32_flops = (double)NAN;
  if (gd_backend_open("cuda", &(struct gd_backend_options){0}, &backend, &why) != GD_OK) {
    snprintf(to->gpu.missing, sizeof to->gpu.missing, "%s", why.text);
    return;
  }
  to->gpu.found = true;
  backend->ops->describe(backend, &to->gpu.info);
  to->gpu.bf16_flops = backend->ops->peak_flops(backend, GD_DTYPE_BF16, false);
  to->gpu.tf32_flops = backend->ops->peak_flops(backend, GD_DTYPE_F32, true);
  gd_backend_close(backend);
}

static void add_library(void *user, const struct gd_library *library) {
  struct gd_findings *to = user;
  GD_ASSERT(to->n_libraries < GD_FINDINGS_LIBRARIES);
  struct gd_finding_library *one = &to->libraries[to->n_libraries++];
  *one = (struct gd_finding_library){.name = library->name,
                                     .path = library->path,
                                     .missing = library->missing,
                                     .without = library->without};
  snprintf(one->version, sizeof one->version, "%s", library->version);
}

enum gd_status gd_findings_look(int threads, struct gd_findings *findings, struct gd_error *err) {
  *findings = (struct gd_findings){0};
  GD_TRY(look_at_cpu(threads, findings, err));
  look_at_gpu(findings);
  gd_libraries(add_library, findings);
  return GD_OK;
}
