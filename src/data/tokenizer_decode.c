/*
 * Ids to text: the tokens of the vocabulary through the decoders of the tokenizer, each of which
 * makes a list of texts out of a list of texts, as the library does.
 */
#include <string.h>

#include "data/tokenizer_int.h"

struct list {
  struct gd_strbuf text;
  size_t *ends; /* of the items in text */
  size_t count, capacity;
  bool failed;
};

static void end_item(struct list *list) {
  if (list->count == list->capacity) {
    size_t capacity = list->capacity ? list->capacity * 2 : 64;
    size_t *grown = gd_mem_grow(list->ends, list->capacity, capacity, sizeof *grown);
    if (!grown) {
      list->failed = true;
      return;
    }
    list->ends = grown;
    list->capacity = capacity;
  }
  list->ends[list->count++] = list->text.length;
}

static void add(struct list *list, const char *text, size_t length) {
  gd_strbuf_append_bytes(&list->text, text, length);
}

static struct gd_text item(const struct list *list, size_t index) {
  size_t start = index > 0 ? list->ends[index - 1] : 0;
  return (struct gd_text){list->text.text + start, list->ends[index] - start};
}

static void clear(struct list *list) {
  list->text.length = 0;
  list->count = 0;
}

static void deinit(struct list *list) {
  gd_strbuf_deinit(&list->text);
  gd_mem_free(list->ends);
}

/* --- decoders ------------------------------------------------------------------------------ */

/* Bytes of characters that all stand for one; tokens with others as they are. */
static bool byte_level(const struct list *in, struct list *out) {
  struct gd_strbuf bytes = {0};
  for (size_t i = 0; i < in->count; i++) {
    struct gd_text token = item(in, i);
    size_t before = bytes.length;
    for (size_t at = 0, size; at < token.length; at += size) {
      int byte = gd_character_byte(gd_unicode_decode(token.text + at, &size));
      char one = (char)byte;
      if (byte < 0) {
        bytes.length = before;
        gd_strbuf_append_bytes(&bytes, token.text, token.length);
        break;
      }
      gd_strbuf_append_bytes(&bytes, &one, 1);
    }
  }
  gd_unicode_clean(bytes.text ? bytes.text : "", bytes.length, &out->text);
  end_item(out);
  bool fine = !bytes.failed;
  gd_strbuf_deinit(&bytes);
  return fine;
}

static bool starts_with(struct gd_text text, struct gd_text prefix) {
  return text.length >= prefix.length && memcmp(text.text, prefix.text, prefix.length) == 0;
}

/* Appends text with every `from` replaced. */
static void replace_all(struct gd_text text, struct gd_text from, struct gd_text to,
                        struct gd_strbuf *out) {
  size_t at = 0;
  while (at < text.length) {
    struct gd_text rest = {text.text + at, text.length - at};
    if (from.length > 0 && starts_with(rest, from)) {
      gd_strbuf_append_bytes(out, to.text, to.length);
      at += from.length;
    } else {
      gd_strbuf_append_bytes(out, rest.text, 1);
      at++;
    }
  }
}

/* What the library takes back of the blanks around punctuation. */
static bool clean_up(struct gd_strbuf *text, struct gd_strbuf *spare) {
  static const char *const pairs[][2] = {{" .", "."},     {" ?", "?"},           {" !", "!"},
                                         {" ,", ","},     {" ' ", "'"},          {" n't", "n't"},
                                         {" 'm", "'m"},   {" do not", " don't"}, {" 's", "'s"},
                                         {" 've", "'ve"}, {" 're", "'re"}};
  for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
    spare->length = 0;
    replace_all((struct gd_text){text->text, text->length},
                (struct gd_text){pairs[i][0], strlen(pairs[i][0])},
                (struct gd_text){pairs[i][1], strlen(pairs[i][1])}, spare);
    text->length = 0;
    gd_strbuf_append_bytes(text, spare->length ? spare->text : "", spare->length);
  }
  return !text->failed && !spare->failed;
}

