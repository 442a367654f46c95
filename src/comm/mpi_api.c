/*
 * Finding and loading OpenMPI; see mpi_api.h.
 */
#include "comm/mpi_api.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/switches.h"

#define REMEDY "install OpenMPI 4 or 5 (Debian: apt-get install openmpi-bin)"

/* Global: OpenMPI's own plugins of some builds look up its symbols in the process. */
static void *open_library(const char *name) {
  return dlopen(name, RTLD_NOW | RTLD_GLOBAL);
}

static enum gd_status find_library(void **library, char *name, size_t size, struct gd_error *err) {
  static const char *const names[] = {
      "libmpi.so.40", /* the loader's path: Debian, an activated module */
      "/usr/lib64/openmpi/lib/libmpi.so.40",
      "/usr/lib64/mpi/gcc/openmpi4/lib64/libmpi.so.40",
      "/usr/lib64/mpi/gcc/openmpi5/lib64/libmpi.so.40",
      "/usr/lib/x86_64-linux-gnu/openmpi/lib/libmpi.so.40",
      "/usr/lib/aarch64-linux-gnu/openmpi/lib/libmpi.so.40",
      "/opt/openmpi/lib/libmpi.so.40",
      "libmpi.so", /* last: may be another MPI, which then is named in the sentence */
      "libmpi.so.12",
  };
  const char *given = gd_env("GPUDAYS_LIBMPI"), *prefix = gd_env("OPAL_PREFIX");
  char clean[256];
  if (given && given[0]) {
    snprintf(name, size, "%s", given);
    *library = open_library(name);
    if (*library)
      return GD_OK;
    const char *reason = dlerror();
    return gd_fail(err, GD_ENVIRONMENT,
                   "GPUDAYS_LIBMPI cannot be loaded (%s); unset it, or name OpenMPI's libmpi.so",
                   gd_json_excerpt(clean, sizeof clean, reason ? reason : given));
  }
  if (prefix && prefix[0]) {
    snprintf(name, size, "%s/lib/libmpi.so.40", prefix);
    if ((*library = open_library(name)))
      return GD_OK;
  }
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    snprintf(name, size, "%s", names[i]);
    if ((*library = open_library(name)))
      return GD_OK;
  }
  return gd_fail(err, GD_ENVIRONMENT,
                 "several ranks need OpenMPI, and libmpi.so.40 was not found; " REMEDY
                 ", or name the file in GPUDAYS_LIBMPI");
}

/* A missing symbol is remembered; ISO C has no cast from an object to a function pointer. */
static void look_up(void *library, const char *symbol, void *to, size_t size,
                    const char **missing) {
  void *address = dlsym(library, symbol);
  GD_ASSERT(size == sizeof address);
  if (!address && !*missing)
    *missing = symbol;
  memcpy(to, &address, sizeof address);
}

enum gd_status gd_mpi_load(struct gd_mpi *mpi, struct gd_error *err) {
  void *library;
  char name[512], clean[128];
  const char *missing = NULL;
  GD_TRY(find_library(&library, name, sizeof name, err));
  gd_json_excerpt(clean, sizeof clean, name);
  if (!dlsym(library, "ompi_mpi_comm_world"))
    return gd_fail(err, GD_ENVIRONMENT,
                   "%s is not OpenMPI's (it has no ompi_mpi_comm_world), and gpudays speaks "
                   "OpenMPI only; " REMEDY ", or name its libmpi.so in GPUDAYS_LIBMPI",
                   clean);
#define LOOK_UP(field, parameters) \
  look_up(library, "MPI_" #field, &mpi->field, sizeof mpi->field, &missing);
  GD_MPI_FUNCTIONS(LOOK_UP)
#undef LOOK_UP
#define LOOK_UP(field, symbol) look_up(library, #symbol, &mpi->field, sizeof mpi->field, &missing);
  GD_MPI_OBJECTS(LOOK_UP)
#undef LOOK_UP
  if (missing)
    return gd_fail(err, GD_ENVIRONMENT, "%s has no %s; " REMEDY, clean, missing);
  return GD_OK;
}

/* MPI_Get_library_version may be called before MPI_Init: "Open MPI v4.1.4, package: ...". */
bool gd_mpi_version(char *text, size_t size) {
  enum { MOST = 256 }; /* MPI_MAX_LIBRARY_VERSION_STRING */
  void *library;
  char name[512], whole[MOST + 1] = "";
  int (*version)(char *, int *) = NULL, length = 0;
  const char *missing = NULL;
  if (find_library(&library, name, sizeof name, NULL) != GD_OK)
    return false;
  look_up(library, "MPI_Get_library_version", &version, sizeof version, &missing);
  if (missing || version(whole, &length) != GD_MPI_SUCCESS)
    return false;
  const char *from = strstr(whole, " v");
  from = from ? from + 2 : whole;
  snprintf(text, size, "%.*s", (int)strcspn(from, ", \n"), from);
  return text[0] != '\0';
}
