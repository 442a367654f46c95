/*
 * Reading other software's logs by the tables of stack_log_formats.c; see stack_log.h. A line is
 * copied into a buffer without escape sequences, so that no byte of a file reaches further.
 */
#include "predict/stack_log.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "predict/stack_log_int.h"

enum {
  LINE = 1024, /* bytes of a line that are looked at: what matters stands in front */
  MOST_STEPS = 1000000,
  MOST_BYTES = 256 << 20
};
/* What a step may take: less is a clock that stands still, more a number that is something else. */
static const double shortest_s = 1e-6, longest_s = 1e6;

struct reading {
  struct gd_stack_log *log;
  bool interrupted;                  /* since the last step */
  bool restarted;                    /* likewise */
  double progress_steps, progress_s; /* of the last line of progress; below 0: there is none */
  int64_t n_rates;                   /* tokens/s of a GPU */
  double token_s;                    /* sum of their inverses but the first's */
};

/* --- numbers --------------------------------------------------------------------------------- */

/* "1,234.5", "'12.3'", ": 7", "...... 4": what stands between key and number is skipped. */
static bool number_at(const char *text, double *value, const char **end) {
  char digits[48];
  size_t length = 0;
  text += strspn(text, " \t.:=|'\"");
  if (text[0] == '-')
    return false;
  for (; length + 1 < sizeof digits && *text; text++) {
    bool exponent = (*text == '-' || *text == '+') && length > 0 &&
                    (digits[length - 1] == 'e' || digits[length - 1] == 'E');
    if (*text == ',' && isdigit((unsigned char)text[1]))
      continue;
    if (!isdigit((unsigned char)*text) && *text != '.' && !exponent &&
        !((*text == 'e' || *text == 'E') && length > 0))
      break;
    digits[length++] = *text;
  }
  digits[length] = '\0';
  char *stop;
  *value = strtod(digits, &stop);
  if (end)
    *end = text;
  /* Beyond these nothing is a time, a rate or a count, and products of two are still finite. */
  const double most = 1e30, least = 1e-30;
  bool read = length > 0 && stop != digits && *value >= 0 && *value <= most &&
              (*value <= 0 || *value >= least);
  if (!read)
    *value = 0;
  return read;
}

/* The number that ends right before `at`, within the line. */
static bool number_before(const char *line, const char *at, double *value) {
  while (at > line && at[-1] == ' ')
    at--;
  while (at > line && (isdigit((unsigned char)at[-1]) || at[-1] == '.' || at[-1] == ','))
    at--;
  return isdigit((unsigned char)*at) && !(at > line && at[-1] == '-') && number_at(at, value, NULL);
}

static bool number_of(const char *line, const char *key, double *value, const char **end) {
  bool before = key[0] == '<';
  const char *at = strstr(line, key + before);
  if (!at)
    return false;
  if (before)
    return number_before(line, at, value);
  return number_at(at + strlen(key), value, end);
}

/* --- steps ----------------------------------------------------------------------------------- */

static enum gd_status add_step(struct reading *r, double number, double seconds,
                               struct gd_error *err) {
  struct gd_stack_log *log = r->log;
  if (!(seconds >= shortest_s && seconds <= longest_s) || number > 1e12 ||
      log->n_steps >= MOST_STEPS)
    return GD_OK;
  int64_t step = (int64_t)number;
  /* Each rank prints it. */
  if (log->n_steps > 0 && log->steps[log->n_steps - 1].step == step)
    return GD_OK;
  if (!gd_vec_reserve((void **)&log->steps, &log->capacity, log->n_steps + 1, sizeof *log->steps))
    return gd_nomem(err, "while reading a log");
  bool first = log->n_steps == 0 || r->restarted || step < log->steps[log->n_steps - 1].step;
  log->steps[log->n_steps++] = (struct gd_stack_log_step){
      .step = step, .seconds = seconds, .first = first, .interrupted = r->interrupted};
  r->interrupted = r->restarted = false;
  return GD_OK;
}

