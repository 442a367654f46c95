/*
 * Images, decoded ahead: a ring of samples between threads that make them and the loop that takes
 * them. The ring holds a stretch of the sequence of indices that the loop asks for (follow); who
 * asks for another index than the next one, as after going back to a checkpoint, starts it anew
 * there. A sample that failed keeps its sentence until it is asked for.
 *
 * A thread takes samples in pairs 2k, 2k + 1, which mixing needs together.
 */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "data/source_int.h"

enum { MOST_THREADS = 256, SLOTS_A_THREAD = 4, MOST_SLOTS = 512 };

struct slot {
  int64_t index;
  bool done;
  enum gd_status status;
  struct gd_error error;
  float *pixels, *targets;
};

struct image_source {
  struct gd_image_set set;
  int64_t offset, count, stride; /* what is followed */
  pthread_mutex_t mutex;
  pthread_cond_t changed; /* for all: a slot is done, or free, or the end has come */
  struct slot *slots;
  int64_t n_slots;
  int64_t taken, given; /* slots that the loop took, and that threads were given, since the start */
  int64_t next;         /* index of the next slot that is given; -1: nobody has asked yet */
  int busy;             /* threads at work */
  bool paused, ends;
  pthread_t threads[MOST_THREADS];
  int n_threads;
  float *memory;
};

/* The index that this rank reads after `index`. */
static int64_t following(const struct image_source *s, int64_t index) {
  int64_t place = (index - s->offset) % s->stride;
  return place + 1 < s->count ? index + 1 : index + s->stride - s->count + 1;
}

static struct slot *slot_at(struct image_source *s, int64_t number) {
  return &s->slots[number % s->n_slots];
}

static bool has_work(const struct image_source *s) {
  return s->next >= 0 && !s->paused && s->given - s->taken < s->n_slots;
}

static void *make_samples(void *self) {
  struct image_source *s = self;
  struct gd_image_work work;
  gd_image_work_init(&work);
  pthread_mutex_lock(&s->mutex);
  for (;;) {
    while (!s->ends && !has_work(s))
      pthread_cond_wait(&s->changed, &s->mutex);
    if (s->ends)
      break;
    struct slot *mine[2];
    int n = 0;
    while (n < 2 && has_work(s) && (n == 0 || s->next == (mine[0]->index ^ 1))) {
      struct slot *slot = mine[n++] = slot_at(s, s->given++);
      slot->index = s->next;
      slot->done = false;
      s->next = following(s, s->next);
    }
    s->busy++;
    for (int i = 0; i < n; i++) {
      pthread_mutex_unlock(&s->mutex);
      mine[i]->error = (struct gd_error){0};
      mine[i]->status = gd_image_set_sample(&s->set, &work, mine[i]->index, mine[i]->pixels,
                                            mine[i]->targets, &mine[i]->error);
      pthread_mutex_lock(&s->mutex);
      mine[i]->done = true;
      pthread_cond_broadcast(&s->changed);
    }
    s->busy--;
    pthread_cond_broadcast(&s->changed);
  }
  pthread_mutex_unlock(&s->mutex);
  gd_image_work_deinit(&work);
  return NULL;
}

static void stop_threads(struct image_source *s) {
  pthread_mutex_lock(&s->mutex);
  s->ends = true;
  pthread_cond_broadcast(&s->changed);
  pthread_mutex_unlock(&s->mutex);
  for (int i = 0; i < s->n_threads; i++)
    pthread_join(s->threads[i], NULL);
  s->n_threads = 0;
}

static void close_images(void *self) {
  struct image_source *s = self;
  stop_threads(s);
  pthread_cond_destroy(&s->changed);
  pthread_mutex_destroy(&s->mutex);
  gd_mem_free(s->slots);
  gd_mem_free(s->memory);
  gd_image_set_close(&s->set);
  gd_mem_free(s);
}

/* Signals are for the thread that trains. */
static enum gd_status start_threads(struct image_source *s, struct gd_error *err) {
  int threads = s->set.options.threads < 1 ? 1 : s->set.options.threads;
  sigset_t all, before;
  int rc = 0;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  threads = threads > MOST_THREADS ? MOST_THREADS : threads;
  while (rc == 0 && s->n_threads < threads)
    if ((rc = pthread_create(&s->threads[s->n_threads], NULL, make_samples, s)) == 0)
      s->n_threads++;
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (s->n_threads == 0)
    return gd_fail(err, GD_ENVIRONMENT, "no thread could be started to decode images: %s",
                   strerror(rc));
  return GD_OK;
}