static bool wordpiece(const struct gd_step *step, const struct list *in, struct list *out) {
  struct gd_strbuf word = {0}, spare = {0};
  bool fine = true;
  for (size_t i = 0; i < in->count && fine; i++) {
    struct gd_text token = item(in, i);
    word.length = 0;
    if (i > 0 && starts_with(token, step->text)) {
      token.text += step->text.length;
      token.length -= step->text.length;
    } else if (i > 0) {
      gd_strbuf_append_bytes(&word, " ", 1);
    }
    gd_strbuf_append_bytes(&word, token.text, token.length);
    fine = !word.failed && (!step->cleanup || clean_up(&word, &spare));
    if (fine)
      add(out, word.text, word.length);
    end_item(out);
  }
  gd_strbuf_deinit(&word);
  gd_strbuf_deinit(&spare);
  return fine;
}

static void metaspace(const struct gd_step *step, const struct list *in, struct list *out) {
  for (size_t i = 0; i < in->count; i++) {
    struct gd_text token = item(in, i);
    for (size_t at = 0, size; at < token.length; at += size) {
      (void)gd_unicode_decode(token.text + at, &size);
      bool mark = size == step->text.length && memcmp(token.text + at, step->text.text, size) == 0;
      if (!mark)
        add(out, token.text + at, size);
      else if (i > 0 || step->scheme == GD_PREPEND_NEVER)
        add(out, " ", 1);
    }
    end_item(out);
  }
}

static int hex_digit(char c) {
  return c >= '0' && c <= '9'   ? c - '0'
         : c >= 'a' && c <= 'f' ? c - 'a' + 10
         : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                : -1;
}