/* Tokens of a step of one GPU, as far as settings said so. */
static double tokens_of_gpu(const struct gd_stack_log *log) {
  return log->micro_batch * log->seq * fmax(log->accumulation, 1);
}

/* " 3%|#  | 10/377 [08:44<5:20:03, 52.33s/it]": time of several steps, since it counts seconds. */
static enum gd_status read_progress(struct reading *r, const char *line, struct gd_error *err) {
  const double least_s = 10; /* then a second of rounding is a tenth of it */
  const char *bar = strrchr(line, '|'), *open = bar ? strchr(bar, '[') : NULL;
  double steps, part, elapsed = 0;
  if (!open || !number_at(bar + 1, &steps, NULL))
    return GD_OK;
  for (const char *at = open + 1;;) {
    if (!isdigit((unsigned char)*at) || !number_at(at, &part, &at))
      return GD_OK;
    elapsed = elapsed * 60 + part;
    if (*at != ':')
      break;
    at++;
  }
  bool again = steps < r->progress_steps || elapsed < r->progress_s;
  if (r->progress_steps < 0 || again) {
    r->progress_steps = steps;
    r->progress_s = elapsed;
    return GD_OK;
  }
  if (elapsed - r->progress_s < least_s || steps <= r->progress_steps)
    return GD_OK;
  double seconds = (elapsed - r->progress_s) / (steps - r->progress_steps);
  r->progress_steps = steps;
  r->progress_s = elapsed;
  return add_step(r, steps, seconds, err);
}

/* The mean of the rates of a GPU but the first, which compiles and loads. */
static void add_rate(struct reading *r, double rate) {
  r->n_rates++;
  r->token_s += r->n_rates > 1 ? 1 / rate : 0;
  r->log->tokens_per_gpu_s = r->n_rates > 1 ? (double)(r->n_rates - 1) / r->token_s : rate;
}

static enum gd_status read_step(struct reading *r, const struct gd_step_line *form,
                                const char *line, struct gd_error *err) {
  struct gd_stack_log *log = r->log;
  double number, value, rate = 0, seconds = 0;
  const char *end = "";
  log->format = log->format ? log->format : form->format;
  if (!form->step)
    return strchr(line, '[') ? read_progress(r, line, err) : GD_OK;
  if (!number_of(line, form->step, &number, NULL))
    return GD_OK;
  if (form->mfu && number_of(line, form->mfu, &value, NULL) && value > 0 && value <= 200)
    log->mfu = value / 100;
  if (form->rate && number_of(line, form->rate, &rate, NULL) && rate > 0) {
    if (form->of_all)
      log->tokens_per_s = rate;
    else
      add_rate(r, rate);
  }
  if (form->time && number_of(line, form->time, &value, &end)) {
    end += strspn(end, " ");
    seconds = value * (end[0] == 's' ? 1 : 1e-3);
    if (rate > 0 && form->of_all && log->step_tokens <= 0)
      log->step_tokens = rate * seconds;
  } else if (rate > 0 && !form->of_all)
    seconds = tokens_of_gpu(log) / rate;
  return add_step(r, number, seconds, err);
}

/* --- settings and facts ---------------------------------------------------------------------- */

static void set_fact(struct gd_stack_log *log, enum gd_run_fact fact, enum gd_run_answer answer,
                     const char *line) {
  struct gd_stack_log_fact *to = &log->facts[fact];
  to->answer = answer;
  gd_json_excerpt(to->said, sizeof to->said, line + strspn(line, " \t|-"));
  size_t length = strlen(to->said);
  while (length > 0 && strchr(" ,|\t", to->said[length - 1]))
    to->said[--length] = '\0';
}

