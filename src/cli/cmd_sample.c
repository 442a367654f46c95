/*
 * `gpudays sample RUN --prompt TEXT`: a few lines out of a model, so that a person sees what it has
 * learnt. RUN may be a model folder. The work is src/train/sample.c's.
 */
#include "cli/cli.h"
#include "cli/progress.h"
#include "cli/show.h"
#include "train/sample.h"
#include "train/trained.h"

enum { DEFAULT_LENGTH = 64 };
#define DEFAULT_TEMPERATURE 0.8
#define DEFAULT_TOP_P       0.95

struct sampling {
  struct gd_cli *cli;
  struct gd_trained trained;
  struct gd_safetensors weights;
  struct gd_tokenizer *tokenizer;
  struct gd_token_ids ids;
  struct gd_strbuf text;
  struct gd_progress progress;
  int64_t n_prompt, length;
};

static void show_added(void *user, int64_t done) {
  struct sampling *s = user;
  gd_progress_report(&s->progress, "", (double)done / (double)s->length, -1);
}

static enum gd_status append_answer(struct sampling *s, struct gd_error *err) {
  struct gd_cli *cli = s->cli;
  bool json = cli->options.json;
  int64_t first = json ? s->n_prompt : 0; /* of JSON the prompt is a field of its own */
  GD_TRY(gd_tokenizer_decode(s->tokenizer, s->ids.ids + first, s->ids.count - first, true, &s->text,
                             err));
  const char *text = s->text.text ? s->text.text : "";
  if (!json) {
    gd_strbuf_append_bytes(&cli->out, text, s->text.length);
    gd_strbuf_append(&cli->out, "\n");
    return GD_OK;
  }
  struct gd_show_object object;
  json_t *ids = json_array();
  gd_show_begin(&object);
  gd_show_set_text(&object, "model", s->trained.model.name);
  if (s->trained.is_run)
    gd_show_set_int(&object, "step", s->trained.step);
  else
    gd_show_set_null(&object, "step");
  gd_show_set_text(&object, "prompt", cli->options.prompt ? cli->options.prompt : "");
  gd_show_set(&object, "text", json_stringn(text, s->text.length));
  for (int64_t i = 0; i < s->ids.count; i++)
    json_array_append_new(ids, json_integer(s->ids.ids[i]));
  gd_show_set_int(&object, "prompt_tokens", s->n_prompt);
  gd_show_set(&object, "tokens", ids);
  return gd_show_json(&cli->out, &object, err);
}

static enum gd_status sample(struct sampling *s, struct gd_error *err) {
  struct gd_cli *cli = s->cli;
  const struct gd_cli_options *o = &cli->options;
  GD_TRY(gd_cli_find_trained(cli, cli->arguments[0], &s->trained, err));
  GD_TRY(gd_sample_check(&s->trained.model, err));
  const char *tokenizer = o->tokenizer ? o->tokenizer : s->trained.tokenizer;
  if (!tokenizer[0])
    return gd_fail(err, GD_BAD_INPUT,
                   "%s has no tokenizer.json; name the one that its tokens were made with: "
                   "--tokenizer FILE",
                   cli->arguments[0]);
  GD_TRY(gd_tokenizer_load(&s->tokenizer, tokenizer, err));
  GD_TRY(
      gd_sample_prompt(&s->trained.model, s->tokenizer, o->prompt ? o->prompt : "", &s->ids, err));
  s->n_prompt = s->ids.count;
  GD_TRY(gd_safetensors_open(&s->weights, s->trained.weights, err));
  s->length = o->length ? o->length : DEFAULT_LENGTH;
  struct gd_sampling sampling = {.model = &s->trained.model,
                                 .weights = &s->weights,
                                 .backend = gd_cli_backend(cli),
                                 .threads = (int)o->threads,
                                 .length = s->length,
                                 .temperature = o->temperature.given ? o->temperature.value
                                                                     : DEFAULT_TEMPERATURE,
                                 .top_p = o->top_p.given ? o->top_p.value : DEFAULT_TOP_P,
                                 .seed = (uint64_t)o->seed,
                                 .eos = gd_tokenizer_eos(s->tokenizer),
                                 .added = show_added,
                                 .user = s};
  enum gd_status status = gd_sample(&sampling, &s->ids, err);
  gd_progress_clear(&s->progress);
  GD_TRY(status);
  return append_answer(s, err);
}

enum gd_status gd_cmd_sample(struct gd_cli *cli, struct gd_error *err) {
  struct sampling s = {.cli = cli, .progress = {.on = cli->progress, .label = "sample"}};
  cli->verbatim = true;
  enum gd_status status = sample(&s, err);
  gd_safetensors_close(&s.weights);
  gd_tokenizer_free(s.tokenizer);
  gd_token_ids_deinit(&s.ids);
  gd_strbuf_deinit(&s.text);
  return status;
}
