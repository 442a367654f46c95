/*
 * `gpudays tokens`: files of text made into a file of tokens for `train`, and tokens printed as
 * text. The work is src/data's; here are the options and what is said about it.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/cpus.h"
#include "base/file.h"
#include "base/json.h"
#include "cli/cli.h"
#include "cli/progress.h"
#include "cli/show.h"
#include "data/tokenizer_files.h"

enum { DECODED_AT_ONCE = 1 << 16 };

static enum gd_status find_format(const struct gd_cli_options *options,
                                  enum gd_tokens_format *format, struct gd_error *err) {
  const char *name = options->tokens_format;
  if (options->format_given)
    return gd_fail(err, GD_BAD_INPUT, "--format of tokens is llmc, raw or npy");
  *format = !name || strcmp(name, "llmc") == 0 ? GD_TOKENS_LLMC
            : strcmp(name, "raw") == 0         ? GD_TOKENS_RAW
                                               : GD_TOKENS_NPY;
  return GD_OK;
}

/* The token of --eos; *id -1: none. */
static enum gd_status find_eos(const char *name, const struct gd_tokenizer *tokenizer, int32_t *id,
                               struct gd_error *err) {
  char clean[64];
  *id = -1;
  if (name && strcmp(name, "none") == 0)
    return GD_OK;
  *id = name ? gd_tokenizer_id(tokenizer, name) : gd_tokenizer_eos(tokenizer);
  if (*id >= 0)
    return GD_OK;
  if (name)
    return gd_fail(err, GD_BAD_INPUT, "--eos is \"%s\", which is no token of the tokenizer",
                   gd_json_excerpt(clean, sizeof clean, name));
  return gd_fail(err, GD_BAD_INPUT,
                 "the tokenizer has none of the usual tokens that end a document; name one with "
                 "--eos, or --eos none");
}

/* --- text to tokens ------------------------------------------------------------------------ */

static enum gd_status show_json(struct gd_cli *cli, const char *output,
                                const struct gd_tokenizer *tokenizer,
                                const struct gd_tokens_made *made, int32_t eos, double seconds,
                                struct gd_error *err) {
  struct gd_show_object root;
  gd_show_begin(&root);
  gd_show_set_text(&root, "file", output);
  gd_show_set_int(&root, "documents", made->documents);
  gd_show_set_int(&root, "tokens", made->tokens);
  gd_show_set_int(&root, "bytes", made->bytes);
  gd_show_set_int(&root, "validation_documents", made->validation_documents);
  gd_show_set_int(&root, "validation_tokens", made->validation_tokens);
  gd_show_set_int(&root, "token_bytes", made->width);
  gd_show_set_int(&root, "vocabulary", gd_tokenizer_size(tokenizer));
  if (eos >= 0)
    gd_show_set_int(&root, "eos", eos);
  else
    gd_show_set_null(&root, "eos");
  gd_show_set_real(&root, "seconds", seconds);
  return gd_show_json(&cli->out, &root, err);
}

static void show_text(struct gd_strbuf *out, const char *output, const struct gd_tokens_made *made,
                      double seconds) {
  char documents[GD_SHOW_TEXT], tokens[GD_SHOW_TEXT], each[GD_SHOW_TEXT], speed[GD_SHOW_TEXT];
  gd_strbuf_printf(out, "%s: %s document%s, %s tokens of %d bytes\n", output,
                   gd_format_count(documents, sizeof documents, made->documents),
                   made->documents == 1 ? "" : "s",
                   gd_format_count(tokens, sizeof tokens, made->tokens), made->width);
  if (made->validation_documents > 0)
    gd_strbuf_printf(out, "  of them %s documents, %s tokens in %s.val\n",
                     gd_format_count(documents, sizeof documents, made->validation_documents),
                     gd_format_count(tokens, sizeof tokens, made->validation_tokens), output);
  gd_strbuf_printf(
      out, "  %s bytes a token, %s MB/s\n",
      gd_format_digits(each, sizeof each, (double)made->bytes / fmax((double)made->tokens, 1), 3),
      gd_format_digits(speed, sizeof speed, (double)made->bytes / fmax(seconds, 1e-6) * 1e-6, 3));
}

static enum gd_status make(struct gd_cli *cli, const struct gd_tokenizer *tokenizer,
                           struct gd_error *err) {
  const struct gd_cli_options *options = &cli->options;
  const char *file = gd_cli_file(options->output);
  struct gd_progress progress = {.on = cli->progress, .label = "tokens"};
  struct gd_tokens_made made;
  struct gd_tokens_order order = {.inputs = cli->arguments,
                                  .n_inputs = cli->n_arguments,
                                  .output = file ? file : "/dev/stdout",
                                  .split_lines = options->split_lines,
                                  .special = options->special,
                                  .field = options->field,
                                  .validation =
                                      options->validation.given ? options->validation.value : 0,
                                  .threads = options->threads ? (int)options->threads : gd_cpus(1),
                                  .report = gd_progress_report,
                                  .user = &progress};
  GD_TRY(find_format(options, &order.format, err));
  GD_TRY(find_eos(options->eos, tokenizer, &order.eos, err));
  int64_t start = gd_clock_ns();
  enum gd_status status = gd_tokens_make(tokenizer, &order, &made, err);
  gd_progress_clear(&progress);
  GD_TRY(status);
  double seconds = (double)(gd_clock_ns() - start) * 1e-9;
  if (!file)
    return GD_OK; /* stdout has the tokens */
  if (options->json)
    return show_json(cli, file, tokenizer, &made, order.eos, seconds, err);
  show_text(&cli->out, file, &made, seconds);
  return GD_OK;
}

