/*
 * Two streams and their waits; see streams.h.
 */
#include "predict/streams.h"

uint32_t gd_streams_push(struct gd_streams *s, double seconds) {
  s->left_s[s->pushed] = seconds;
  return ++s->pushed;
}

void gd_streams_compute(struct gd_streams *s, double seconds) {
  while (seconds > 0) {
    if (s->done == s->pushed) {
      s->now_s += seconds;
      return;
    }
    double *left = &s->left_s[s->done];
    double both = seconds < *left ? seconds : *left;
    s->now_s += both / s->speed;
    seconds -= both;
    *left -= both;
    if (*left <= 0)
      s->done++;
  }
}

void gd_streams_wait(struct gd_streams *s, uint32_t number) {
  for (; s->done < number; s->done++)
    s->now_s += s->left_s[s->done];
}

double gd_streams_gpu_speed(double exposed) {
  return 1 / (1 + exposed);
}
