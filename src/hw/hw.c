/*
 * The catalogue: loads the records inside the program, then the user's, joins prices to GPUs and
 * GPUs to builds, and finds records by what a user typed. What a file may say is hw_records.c.
 */
#define _GNU_SOURCE /* strcasestr */
#include "hw/hw.h"

#include <dirent.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/embedded.h"
#include "base/paths.h"
#include "base/strbuf.h"
#include "hw/hw_int.h"
#include "model/config.h"

enum { SUGGESTIONS = 3, SUGGESTIONS_MOST = 8 }; /* by likeness; that begin as the name */
static const char *const folders[] = {"gpus", "machines", "networks", "prices"};
enum { FOLDERS = sizeof folders / sizeof *folders };

static enum gd_status no_memory(struct gd_error *err) {
  return gd_nomem(err, "while loading hardware records");
}

/* --- joining what the files say ------------------------------------------------------------ */

/* Drivers once left out the maker's name. */
static const char *without_maker(const char *name) {
  char start[8];
  snprintf(start, sizeof start, "%.7s", name);
  return gd_hw_same_name(start, "nvidia-") ? name + strlen(start) : name;
}

/* By name or alias. */
static bool is_gpu(const struct gd_gpu *gpu, const char *name) {
  char alias[128];
  name = without_maker(name);
  if (gd_hw_same_name(gpu->name, name))
    return true;
  for (const char *at = gpu->aliases; *at;) {
    size_t length = strcspn(at, ",");
    snprintf(alias, sizeof alias, "%.*s", (int)length, at);
    if (gd_hw_same_name(without_maker(alias), name))
      return true;
    at += length + (at[length] == ',');
  }
  return false;
}

/* A name hides an alias of the same spelling; of two aliases the later file's wins. */
static const struct gd_gpu *find_gpu(const struct gd_hw *hw, const char *name) {
  for (int i = 0; i < hw->n_gpus; i++)
    if (gd_hw_same_name(hw->gpus[i].name, name))
      return &hw->gpus[i];
  for (int i = hw->n_gpus - 1; i >= 0; i--)
    if (is_gpu(&hw->gpus[i], name))
      return &hw->gpus[i];
  return NULL;
}

static enum gd_status check_gpu(const struct gd_hw *hw, const char *file, const char **name,
                                struct gd_error *err) {
  char clean[64];
  const struct gd_gpu *gpu = find_gpu(hw, *name);
  if (!gpu)
    return gd_fail(err, GD_BAD_INPUT,
                   "%s: gpu is \"%s\"; no record of that name exists ('gpudays gpus' lists those "
                   "there are)",
                   file, gd_json_excerpt(clean, sizeof clean, *name));
  *name = gpu->name;
  return GD_OK;
}

/* Drops prices that a later file replaces: two that used different aliases have the same name now.
 */
static void drop_hidden(struct gd_hw *hw) {
  int n_prices = 0, n_rents = 0;
  for (int i = 0, k; i < hw->n_prices; i++) {
    for (k = i + 1; k < hw->n_prices; k++)
      if (strcmp(hw->prices[i].gpu, hw->prices[k].gpu) == 0)
        break;
    if (k == hw->n_prices)
      hw->prices[n_prices++] = hw->prices[i];
  }
  for (int i = 0, k; i < hw->n_rents; i++) {
    for (k = i + 1; k < hw->n_rents; k++)
      if (strcmp(hw->rents[i].gpu, hw->rents[k].gpu) == 0 &&
          strcmp(hw->rents[i].provider, hw->rents[k].provider) == 0)
        break;
    if (k == hw->n_rents)
      hw->rents[n_rents++] = hw->rents[i];
  }
  hw->n_prices = n_prices;
  hw->n_rents = n_rents;
}

/* Whatever refers to a GPU may do so by an alias; afterwards it has the name. */
static enum gd_status check_references(struct gd_hw *hw, struct gd_error *err) {
  char clean[64];
  for (int i = 0; i < hw->n_stated; i++) {
    const char *network = hw->stated[i].network;
    bool found = !network;
    GD_TRY(check_gpu(hw, hw->stated[i].file, &hw->stated[i].gpu, err));
    for (int k = 0; k < hw->n_networks; k++)
      found = found || strcmp(hw->networks[k].name, network) == 0;
    if (!found)
      return gd_fail(err, GD_BAD_INPUT,
                     "%s: network is \"%s\"; no record of that name exists, such as infiniband-hdr "
                     "or ethernet-100",
                     hw->stated[i].file, gd_json_excerpt(clean, sizeof clean, network));
  }
  for (int i = 0; i < hw->n_prices; i++)
    GD_TRY(check_gpu(hw, hw->prices[i].file, &hw->prices[i].gpu, err));
  for (int i = 0; i < hw->n_rents; i++)
    GD_TRY(check_gpu(hw, hw->rents[i].file, &hw->rents[i].gpu, err));
  drop_hidden(hw);
  return GD_OK;
}

