/*
 * The tokenizer against the tokenizers library: small tokenizers of each kind, with the ids and the
 * texts that the library gives (tests/data/tokenizers, written by tools/make_tokenizers.py); what
 * is refused; what takes long; what happens without memory.
 */
#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include "base/file.h"
#include "base/mem.h"
#include "data/tokenizer.h"
#include "data/tokenizer_regex.h"
#include "support/fault.h"
#include "support/ok.h"

static const char *const kinds[] = {"gpt2",    "neox",   "llama3",    "qwen2", "falcon",
                                    "roberta", "llama2", "metaspace", "bert",  "whitespace"};

static const char *fixture(const char *name, const char *ending) {
  static char path[2][512];
  static int turn;
  turn = !turn;
  snprintf(path[turn], sizeof path[turn], "%s/tests/data/tokenizers/%s%s", GD_SOURCE_DIR, name,
           ending);
  return path[turn];
}

static void check_ids(const char *kind, int line, const json_t *expected,
                      const struct gd_token_ids *ids) {
  for (size_t i = 0; i < json_array_size(expected); i++)
    if ((int64_t)i >= ids->count ||
        ids->ids[i] != (int32_t)json_integer_value(json_array_get(expected, i)))
      fail_msg("%s, text %d: token %zu differs", kind, line, i);
  if (ids->count != (int64_t)json_array_size(expected))
    fail_msg("%s, text %d: %d tokens, not %zu", kind, line, (int)ids->count,
             json_array_size(expected));
}

static void check_text(const char *kind, int line, const struct gd_tokenizer *tokenizer,
                       struct gd_tokenizer_work *work, const json_t *row) {
  struct gd_error err = {0};
  struct gd_token_ids ids = {0};
  struct gd_strbuf text = {0};
  const json_t *from = json_object_get(row, "text"), *back = json_object_get(row, "decoded");
  OK(gd_tokenizer_encode(tokenizer, work, json_string_value(from), json_string_length(from), false,
                         &ids, &err));
  check_ids(kind, line, json_object_get(row, "ids"), &ids);
  OK(gd_tokenizer_decode(tokenizer, ids.ids, ids.count, false, &text, &err));
  if (text.length != json_string_length(back) ||
      memcmp(text.text, json_string_value(back), text.length) != 0)
    fail_msg("%s, text %d: decodes to another text", kind, line);
  ids.count = 0;
  OK(gd_tokenizer_encode(tokenizer, work, json_string_value(from), json_string_length(from), true,
                         &ids, &err));
  check_ids(kind, line, json_object_get(row, "special"), &ids);
  gd_token_ids_deinit(&ids);
  gd_strbuf_deinit(&text);
}

static void test_library(void **state) {
  (void)state;
  for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
    struct gd_error err = {0};
    struct gd_tokenizer *tokenizer;
    struct gd_tokenizer_work *work;
    struct gd_strbuf rows = {0};
    int line = 0;
    OK(gd_tokenizer_load(&tokenizer, fixture(kinds[k], ".json"), &err));
    OK(gd_tokenizer_work_new(&work, tokenizer, &err));
    OK(gd_file_read(fixture(kinds[k], ".jsonl"), 1 << 20, &rows, &err));
    for (char *at = rows.text, *end; (end = strchr(at, '\n')); at = end + 1) {
      json_t *row = json_loadb(at, (size_t)(end - at), JSON_ALLOW_NUL, NULL);
      assert_non_null(row);
      check_text(kinds[k], ++line, tokenizer, work, row);
      json_decref(row);
    }
    assert_true(line > 20);
    gd_strbuf_deinit(&rows);
    gd_tokenizer_work_free(work);
    gd_tokenizer_free(tokenizer);
  }
}

/* The one that is in the program: known by name, and every byte comes back. */
static void test_embedded(void **state) {
  (void)state;
  struct gd_error err = {0};
  struct gd_tokenizer *tokenizer;
  struct gd_tokenizer_work *work;
  struct gd_token_ids ids = {0};
  struct gd_strbuf text = {0};
  static const char from[] = "struct gd_graph *graph = NULL; /* caf\xc3\xa9 \xf0\x9f\x91\xa9 */\n";
  OK(gd_tokenizer_load(&tokenizer, "gpudays-4k", &err));
  OK(gd_tokenizer_work_new(&work, tokenizer, &err));
  assert_int_equal(gd_tokenizer_size(tokenizer), 4096);
  assert_int_equal(gd_tokenizer_eos(tokenizer), 0);
  assert_string_equal(gd_tokenizer_token(tokenizer, 0), "<|endoftext|>");
  assert_null(gd_tokenizer_token(tokenizer, 4096));
  assert_int_equal(gd_tokenizer_id(tokenizer, "no such token"), -1);
  OK(gd_tokenizer_encode(tokenizer, work, from, sizeof from - 1, false, &ids, &err));
  assert_true(ids.count > 10 && ids.count < 40);
  OK(gd_tokenizer_decode(tokenizer, ids.ids, ids.count, false, &text, &err));
  assert_string_equal(text.text, from);
  gd_strbuf_deinit(&text);
  gd_token_ids_deinit(&ids);
  gd_tokenizer_work_free(work);
  gd_tokenizer_free(tokenizer);
}

