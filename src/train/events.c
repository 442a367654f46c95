/*
 * Files of events; see events.h. Field numbers are those of event.proto and summary.proto, the
 * framing that of record_writer.cc (TensorFlow); steps after a START event of a session are purged
 * by event_accumulator.py (TensorBoard).
 */
#define _GNU_SOURCE
#include "train/events.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { RECORD = 1024, HOST = 64 };
#define PREFIX "events.out.tfevents."

/* --- checksums ----------------------------------------------------------------------------- */

/* CRC32C (Castagnoli), bit by bit: a record a step is not much. */
static uint32_t crc32c(const unsigned char *bytes, size_t count) {
  uint32_t crc = UINT32_MAX;
  for (size_t i = 0; i < count; i++) {
    crc ^= bytes[i];
    for (int bit = 0; bit < 8; bit++)
      crc = crc >> 1 ^ (crc & 1 ? UINT32_C(0x82f63b78) : 0);
  }
  return ~crc;
}

static uint32_t masked_crc(const unsigned char *bytes, size_t count) {
  uint32_t crc = crc32c(bytes, count);
  return (crc >> 15 | crc << 17) + UINT32_C(0xa282ead8);
}

/* --- messages ------------------------------------------------------------------------------ */

struct message {
  unsigned char bytes[RECORD];
  size_t count;
};

enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 }; /* wire types */
enum {                                                    /* fields of Event */
       EVENT_WALL_TIME = 1,
       EVENT_STEP = 2,
       EVENT_FILE_VERSION = 3,
       EVENT_SUMMARY = 5,
       EVENT_SESSION_LOG = 7
};
enum { SUMMARY_VALUE = 1, VALUE_TAG = 1, VALUE_SIMPLE = 2, SESSION_STATUS = 1, SESSION_START = 1 };

static void put_bytes(struct message *m, const void *bytes, size_t count) {
  GD_ASSERT(m->count + count <= sizeof m->bytes);
  memcpy(m->bytes + m->count, bytes, count);
  m->count += count;
}

static void put_little_endian(struct message *m, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; i++)
    put_bytes(m, &(unsigned char){(unsigned char)(value >> 8 * i)}, 1);
}

static void put_varint(struct message *m, uint64_t value) {
  for (; value >= 0x80; value >>= 7)
    put_bytes(m, &(unsigned char){(unsigned char)(value | 0x80)}, 1);
  put_bytes(m, &(unsigned char){(unsigned char)value}, 1);
}

static void put_key(struct message *m, int field, int type) {
  put_varint(m, (uint64_t)(field << 3 | type));
}

static void put_block(struct message *m, int field, const void *bytes, size_t count) {
  put_key(m, field, BYTES);
  put_varint(m, count);
  put_bytes(m, bytes, count);
}

/* An event of a step, now, without its content. */
static void begin_event(struct message *m, int64_t step) {
  struct timespec now = {0};
  uint64_t bits;
  clock_gettime(CLOCK_REALTIME, &now);
  double wall_s = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
  memcpy(&bits, &wall_s, sizeof bits);
  m->count = 0;
  put_key(m, EVENT_WALL_TIME, FIXED64);
  put_little_endian(m, bits, 8);
  put_key(m, EVENT_STEP, VARINT);
  put_varint(m, (uint64_t)step);
}

static void put_scalar(struct message *m, const struct gd_scalar *scalar) {
  struct message value = {.count = 0};
  float number = (float)scalar->value;
  uint32_t bits;
  memcpy(&bits, &number, sizeof bits);
  put_block(&value, VALUE_TAG, scalar->name, strlen(scalar->name));
  put_key(&value, VALUE_SIMPLE, FIXED32);
  put_little_endian(&value, bits, 4);
  put_block(m, SUMMARY_VALUE, value.bytes, value.count);
}

/* --- files --------------------------------------------------------------------------------- */

