/*
 * What a step is judged by: the losses and gradient norms of the steps before it. A value that is
 * six deviations above their mean is a spike.
 */
#ifndef GD_TRAIN_SPIKES_H
#define GD_TRAIN_SPIKES_H

enum { GD_RECENT_MOST = 128, GD_RECENT_TO_JUDGE = 32 };

/* Of the last steps whose update was not skipped, oldest first. */
struct gd_recent {
  int count;
  double loss[GD_RECENT_MOST], norm[GD_RECENT_MOST];
};

void gd_recent_add(struct gd_recent *recent, double loss, double norm);
/* The largest value that is no spike; INFINITY where there are too few to tell. */
double gd_recent_most_loss(const struct gd_recent *recent);
double gd_recent_most_norm(const struct gd_recent *recent);

#endif
