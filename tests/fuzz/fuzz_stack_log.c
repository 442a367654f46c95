/*
 * Any bytes as a log of other software: refused with a sentence, or read into times, settings and
 * facts that are finite and that nothing can be printed by but plain text.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/strbuf.h"
#include "predict/stack_log.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool is_plain(const char *text) {
  size_t bytes;
  for (; *text; text += bytes)
    if (!gd_text_shown(text, &bytes))
      return false;
  return true;
}

static void check(const struct gd_stack_log *log) {
  const struct gd_stack_log_times *times = &log->times;
  GD_ASSERT(log->format && log->format->title);
  GD_ASSERT(log->n_steps > 0 || log->tokens_per_s > 0 || log->tokens_per_gpu_s > 0 ||
            log->samples_per_s > 0);
  GD_ASSERT(isfinite(log->tokens_per_s) && isfinite(log->samples_per_s));
  GD_ASSERT(isfinite(log->tokens_per_gpu_s) && log->tokens_per_gpu_s >= 0);
  GD_ASSERT(log->micro_batch >= 0 && log->seq >= 0 && log->batch >= 0 && log->gpus >= 0);
  for (uint32_t i = 0; i < log->n_steps; i++)
    GD_ASSERT(log->steps[i].seconds > 0 && isfinite(log->steps[i].seconds));
  if (log->n_steps > 0) {
    GD_ASSERT(times->steps > 0 && times->steps <= log->n_steps);
    GD_ASSERT(times->mean_s > 0 && times->median_s > 0 && isfinite(times->mean_s));
    GD_ASSERT(times->fastest_s <= times->median_s && times->spread >= 0);
    GD_ASSERT(times->stalled >= 0 && times->stalled < 1 && times->drift > 0);
  }
  for (int i = 0; i < GD_RUN_FACT_COUNT; i++) {
    GD_ASSERT(strlen(log->facts[i].said) < sizeof log->facts[i].said);
    GD_ASSERT(is_plain(log->facts[i].said));
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  struct gd_stack_log log;
  struct gd_error err = {0};
  int64_t blocks = gd_mem_live_blocks();
  enum gd_status status = gd_stack_log_parse(&log, (const char *)data, size, &err);
  GD_ASSERT(status == err.status);
  if (status == GD_OK)
    check(&log);
  else
    GD_ASSERT(status == GD_BAD_INPUT && err.text[0] && !strchr(err.text, '\n'));
  gd_stack_log_deinit(&log);
  GD_ASSERT(gd_mem_live_blocks() == blocks);
  return 0;
}
