/*
 * The pre-tokenizers of a tokenizer: text to words. Each step cuts the pieces of the step before;
 * what the last one leaves goes to the model as it comes, so no list of pieces is kept.
 */
#include <string.h>

#include "data/tokenizer_int.h"

/* A text on its way through the steps. */
struct cutting {
  const struct gd_tokenizer *tokenizer;
  struct gd_tokenizer_work *work;
  const char *text;
  int step;   /* the one that cuts */
  bool first; /* the text is the start of the whole */
  /* Pieces that wait for the next one: see found(). */
  enum gd_split_behavior behavior;
  bool invert, waiting, waiting_matched;
  size_t start, end;
};

static enum gd_status run_steps(const struct gd_tokenizer *tokenizer,
                                struct gd_tokenizer_work *work, int step, const char *text,
                                size_t length, bool first);

static enum gd_status pass_on(struct cutting *cut, size_t start, size_t end) {
  if (start == end)
    return GD_OK;
  return run_steps(cut->tokenizer, cut->work, cut->step + 1, cut->text + start, end - start,
                   cut->first && start == 0);
}

static enum gd_status pass_waiting(struct cutting *cut) {
  bool waiting = cut->waiting;
  cut->waiting = false;
  return waiting ? pass_on(cut, cut->start, cut->end) : GD_OK;
}

/* The next piece in order, a match or what is between two. Two that are no match never meet. */
static enum gd_status found(struct cutting *cut, size_t start, size_t end, bool matched) {
  bool joins = false;
  if (start == end)
    return GD_OK;
  matched = matched != cut->invert;
  switch (cut->behavior) {
  case GD_SPLIT_ISOLATED: return pass_on(cut, start, end);
  case GD_SPLIT_REMOVED: return matched ? GD_OK : pass_on(cut, start, end);
  case GD_SPLIT_CONTIGUOUS: joins = cut->waiting && cut->waiting_matched == matched; break;
  case GD_SPLIT_MERGED_WITH_PREVIOUS:
    joins = cut->waiting && matched && !cut->waiting_matched;
    break;
  case GD_SPLIT_MERGED_WITH_NEXT: joins = cut->waiting && cut->waiting_matched && !matched; break;
  }
  if (!joins) {
    GD_TRY(pass_waiting(cut));
    cut->start = start;
  }
  cut->end = end;
  cut->waiting = true;
  cut->waiting_matched = matched;
  return GD_OK;
}

static enum gd_status cut_by_regex(struct cutting *cut, const struct gd_regex *regex,
                                   size_t length) {
  size_t from = 0, start, end;
  bool matched = true;
  while (from < length) {
    start = from;
    GD_TRY(gd_regex_find(regex, &cut->work->stack, cut->text, length, &start, &end, &matched,
                         cut->work->err));
    if (!matched)
      break;
    GD_TRY(found(cut, from, start, false));
    GD_TRY(found(cut, start, end, true));
    from = end;
  }
  GD_TRY(found(cut, from, length, false));
  return pass_waiting(cut);
}

/* Each character with the flag is a match. */
static enum gd_status cut_by_flag(struct cutting *cut, uint16_t flag, size_t length) {
  const uint16_t *properties = cut->tokenizer->unicode.properties;
  size_t from = 0, bytes;
  for (size_t at = 0; at < length; at += bytes)
    if (properties[gd_unicode_decode(cut->text + at, &bytes)] & flag) {
      GD_TRY(found(cut, from, at, false));
      GD_TRY(found(cut, at, at + bytes, true));
      from = at + bytes;
    }
  GD_TRY(found(cut, from, length, false));
  return pass_waiting(cut);
}

/* \w+|[^\w\s]+ of Rust's regex crate. */
static enum gd_status cut_words(struct cutting *cut, size_t length) {
  const uint16_t *properties = cut->tokenizer->unicode.properties;
  const uint16_t flags = GD_UNICODE_RUST_WORD | GD_UNICODE_SPACE;
  size_t start = 0, bytes;
  uint16_t kind = GD_UNICODE_SPACE;
  for (size_t at = 0; at < length; at += bytes) {
    uint16_t now = properties[gd_unicode_decode(cut->text + at, &bytes)] & flags;
    if (now == kind)
      continue;
    if (kind != GD_UNICODE_SPACE)
      GD_TRY(pass_on(cut, start, at));
    start = at;
    kind = now;
  }
  return kind != GD_UNICODE_SPACE ? pass_on(cut, start, length) : GD_OK;
}

/* White space is removed, and punctuation stands alone. */
static enum gd_status cut_bert(struct cutting *cut, size_t length) {
  const uint16_t *properties = cut->tokenizer->unicode.properties;
  size_t from = 0, bytes;
  for (size_t at = 0; at < length; at += bytes) {
    uint16_t property = properties[gd_unicode_decode(cut->text + at, &bytes)];
    if (!(property & (GD_UNICODE_SPACE | GD_UNICODE_PUNCTUATION)))
      continue;
    GD_TRY(pass_on(cut, from, at));
    if (!(property & GD_UNICODE_SPACE))
      GD_TRY(pass_on(cut, at, at + bytes));
    from = at + bytes;
  }
  return pass_on(cut, from, length);
}

static enum gd_status nomem(struct gd_tokenizer_work *work) {
  return gd_nomem(work->err, "while splitting a text");
}

