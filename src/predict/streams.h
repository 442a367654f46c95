/*
 * A device that computes while its links work: one queue of collectives and copies behind the
 * computation, each of which starts when the computation has reached it and those before it are
 * over. While both run, both are slower, since what moves data takes cores or multiprocessors from
 * what computes. Every predicted step goes through here: of this engine op by op (simulate.h), of
 * other software block by block (stack_step.h).
 *
 *   double left_s[2];
 *   struct gd_streams s = {.speed = 0.9, .left_s = left_s};
 *   uint32_t gathered = gd_streams_push(&s, 0.010);
 *   gd_streams_compute(&s, 0.020);
 *   gd_streams_wait(&s, gathered);      // s.now_s: 0.0211
 */
#ifndef GD_PREDICT_STREAMS_H
#define GD_PREDICT_STREAMS_H

#include <stdint.h>

struct gd_streams {
  double now_s;
  double speed;   /* of both while both run; 1: neither hinders the other */
  double *left_s; /* the caller's: of each job in the queue, by number - 1 */
  uint32_t pushed, done;
};

/* A job of so many seconds, alone; returns its number, from 1 on. */
uint32_t gd_streams_push(struct gd_streams *s, double seconds);
/* The computation works for so long, and the queue goes on meanwhile. */
void gd_streams_compute(struct gd_streams *s, double seconds);
/* Nothing computes until that many jobs are done; 0: no wait. */
void gd_streams_wait(struct gd_streams *s, uint32_t number);

/* The speed of a GPU that takes so much longer, relative, while collectives run (GD_GPU_EXPOSED).
 */
double gd_streams_gpu_speed(double exposed);

#endif
