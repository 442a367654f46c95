/*
 * Files of events, read by a decoder of their own: the framing with its checksums, the messages,
 * and what is left of a run that went on from an earlier step once later steps are forgotten as
 * TensorBoard does. The run is one of the program itself.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "support/ok.h"
#include "support/scratch.h"
#include "train/events.h"

enum { MOST = 4096, TAG = 32, STEPS = 12 };

struct value {
  int64_t step;
  double wall_s;
  char tag[TAG];
  float value;
};

struct curves {
  struct value values[MOST];
  int count, read; /* left, and seen in all */
  int files, starts;
};

/* --- a decoder ------------------------------------------------------------------------------ */

/* CRC32C by a table, the high bit first: another way than the writer's. */
static uint32_t reflect(uint32_t value, int bits) {
  uint32_t reflected = 0;
  for (int i = 0; i < bits; i++)
    reflected |= (value >> i & 1) << (bits - 1 - i);
  return reflected;
}

static uint32_t checksum(const unsigned char *bytes, size_t count) {
  uint32_t crc = 0xffffffff;
  for (size_t i = 0; i < count; i++) {
    crc ^= reflect(bytes[i], 8) << 24;
    for (int bit = 0; bit < 8; bit++)
      crc = crc & 0x80000000 ? crc << 1 ^ 0x1edc6f41 : crc << 1;
  }
  return reflect(~crc, 32);
}

static uint64_t little_endian(const unsigned char *bytes, int count) {
  uint64_t value = 0;
  while (count-- > 0)
    value = value << 8 | bytes[count];
  return value;
}

/* unmasked: as record_reader.cc does. */
static uint32_t unmask(uint64_t stored) {
  uint32_t reflected = (uint32_t)stored - 0xa282ead8u;
  return reflected >> 17 | reflected << 15;
}

struct field {
  int number, type;
  uint64_t integer;
  const unsigned char *bytes;
  size_t count;
};

static uint64_t read_varint(const unsigned char **at, const unsigned char *end) {
  uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    assert_true(*at < end && shift < 64);
    value |= (uint64_t)(**at & 0x7f) << shift;
    if (!(*(*at)++ & 0x80))
      return value;
  }
}

static bool next_field(const unsigned char **at, const unsigned char *end, struct field *f) {
  if (*at == end)
    return false;
  uint64_t key = read_varint(at, end);
  *f = (struct field){.number = (int)(key >> 3), .type = (int)(key & 7)};
  if (f->type == 0) {
    f->integer = read_varint(at, end);
    return true;
  }
  assert_true(f->type == 1 || f->type == 2 || f->type == 5);
  f->count = f->type == 1 ? 8 : f->type == 5 ? 4 : (size_t)read_varint(at, end);
  assert_true(f->count <= (size_t)(end - *at));
  f->bytes = *at;
  *at += f->count;
  return true;
}

static void read_value(struct curves *c, struct value v, const struct field *of) {
  const unsigned char *at = of->bytes, *end = of->bytes + of->count;
  struct field f;
  uint32_t bits;
  while (next_field(&at, end, &f)) {
    if (f.number == 1 && f.type == 2)
      snprintf(v.tag, sizeof v.tag, "%.*s", (int)f.count, (const char *)f.bytes);
    if (f.number == 2 && f.type == 5) {
      bits = (uint32_t)little_endian(f.bytes, 4);
      memcpy(&v.value, &bits, sizeof bits);
    }
  }
  assert_true(c->count < MOST);
  c->values[c->count++] = v;
  c->read++;
}

/* A session that begins at a step: what is there of it and of later ones goes. */
static void forget(struct curves *c, int64_t step) {
  int left = 0;
  for (int i = 0; i < c->count; i++)
    if (c->values[i].step < step)
      c->values[left++] = c->values[i];
  c->count = left;
  c->starts++;
}

