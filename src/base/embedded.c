/*
 * The lookup among the embedded files; the table itself is written by the build.
 */
#include "base/embedded.h"

#include <string.h>

const struct gd_embedded_file *gd_embedded_find(const char *path) {
  for (int i = 0; i < gd_embedded_file_count; i++)
    if (strcmp(gd_embedded_files[i].path, path) == 0)
      return &gd_embedded_files[i];
  return NULL;
}
