/*
 * The curves of a run as TensorBoard reads them: RUN/tensorboard, a file of events a process. The
 * format is TensorFlow's (records with a masked CRC32C, each a protobuf message Event), written
 * here without either library. What a resumed run does again takes the place of what it did before:
 * a file begins with the session event that tells TensorBoard to forget later steps.
 */
#ifndef GD_TRAIN_EVENTS_H
#define GD_TRAIN_EVENTS_H

#include <stdio.h>

#include "base/file.h"

struct gd_events {
  FILE *file; /* NULL: none is open */
  char path[GD_FILE_PATH];
};

struct gd_scalar {
  const char *name;
  double value; /* TensorBoard keeps a float; what is not finite is shown as such */
};

/* Opens a new file in `folder`/tensorboard, for steps behind `step`. GD_ENVIRONMENT: it cannot be
   made or written, likewise below. */
enum gd_status gd_events_open(struct gd_events *events, const char *folder, int64_t step,
                              struct gd_error *err) GD_MUST_USE;
/* Values of a step, with the time of now; flushed. */
enum gd_status gd_events_add(struct gd_events *events, int64_t step,
                             const struct gd_scalar *scalars, int count,
                             struct gd_error *err) GD_MUST_USE;
void gd_events_close(struct gd_events *events); /* safe on a zeroed one */

#endif