static void read_event(struct curves *c, const unsigned char *bytes, size_t count, bool first) {
  const unsigned char *at = bytes, *end = bytes + count;
  struct value v = {0};
  struct field f, summary = {0}, session = {0}, version = {0}, inner;
  uint64_t bits;
  while (next_field(&at, end, &f)) {
    if (f.number == 1 && f.type == 1) {
      bits = little_endian(f.bytes, 8);
      memcpy(&v.wall_s, &bits, sizeof bits);
    } else if (f.number == 2 && f.type == 0)
      v.step = (int64_t)f.integer;
    else if (f.number == 3 && f.type == 2)
      version = f;
    else if (f.number == 5 && f.type == 2)
      summary = f;
    else if (f.number == 7 && f.type == 2)
      session = f;
    else
      fail_msg("an event has field %d of type %d", f.number, f.type);
  }
  assert_true(v.wall_s > 1.6e9 && v.wall_s < 1e11);
  assert_int_equal(first, version.count == 13 && memcmp(version.bytes, "brain.Event:2", 13) == 0);
  if (session.count > 0) {
    at = session.bytes;
    assert_true(next_field(&at, session.bytes + session.count, &inner));
    assert_true(inner.number == 1 && inner.integer == 1);
    forget(c, v.step);
  }
  for (at = summary.bytes; at && next_field(&at, summary.bytes + summary.count, &inner);)
    if (inner.number == 1)
      read_value(c, v, &inner);
}

static void read_events(struct curves *c, const char *path) {
  unsigned char bytes[1 << 16];
  FILE *file = fopen(path, "rb");
  assert_non_null(file);
  size_t size = fread(bytes, 1, sizeof bytes, file), at = 0;
  fclose(file);
  assert_true(size > 0 && size < sizeof bytes);
  while (at < size) {
    assert_true(size - at >= 16);
    uint64_t length = little_endian(bytes + at, 8);
    assert_true(length <= size - at - 16);
    assert_int_equal(unmask(little_endian(bytes + at + 8, 4)), checksum(bytes + at, 8));
    assert_int_equal(unmask(little_endian(bytes + at + 12 + length, 4)),
                     checksum(bytes + at + 12, (size_t)length));
    read_event(c, bytes + at + 12, (size_t)length, at == 0);
    at += 16 + (size_t)length;
  }
  c->files++;
}

static int is_events(const struct dirent *entry) {
  return strncmp(entry->d_name, "events.out.tfevents.", 20) == 0;
}

/* In the order of their names, which is TensorBoard's. */
static void read_folder(struct curves *c, const char *folder) {
  struct dirent **entries;
  char path[4096];
  *c = (struct curves){0};
  int count = scandir(folder, &entries, is_events, alphasort);
  assert_true(count > 0);
  for (int i = 0; i < count; i++) {
    snprintf(path, sizeof path, "%.3000s/%s", folder, entries[i]->d_name);
    read_events(c, path);
    free(entries[i]);
  }
  free(entries);
}

/* The one value of a tag at a step. */
static float value_of(const struct curves *c, const char *tag, int64_t step) {
  int found = 0;
  float value = NAN;
  for (int i = 0; i < c->count; i++)
    if (c->values[i].step == step && strcmp(c->values[i].tag, tag) == 0) {
      value = c->values[i].value;
      found++;
    }
  if (found != 1)
    fail_msg("%s of step %lld is there %d times", tag, (long long)step, found);
  return value;
}

/* --- tests --------------------------------------------------------------------------------- */

static void the_decoder_knows_the_checksum(void **state) {
  (void)state; /* RFC 3720, B.4, and the usual check value */
  assert_int_equal(checksum((const unsigned char *)"123456789", 9), 0xe3069283u);
  assert_int_equal(checksum((const unsigned char[32]){0}, 32), 0x8a9136aau);
}

static void values_come_back(void **state) {
  static struct curves c;
  struct gd_events events;
  struct gd_error err = {0};
  (void)state;
  OK(gd_events_open(&events, scratch_path("values"), 0, &err));
  OK(gd_events_add(&events, 1, (struct gd_scalar[]){{"loss", 4.25}, {"lr", 1e-30}}, 2, &err));
  OK(gd_events_add(&events, INT64_C(1) << 40, &(struct gd_scalar){"loss", -HUGE_VAL}, 1, &err));
  OK(gd_events_add(&events, 300, &(struct gd_scalar){"loss", (double)NAN}, 1, &err));
  gd_events_close(&events);
  /* A second one in the same second comes after it by its name, and forgets. */
  OK(gd_events_open(&events, scratch_path("values"), 299, &err));
  OK(gd_events_add(&events, 300, &(struct gd_scalar){"loss", 2}, 1, &err));
  gd_events_close(&events);
  gd_events_close(&events);
  read_folder(&c, scratch_path("values/tensorboard"));
  assert_int_equal(c.files, 2);
  assert_int_equal(c.read, 5);
  assert_int_equal(c.count, 3);
  assert_true(value_of(&c, "loss", 1) == 4.25f && value_of(&c, "lr", 1) == 1e-30f);
  assert_true(value_of(&c, "loss", 300) == 2);
}