/* The cites of a record without those of `field`, then these. */
static enum gd_status join_cites(struct gd_hw *hw, const char *field, const struct gd_cite *more,
                                 int n_more, const struct gd_cite **cites, int *n_cites,
                                 struct gd_error *err) {
  struct gd_cite *list =
      gd_arena_alloc(&hw->arena, (size_t)*n_cites + (size_t)n_more + 1, sizeof *list);
  int n = 0;
  if (!list)
    return no_memory(err);
  for (int i = 0; i < *n_cites; i++)
    if (strcmp((*cites)[i].field, field) != 0)
      list[n++] = (*cites)[i];
  for (int i = 0; i < n_more; i++)
    list[n++] = more[i];
  *cites = list;
  *n_cites = n;
  return GD_OK;
}

static enum gd_status join_prices(struct gd_hw *hw, struct gd_error *err) {
  struct gd_gpu *gpus = gd_arena_alloc(&hw->arena, (size_t)hw->n_gpus + 1, sizeof *gpus);
  if (!gpus)
    return no_memory(err);
  for (int i = 0; i < hw->n_gpus; i++) {
    gpus[i] = hw->gpus[i];
    for (int k = 0; k < hw->n_prices; k++) {
      const struct gd_price *price = &hw->prices[k];
      if (strcmp(price->gpu, gpus[i].name) != 0)
        continue;
      gpus[i].usd = price->usd;
      GD_TRY(join_cites(hw, "usd", price->cites, price->n_cites, &gpus[i].cites, &gpus[i].n_cites,
                        err));
    }
  }
  hw->gpus = gpus;
  return GD_OK;
}

/*
 * Desktops and servers hold cards. Modules for a switched board are in them all the same for the
 * paper's GPUs, since the paper prices its own so, and for others in servers: what such a board's
 * server costs beyond that is not known here.
 */
static bool fits(const struct gd_build *build, const struct gd_gpu *gpu) {
  bool module = gpu->topology == GD_TOPOLOGY_SWITCH;
  return gpu->usd > 0 && (!module || gpu->paper_flops > 0 || build->count >= 4);
}

/* The machine that a build is with GPUs of a kind; modules keep their links. */
static enum gd_status assemble(struct gd_hw *hw, const struct gd_build *build,
                               const struct gd_gpu *gpu, struct gd_machine *machine,
                               struct gd_error *err) {
  const struct gd_cite *price = gd_cite_of(gpu->cites, gpu->n_cites, "usd");
  bool module = gpu->topology == GD_TOPOLOGY_SWITCH;
  *machine = (struct gd_machine){
      .gpu = gpu->name,
      .count = build->count,
      .cpus = build->cpus,
      .host_memory_bytes = build->host_memory_bytes,
      .topology = module && build->count > 1 ? GD_TOPOLOGY_SWITCH : build->topology,
      .in_paper = build->in_paper && gpu->paper_flops > 0,
      .usd = build->usd + build->count * gpu->usd,
      .power_w = build->power_w,
      .build = build,
      .cites = build->cites,
      .n_cites = build->n_cites,
      .file = build->file,
  };
  machine->name = gd_arena_printf(&hw->arena, "%s-%dx-%s", build->name, build->count, gpu->name);
  machine->title =
      gd_arena_printf(&hw->arena, "%s: %d x %s", build->title, build->count, gpu->title);
  if (!machine->name || !machine->title)
    return no_memory(err);
  return join_cites(hw, "usd", price, price ? 1 : 0, &machine->cites, &machine->n_cites, err);
}

static enum gd_status join_builds(struct gd_hw *hw, struct gd_error *err) {
  size_t most = (size_t)hw->n_stated + (size_t)hw->n_builds * (size_t)hw->n_gpus;
  struct gd_machine *machines = gd_arena_alloc(&hw->arena, most + 1, sizeof *machines);
  int n = hw->n_stated;
  if (!machines)
    return no_memory(err);
  for (int i = 0; i < n; i++)
    machines[i] = hw->stated[i];
  for (int g = 0; g < hw->n_gpus; g++)
    for (int b = 0; b < hw->n_builds; b++) {
      bool hidden = !fits(&hw->builds[b], &hw->gpus[g]);
      if (!hidden)
        GD_TRY(assemble(hw, &hw->builds[b], &hw->gpus[g], &machines[n], err));
      for (int i = 0; i < hw->n_stated && !hidden; i++)
        hidden = strcmp(hw->stated[i].name, machines[n].name) == 0;
      n += !hidden;
    }
  hw->machines = machines;
  hw->n_machines = n;
  return GD_OK;
}

