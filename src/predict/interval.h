/*
 * Intervals that are earned: how far 90 % of the next times will be from a prediction, from what
 * predictions missed a few models, GPUs or sources by that they had not seen. Widths are halves of
 * an interval of the logarithm: times lie from exp(-half) to exp(half) over the predicted one.
 *
 *   double own = gd_interval_half(mean_square, models), both = hypot(own, of_the_gpu_model);
 *   double error = gd_interval_error(both); // from 1 - error to 1 / (1 - error)
 */
#ifndef GD_PREDICT_INTERVAL_H
#define GD_PREDICT_INTERVAL_H

/*
 * Student's prediction interval of one more draw around none, since what all draws have in common
 * is fitted. Quantiles of the errors themselves would be those of so few, and too narrow.
 * mean_square: of the logarithms of predicted over measured, every draw weighing the same.
 */
double gd_interval_half(double mean_square, int draws);

double gd_interval_error(double half);
double gd_interval_half_of(double error); /* the other way round */

/* "x0.76 to x1.32", of an error: what the predicted time is multiplied by; returns the text. */
enum { GD_INTERVAL_TEXT = 32 };
const char *gd_interval_say(double error, char text[GD_INTERVAL_TEXT]);

#endif