static void a_folder_that_cannot_be_is_said(void **state) {
  struct gd_events events;
  struct gd_error err = {0};
  (void)state;
  scratch_write_text("file", "");
  assert_int_equal(gd_events_open(&events, scratch_path("file"), 0, &err), GD_ENVIRONMENT);
  assert_non_null(strstr(err.text, "file"));
  assert_null(events.file);
}

/* The program with these arguments; it must end well. */
static void run_program(const char *const *arguments) {
  const char *program = getenv("GPUDAYS");
  int status;
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) {
    int nothing = open("/dev/null", O_RDWR);
    dup2(nothing, STDIN_FILENO);
    dup2(nothing, STDOUT_FILENO);
    if (program)
      execv(program, (char *const *)(uintptr_t)arguments);
    _exit(127);
  }
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void write_tokens(const char *name) {
  unsigned char ids[20000] = {0};
  for (size_t i = 0, x = 1; i < sizeof ids / 2; i++)
    ids[2 * i] = (unsigned char)(x = (x * 5 + 3 + (i % 7 == 0)) % 64);
  scratch_write(name, ids, sizeof ids);
}

static double number_behind(const char *line, const char *key) {
  const char *at = strstr(line, key);
  return at ? strtod(at + strlen(key), NULL) : (double)NAN;
}

/* Every number of the log is in the curves, as a float and once; returns the lines. */
static int compare_with_log(const struct curves *c, const char *path) {
  static const char *const keys[] = {"loss",         "lr",  "gradient_norm",
                                     "tokens_per_s", "mfu", "eval_loss"};
  char line[1024], key[TAG + 8];
  int lines = 0;
  FILE *file = fopen(path, "r");
  assert_non_null(file);
  while (fgets(line, sizeof line, file)) {
    int64_t step = (int64_t)number_behind(line, "{\"step\": ");
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
      snprintf(key, sizeof key, " \"%s\": ", keys[i]);
      double logged = number_behind(line, key);
      if (isnan(logged) || (strcmp(keys[i], "mfu") == 0 && logged <= 0))
        continue;
      assert_true(fabs((double)value_of(c, keys[i], step) - logged) <= 1e-5 * fabs(logged));
    }
    lines++;
  }
  fclose(file);
  return lines;
}

static void a_run_that_goes_on_has_each_step_once(void **state) {
  static struct curves c;
  char data[600], eval[600], run[600], model[600], remove[2000];
  (void)state;
  write_tokens("train.bin");
  write_tokens("eval.bin");
  snprintf(data, sizeof data, "%s", scratch_path("train.bin"));
  snprintf(eval, sizeof eval, "%s", scratch_path("eval.bin"));
  snprintf(run, sizeof run, "%s", scratch_path("run"));
  snprintf(model, sizeof model, "%s/tests/reference/gpt2-a", GD_SOURCE_DIR);
  run_program((const char *const[]){
      "gpudays", "train", model,          "--data",  data, "--eval",    eval, "-o",
      run,       "--seq", "16",           "--batch", "4",  "--steps",   "12", "--warmup",
      "2",       "--lr",  "1e-3",         "--keep",  "9",  "--threads", "1",  "--checkpoint-every",
      "5",       "-q",    "--eval-every", "4",       NULL});
  read_folder(&c, scratch_path("run/tensorboard"));
  assert_int_equal(c.files, 1);
  assert_int_equal(compare_with_log(&c, scratch_path("run/log.jsonl")), STEPS + 3);
  int before = c.read;
  /* What a crash leaves: steps in the log and in the events that no checkpoint has. */
  snprintf(remove, sizeof remove,
           "rm -r '%s/checkpoints/step-00000012' '%s/checkpoints/step-00000010'", run, run);
  assert_int_equal(system(remove), 0);
  run_program((const char *const[]){"gpudays", "train", run, "--threads", "1", "-q", NULL});
  read_folder(&c, scratch_path("run/tensorboard"));
  assert_int_equal(c.files, 2);
  assert_int_equal(c.starts, 2);
  assert_true(c.read > before);
  assert_int_equal(c.count, before);
  assert_int_equal(compare_with_log(&c, scratch_path("run/log.jsonl")), STEPS + 3);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_decoder_knows_the_checksum),
      cmocka_unit_test(values_come_back),
      cmocka_unit_test(a_folder_that_cannot_be_is_said),
      cmocka_unit_test(a_run_that_goes_on_has_each_step_once),
  };
  return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
