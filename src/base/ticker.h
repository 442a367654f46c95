/*
 * A thread that calls a function once every so often, for what must be looked at while other code
 * runs: whether the process runs at all, what the clocks of a GPU are.
 *
 *   struct gd_ticker ticker;
 *   gd_ticker_start(&ticker, 100000000, look, &looks);
 *   work();
 *   gd_ticker_stop(&ticker);
 */
#ifndef GD_BASE_TICKER_H
#define GD_BASE_TICKER_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct gd_ticker {
  pthread_t thread;
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  bool started, over;
  int64_t period_ns;
  void (*tick)(void *user);
  void *user;
};

/* The first call comes after one period. Without a thread to be had there is none. */
void gd_ticker_start(struct gd_ticker *ticker, int64_t period_ns, void (*tick)(void *user),
                     void *user);
/* Returns when no call is under way; what the calls wrote may then be read. */
void gd_ticker_stop(struct gd_ticker *ticker);

#endif