/* "True", "False", "None", "1": an answer, where there is one. */
static enum gd_run_answer answer_at(const char *text) {
  text += strspn(text, " \t.:='\"");
  if (strncmp(text, "True", 4) == 0 || strncmp(text, "true", 4) == 0)
    return GD_RUN_YES;
  if (strncmp(text, "False", 5) == 0 || strncmp(text, "false", 5) == 0)
    return GD_RUN_NO;
  return GD_RUN_UNKNOWN;
}

static void read_facts(struct gd_stack_log *log, const char *line) {
  for (int i = 0; i < gd_log_word_count; i++) {
    const struct gd_log_words *words = &gd_log_words[i];
    const char *at = strstr(line, words->words);
    if (!at)
      continue;
    enum gd_run_answer answer =
        words->answer != GD_RUN_UNKNOWN ? words->answer : answer_at(at + strlen(words->words));
    if (answer != GD_RUN_UNKNOWN)
      set_fact(log, words->fact, answer, line);
  }
}

/* Of two arguments that say the same either may, and both must deny it. */
static void read_precision(struct gd_stack_log *log, const char *line, bool denied[2]) {
  static const char *const of_trainer[2] = {"bf16=", "fp16="}, *const of_megatron[2] = {" bf16 .",
                                                                                        " fp16 ."};
  bool trainer = log->format->framework == GD_FRAMEWORK_TRAINER;
  if (!trainer && log->format->framework != GD_FRAMEWORK_MEGATRON)
    return;
  for (int i = 0; i < 2; i++) {
    const char *name = trainer ? of_trainer[i] : of_megatron[i], *at = strstr(line, name);
    if (!at || (trainer && at > line && !strchr(" (,", at[-1])))
      continue;
    enum gd_run_answer answer = answer_at(at + strlen(name));
    if (answer == GD_RUN_YES)
      set_fact(log, GD_RUN_HALF, GD_RUN_YES, line);
    denied[i] = answer == GD_RUN_NO;
    if (denied[0] && denied[1] && log->facts[GD_RUN_HALF].answer == GD_RUN_UNKNOWN)
      set_fact(log, GD_RUN_HALF, GD_RUN_NO, "bf16=False, fp16=False");
  }
}

static void read_device(struct gd_stack_log *log, const char *line) {
  const char *at = strstr(line, "NVIDIA ");
  if (!at || log->device[0] || !(strstr(line, "device") || strstr(line, "GPU")))
    return;
  size_t length = strcspn(at, "|,;\"'(");
  snprintf(log->device, sizeof log->device, "%.*s", (int)(length < 63 ? length : 63), at);
  for (length = strlen(log->device); length > 0 && log->device[length - 1] == ' ';)
    log->device[--length] = '\0';
}

static void read_settings(struct gd_stack_log *log, const char *line) {
  double value;
  for (int i = 0; i < gd_log_setting_count; i++) {
    const struct gd_log_setting *setting = &gd_log_settings[i];
    if (setting->format == log->format && number_of(line, setting->key, &value, NULL) &&
        value > 0 && value < 1e15) {
      /* "batch_size" is in "eval_batch_size": the word begins there. */
      const char *at = strstr(line, setting->key);
      if (at == line || setting->key[0] == ' ' || setting->key[0] == '|' ||
          !(isalnum((unsigned char)at[-1]) || at[-1] == '_'))
        *(double *)((char *)log + setting->target) = value;
    }
  }
}

/* --- lines ----------------------------------------------------------------------------------- */

/* Without escape sequences and control characters. */
static void copy_line(const char *text, size_t length, char *line) {
  size_t to = 0;
  for (size_t i = 0; i < length && to + 1 < LINE; i++) {
    if (text[i] == '\033' && i + 1 < length && text[i + 1] == '[') {
      for (i += 2; i < length && !isalpha((unsigned char)text[i]);)
        i++;
      continue;
    }
    line[to++] = (char)(text[i] == '\t' || (unsigned char)text[i] < ' ' ? ' ' : text[i]);
  }
  line[to] = '\0';
}

static bool has_any(const char *line, const char *const *words, int count) {
  for (int i = 0; i < count; i++)
    if (strstr(line, words[i]))
      return true;
  return false;
}