static enum gd_status follow_images(void *self, int64_t offset, int64_t count, int64_t stride,
                                    struct gd_error *err) {
  struct image_source *s = self;
  const struct gd_image_options *o = &s->set.options;
  int64_t pixels = 3 * o->height * o->width, each = pixels + o->classes;
  int64_t least = (int64_t)SLOTS_A_THREAD * (o->threads < 1 ? 1 : o->threads);
  GD_ASSERT(s->n_threads == 0 && count > 0 && offset + count <= stride);
  s->n_slots = 2 * count > MOST_SLOTS ? MOST_SLOTS : 2 * count;
  s->n_slots = s->n_slots < least ? least : s->n_slots;
  s->offset = offset;
  s->count = count;
  s->stride = stride;
  s->next = -1;
  s->slots = gd_mem_alloc((size_t)s->n_slots, sizeof *s->slots);
  s->memory = gd_mem_alloc((size_t)(s->n_slots * each), sizeof *s->memory);
  if (!s->slots || !s->memory)
    return gd_nomem(err, "for images that are decoded ahead");
  for (int64_t i = 0; i < s->n_slots; i++) {
    s->slots[i].pixels = s->memory + i * each;
    s->slots[i].targets = s->slots[i].pixels + pixels;
  }
  return start_threads(s, err);
}

/* Every image has a label; behind the last one of an evaluation there are none. */
static enum gd_status count_images(void *self, int64_t first, int64_t count, double *labels,
                                   struct gd_error *err) {
  const struct image_source *s = self;
  int64_t rest = s->set.files.count - first;
  (void)err;
  *labels = (double)(!s->set.options.evaluates || rest >= count ? count : rest < 0 ? 0 : rest);
  return GD_OK;
}

/* Begins at another index than the one that would be next. Called with the mutex. */
static void restart(struct image_source *s, int64_t index) {
  s->paused = true;
  while (s->busy > 0)
    pthread_cond_wait(&s->changed, &s->mutex);
  s->taken = s->given = 0;
  s->next = index;
  s->paused = false;
  pthread_cond_broadcast(&s->changed);
}

static enum gd_status take_sample(struct image_source *s, int64_t index, float *pixels,
                                  float *targets, struct gd_error *err) {
  const struct gd_image_options *o = &s->set.options;
  pthread_mutex_lock(&s->mutex);
  if ((s->taken < s->given ? slot_at(s, s->taken)->index : s->next) != index)
    restart(s, index);
  while (s->taken == s->given || !slot_at(s, s->taken)->done)
    pthread_cond_wait(&s->changed, &s->mutex);
  struct slot *slot = slot_at(s, s->taken);
  enum gd_status status = slot->status;
  pthread_mutex_unlock(&s->mutex); /* nobody is given a slot that was not taken */
  if (status == GD_OK) {
    memcpy(pixels, slot->pixels, (size_t)(3 * o->height * o->width) * sizeof *pixels);
    memcpy(targets, slot->targets, (size_t)o->classes * sizeof *targets);
  } else if (err) {
    *err = slot->error;
  }
  pthread_mutex_lock(&s->mutex);
  s->taken++;
  pthread_cond_broadcast(&s->changed);
  pthread_mutex_unlock(&s->mutex);
  return status;
}

static enum gd_status read_images(void *self, int64_t first, int64_t count, void *inputs,
                                  void *labels, struct gd_error *err) {
  struct image_source *s = self;
  const struct gd_image_options *o = &s->set.options;
  int64_t pixels = 3 * o->height * o->width;
  GD_ASSERT(s->n_threads > 0);
  for (int64_t i = 0; i < count; i++)
    GD_TRY(take_sample(s, first + i, (float *)inputs + i * pixels, (float *)labels + i * o->classes,
                       err));
  return GD_OK;
}

static void prefetch_images(void *self, int64_t first, int64_t count) {
  (void)self, (void)first, (void)count; /* the threads are ahead */
}

static const struct gd_source_ops image_ops = {.close = close_images,
                                               .follow = follow_images,
                                               .count = count_images,
                                               .read = read_images,
                                               .prefetch = prefetch_images};

enum gd_status gd_image_source_open(struct gd_source *source,
                                    const struct gd_image_options *options,
                                    const struct gd_image_files *known, struct gd_error *err) {
  struct image_source *s = gd_mem_alloc(1, sizeof *s);
  if (!s)
    return gd_nomem(err, "before opening images");
  enum gd_status status = gd_image_set_open(&s->set, options, known, err);
  if (status != GD_OK) {
    gd_mem_free(s);
    return status;
  }
  pthread_mutex_init(&s->mutex, NULL);
  pthread_cond_init(&s->changed, NULL);
  *source = (struct gd_source){.ops = &image_ops, .self = s, .samples = s->set.files.count};
  return GD_OK;
}

const struct gd_image_set *gd_image_source_set(const struct gd_source *source) {
  return source->ops == &image_ops ? &((const struct image_source *)source->self)->set : NULL;
}