/* --- tokens to text ------------------------------------------------------------------------ */

/* Ids that wait for the end of their document: a character may have several tokens. */
struct decoding {
  int32_t ids[DECODED_AT_ONCE];
  int64_t count;
};

static enum gd_status print_ids(struct gd_cli *cli, const struct gd_tokenizer *tokenizer,
                                struct decoding *now, struct gd_strbuf *text,
                                struct gd_error *err) {
  GD_TRY(gd_tokenizer_decode(tokenizer, now->ids, now->count, false, text, err));
  now->count = 0;
  if (cli->options.json || cli->options.output)
    return GD_OK;
  gd_strbuf_append_bytes(&cli->out, text->text ? text->text : "", text->length);
  text->length = 0;
  return gd_cli_write(cli, err);
}

static enum gd_status decode_file(struct gd_cli *cli, const struct gd_tokenizer *tokenizer,
                                  const char *path, int32_t eos, struct gd_strbuf *text,
                                  int64_t *tokens, struct gd_error *err) {
  struct gd_tokens_reader reader;
  struct decoding *now = gd_arena_alloc(&cli->arena, 1, sizeof *now);
  int64_t most = cli->options.count ? cli->options.count : INT64_MAX, got = 1;
  if (!now)
    return gd_nomem(err, "for tokens");
  enum gd_status status = gd_tokens_open(&reader, path, tokenizer, err);
  while (status == GD_OK && *tokens < most && got > 0) {
    status = gd_tokens_read(&reader, tokenizer, now->ids + now->count, 1, &got, err);
    now->count += got;
    *tokens += got;
    if (status == GD_OK && got > 0 &&
        (now->ids[now->count - 1] == eos || now->count == DECODED_AT_ONCE))
      status = print_ids(cli, tokenizer, now, text, err);
  }
  if (status == GD_OK && now->count > 0)
    status = print_ids(cli, tokenizer, now, text, err);
  gd_tokens_close(&reader);
  return status;
}

static enum gd_status show_decoded(struct gd_cli *cli, const struct gd_strbuf *text, int64_t tokens,
                                   struct gd_error *err) {
  struct gd_show_object root;
  if (cli->options.output)
    return gd_file_write(cli->options.output, text->text ? text->text : "", text->length, err);
  if (!cli->options.json)
    return GD_OK;
  gd_show_begin(&root);
  gd_show_set_int(&root, "tokens", tokens);
  gd_show_set(&root, "text", json_stringn(text->text ? text->text : "", text->length));
  return gd_show_json(&cli->out, &root, err);
}

static enum gd_status decode(struct gd_cli *cli, const struct gd_tokenizer *tokenizer,
                             struct gd_error *err) {
  struct gd_strbuf text = {0};
  int64_t tokens = 0;
  int32_t eos = gd_tokenizer_eos(tokenizer);
  enum gd_status status = GD_OK;
  for (int i = 0; i < cli->n_arguments && status == GD_OK; i++)
    status = decode_file(cli, tokenizer, cli->arguments[i], eos, &text, &tokens, err);
  if (status == GD_OK)
    status = show_decoded(cli, &text, tokens, err);
  gd_strbuf_deinit(&text);
  return status;
}

enum gd_status gd_cmd_tokens(struct gd_cli *cli, struct gd_error *err) {
  const struct gd_cli_options *options = &cli->options;
  struct gd_tokenizer *tokenizer = NULL;
  cli->verbatim = options->decode;
  if (options->decode && (options->split_lines || options->field || options->special ||
                          options->validation.given || options->eos || options->tokens_format))
    return gd_fail(err, GD_BAD_INPUT, "--decode only goes with --tokenizer, --count and --output");
  if (!options->decode && options->count)
    return gd_fail(err, GD_BAD_INPUT, "--count goes with --decode");
  if (!options->decode && !options->output)
    return gd_fail(err, GD_BAD_INPUT, "tokens needs a file to write to: -o FILE");
  if (!options->decode && options->json && !gd_cli_file(options->output))
    return gd_fail(err, GD_BAD_INPUT, "--json needs a file for the tokens: -o FILE");
  if (options->validation.given && options->validation.value >= 1)
    return gd_fail(err, GD_BAD_INPUT, "--validation is 1, which leaves nothing to train on");
  GD_TRY(
      gd_tokenizer_load(&tokenizer, options->tokenizer ? options->tokenizer : "gpudays-4k", err));
  enum gd_status status = options->decode ? decode(cli, tokenizer, err) : make(cli, tokenizer, err);
  gd_tokenizer_free(tokenizer);
  return status;
}
