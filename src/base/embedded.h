/*
 * The data files that travel inside the binary, so that gpudays is one file: presets, hardware
 * records, prices, scripts for shells, CUDA kernels, published results. The table is written by the
 * build (cmake/embed_files.cmake) from every .json and .csv file and every script under data/,
 * every .cu and .cuh file under src/backend/ and every .csv file of results/. Parsing is the
 * caller's.
 *
 *   for (int i = 0; i < gd_embedded_file_count; i++)
 *     if (strncmp(gd_embedded_files[i].path, "models/", 7) == 0)
 *       use(gd_embedded_files[i].text, gd_embedded_files[i].length);
 */
#ifndef GD_BASE_EMBEDDED_H
#define GD_BASE_EMBEDDED_H

#include <stdint.h>

struct gd_embedded_file {
  const char *path; /* relative to data/ or src/backend/; "results/h200.csv" */
  const char *text; /* the bytes of the file, then a NUL */
  int64_t length;   /* bytes, without the NUL */
};

/* Sorted by path. The entry after the last one is all zero. */
extern const struct gd_embedded_file gd_embedded_files[];
extern const int gd_embedded_file_count;

/* The file of exactly that path, or NULL. */
const struct gd_embedded_file *gd_embedded_find(const char *path);

#endif
