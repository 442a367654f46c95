/*
 * Modules of kernels, for the files that manage them rather than launch one: see module.c.
 */
#ifndef GD_BACKEND_CUDA_RUNTIME_MODULE_H
#define GD_BACKEND_CUDA_RUNTIME_MODULE_H

#include "backend/cuda/runtime/cuda_int.h"

enum gd_status gd_cuda_modules_open(struct gd_cuda *cuda, struct gd_error *err) GD_MUST_USE;
void gd_cuda_modules_close(struct gd_cuda *cuda);
/* Forgets all modules but number `which` of every `every` and the first of each file: a share of
   the work, for tests. */
void gd_cuda_modules_keep(struct gd_cuda *cuda, int every, int which);
/* Builds in parallel every module that was noted so far; needs no GPU. */
enum gd_status gd_cuda_modules_compile(struct gd_cuda *cuda, int *count,
                                       struct gd_error *err) GD_MUST_USE;
/* Builds in parallel, and loads, every module that was noted so far. */
enum gd_status gd_cuda_modules_build(struct gd_cuda *cuda, struct gd_error *err) GD_MUST_USE;
/* Notes a module of generated text, to be built with the others. */
enum gd_status gd_cuda_text_note(struct gd_cuda *cuda, const char *source,
                                 struct gd_error *err) GD_MUST_USE;
/* common.cuh: what generated text begins with. */
enum gd_status gd_cuda_prelude(struct gd_strbuf *source, struct gd_error *err) GD_MUST_USE;
/* Of the text of kernels/<file>.cu with all that it includes: part of an autotune key. */
enum gd_status gd_cuda_source_hash(struct gd_cuda *cuda, const char *file, uint64_t *hash,
                                   struct gd_error *err) GD_MUST_USE;
int gd_cuda_static_shared(const struct gd_cuda *cuda, CUfunction function);
/* Launches a function at whatever stage this is. */
enum gd_status gd_cuda_launch_function(const struct gd_cuda_call *call, CUfunction function,
                                       const char *name, struct gd_cuda_grid grid,
                                       void **params) GD_MUST_USE;

#endif
