/*
 * The normalizers of a tokenizer: text to text, before it is split. Each step reads the text and
 * writes it anew to one of two buffers, or leaves it alone.
 */
#include <string.h>

#include "data/tokenizer_int.h"

static enum gd_status nomem(struct gd_tokenizer_work *work) {
  return gd_nomem(work->err, "while normalizing a text");
}

/* A rule that writes more than it reads, behind others of its kind, makes gigabytes of a line. */
static enum gd_status too_long(struct gd_error *err) {
  return gd_fail(err, GD_BAD_INPUT,
                 "the Replace rules of the tokenizer make a text more than %d times as long as it "
                 "was: is its tokenizer.json damaged?",
                 GD_TOKENIZER_GROWTH);
}

enum gd_status gd_tokenizer_replace(const struct gd_step *step, struct gd_regex_stack *stack,
                                    const char *text, size_t length, size_t most,
                                    struct gd_strbuf *out, struct gd_error *err) {
  size_t from = 0, start = 0, end;
  bool found = true;
  while (found && from < length) {
    start = from;
    GD_TRY(gd_regex_find(step->regex, stack, text, length, &start, &end, &found, err));
    if (!found)
      break;
    gd_strbuf_append_bytes(out, text + from, start - from);
    gd_strbuf_append_bytes(out, step->content.text, step->content.length);
    from = end;
    if (out->length > most)
      return too_long(err);
  }
  gd_strbuf_append_bytes(out, text + from, length - from);
  if (out->length > most)
    return too_long(err);
  return out->failed ? gd_nomem(err, "while replacing text") : GD_OK;
}

/* Whether a step took the first characters away: then what is left does not begin the text. */
static bool starts_alike(const struct gd_tokenizer *tokenizer, struct gd_text in, uint16_t flag) {
  size_t bytes;
  return in.length == 0 ||
         !(tokenizer->unicode.properties[gd_unicode_decode(in.text, &bytes)] & flag);
}

/* All characters but those with a flag. */
static void filter(const struct gd_tokenizer *tokenizer, struct gd_tokenizer_work *work,
                   struct gd_text in, uint16_t flag, struct gd_strbuf *out) {
  work->cut_start |= !starts_alike(tokenizer, in, flag);
  for (size_t at = 0, bytes; at < in.length; at += bytes)
    if (!(tokenizer->unicode.properties[gd_unicode_decode(in.text + at, &bytes)] & flag))
      gd_strbuf_append_bytes(out, in.text + at, bytes);
}

/* Control characters go, white space becomes a blank. */
static void clean(const struct gd_tokenizer *tokenizer, struct gd_text in, struct gd_strbuf *out) {
  for (size_t at = 0, bytes; at < in.length; at += bytes) {
    uint16_t property = tokenizer->unicode.properties[gd_unicode_decode(in.text + at, &bytes)];
    if (property & GD_UNICODE_CLEANED)
      continue;
    bool space = (property & GD_UNICODE_SPACE) != 0;
    gd_strbuf_append_bytes(out, space ? " " : in.text + at, space ? 1 : bytes);
  }
}

/* The ranges of BERT, with the third of extension C to E as the library has it. */
static bool is_chinese(uint32_t c) {
  return (c >= 0x4e00 && c <= 0x9fff) || (c >= 0x3400 && c <= 0x4dbf) ||
         (c >= 0x20000 && c <= 0x2a6df) || (c >= 0x2a700 && c <= 0x2b73f) ||
         (c >= 0x2b740 && c <= 0x2b81f) || (c >= 0x2b920 && c <= 0x2ceaf) ||
         (c >= 0xf900 && c <= 0xfaff) || (c >= 0x2f800 && c <= 0x2fa1f);
}

static void space_chinese(struct gd_text in, struct gd_strbuf *out) {
  for (size_t at = 0, bytes; at < in.length; at += bytes) {
    bool chinese = is_chinese(gd_unicode_decode(in.text + at, &bytes));
    if (chinese)
      gd_strbuf_append_bytes(out, " ", 1);
    gd_strbuf_append_bytes(out, in.text + at, bytes);
    if (chinese)
      gd_strbuf_append_bytes(out, " ", 1);
  }
}

static struct gd_text strip(const struct gd_tokenizer *tokenizer, struct gd_text in, bool left,
                            bool right) {
  size_t bytes;
  while (left && in.length > 0 &&
         tokenizer->unicode.properties[gd_unicode_decode(in.text, &bytes)] & GD_UNICODE_SPACE) {
    in.text += bytes;
    in.length -= bytes;
  }
  while (right && in.length > 0) {
    size_t ignored;
    bytes = gd_unicode_last(in.text, in.length);
    uint32_t point = gd_unicode_decode(in.text + in.length - bytes, &ignored);
    if (!(tokenizer->unicode.properties[point] & GD_UNICODE_SPACE))
      break;
    in.length -= bytes;
  }
  return in;
}