/* Settings of a format count once a line of its steps was seen, so there are two passes. */
static const struct gd_step_line *find_form(const char *line) {
  for (int i = 0; i < gd_step_line_count; i++)
    if (strstr(line, gd_step_lines[i].has[0]) && strstr(line, gd_step_lines[i].has[1]))
      return &gd_step_lines[i];
  return NULL;
}

static enum gd_status each_line(const char *text, size_t length, void *user,
                                enum gd_status (*take)(void *user, const char *line,
                                                       struct gd_error *err),
                                struct gd_error *err) {
  char line[LINE];
  for (size_t at = 0; at < length;) {
    size_t end = at;
    while (end < length && text[end] != '\n' && text[end] != '\r')
      end++;
    copy_line(text + at, end - at, line);
    GD_TRY(take(user, line, err));
    at = end + 1;
  }
  return GD_OK;
}

/* The format that most lines are of; of a summary or a line of progress any number is one. */
struct votes {
  const struct gd_stack_log_format *format;
  int lines;
};

static enum gd_status vote(void *user, const char *line, struct gd_error *err) {
  struct votes *votes = user;
  const struct gd_step_line *form = find_form(line);
  double number;
  (void)err;
  if (!form || (form->step && !number_of(line, form->step, &number, NULL)))
    return GD_OK;
  if (votes->lines == 0)
    votes->format = form->format;
  votes->lines += form->format == votes->format ? 1 : -1;
  return GD_OK;
}

struct details {
  struct gd_stack_log *log;
  bool denied[2]; /* bf16, fp16 */
};

static enum gd_status read_details(void *user, const char *line, struct gd_error *err) {
  struct details *details = user;
  (void)err;
  if (line[strspn(line, " ")] == '#')
    return GD_OK;
  read_settings(details->log, line);
  read_facts(details->log, line);
  read_precision(details->log, line, details->denied);
  read_device(details->log, line);
  return GD_OK;
}

static enum gd_status read_times(void *user, const char *line, struct gd_error *err) {
  struct reading *r = user;
  const struct gd_step_line *form = find_form(line);
  if (form && form->format == r->log->format)
    return read_step(r, form, line, err);
  if (has_any(line, gd_log_interruptions, gd_log_interruption_count))
    r->interrupted = true;
  return GD_OK;
}

/* --- times ----------------------------------------------------------------------------------- */

static int compare_reals(const void *a, const void *b) {
  const double *x = a, *y = b;
  return (*x > *y) - (*x < *y);
}

static double quantile(const double *sorted, int64_t count, double share) {
  return sorted[(int64_t)(share * (double)(count - 1) + 0.5)];
}

static double median_of(double *values, int64_t count) {
  qsort(values, (size_t)count, sizeof *values, compare_reals);
  return quantile(values, count, 0.5);
}

/* Whether every line is so many steps after the one before: else lines were left out, as a log that
   is quoted has them, and what lies between is taken to be as usual. */
static int64_t steps_passed(const struct gd_stack_log *log) {
  int64_t least = INT64_MAX, most = 0, passed = 1;
  for (uint32_t i = 1; i < log->n_steps; i++) {
    int64_t apart = log->steps[i].step - log->steps[i - 1].step;
    if (apart <= 0)
      continue;
    least = apart < least ? apart : least;
    most = apart > most ? apart : most;
    passed += apart;
  }
  return most / 4 > least ? passed : 0;
}

/* Compiling, evaluating and writing checkpoints are not what the rate of a run is about. */
static int64_t keep_steady(const struct gd_stack_log *log, double usual_s, double *kept) {
  int64_t count = 0;
  for (uint32_t i = 0; i < log->n_steps; i++) {
    const struct gd_stack_log_step *step = &log->steps[i];
    if (!((step->first || step->interrupted) && step->seconds > 1.5 * usual_s))
      kept[count++] = step->seconds;
  }
  return count;
}