static enum gd_status join_all(struct gd_hw *hw, struct gd_error *err) {
  GD_TRY(check_references(hw, err));
  GD_TRY(join_prices(hw, err));
  return join_builds(hw, err);
}

/* --- loading ------------------------------------------------------------------------------- */

static int compare_paths(const void *a, const void *b) {
  return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The paths of the .json files of a folder, sorted, so that which record hides another does not
   depend on the file system. */
static enum gd_status list_files(struct gd_hw *hw, const char *folder, char ***paths,
                                 uint32_t *count, struct gd_error *err) {
  uint32_t capacity = 0;
  *paths = NULL;
  *count = 0;
  DIR *dir = opendir(folder);
  if (!dir) /* most people have none */
    return GD_OK;
  enum gd_status status = GD_OK;
  for (struct dirent *entry = readdir(dir); entry && status == GD_OK; entry = readdir(dir)) {
    if (!gd_name_is_json(entry->d_name) || entry->d_name[0] == '.')
      continue;
    char *path = gd_arena_printf(&hw->arena, "%s/%s", folder, entry->d_name);
    if (!path || !gd_vec_reserve((void **)paths, &capacity, *count + 1, sizeof **paths))
      status = no_memory(err);
    else
      (*paths)[(*count)++] = path;
  }
  closedir(dir);
  if (*count > 0)
    qsort(*paths, *count, sizeof **paths, compare_paths);
  return status;
}

static enum gd_status read_path(struct gd_hw *hw, const char *path, struct gd_hw_read *read,
                                struct gd_error *err) {
  struct gd_json json = {0};
  GD_TRY(gd_json_load(&json, path, err));
  enum gd_status status = gd_hw_read(hw, &json, read, err);
  gd_json_deinit(&json);
  return status;
}

static enum gd_status read_folder(struct gd_hw *hw, const char *folder, struct gd_error *err) {
  char **paths;
  uint32_t count;
  struct gd_hw_read read;
  enum gd_status status = list_files(hw, folder, &paths, &count, err);
  for (uint32_t i = 0; i < count && status == GD_OK; i++)
    status = read_path(hw, paths[i], &read, err);
  gd_mem_free(paths);
  return status;
}

static enum gd_status read_text(struct gd_hw *hw, const char *label, const char *text,
                                int64_t length, struct gd_hw_read *read, struct gd_error *err) {
  struct gd_json json = {0};
  GD_TRY(gd_json_parse(&json, label, text, length, err));
  enum gd_status status = gd_hw_read(hw, &json, read, err);
  gd_json_deinit(&json);
  return status;
}

static enum gd_status load(struct gd_hw *hw, struct gd_error *err) {
  struct gd_hw_read read;
  for (int i = 0; i < gd_embedded_file_count; i++) {
    const struct gd_embedded_file *file = &gd_embedded_files[i];
    bool ours = false;
    for (int k = 0; k < FOLDERS; k++) {
      size_t length = strlen(folders[k]);
      ours |= strncmp(file->path, folders[k], length) == 0 && file->path[length] == '/';
    }
    if (ours)
      GD_TRY(read_text(hw, file->path, file->text, file->length, &read, err));
  }
  for (int k = 0; k < FOLDERS; k++) {
    char path[PATH_MAX];
    if (gd_path_config(folders[k], path, sizeof path))
      GD_TRY(read_folder(hw, path, err));
  }
  return join_all(hw, err);
}

enum gd_status gd_hw_load(struct gd_hw *hw, struct gd_error *err) {
  *hw = (struct gd_hw){0};
  enum gd_status status = load(hw, err);
  if (status != GD_OK)
    gd_hw_deinit(hw);
  return status;
}

void gd_hw_deinit(struct gd_hw *hw) {
  gd_arena_deinit(&hw->arena);
  *hw = (struct gd_hw){0};
}

/* Keeps what a file added, or puts all lists back as they were: adding copies lists and never
   changes them. */
static enum gd_status finish_adding(struct gd_hw *hw, const struct gd_hw *before,
                                    enum gd_status status, const struct gd_hw_read *read,
                                    const char **what, struct gd_error *err) {
  if (status == GD_OK)
    status = join_all(hw, err);
  if (status != GD_OK) {
    struct gd_arena arena = hw->arena;
    *hw = *before;
    hw->arena = arena;
  } else if (what) {
    *what = read->what;
  }
  return status;
}

static enum gd_status add_file(struct gd_hw *hw, const char *path, struct gd_hw_read *read,
                               const char **what, struct gd_error *err) {
  struct gd_hw before = *hw;
  enum gd_status status = read_path(hw, path, read, err);
  return finish_adding(hw, &before, status, read, what, err);
}

enum gd_status gd_hw_add_file(struct gd_hw *hw, const char *path, const char **what,
                              struct gd_error *err) {
  struct gd_hw_read read = {0};
  return add_file(hw, path, &read, what, err);
}

enum gd_status gd_hw_add_text(struct gd_hw *hw, const char *label, const char *text, int64_t length,
                              const char **what, struct gd_error *err) {
  struct gd_hw before = *hw;
  struct gd_hw_read read = {0};
  enum gd_status status = read_text(hw, label, text, length, &read, err);
  return finish_adding(hw, &before, status, &read, what, err);
}

/* --- finding ------------------------------------------------------------------------------- */

/* Names of one kind: the first field of every record is its name. */
struct names {
  const char *what, *list_with; /* "GPU", "gpudays gpus" */
  const void *records;
  int count;
  size_t size;
};

static const char *name_at(const struct names *names, int i) {
  return *(const char *const *)((const char *)names->records + (size_t)i * names->size);
}

static enum gd_status unknown(const struct names *names, const char *name, struct gd_error *err) {
  struct gd_strbuf nearest = {0};
  char clean[64];
  int best[SUGGESTIONS_MOST], n = 0;
  /* "infiniband" begins the names of its kinds, and all of them are suggested. */
  for (int i = 0; name[0] && i < names->count && n < SUGGESTIONS_MOST; i++)
    if (strncmp(name_at(names, i), name, strlen(name)) == 0)
      best[n++] = i;
  for (int i = n > 0 ? names->count : 0; i < names->count; i++) {
    int distance = gd_edit_distance(name, name_at(names, i)), at = n;
    while (at > 0 && distance < gd_edit_distance(name, name_at(names, best[at - 1])))
      at--;
    if (at >= SUGGESTIONS)
      continue;
    n = n < SUGGESTIONS ? n + 1 : n;
    memmove(best + at + 1, best + at, (size_t)(n - at - 1) * sizeof *best);
    best[at] = i;
  }
  for (int i = 0; i < n; i++)
    gd_strbuf_printf(&nearest, "%s%s",
                     i == 0      ? ""
                     : i + 1 < n ? ", "
                                 : " or ",
                     name_at(names, best[i]));
  enum gd_status status = gd_fail(
      err, GD_BAD_INPUT,
      "unknown %s \"%s\"; did you mean %s? ('%s' lists all; a path to a file of its own works too)",
      names->what, gd_json_excerpt(clean, sizeof clean, name), nearest.text ? nearest.text : "",
      names->list_with);
  gd_strbuf_deinit(&nearest);
  return status;
}

/* Where *name is a path: adds the file, and makes *name its first record of that kind, which is
   what `first`, a field of *read, becomes. */
static enum gd_status resolve(struct gd_hw *hw, const char **name, const char *kind,
                              struct gd_hw_read *read, const char *const *first,
                              struct gd_error *err) {
  char clean[256];
  if (!strchr(*name, '/') && !gd_name_is_json(*name))
    return GD_OK;
  GD_TRY(add_file(hw, *name, read, NULL, err));
  if (!*first)
    return gd_fail(err, GD_BAD_INPUT, "%s: holds no record of kind %s",
                   gd_json_excerpt(clean, sizeof clean, *name), kind);
  *name = *first;
  return GD_OK;
}

static enum gd_status find_record(const struct names *names, const char *name, const void **found,
                                  struct gd_error *err) {
  for (int i = 0; i < names->count; i++)
    if (gd_hw_same_name(name_at(names, i), name)) {
      *found = (const char *)names->records + (size_t)i * names->size;
      return GD_OK;
    }
  return unknown(names, name, err);
}

enum gd_status gd_hw_gpu(struct gd_hw *hw, const char *name, const struct gd_gpu **gpu,
                         struct gd_error *err) {
  struct gd_hw_read read = {0};
  GD_TRY(resolve(hw, &name, "gpu", &read, &read.gpu, err));
  const struct gd_gpu *found = find_gpu(hw, name);
  if (!found)
    return unknown(&(struct names){"GPU", "gpudays gpus", hw->gpus, hw->n_gpus, sizeof *hw->gpus},
                   name, err);
  *gpu = found;
  return GD_OK;
}

bool gd_hw_knows_gpu(const char *name) {
  struct gd_hw hw = {0};
  const struct gd_gpu *gpu;
  bool known = gd_hw_load(&hw, NULL) == GD_OK && gd_hw_gpu(&hw, name, &gpu, NULL) == GD_OK;
  gd_hw_deinit(&hw);
  return known;
}

bool gd_hw_states_peak(struct gd_hw *hw, const char *device, enum gd_peak peak, double flops) {
  const struct gd_gpu *gpu = find_gpu(hw, device);
  return gpu && flops > 0 && fabs(flops - gpu->flops[peak]) <= 1e-6 * flops;
}

enum gd_status gd_hw_machine(struct gd_hw *hw, const char *name, const struct gd_machine **machine,
                             struct gd_error *err) {
  struct gd_hw_read read = {0};
  const void *found = NULL;
  GD_TRY(resolve(hw, &name, "machine", &read, &read.machine, err));
  GD_TRY(find_record(&(struct names){"machine", "gpudays gpus GPU", hw->machines, hw->n_machines,
                                     sizeof *hw->machines},
                     name, &found, err));
  *machine = found;
  return GD_OK;
}

enum gd_status gd_hw_network(struct gd_hw *hw, const char *name, const struct gd_network **network,
                             struct gd_error *err) {
  struct gd_hw_read read = {0};
  const void *found = NULL;
  GD_TRY(resolve(hw, &name, "network", &read, &read.network, err));
  GD_TRY(find_record(&(struct names){"network", "gpudays gpus", hw->networks, hw->n_networks,
                                     sizeof *hw->networks},
                     name, &found, err));
  *network = found;
  return GD_OK;
}

enum gd_status gd_hw_energy(struct gd_hw *hw, const char *name, const struct gd_energy **energy,
                            struct gd_error *err) {
  struct gd_hw_read read = {0};
  const void *found = NULL;
  if (!name)
    name = "us";
  GD_TRY(resolve(hw, &name, "energy", &read, &read.energy, err));
  GD_TRY(find_record(&(struct names){"region of electricity", "gpudays gpus --json", hw->energies,
                                     hw->n_energies, sizeof *hw->energies},
                     name, &found, err));
  *energy = found;
  return GD_OK;
}

/* --- choosing ------------------------------------------------------------------------------ */

const struct gd_rent *gd_hw_cheapest_rent(const struct gd_hw *hw, const char *gpu,
                                          const char *provider) {
  const struct gd_rent *best = NULL;
  for (int i = 0; i < hw->n_rents; i++) {
    const struct gd_rent *rent = &hw->rents[i];
    if ((!gpu || strcmp(rent->gpu, gpu) == 0) &&
        (!provider || strcasestr(rent->provider, provider)) &&
        (!best || rent->usd_per_gpu_hour < best->usd_per_gpu_hour))
      best = rent;
  }
  return best;
}

static int class_rank(const char *name) {
  return strcmp(name, "desktop") == 0 ? 0 : strcmp(name, "workstation") == 0 ? 1 : 2;
}

static int compare_gpus(const void *a, const void *b) {
  const struct gd_gpu *x = *(const struct gd_gpu *const *)a, *y = *(const struct gd_gpu *const *)b;
  int classes = class_rank(x->class_name) - class_rank(y->class_name);
  if (classes)
    return classes;
  if (x->flops[GD_PEAK_FP16] < y->flops[GD_PEAK_FP16])
    return -1;
  if (x->flops[GD_PEAK_FP16] > y->flops[GD_PEAK_FP16])
    return 1;
  if (x->memory_bytes != y->memory_bytes)
    return x->memory_bytes < y->memory_bytes ? -1 : 1;
  return strcmp(x->name, y->name); /* the same order by every C library's qsort */
}

enum gd_status gd_hw_sorted_gpus(const struct gd_hw *hw, struct gd_arena *arena,
                                 const struct gd_gpu *const **gpus, struct gd_error *err) {
  const struct gd_gpu **list = gd_arena_alloc(arena, (size_t)hw->n_gpus + 1, sizeof(void *));
  if (!list)
    return gd_nomem(err, "while listing GPUs");
  for (int i = 0; i < hw->n_gpus; i++)
    list[i] = &hw->gpus[i];
  qsort(list, (size_t)hw->n_gpus, sizeof(void *), compare_gpus);
  *gpus = list;
  return GD_OK;
}