/* The byte of "<0x41>"; -1: another token. */
static int fallback_byte(struct gd_text token) {
  if (token.length != 6 || memcmp(token.text, "<0x", 3) != 0 || token.text[5] != '>')
    return -1;
  int high = token.text[3] == '+' ? 0 : hex_digit(token.text[3]); /* Rust reads "+A" too */
  int low = hex_digit(token.text[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

/* Bytes that make UTF-8 together, or as many U+FFFD. */
static void end_bytes(struct gd_strbuf *bytes, struct list *out) {
  if (bytes->length == 0)
    return;
  if (gd_unicode_valid(bytes->text, bytes->length) == bytes->length) {
    add(out, bytes->text, bytes->length);
    end_item(out);
  } else {
    for (size_t i = 0; i < bytes->length; i++) {
      add(out, "\xef\xbf\xbd", 3);
      end_item(out);
    }
  }
  bytes->length = 0;
}

static bool byte_fallback(const struct list *in, struct list *out) {
  struct gd_strbuf bytes = {0};
  for (size_t i = 0; i < in->count; i++) {
    struct gd_text token = item(in, i);
    int byte = fallback_byte(token);
    char one = (char)byte;
    if (byte >= 0) {
      gd_strbuf_append_bytes(&bytes, &one, 1);
      continue;
    }
    end_bytes(&bytes, out);
    add(out, token.text, token.length);
    end_item(out);
  }
  end_bytes(&bytes, out);
  bool fine = !bytes.failed;
  gd_strbuf_deinit(&bytes);
  return fine;
}

static bool is_character(struct gd_text text, struct gd_text character) {
  return text.length == character.length && memcmp(text.text, character.text, text.length) == 0;
}

static void strip(const struct gd_step *step, const struct list *in, struct list *out) {
  for (size_t i = 0; i < in->count; i++) {
    struct gd_text token = item(in, i);
    size_t bytes, start = 0, end = token.length;
    for (int64_t n = 0; n < step->start && start < token.length; n++) {
      (void)gd_unicode_decode(token.text + start, &bytes);
      if (!is_character((struct gd_text){token.text + start, bytes}, step->text))
        break;
      start += bytes;
    }
    for (int64_t n = 0; n < step->stop && end > start; n++) {
      bytes = gd_unicode_last(token.text, end);
      if (!is_character((struct gd_text){token.text + end - bytes, bytes}, step->text))
        break;
      end -= bytes;
    }
    add(out, token.text + start, end - start);
    end_item(out);
  }
}

static void bpe(const struct gd_step *step, const struct list *in, struct list *out) {
  for (size_t i = 0; i < in->count; i++) {
    bool is_last = i + 1 == in->count;
    replace_all(item(in, i), step->text, (struct gd_text){" ", is_last ? 0 : 1}, &out->text);
    end_item(out);
  }
}

static enum gd_status one_step(const struct gd_step *step, const struct list *in, struct list *out,
                               size_t most, struct gd_error *err) {
  struct gd_regex_stack stack = {0};
  enum gd_status status = GD_OK;
  bool fine = true;
  gd_regex_begin(&stack, in->text.length);
  switch (step->kind) {
  case GD_STEP_BYTE_LEVEL: fine = byte_level(in, out); break;
  case GD_STEP_WORDPIECE: fine = wordpiece(step, in, out); break;
  case GD_STEP_METASPACE: metaspace(step, in, out); break;
  case GD_STEP_BYTE_FALLBACK: fine = byte_fallback(in, out); break;
  case GD_STEP_FUSE:
    add(out, in->text.text, in->text.length);
    end_item(out);
    break;
  case GD_STEP_STRIP_DECODER: strip(step, in, out); break;
  case GD_STEP_BPE_DECODER: bpe(step, in, out); break;
  case GD_STEP_REPLACE:
    for (size_t i = 0; i < in->count && status == GD_OK; i++) {
      struct gd_text token = item(in, i);
      status = gd_tokenizer_replace(step, &stack, token.text, token.length, most, &out->text, err);
      end_item(out);
    }
    break;
  default: GD_ASSERT(!"a decoder");
  }
  gd_regex_stack_deinit(&stack);
  if (status == GD_OK && (!fine || out->failed || out->text.failed))
    return gd_nomem(err, "while decoding tokens");
  return status;
}

enum gd_status gd_tokenizer_decode(const struct gd_tokenizer *tokenizer, const int32_t *ids,
                                   int64_t count, bool skip_special, struct gd_strbuf *text,
                                   struct gd_error *err) {
  struct list lists[2] = {0};
  int now = 0;
  enum gd_status status = GD_OK;
  gd_strbuf_append(&lists[0].text, "");
  gd_strbuf_append(&lists[1].text, "");
  for (int64_t i = 0; i < count; i++) {
    int32_t id = ids[i];
    if (id < 0 || id >= tokenizer->n_tokens || !tokenizer->tokens[id].text ||
        (skip_special && tokenizer->special[id]))
      continue;
    if (!tokenizer->has_decoder && lists[0].count > 0)
      add(&lists[0], " ", 1);
    add(&lists[0], tokenizer->tokens[id].text, tokenizer->tokens[id].length);
    end_item(&lists[0]);
  }
  if (lists[0].failed || lists[0].text.failed || lists[1].text.failed)
    status = gd_nomem(err, "while decoding tokens");
  size_t most = gd_tokenizer_most(lists[0].text.length);
  for (int i = 0; i < tokenizer->decoders.count && status == GD_OK && lists[now].count > 0; i++) {
    clear(&lists[!now]);
    status = one_step(&tokenizer->decoders.items[i], &lists[now], &lists[!now], most, err);
    now = !now;
  }
  if (status == GD_OK) {
    gd_strbuf_append_bytes(text, lists[now].text.text, lists[now].text.length);
    if (text->failed)
      status = gd_nomem(err, "while decoding tokens");
  }
  deinit(&lists[0]);
  deinit(&lists[1]);
  return status;
}