static void find_drift(const double *kept, double *spare, struct gd_stack_log_times *times) {
  int64_t quarter = times->steps / 4;
  if (quarter < 4)
    return;
  memcpy(spare, kept, (size_t)quarter * sizeof *spare);
  double early = median_of(spare, quarter);
  memcpy(spare, kept + times->steps - quarter, (size_t)quarter * sizeof *spare);
  times->drift = median_of(spare, quarter) / early;
}

static enum gd_status find_times(struct gd_stack_log *log, struct gd_error *err) {
  struct gd_stack_log_times *times = &log->times;
  const double stall = 1.5;
  if (log->n_steps == 0)
    return GD_OK;
  double *kept = gd_mem_alloc(2 * (size_t)log->n_steps, sizeof *kept),
         *sorted = kept + log->n_steps;
  if (!kept)
    return gd_nomem(err, "while reading a log");
  for (uint32_t i = 0; i < log->n_steps; i++)
    sorted[i] = log->steps[i].seconds;
  double usual = median_of(sorted, log->n_steps);
  times->steps = keep_steady(log, usual, kept);
  times->drift = 1;
  find_drift(kept, sorted, times);
  memcpy(sorted, kept, (size_t)times->steps * sizeof *sorted);
  times->median_s = median_of(sorted, times->steps);
  times->fastest_s = quantile(sorted, times->steps, 0.1);
  times->spread = (quantile(sorted, times->steps, 0.9) - times->fastest_s) / times->median_s;
  double sum = 0, beyond = 0;
  for (int64_t i = 0; i < times->steps; i++) {
    sum += kept[i];
    if (kept[i] > stall * times->median_s) {
      beyond += kept[i] - times->median_s;
      times->stalls++;
    }
  }
  int64_t passed = steps_passed(log), between = passed > times->steps ? passed - times->steps : 0;
  sum += (double)between * times->median_s;
  times->mean_s = sum / (double)(times->steps + between);
  times->stalled = beyond / sum;
  gd_mem_free(kept);
  return GD_OK;
}

/* What follows from what was said. A step's time is the run's mean, stalls and all. */
static void conclude(struct gd_stack_log *log) {
  const struct gd_stack_log_times *times = &log->times;
  if (log->gpus <= 0 && log->batch > 0 && log->micro_batch > 0) {
    double gpus = log->batch / (log->micro_batch * fmax(log->accumulation, 1));
    log->gpus = gpus >= 1 ? floor(gpus + 0.5) : 0;
  }
  if (log->batch <= 0 && log->step_tokens > 0 && log->seq > 0)
    log->batch = log->step_tokens / log->seq;
  if (log->step_tokens <= 0 && log->batch > 0 && log->seq > 0)
    log->step_tokens = log->batch * log->seq;
  if (times->mean_s > 0 && log->batch > 0 && log->samples_per_s <= 0)
    log->samples_per_s = log->batch / times->mean_s;
  if (times->mean_s > 0 && log->step_tokens > 0)
    log->tokens_per_s = log->step_tokens / times->mean_s;
  else if (log->tokens_per_gpu_s > 0 && log->gpus > 0)
    log->tokens_per_s = log->tokens_per_gpu_s * log->gpus;
}

/* torch.compile works for many seconds in the first step; without it that one loads kernels, which
   is done in one or two (the logs of tests/cli/why: 49 s and 0.8 s beyond a usual step). */
static void judge_first_step(struct gd_stack_log *log) {
  const double compiled_s = 5, loaded_s = 3;
  const struct gd_stack_log_step *first = log->steps;
  struct gd_stack_log_fact *fact = &log->facts[GD_RUN_COMPILED];
  if (!log->format || log->times.steps < 4 || first->step > 1 || first->interrupted ||
      fact->answer != GD_RUN_UNKNOWN || log->format->framework != GD_FRAMEWORK_PYTORCH)
    return;
  double more_s = first->seconds - log->times.median_s;
  if (more_s > loaded_s && more_s < compiled_s)
    return;
  fact->answer = more_s >= compiled_s ? GD_RUN_YES : GD_RUN_NO;
  snprintf(fact->said, sizeof fact->said, "the first step took %.3g s, later ones %.3g s",
           first->seconds, log->times.median_s);
}