/* Bytes that are no UTF-8 are U+FFFD each, as many as Python and Rust make of them. */
static void test_invalid_utf8(void **state) {
  (void)state;
  static const struct {
    const char *from, *to;
  } cases[] = {{"a\xff"
                "b",
                "a\xef\xbf\xbd"
                "b"},
               {"\xe4\xb8", "\xef\xbf\xbd"},
               {"\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
               {"\xf0\x9f\x91z", "\xef\xbf\xbdz"},
               {"\xc0\x80", "\xef\xbf\xbd\xef\xbf\xbd"},
               {"\xf4\x90\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
               {"\xc3\xa9", "\xc3\xa9"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct gd_strbuf out = {0};
    gd_unicode_clean(cases[i].from, strlen(cases[i].from), &out);
    assert_string_equal(out.text, cases[i].to);
    gd_strbuf_deinit(&out);
  }
}

static void refused(const char *text, enum gd_status status, const char *sentence) {
  struct gd_error err = {0};
  struct gd_tokenizer *tokenizer;
  int64_t blocks = gd_mem_live_blocks();
  assert_int_equal(gd_tokenizer_parse(&tokenizer, "t.json", text, strlen(text), &err), status);
  assert_null(tokenizer);
  if (!strstr(err.text, sentence))
    fail_msg("\"%s\" lacks \"%s\"", err.text, sentence);
  assert_int_equal(gd_mem_live_blocks(), blocks);
}

#define BPE "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]}"
#define SPLIT(pattern)                                                       \
  "{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" pattern \
  "\"},\"behavior\":\"Isolated\",\"invert\":false}," BPE "}"

static void test_refused(void **state) {
  (void)state;
  refused("", GD_BAD_INPUT, "is it a tokenizer.json?");
  refused("{", GD_BAD_INPUT, "t.json: line 1");
  refused("{}", GD_BAD_INPUT, "there is no model");
  refused("{\"model\":{\"type\":\"Unigram\"}}", GD_UNSUPPORTED, "the model \"Unigram\" is not");
  refused("{\"model\":{\"type\":\"BPE\",\"vocab\":{},\"merges\":[]}}", GD_BAD_INPUT, "vocab");
  refused("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":-1},\"merges\":[]}}", GD_BAD_INPUT,
          "a whole number from 0");
  refused("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a a\"]}}", GD_BAD_INPUT,
          "merge 0 makes \"aa\"");
  refused("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a\"]}}", GD_BAD_INPUT,
          "neither");
  refused("{\"model\":{\"type\":\"BPE\",\"dropout\":0.1,\"vocab\":{\"a\":0},\"merges\":[]}}",
          GD_UNSUPPORTED, "dropout");
  refused("{\"normalizer\":{\"type\":\"Precompiled\"}," BPE "}", GD_UNSUPPORTED,
          "the normalizer \"Precompiled\"");
  refused("{\"pre_tokenizer\":{\"type\":\"UnicodeScripts\"}," BPE "}", GD_UNSUPPORTED,
          "the pre-tokenizer \"UnicodeScripts\"");
  refused("{\"decoder\":{\"type\":\"CTC\"}," BPE "}", GD_UNSUPPORTED, "the decoder \"CTC\"");
  refused("{\"post_processor\":{\"type\":\"Other\"}," BPE "}", GD_UNSUPPORTED,
          "the post-processor \"Other\"");
  refused("{\"added_tokens\":[{\"id\":7,\"content\":\"<x>\",\"special\":true}]," BPE "}",
          GD_BAD_INPUT, "has the id 7; its place in the vocabulary is 3");
  refused("{\"normalizer\":{\"type\":\"Strip\",\"strip_left\":true,\"strip_right\":true},"
          "\"added_tokens\":[{\"id\":3,\"content\":\" \",\"normalized\":true}]," BPE "}",
          GD_UNSUPPORTED, "added token without text after the normalizers");
  refused(SPLIT("(?<=a)b"), GD_UNSUPPORTED, "a lookbehind");
  refused(SPLIT("\\\\p{Greek}"), GD_UNSUPPORTED, "\\p{Greek}");
  refused(SPLIT("a*"), GD_UNSUPPORTED, "the empty text");
  refused(SPLIT("(a"), GD_BAD_INPUT, "has no )");
  refused(SPLIT("[z-a]"), GD_BAD_INPUT, "ends before it starts");
  refused(SPLIT("(a)\\\\1"), GD_UNSUPPORTED, "the escape \\1");
}

/* What a pattern finds in a text, as "start-end " of each match. */
static void found(const char *pattern, const char *text, const char *expected) {
  struct gd_error err = {0};
  struct gd_unicode unicode = {0};
  struct gd_regex *regex;
  struct gd_regex_stack stack = {0};
  struct gd_strbuf out = {0};
  size_t start = 0, end = 0;
  bool more = true;
  OK(gd_unicode_init(&unicode, &err));
  OK(gd_regex_compile(&regex, &unicode, pattern, strlen(pattern), &err));
  gd_strbuf_append(&out, "");
  gd_regex_begin(&stack, strlen(text));
  while (more) {
    start = end;
    OK(gd_regex_find(regex, &stack, text, strlen(text), &start, &end, &more, &err));
    if (more)
      gd_strbuf_printf(&out, "%zu-%zu ", start, end);
  }
  assert_string_equal(out.text, expected);
  gd_strbuf_deinit(&out);
  gd_regex_stack_deinit(&stack);
  gd_regex_free(regex);
  gd_unicode_deinit(&unicode);
}

static void test_patterns(void **state) {
  (void)state;
  found("a|bc", "xabca", "1-2 2-4 4-5 ");
  found("\\s+(?!\\S)|\\s+", "a   b  ", "1-3 3-4 5-7 ");
  found("(?i:'s|'ll)", "x'S'Ll's'\xc5\xbf", "1-3 3-6 6-8 8-11 ");
  found("\\p{N}{1,3}", "1234567", "0-3 3-6 6-7 ");
  found("[^\\r\\n\\p{L}]?\\p{L}+", " a\nb-c", "0-2 3-4 4-6 ");
  found("(?:ab)+c|a", "ababc ab", "0-5 6-7 ");
  found("(?:ab){2,3}", "abababab", "0-6 ");
  found("a+?b|a", "aab", "0-3 ");
  found("a++a|b", "aab", "2-3 ");
  found("(?>a|ab)c|d", "abcacd", "3-5 5-6 ");
  found("^a|b$", "a\na b\nb", "0-1 2-3 4-5 6-7 ");
  found("\\ba\\B.", "ab a", "0-2 ");
  found("x{,2}y", "xxxy", "1-4 ");
  found("[\\x41\\u00e9\\x{4e2d}]", "A\xc3\xa9\xe4\xb8\xad", "0-1 1-3 3-6 ");
  found("[a\\-z]+", "a-zb", "0-3 ");
}

/* Long runs: linear or n log n, whatever the text. A quadratic one would take minutes. */
static void test_hostile(void **state) {
  (void)state;
  enum { LENGTH = 1 << 20 };
  static const char *const units[] = {"a", " ", "ab", "\xcc\x81", "'", "\xe2\x96\x81", "x\xcc\xa3"};
  char *text = gd_mem_alloc(LENGTH + 8, 1);
  assert_non_null(text);
  for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
    struct gd_error err = {0};
    struct gd_tokenizer *tokenizer;
    struct gd_tokenizer_work *work;
    OK(gd_tokenizer_load(&tokenizer, fixture(kinds[k], ".json"), &err));
    OK(gd_tokenizer_work_new(&work, tokenizer, &err));
    for (size_t u = 0; u < sizeof units / sizeof *units; u++) {
      struct gd_token_ids ids = {0};
      size_t unit = strlen(units[u]), length = 0;
      for (; length + unit <= LENGTH; length += unit)
        memcpy(text + length, units[u], unit);
      OK(gd_tokenizer_encode(tokenizer, work, text, length, false, &ids, &err));
      gd_token_ids_deinit(&ids);
    }
    gd_tokenizer_work_free(work);
    gd_tokenizer_free(tokenizer);
  }
  gd_mem_free(text);
}

/* "a" becomes as many as `content` has. */
static void append_replace(struct gd_strbuf *out, int content) {
  gd_strbuf_append(out, "{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"");
  for (int i = 0; i < content; i++)
    gd_strbuf_append(out, "a");
  gd_strbuf_append(out, "\"}");
}

/* Rules that make a text a thousand times as long, four after each other, as normalizers of texts
   or of added tokens, or as decoders. */
static void replaces(const char *where, const char *added, enum gd_status loads) {
  static const char why[] = "make a text more than 64 times as long as it was";
  struct gd_strbuf file = {0}, back = {0};
  struct gd_error err = {0};
  struct gd_tokenizer *tokenizer;
  struct gd_tokenizer_work *work;
  struct gd_token_ids ids = {0};
  gd_strbuf_printf(&file, "{\"%s\":{\"type\":\"Sequence\",\"%ss\":[", where, where);
  for (int i = 0; i < 4; i++) {
    gd_strbuf_append(&file, i ? "," : "");
    append_replace(&file, 1000);
  }
  gd_strbuf_printf(&file, "]},%s" BPE "}", added);
  assert_false(file.failed);
  assert_int_equal(gd_tokenizer_parse(&tokenizer, "t.json", file.text, file.length, &err), loads);
  gd_strbuf_deinit(&file);
  if (loads != GD_OK) {
    assert_non_null(strstr(err.text, why));
    return;
  }
  OK(gd_tokenizer_work_new(&work, tokenizer, &err));
  enum gd_status status = gd_tokenizer_encode(tokenizer, work, "abba", 4, false, &ids, &err);
  if (strcmp(where, "decoder") == 0) {
    assert_int_equal(status, GD_OK);
    status = gd_tokenizer_decode(tokenizer, ids.ids, ids.count, false, &back, &err);
  }
  assert_int_equal(status, GD_BAD_INPUT);
  assert_non_null(strstr(err.text, why));
  gd_token_ids_deinit(&ids);
  gd_strbuf_deinit(&back);
  gd_tokenizer_work_free(work);
  gd_tokenizer_free(tokenizer);
}

/* Files that are made to take for ever: an error, and soon. */
static void test_absurd(void **state) {
  (void)state;
  enum { LENGTH = 1 << 18 };
  static const char slow[] = SPLIT("(?:x|xx){1,24}y|x");
  struct gd_error err = {0};
  struct gd_tokenizer *tokenizer;
  struct gd_tokenizer_work *work;
  struct gd_token_ids ids = {0};
  replaces("normalizer", "", GD_OK);
  replaces("decoder", "", GD_OK);
  replaces("normalizer", "\"added_tokens\":[{\"id\":3,\"content\":\"aaaa\",\"normalized\":true}],",
           GD_BAD_INPUT);
  /* Each match alone is within bounds. */
  char *text = gd_mem_alloc(LENGTH, 1);
  assert_non_null(text);
  memset(text, 'x', LENGTH);
  OK(gd_tokenizer_parse(&tokenizer, "t.json", slow, strlen(slow), &err));
  OK(gd_tokenizer_work_new(&work, tokenizer, &err));
  assert_int_equal(gd_tokenizer_encode(tokenizer, work, text, LENGTH, false, &ids, &err),
                   GD_BAD_INPUT);
  assert_non_null(strstr(err.text, "takes too long on this text"));
  gd_token_ids_deinit(&ids);
  gd_tokenizer_work_free(work);
  gd_tokenizer_free(tokenizer);
  gd_mem_free(text);
}

static enum gd_status attempt(void *context, struct gd_error *err) {
  static const char text[] =
      "  Gr\xc3\xb6\xc3\x9f"
      "e e\xcc\x81\xcc\xa3 \xe4\xb8\xad 12 \xff <mask> "
      "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
  struct gd_tokenizer *tokenizer = NULL;
  struct gd_tokenizer_work *work = NULL;
  struct gd_token_ids ids = {0};
  struct gd_strbuf out = {0};
  enum gd_status status = gd_tokenizer_load(&tokenizer, context, err);
  if (status == GD_OK)
    status = gd_tokenizer_work_new(&work, tokenizer, err);
  if (status == GD_OK)
    status = gd_tokenizer_encode(tokenizer, work, text, sizeof text - 1, true, &ids, err);
  if (status == GD_OK)
    status = gd_tokenizer_decode(tokenizer, ids.ids, ids.count, true, &out, err);
  gd_token_ids_deinit(&ids);
  gd_strbuf_deinit(&out);
  gd_tokenizer_work_free(work);
  gd_tokenizer_free(tokenizer);
  return status;
}

static void test_without_memory(void **state) {
  (void)state;
  static const char *const swept[] = {"roberta", "llama2", "metaspace", "bert"};
  for (size_t i = 0; i < sizeof swept / sizeof *swept; i++) {
    char path[512];
    snprintf(path, sizeof path, "%s", fixture(swept[i], ".json"));
    assert_int_equal(fault_sweep(attempt, path), GD_OK);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_library),        cmocka_unit_test(test_embedded),
      cmocka_unit_test(test_invalid_utf8),   cmocka_unit_test(test_refused),
      cmocka_unit_test(test_patterns),       cmocka_unit_test(test_hostile),
      cmocka_unit_test(test_without_memory), cmocka_unit_test(test_absurd),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
