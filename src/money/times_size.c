/*
 * Days of a model of which only the size is known: those of each preset that stands in for it
 * (search/stand_in.h), of this engine or of another software, joined as `plan` joins them.
 */
#include <stdio.h>
#include <string.h>

#include "money/money_int.h"

struct gd_stand_in_answer gd_stand_in_answer_of(const struct gd_time *time) {
  struct gd_stand_in_answer answer = {.fits = time->state == GD_TIME_KNOWN};
  if (answer.fits) {
    answer.days = time->days;
    answer.low = time->days_low;
    answer.high = time->days_high;
    answer.power_w = time->gpu_power_w;
    snprintf(answer.method, sizeof answer.method, "%.*s", (int)sizeof answer.method - 1,
             time->method);
  }
  return answer;
}

/* times: of each stand-in for this option. */
static enum gd_status join(const struct gd_times_context *context,
                           const struct gd_time times[GD_STAND_INS], struct gd_money_option *option,
                           struct gd_error *err) {
  const struct gd_money_asked *asked = context->asked;
  struct gd_time *time = &option->time;
  struct gd_stand_in_answer answers[GD_STAND_INS];
  struct gd_stand_in_days days;
  struct gd_target target;
  const struct gd_time *first = NULL; /* the nearest that fits */
  bool asked_any = false;
  for (int i = 0; i < asked->stand_ins->count; i++) {
    answers[i] = gd_stand_in_answer_of(&times[i]);
    asked_any = asked_any || times[i].state != GD_TIME_UNKNOWN;
    if (!first && answers[i].fits)
      first = &times[i];
  }
  if (!asked_any)
    return GD_OK;
  GD_TRY(gd_times_target(context, option, &target, err));
  gd_stand_ins_days(asked->stand_ins, asked->outline, answers,
                    (struct gd_stand_in_place){.count = target.count,
                                               .memory_bytes = (double)target.memory_bytes},
                    &days);
  time->state = GD_TIME_INFEASIBLE;
  if (days.days <= 0 || !first)
    return GD_OK;
  *time = *first;
  time->days = days.days;
  time->days_low = days.low;
  time->days_high = days.high;
  time->gpu_power_w = days.power_w;
  time->share = first->share * first->days / days.days; /* of the same FLOPs */
  snprintf(time->source, sizeof time->source, "%.560s; the days are the mean of %.250s",
           first->source, days.names);
  return GD_OK;
}

enum gd_status gd_times_predict_size(struct gd_times_context *context,
                                     struct gd_money_option *options, int count,
                                     struct gd_error *err) {
  const struct gd_stand_ins *in = context->asked->stand_ins;
  enum gd_status status = GD_OK;
  struct gd_money_option *copies = gd_mem_alloc((size_t)count + 1, sizeof *copies);
  struct gd_time(*times)[GD_STAND_INS] = gd_mem_alloc((size_t)count + 1, sizeof *times);
  if (!copies || !times)
    status = gd_nomem(err, "before the prediction");
  for (int i = 0; status == GD_OK && i < in->count; i++) {
    struct gd_money_asked asked = *context->asked;
    struct gd_times_context one = {.asked = &asked, .work = context->work};
    asked.model = &in->models[i];
    asked.outline = NULL;
    memcpy(copies, options, (size_t)count * sizeof *copies);
    status = gd_times_predict(&one, copies, count, err);
    gd_times_close(&one);
    for (int j = 0; j < count; j++)
      times[j][i] = copies[j].time;
  }
  for (int j = 0; status == GD_OK && j < count; j++)
    if (options[j].time.state == GD_TIME_UNKNOWN)
      status = join(context, times[j], &options[j], err);
  gd_mem_free(times);
  gd_mem_free(copies);
  return status;
}
