/*
 * The scratch folder. What goes wrong here ends the test program: it says nothing about gpudays.
 */
#define _XOPEN_SOURCE 700
#include "support/scratch.h"

#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[512];

static void give_up(const char *what) {
  fprintf(stderr, "scratch folder: %s: %s\n", what, strerror(errno));
  abort();
}

int scratch_setup(void **state) {
  (void)state;
  const char *base = getenv("TMPDIR");
  snprintf(folder, sizeof folder, "%s/gpudays-test-XXXXXX", base && base[0] ? base : "/tmp");
  if (!mkdtemp(folder))
    give_up(folder);
  return 0;
}

static int remove_entry(const char *path, const struct stat *about, int type, struct FTW *place) {
  (void)about;
  (void)type;
  (void)place;
  return remove(path);
}

int scratch_teardown(void **state) {
  (void)state;
  if (nftw(folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS) != 0)
    give_up(folder);
  return 0;
}

const char *scratch_path(const char *name) {
  static char paths[8][1024];
  static unsigned turn;
  char *path = paths[turn++ % 8];
  snprintf(path, sizeof paths[0], "%s%s%s", folder, name[0] ? "/" : "", name);
  return path;
}

void scratch_write(const char *name, const void *data, size_t bytes) {
  char path[1024];
  snprintf(path, sizeof path, "%s", scratch_path(name));
  for (char *slash = strchr(path + strlen(folder) + 1, '/'); slash;
       slash = strchr(slash + 1, '/')) {
    *slash = '\0';
    if (mkdir(path, 0777) != 0 && errno != EEXIST)
      give_up(path);
    *slash = '/';
  }
  FILE *file = fopen(path, "wb");
  if (!file || fwrite(data, 1, bytes, file) != bytes || fclose(file) != 0)
    give_up(path);
}

void scratch_write_text(const char *name, const char *text) {
  scratch_write(name, text, strlen(text));
}

int scratch_count(const char *name) {
  int count = 0;
  DIR *dir = opendir(scratch_path(name));
  if (!dir)
    give_up(scratch_path(name));
  for (struct dirent *entry = readdir(dir); entry; entry = readdir(dir))
    count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
  closedir(dir);
  return count;
}