static enum gd_status cannot(const struct gd_events *events, const char *what,
                             struct gd_error *err) {
  return gd_fail(err, GD_ENVIRONMENT, "%s cannot be %s: %s", events->path, what, strerror(errno));
}

static enum gd_status write_record(struct gd_events *events, const struct message *m,
                                   struct gd_error *err) {
  struct message head = {.count = 0}, tail = {.count = 0};
  put_little_endian(&head, m->count, 8);
  put_little_endian(&head, masked_crc(head.bytes, head.count), 4);
  put_little_endian(&tail, masked_crc(m->bytes, m->count), 4);
  if (fwrite(head.bytes, 1, head.count, events->file) != head.count ||
      fwrite(m->bytes, 1, m->count, events->file) != m->count ||
      fwrite(tail.bytes, 1, tail.count, events->file) != tail.count || fflush(events->file) != 0)
    return cannot(events, "written", err);
  return GD_OK;
}

/* TensorBoard reads the files of a folder by their names, which have the seconds of their
   beginning first. A later process must have more of them, whatever the clock says. */
static int64_t seconds_for_name(const char *folder) {
  int64_t seconds = (int64_t)time(NULL);
  const struct dirent *entry;
  DIR *files = opendir(folder);
  while (files && (entry = readdir(files))) {
    if (strncmp(entry->d_name, PREFIX, strlen(PREFIX)) != 0)
      continue;
    int64_t other = strtoll(entry->d_name + strlen(PREFIX), NULL, 10);
    if (other >= seconds && other < INT64_C(9999999999))
      seconds = other + 1;
  }
  if (files)
    closedir(files);
  return seconds;
}

static enum gd_status write_version(struct gd_events *events, struct gd_error *err) {
  static const char version[] = "brain.Event:2";
  struct message m;
  begin_event(&m, 0);
  put_block(&m, EVENT_FILE_VERSION, version, sizeof version - 1);
  return write_record(events, &m, err);
}

/* A session begins: steps behind `step` are done again. */
static enum gd_status write_start(struct gd_events *events, int64_t step, struct gd_error *err) {
  struct message m, session = {.count = 0};
  begin_event(&m, step + 1);
  put_key(&session, SESSION_STATUS, VARINT);
  put_varint(&session, SESSION_START);
  put_block(&m, EVENT_SESSION_LOG, session.bytes, session.count);
  return write_record(events, &m, err);
}

enum gd_status gd_events_open(struct gd_events *events, const char *folder, int64_t step,
                              struct gd_error *err) {
  char path[GD_FILE_PATH], host[HOST] = "";
  *events = (struct gd_events){0};
  snprintf(path, sizeof path, "%.3900s/tensorboard", folder);
  GD_TRY(gd_file_make_folder(path, err));
  if (gethostname(host, sizeof host - 1) != 0 || !host[0] || strchr(host, '/'))
    snprintf(host, sizeof host, "host");
  snprintf(events->path, sizeof events->path, "%.3900s/" PREFIX "%010" PRId64 ".%s.%ld.0", path,
           seconds_for_name(path), host, (long)getpid());
  events->file = fopen(events->path, "wxe");
  if (!events->file)
    return cannot(events, "opened", err);
  enum gd_status status = write_version(events, err);
  if (status == GD_OK)
    status = write_start(events, step, err);
  if (status != GD_OK)
    gd_events_close(events);
  return status;
}

enum gd_status gd_events_add(struct gd_events *events, int64_t step,
                             const struct gd_scalar *scalars, int count, struct gd_error *err) {
  struct message m, summary = {.count = 0};
  begin_event(&m, step);
  for (int i = 0; i < count; i++)
    put_scalar(&summary, &scalars[i]);
  put_block(&m, EVENT_SUMMARY, summary.bytes, summary.count);
  return write_record(events, &m, err);
}

void gd_events_close(struct gd_events *events) {
  if (events->file)
    fclose(events->file);
  *events = (struct gd_events){0};
}