/* The buffer that does not hold the text, emptied. */
static struct gd_strbuf *other(struct gd_tokenizer_work *work, struct gd_text in) {
  struct gd_strbuf *first = &work->normal[0];
  bool holds = first->text && in.text >= first->text && in.text <= first->text + first->length;
  struct gd_strbuf *out = holds ? &work->normal[1] : first;
  out->length = 0;
  gd_strbuf_append_bytes(out, "", 0);
  return out;
}

static struct gd_text whole(const struct gd_strbuf *buffer) {
  return (struct gd_text){buffer->text, buffer->length};
}

static bool is_ascii(struct gd_text in) {
  for (size_t i = 0; i < in.length; i++)
    if ((unsigned char)in.text[i] >= 0x80)
      return false;
  return true;
}

static enum gd_status bert(const struct gd_tokenizer *tokenizer, struct gd_tokenizer_work *work,
                           const struct gd_step *step, struct gd_text *text) {
  struct gd_strbuf *out;
  bool ascii = is_ascii(*text);
  if (step->clean) {
    out = other(work, *text);
    work->cut_start |= !starts_alike(tokenizer, *text, GD_UNICODE_CLEANED);
    clean(tokenizer, *text, out);
    if (out->failed)
      return nomem(work);
    *text = whole(out);
  }
  if (step->chinese && !ascii) {
    out = other(work, *text);
    space_chinese(*text, out);
    if (out->failed)
      return nomem(work);
    *text = whole(out);
  }
  if (step->accents && !ascii) {
    out = other(work, *text);
    if (!gd_unicode_normalize(text->text, text->length, GD_UNICODE_NFD, out))
      return nomem(work);
    *text = whole(out);
    out = other(work, *text);
    filter(tokenizer, work, *text, GD_UNICODE_NONSPACING, out);
    if (out->failed)
      return nomem(work);
    *text = whole(out);
  }
  if (step->lower) {
    out = other(work, *text);
    gd_unicode_lower(text->text, text->length, out);
    if (out->failed)
      return nomem(work);
    *text = whole(out);
  }
  return GD_OK;
}

static enum gd_status one_step(const struct gd_tokenizer *tokenizer, struct gd_tokenizer_work *work,
                               const struct gd_step *step, struct gd_text *text) {
  static const enum gd_unicode_form forms[] = {[GD_STEP_NFC] = GD_UNICODE_NFC,
                                               [GD_STEP_NFD] = GD_UNICODE_NFD,
                                               [GD_STEP_NFKC] = GD_UNICODE_NFKC,
                                               [GD_STEP_NFKD] = GD_UNICODE_NFKD};
  struct gd_strbuf *out;
  bool fine = true;
  if (step->kind == GD_STEP_BERT_NORMALIZER)
    return bert(tokenizer, work, step, text);
  if (step->kind == GD_STEP_STRIP) {
    work->cut_start |= step->left && !starts_alike(tokenizer, *text, GD_UNICODE_SPACE);
    *text = strip(tokenizer, *text, step->left, step->right);
    return GD_OK;
  }
  if (step->kind <= GD_STEP_NFKD && is_ascii(*text))
    return GD_OK;
  out = other(work, *text);
  switch (step->kind) {
  case GD_STEP_NFC:
  case GD_STEP_NFD:
  case GD_STEP_NFKC:
  case GD_STEP_NFKD:
    fine = gd_unicode_normalize(text->text, text->length, forms[step->kind], out);
    break;
  case GD_STEP_LOWERCASE: gd_unicode_lower(text->text, text->length, out); break;
  case GD_STEP_STRIP_ACCENTS: filter(tokenizer, work, *text, GD_UNICODE_MARK, out); break;
  case GD_STEP_PREPEND:
    if (text->length == 0)
      return GD_OK;
    gd_strbuf_append_bytes(out, step->text.text, step->text.length);
    gd_strbuf_append_bytes(out, text->text, text->length);
    break;
  case GD_STEP_REPLACE:
    if (step->content.length == 0) {
      size_t start = 0, end;
      bool found;
      GD_TRY(gd_regex_find(step->regex, &work->stack, text->text, text->length, &start, &end,
                           &found, work->err));
      work->cut_start |= found && start == 0;
    }
    GD_TRY(gd_tokenizer_replace(step, &work->stack, text->text, text->length, work->most, out,
                                work->err));
    break;
  default: GD_ASSERT(!"a normalizer");
  }
  if (!fine || out->failed)
    return nomem(work);
  *text = whole(out);
  return GD_OK;
}

enum gd_status gd_tokenizer_normalize(const struct gd_tokenizer *tokenizer,
                                      struct gd_tokenizer_work *work, const char *text,
                                      size_t length, struct gd_text *out) {
  *out = (struct gd_text){text, length};
  work->cut_start = false;
  work->most = gd_tokenizer_most(length);
  for (int i = 0; i < tokenizer->normalizers.count; i++)
    GD_TRY(one_step(tokenizer, work, &tokenizer->normalizers.items[i], out));
  return GD_OK;
}