/* The character that stands for a blank; each begins a piece where it splits. */
static enum gd_status cut_metaspace(struct cutting *cut, const struct gd_step *step,
                                    size_t length) {
  struct gd_strbuf *out = &cut->work->steps[cut->step];
  const struct gd_text mark = step->text;
  size_t start = 0;
  bool begins =
      length >= 1 && (cut->text[0] == ' ' ||
                      (length >= mark.length && memcmp(cut->text, mark.text, mark.length) == 0));
  out->length = 0;
  if (!begins &&
      (step->scheme == GD_PREPEND_ALWAYS || (step->scheme == GD_PREPEND_FIRST && cut->first)))
    gd_strbuf_append_bytes(out, mark.text, mark.length);
  for (size_t at = 0; at < length; at++) {
    const char *blank = memchr(cut->text + at, ' ', length - at);
    size_t stop = blank ? (size_t)(blank - cut->text) : length;
    gd_strbuf_append_bytes(out, cut->text + at, stop - at);
    if (blank)
      gd_strbuf_append_bytes(out, mark.text, mark.length);
    at = stop;
  }
  if (out->failed)
    return nomem(cut->work);
  cut->text = out->text;
  length = out->length;
  if (!step->split)
    return pass_on(cut, 0, length);
  cut->behavior = GD_SPLIT_MERGED_WITH_NEXT;
  for (size_t at = 0, bytes; at < length; at += bytes) {
    (void)gd_unicode_decode(cut->text + at, &bytes);
    if (bytes == mark.length && memcmp(cut->text + at, mark.text, bytes) == 0) {
      GD_TRY(found(cut, start, at, false));
      GD_TRY(found(cut, at, at + bytes, true));
      start = at + bytes;
    }
  }
  GD_TRY(found(cut, start, length, false));
  return pass_waiting(cut);
}

/* Where bytes are not the model's symbols, the text is written in the characters for them; after
   the pattern has cut it. */
static enum gd_status byte_piece(struct cutting *cut, size_t start, size_t end) {
  struct gd_strbuf *out = &cut->work->steps[GD_TOKENIZER_STEPS];
  char bytes[4];
  if (cut->tokenizer->bytes)
    return pass_on(cut, start, end);
  out->length = 0;
  for (size_t i = start; i < end; i++)
    gd_strbuf_append_bytes(
        out, bytes, gd_unicode_encode(gd_byte_character((unsigned char)cut->text[i]), bytes));
  if (out->failed)
    return nomem(cut->work);
  return run_steps(cut->tokenizer, cut->work, cut->step + 1, out->text, out->length,
                   cut->first && start == 0);
}

static enum gd_status cut_byte_level(struct cutting *cut, const struct gd_step *step,
                                     size_t length) {
  size_t from = 0, start, end;
  bool matched;
  if (step->add_prefix_space && (length == 0 || cut->text[0] != ' ')) {
    struct gd_strbuf *out = &cut->work->steps[cut->step];
    out->length = 0;
    gd_strbuf_append_bytes(out, " ", 1);
    gd_strbuf_append_bytes(out, cut->text, length);
    if (out->failed)
      return nomem(cut->work);
    cut->text = out->text;
    length = out->length;
  }
  if (!step->use_regex)
    return byte_piece(cut, 0, length);
  while (from < length) { /* the pattern matches everywhere */
    start = from;
    GD_TRY(gd_regex_find(cut->tokenizer->byte_level, &cut->work->stack, cut->text, length, &start,
                         &end, &matched, cut->work->err));
    if (!matched)
      return byte_piece(cut, from, length);
    if (start > from)
      GD_TRY(byte_piece(cut, from, start));
    GD_TRY(byte_piece(cut, start, end));
    from = end;
  }
  return GD_OK;
}

static enum gd_status run_steps(const struct gd_tokenizer *tokenizer,
                                struct gd_tokenizer_work *work, int number, const char *text,
                                size_t length, bool first) {
  if (number >= tokenizer->pre_tokenizers.count)
    return gd_tokenizer_word(tokenizer, work, text, length);
  const struct gd_step *step = &tokenizer->pre_tokenizers.items[number];
  struct cutting cut = {.tokenizer = tokenizer,
                        .work = work,
                        .text = text,
                        .step = number,
                        .first = first,
                        .behavior = step->behavior,
                        .invert = step->invert};
  switch (step->kind) {
  case GD_STEP_BYTE_LEVEL: return cut_byte_level(&cut, step, length);
  case GD_STEP_SPLIT: return cut_by_regex(&cut, step->regex, length);
  case GD_STEP_METASPACE: return cut_metaspace(&cut, step, length);
  case GD_STEP_BERT: return cut_bert(&cut, length);
  case GD_STEP_WHITESPACE: return cut_words(&cut, length);
  case GD_STEP_WHITESPACE_SPLIT: return cut_by_flag(&cut, GD_UNICODE_SPACE, length);
  case GD_STEP_DIGITS: return cut_by_flag(&cut, GD_UNICODE_NUMERIC, length);
  case GD_STEP_PUNCTUATION: return cut_by_flag(&cut, GD_UNICODE_PUNCTUATION, length);
  default: GD_ASSERT(!"a pre-tokenizer");
  }
  return GD_OK;
}

enum gd_status gd_tokenizer_split(const struct gd_tokenizer *tokenizer,
                                  struct gd_tokenizer_work *work, const char *text, size_t length,
                                  bool first) {
  return length == 0 ? GD_OK : run_steps(tokenizer, work, 0, text, length, first);
}
