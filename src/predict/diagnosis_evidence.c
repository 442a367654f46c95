/*
 * Why a cause is believed, and what to do about it, in words; see diagnosis.h.
 */
#include <stdio.h>
#include <string.h>

#include "hw/collective.h"
#include "predict/diagnosis_int.h"

bool gd_cause_is(const struct gd_cause_option *option, const char *name) {
  return strcmp(option->cause->name, name) == 0;
}

/* "191 ms", "4.88 s". */
static const char *format_seconds(char *text, size_t size, double seconds) {
  snprintf(text, size, seconds < 1 ? "%.3g ms" : "%.3g s", seconds < 1 ? 1e3 * seconds : seconds);
  return text;
}

static void add_evidence(struct gd_found_cause *found, const char *text) {
  if (found->n_evidence < GD_CAUSE_EVIDENCE)
    snprintf(found->evidence[found->n_evidence++], sizeof found->evidence[0], "%s", text);
}

static void tell_times(const struct gd_diagnosis_question *q, const struct gd_cause_option *o,
                       struct gd_found_cause *found) {
  char text[160], median[32], mean[32];
  const struct gd_stack_log *log = q->log;
  if (!log || log->times.steps < 4)
    return;
  const struct gd_stack_log_times *times = &log->times;
  if (gd_cause_is(o, "data-loading") && o->fixed) {
    snprintf(text, sizeof text,
             "%lld of %lld steps took more than 1.5 times the median of %s: the mean is %s",
             (long long)times->stalls, (long long)times->steps,
             format_seconds(median, sizeof median, times->median_s),
             format_seconds(mean, sizeof mean, times->mean_s));
    add_evidence(found, text);
  } else if (gd_cause_is(o, "data-loading") && times->spread > 0.05) {
    snprintf(text, sizeof text, "steps differ by %.0f %% of their median of %s",
             100 * times->spread, format_seconds(median, sizeof median, times->median_s));
    add_evidence(found, text);
  }
  if (gd_cause_is(o, "low-clock") && times->drift > 1.02) {
    snprintf(text, sizeof text,
             "steps became %.0f %% longer from the log's first quarter to its "
             "last",
             100 * (times->drift - 1));
    add_evidence(found, text);
  }
}

static void tell_level(const struct gd_diagnosis_question *q, const struct gd_cause_option *o,
                       int64_t micro_batch, struct gd_found_cause *found) {
  char text[160];
  if (gd_cause_is(o, "small-micro-batch")) {
    snprintf(text, sizeof text, "%s %lld where about %lld would fit",
             q->micro_batch > 0 ? "micro-batch" : "as with micro-batch", (long long)o->level,
             (long long)micro_batch);
    add_evidence(found, text);
  }
  if (gd_cause_is(o, "fp32-gemms")) {
    snprintf(text, sizeof text, "as in %s", o->level < 2 ? "TF32" : "fp32 without TF32");
    add_evidence(found, text);
  }
  if (gd_cause_is(o, "slow-links") && q->target && q->target->nodes > 1) {
    struct gd_fabric fabric;
    gd_fabric_of(q->target, &fabric);
    snprintf(text, sizeof text,
             "as with %.0f Gb/s between nodes, where %.0f are to be had from %d x %s",
             8e-9 * fabric.between_bytes_per_s * o->level, 8e-9 * fabric.between_bytes_per_s,
             fabric.cards, q->target->network ? q->target->network->title : "network");
    add_evidence(found, text);
  } else if (gd_cause_is(o, "slow-links")) {
    snprintf(text, sizeof text, "as with %.0f %% of the rate of the links", 100 * o->level);
    add_evidence(found, text);
  }
  if (gd_cause_is(o, "low-clock")) {
    snprintf(text, sizeof text, "as at %.0f %% of the clock", 100 * o->level);
    add_evidence(found, text);
  }
  if (gd_cause_is(o, "data-loading") && !o->fixed) {
    snprintf(text, sizeof text, "as with %.0f %% of the time spent waiting",
             100 * o->level / (1 + o->level));
    add_evidence(found, text);
  }
}

/* Volta and Turing multiply in fp16 and not in bf16. */
static void copy_remedy(const struct gd_diagnosis_question *q, const char *text, char *to,
                        size_t size) {
  const char *at = q->target && q->precision == GD_PRECISION_FP16 ? strstr(text, "bf") : NULL;
  if (!at)
    at = q->target && q->precision == GD_PRECISION_FP16 ? strstr(text, "BF") : NULL;
  bool brain = at && strncmp(at, "bfloat16", 8) == 0;
  if (at)
    snprintf(to, size, "%.*s%s%s", (int)(at - text), text,
             brain          ? "float16"
             : at[0] == 'B' ? "FP16"
                            : "fp16",
             at + (brain ? 8 : 4));
  else
    snprintf(to, size, "%s", text);
}

void gd_cause_describe(const struct gd_diagnosis_question *q, const struct gd_cause_option *o,
                       int64_t micro_batch, struct gd_found_cause *found) {
  char text[160], with[32], without[32], measured[32];
  GD_ASSERT(q);
  const struct gd_stack_log_fact *fact =
      o->cause->fact < GD_RUN_FACT_COUNT ? &q->facts_said[o->cause->fact] : NULL;
  if (fact && fact->said[0] && fact->answer != GD_RUN_UNKNOWN) {
    snprintf(text, sizeof text, "said: %s", fact->said);
    add_evidence(found, text);
  }
  if (gd_cause_is(o, "not-compiled") && q->framework == GD_FRAMEWORK_TRAINER &&
      !(fact && fact->said[0]))
    add_evidence(found, "the Trainer compiles only where --torch_compile says so");
  tell_times(q, o, found);
  tell_level(q, o, micro_batch, found);
  if (q->target) {
    snprintf(text, sizeof text, "simulated with it a step takes %s, without it %s; measured %s",
             format_seconds(with, sizeof with, o->with_s),
             format_seconds(without, sizeof without, o->without_s),
             format_seconds(measured, sizeof measured, q->step_s));
    add_evidence(found, text);
  }
  char remedy[160];
  bool in_node = o->cause->in_node && q->target && q->target->nodes <= 1;
  copy_remedy(q, in_node ? o->cause->in_node : o->cause->remedy[q->framework], remedy,
              sizeof remedy);
  const char *number = strstr(remedy, "%lld");
  if (number)
    snprintf(found->remedy, sizeof found->remedy, "%.*s%lld%s", (int)(number - remedy), remedy,
             (long long)micro_batch, number + 4);
  else
    snprintf(found->remedy, sizeof found->remedy, "%s", remedy);
}
