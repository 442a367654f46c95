/*
 * The tables of formats that the reader of stack_log.c goes through; see stack_log_formats.c.
 */
#ifndef GD_PREDICT_STACK_LOG_INT_H
#define GD_PREDICT_STACK_LOG_INT_H

#include <stdbool.h>
#include <stddef.h>

#include "predict/stack_log.h"

/* A line of a step: both texts are in it. Numbers follow the keys, or stand before one that begins
   with <; times are milliseconds unless "s" follows. */
struct gd_step_line {
  const struct gd_stack_log_format *format;
  const char *has[2];
  const char *step; /* NULL: a line of progress, "10/377 [08:44<", or of a summary */
  const char *time; /* NULL: it follows from the rate and the settings */
  const char *rate; /* tokens a second; NULL: from time and settings */
  bool of_all;      /* that rate is of all GPUs */
  const char *mfu;  /* a percentage; NULL */
};
struct gd_log_setting {
  const struct gd_stack_log_format *format;
  const char *key; /* a number follows, behind blanks, dots, bars, colons or quotes */
  size_t target;   /* a double of struct gd_stack_log */
};
/* GD_RUN_UNKNOWN: the words are followed by True or False. */
struct gd_log_words {
  const char *words;
  enum gd_run_fact fact;
  enum gd_run_answer answer;
};

extern const struct gd_step_line gd_step_lines[];
extern const struct gd_log_setting gd_log_settings[];
extern const struct gd_log_words gd_log_words[];
extern const char *const gd_log_interruptions[];
extern const int gd_step_line_count, gd_log_setting_count, gd_log_word_count,
    gd_log_interruption_count;

#endif
