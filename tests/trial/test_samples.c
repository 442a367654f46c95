/*
 * That a 95 % interval is one: the rule by which a trial samples, on noise whose median is known.
 * Sampling that ends when the interval looks tight ends most often when it is too tight by chance;
 * the width of gd_samples_summarise pays for it. Seeds are fixed: nothing here is random twice.
 *
 * Where sampling ends because the interval is tight, 94.5 % at least hold the median, whatever the
 * shape of noise that is independent from sample to sample, and with a correlation of 0.3; 91 %
 * with 0.5. Where time is up after a few samples, 1.5 points less are asked for: so few do not show
 * how samples are correlated.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "store/record.h"

enum { TRIALS = 1500 };

struct noise {
  uint64_t state;
  double last; /* of those that remember */
};

/* splitmix64 (Steele, Lea, Flood 2014); above 0, below 1. */
static double uniform(struct noise *noise) {
  uint64_t x = noise->state += 0x9e3779b97f4a7c15u;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return ((double)((x ^ x >> 31) >> 11) + 0.5) * 0x1p-53;
}

static double normal(struct noise *noise) {
  double radius = sqrt(-2 * log(uniform(noise)));
  return radius * cos(6.283185307179586 * uniform(noise));
}

static double correlated(struct noise *noise, double r) {
  return noise->last = r * noise->last + sqrt(1 - r * r) * normal(noise);
}

/* Each has the median 0, but for spikes. */
static double draw_normal(struct noise *noise) {
  return normal(noise);
}
static double draw_lognormal(struct noise *noise) {
  return exp(0.8 * normal(noise)) - 1;
}
static double draw_exponential(struct noise *noise) {
  return -log(uniform(noise)) - 0.6931471805599453;
}
static double draw_uniform(struct noise *noise) {
  return (uniform(noise) - 0.5) * 3.4641016151377544;
}
/* One in ten is late: the median is where 5/9 of the others are below, at 0.1397 deviations. */
static double draw_spikes(struct noise *noise) {
  double value = 0.2 * (normal(noise) - 0.13971);
  return uniform(noise) < 0.1 ? value + 3 : value;
}
static double draw_correlated_3(struct noise *noise) {
  return correlated(noise, 0.3);
}
static double draw_correlated_5(struct noise *noise) {
  return correlated(noise, 0.5);
}

static const struct {
  const char *name;
  double (*draw)(struct noise *noise);
  double least; /* coverage */
} shapes[] = {
    {"normal", draw_normal, 0.945},
    {"lognormal", draw_lognormal, 0.945},
    {"exponential", draw_exponential, 0.945},
    {"uniform", draw_uniform, 0.945},
    {"spikes", draw_spikes, 0.945},
    {"correlation 0.3", draw_correlated_3, 0.945},
    {"correlation 0.5", draw_correlated_5, 0.91},
};

/* As sample() in trial.c: until it is tight, or `most` are taken because the time is up. */
static bool is_covered(int shape, double deviation, int most, uint64_t seed) {
  const double median_ns = 1e9;
  struct noise noise = {.state = seed};
  struct gd_samples samples = {0};
  noise.last = normal(&noise);
  do {
    double value = median_ns * (1 + deviation * shapes[shape].draw(&noise));
    samples.ns[samples.count++] = value > 1 ? (int64_t)value : 1;
    gd_samples_summarise(&samples);
  } while (samples.count < most && !gd_samples_are_tight(&samples));
  return fabs(samples.median_s - 1e-9 * median_ns) <= samples.half_width_s;
}

static void check_coverage(int most, const double *deviations, int count, double allowance) {
  for (int shape = 0; shape < (int)(sizeof shapes / sizeof *shapes); shape++)
    for (int k = 0; k < count; k++) {
      int covered = 0;
      for (int i = 0; i < TRIALS; i++)
        covered += is_covered(shape, deviations[k], most,
                              (uint64_t)i * 1000003 + (uint64_t)(shape * 7919 + k));
      double share = (double)covered / TRIALS;
      if (share < shapes[shape].least - allowance)
        fail_msg("%s noise of %g %%: %.1f %% of intervals hold the median, not %.1f", //
                 shapes[shape].name, 100 * deviations[k], 100 * share,
                 100 * (shapes[shape].least - allowance));
    }
}

/* The worst is where sampling ends between the first look and the last sample. */
static void test_until_tight(void **state) {
  static const double deviations[] = {0.005, 0.015, 0.03, 0.05};
  (void)state;
  check_coverage(GD_TRIAL_MAX_SAMPLES, deviations, 4, 0);
}

/* Long micro-steps: the time is up after a few samples, too few to show how they are correlated. */
static void test_until_late(void **state) {
  static const double deviations[] = {0.03};
  (void)state;
  for (int most = 3; most <= 7; most += 2)
    check_coverage(most, deviations, 1, 0.015);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_until_tight),
      cmocka_unit_test(test_until_late),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