const char *gd_stack_log_formats(char *text, size_t size) {
  const struct gd_stack_log_format *before = NULL;
  size_t length = 0;
  text[0] = '\0';
  for (int i = 0; i < gd_step_line_count && length < size; i++) {
    if (gd_step_lines[i].format != before)
      length += (size_t)snprintf(text + length, size - length, "%s%s", before ? ", " : "",
                                 gd_step_lines[i].format->title);
    before = gd_step_lines[i].format;
  }
  return text;
}

enum gd_status gd_stack_log_parse(struct gd_stack_log *log, const char *text, size_t length,
                                  struct gd_error *err) {
  char formats[256];
  struct votes votes = {0};
  struct details details = {.log = log};
  struct reading reading = {.log = log, .progress_steps = -1};
  *log = (struct gd_stack_log){0};
  GD_TRY(each_line(text, length, &votes, vote, err));
  log->format = votes.format;
  enum gd_status status = GD_OK;
  if (log->format)
    status = each_line(text, length, &details, read_details, err);
  if (log->format && status == GD_OK)
    status = each_line(text, length, &reading, read_times, err);
  if (status == GD_OK)
    status = find_times(log, err);
  conclude(log);
  judge_first_step(log);
  if (status == GD_OK && (!log->format || (log->n_steps == 0 && log->tokens_per_s <= 0 &&
                                           log->tokens_per_gpu_s <= 0 && log->samples_per_s <= 0)))
    status =
        gd_fail(err, GD_BAD_INPUT, "no line of the log tells how long a step took; known are %s",
                gd_stack_log_formats(formats, sizeof formats));
  if (status != GD_OK)
    gd_stack_log_deinit(log);
  return status;
}

enum gd_status gd_stack_log_load(struct gd_stack_log *log, const char *path, struct gd_error *err) {
  struct gd_strbuf text = {0};
  struct gd_error inside = {0};
  *log = (struct gd_stack_log){0};
  enum gd_status status = gd_file_read_stream(path, MOST_BYTES, &text, err);
  if (status == GD_OK) {
    status = gd_stack_log_parse(log, text.text ? text.text : "", text.length, &inside);
    if (status != GD_OK)
      gd_fail_at(err, status, inside.file, inside.line, "%s: %s",
                 strcmp(path, "-") == 0 ? "standard input" : path, inside.text);
  }
  gd_strbuf_deinit(&text);
  return status;
}

void gd_stack_log_deinit(struct gd_stack_log *log) {
  gd_mem_free(log->steps);
  *log = (struct gd_stack_log){0};
}

/* --- the framework ------------------------------------------------------------------------- */

enum gd_framework gd_stack_log_framework(const struct gd_stack_log *log, const char *stack) {
  static const struct {
    const char *stack;
    enum gd_framework framework;
  } known[] = {{"hf-trainer", GD_FRAMEWORK_TRAINER},
               {"transformers", GD_FRAMEWORK_TRAINER},
               {"torchtitan", GD_FRAMEWORK_TORCHTITAN},
               {"titan", GD_FRAMEWORK_TORCHTITAN},
               {"megatron", GD_FRAMEWORK_MEGATRON},
               {"megatron-lm", GD_FRAMEWORK_MEGATRON},
               {"llmq", GD_FRAMEWORK_LLM_C},
               {"llm.c", GD_FRAMEWORK_LLM_C}};
  for (size_t i = 0; stack && i < sizeof known / sizeof *known; i++)
    if (strcmp(stack, known[i].stack) == 0)
      return known[i].framework;
  return log->format ? log->format->framework : GD_FRAMEWORK_PYTORCH;
}
