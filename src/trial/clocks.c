/*
 * Looks at the clocks of a GPU, and what a trial keeps of them; see clocks.h.
 */
#include "trial/clocks.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "trial/agree.h"
#include "trial/load.h"

enum { PERIOD_NS = 100000000 };

void gd_clocks_count(struct gd_clocks_watch *watch, const struct gd_clocks *now) {
  if (now->reasons & GD_CLOCKS_IDLE)
    return;
  watch->looks++;
  watch->throttled += (now->reasons & GD_CLOCKS_BAD) != 0;
  for (int i = 0; i < GD_CLOCKS_REASONS; i++)
    watch->with[i] += (now->reasons >> i & 1U) != 0;
  watch->at_mhz[now->mhz > 0 && now->mhz < GD_CLOCKS_MOST_MHZ ? now->mhz : 0]++;
  watch->max_mhz = now->max_mhz;
  watch->power_w += now->power_w;
  watch->power_limit_w = now->power_limit_w;
}

static void look(void *user) {
  struct gd_clocks_watch *watch = user;
  struct gd_clocks now;
  if (watch->backend->ops->clocks(watch->backend, &now))
    gd_clocks_count(watch, &now);
}

void gd_clocks_watch_start(struct gd_clocks_watch *watch, struct gd_backend *backend) {
  *watch = (struct gd_clocks_watch){.backend = backend};
  if (!backend->ops->clocks)
    return;
  look(watch); /* right after the warm-up: sampling may be shorter than a period */
  gd_ticker_start(&watch->ticker, PERIOD_NS, look, watch);
}

void gd_clocks_watch_stop(struct gd_clocks_watch *watch) {
  if (watch->backend->ops->clocks)
    gd_ticker_stop(&watch->ticker);
}

/* What one rank saw; looks 0: it has nothing to tell. */
struct seen {
  int32_t looks, low_mhz, median_mhz, max_mhz;
  uint32_t reasons; /* that more than GD_LOAD_QUIET of the looks had */
  double throttled, capped, power_w, power_limit_w;
};

static struct seen summarise(const struct gd_clocks_watch *watch) {
  struct seen seen = {.looks = watch->looks, .max_mhz = watch->max_mhz};
  int told = watch->looks - watch->at_mhz[0], count = 0;
  if (watch->looks == 0)
    return seen;
  for (int mhz = 1; mhz < GD_CLOCKS_MOST_MHZ && 2 * count < told; mhz++) {
    if (watch->at_mhz[mhz] > 0 && count == 0)
      seen.low_mhz = mhz;
    count += watch->at_mhz[mhz];
    seen.median_mhz = mhz;
  }
  for (int i = 0; i < GD_CLOCKS_REASONS; i++)
    if (watch->with[i] > GD_LOAD_QUIET * watch->looks)
      seen.reasons |= 1U << i;
  seen.throttled = (double)watch->throttled / watch->looks;
  seen.power_w = watch->power_w / watch->looks;
  seen.power_limit_w = watch->power_limit_w;
  for (int i = 0; i < GD_CLOCKS_REASONS; i++)
    if (1U << i == GD_CLOCKS_POWER_CAP)
      seen.capped = (double)watch->with[i] / watch->looks;
  return seen;
}

static bool is_worse(const struct seen *a, const struct seen *b) {
  if ((a->looks > 0) != (b->looks > 0))
    return a->looks > 0;
  if (a->throttled < b->throttled || a->throttled > b->throttled)
    return a->throttled > b->throttled;
  return a->median_mhz < b->median_mhz;
}

static enum gd_status find_worst(struct gd_comm *comm, struct seen *seen, struct gd_error *err) {
  void *gathered;
  if (!comm || gd_comm_size(comm) == 1)
    return GD_OK;
  GD_TRY(gd_agree_gather(comm, seen, sizeof *seen, &gathered, err));
  const struct seen *all = gathered;
  for (int i = 0; i < gd_comm_size(comm); i++)
    if (i == 0 || is_worse(&all[i], seen))
      *seen = all[i];
  gd_mem_free(gathered);
  return GD_OK;
}

static void name_reasons(uint32_t reasons, char *text, size_t size) {
  static const struct {
    unsigned reason;
    const char *name;
  } names[] = {{GD_CLOCKS_THERMAL, GD_REASON_THERMAL},
               {GD_CLOCKS_POWER_BRAKE, GD_REASON_POWER_BRAKE},
               {GD_CLOCKS_SLOWDOWN, GD_REASON_SLOWDOWN},
               {GD_CLOCKS_POWER_CAP, GD_REASON_POWER_CAP},
               {GD_CLOCKS_SETTING, GD_REASON_SETTING}};
  text[0] = '\0';
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    size_t used = strlen(text);
    if (reasons & names[i].reason)
      snprintf(text + used, size - used, "%s%s", used ? ", " : "", names[i].name);
  }
}

enum gd_status gd_clocks_tell(const struct gd_clocks_watch *watch, struct gd_comm *comm,
                              struct gd_trial *trial, struct gd_error *err) {
  struct seen seen = summarise(watch);
  GD_TRY(find_worst(comm, &seen, err));
  trial->gpu_looks = seen.looks;
  trial->gpu_throttled_share = seen.throttled;
  trial->gpu_power_capped_share = seen.capped;
  trial->gpu_clock_mhz = seen.median_mhz;
  trial->gpu_low_clock_mhz = seen.low_mhz;
  trial->gpu_max_clock_mhz = seen.max_mhz;
  trial->gpu_power_w = seen.power_w;
  trial->gpu_power_limit_w = seen.power_limit_w;
  name_reasons(seen.reasons, trial->gpu_clock_reasons, sizeof trial->gpu_clock_reasons);
  return GD_OK;
}
