/*
 * NVIDIA's libraries on this machine, as `doctor` shows them and as a machine's text names them.
 * They are loaded for the asking, once, and stay loaded.
 */
#ifndef GD_BACKEND_LIBRARIES_H
#define GD_BACKEND_LIBRARIES_H

#include <stdbool.h>

struct gd_library {
  const char *name;
  const char *path; /* where it was found; NULL: it was not */
  char version[32];
  const char *missing; /* the sentence, where it was not found */
  const char *without; /* what is done where there is none; NULL: nothing runs */
  bool only_watches;   /* nothing is faster or slower for it */
};

/* All of them, in a fixed order. */
void gd_libraries(void (*show)(void *user, const struct gd_library *library), void *user);
/* Whether there is a CUDA driver. */
bool gd_libraries_driver(void);

#endif
