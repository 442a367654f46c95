/*
 * Every field of a configuration and what became of it; see fields.h. A value that is not supported
 * is taken out of a copy and the rest is read again, so that all of them are found and not only the
 * first.
 */
#include "model/fields.h"

#include <stdio.h>
#include <string.h>

#include "model/config.h"
#include "model/model.h"
#include "model/model_int.h"
#include "model/outline.h"

static const char *const use_names[] = {[GD_FIELD_USED] = "used",
                                        [GD_FIELD_IGNORED] = "ignored",
                                        [GD_FIELD_UNSUPPORTED] = "unsupported",
                                        [GD_FIELD_UNKNOWN] = "unknown"};

const char *gd_field_use_name(enum gd_field_use use) {
  GD_ASSERT(use < GD_FIELD_USE_COUNT);
  return use_names[use];
}

/* --- what may be ignored ------------------------------------------------------------------- */

/* Fields that transformers' configurations of the families here have and that change nothing in
   training from scratch. What does belongs to a family's parse, not here. */
static const struct {
  const char *why;
  const char *names; /* each between blanks */
} ignored[] = {
    {"a name",
     " architectures _name_or_path name_or_path transformers_version auto_map label2id "
     "task_specific_params finetuning_task tokenizer_class prefix license custom_pipelines "
     "_commit_hash model_name unsloth_version unsloth_fixed "},
    {"precision is the recipe's", " torch_dtype dtype use_bfloat16 "},
    {"a token of texts; training packs them without padding",
     " bos_token_id eos_token_id sep_token_id cls_token_id pad_token_id decoder_start_token_id "},
    {"of generation",
     " use_cache max_length min_length do_sample early_stopping num_beams num_beam_groups "
     "diversity_penalty temperature top_k top_p typical_p repetition_penalty length_penalty "
     "no_repeat_ngram_size encoder_no_repeat_ngram_size bad_words_ids num_return_sequences "
     "output_scores return_dict_in_generate forced_bos_token_id forced_eos_token_id "
     "remove_invalid_values exponential_decay_length_penalty suppress_tokens "
     "begin_suppress_tokens generation_config "},
    {"what a call returns",
     " output_hidden_states output_attentions return_dict torchscript use_return_dict "},
    {"how PyTorch computes the same numbers",
     " _attn_implementation attn_implementation _attn_implementation_autoset "
     "_attn_implementation_internal _experts_implementation pretraining_tp use_mambapy "
     "use_associative_scan use_mamba_kernels chunk_size_feed_forward gradient_checkpointing "
     "tf_legacy_loss quantization_config mamba_ssm_dtype "},
    {"of a head that pre-training does not have",
     " classifier_dropout classifier_dropout_prob summary_type summary_use_proj "
     "summary_activation summary_proj_to_labels summary_first_dropout pooler_act "
     "pooler_output_size encoder_stride num_labels problem_type id2label "},
    {"of a backbone for detection", " out_features out_indices stage_names _out_features "
                                    "_out_indices reshape_hidden_states "},
    {"said by another field too", " n_ctx max_position_embeddings is_decoder "},
    {"images have no words", " tie_word_embeddings "},
};

/* Of an object of rotary positions. */
static const char inside_names[] =
    " factor rope_type type rope_theta partial_rotary_factor original_max_position_embeddings "
    "low_freq_factor high_freq_factor beta_fast beta_slow mscale mscale_all_dim attention_factor "
    "truncate finetuned ";

static const char *why_ignored(const char *key, bool inside) {
  char word[128];
  if (snprintf(word, sizeof word, " %s ", key) >= (int)sizeof word)
    return NULL;
  if (inside)
    return strstr(inside_names, word) ? "of another rope_type" : NULL;
  for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
    if (strstr(ignored[i].names, word))
      return ignored[i].why;
  return NULL;
}

/* An object that the loader looked into is known by its own fields. */
static bool is_looked_into(const struct gd_json_log *log, const json_t *value) {
  return json_is_object(value) && gd_json_log_has_any(log, value);
}

void gd_fields_unknown(json_t *config, const struct gd_json_log *log, char *text, size_t size) {
  size_t length = 0;
  const char *key;
  json_t *value;
  text[0] = '\0';
  json_object_foreach(config, key, value) {
    char clean[48];
    if (gd_json_log_has(log, config, key) || why_ignored(key, false) || length + 1 >= size)
      continue;
    length += (size_t)snprintf(text + length, size - length, "%s%s", length ? ", " : "",
                               gd_json_excerpt(clean, sizeof clean, key));
  }
}

/* --- all of them --------------------------------------------------------------------------- */

struct refusal {
  const char *inside, *key; /* inside: the field that holds it; "" at the top */
  const char *why;
};
struct reading {
  struct gd_fields *fields;
  struct gd_json json; /* what is read: a copy, less what was refused */
  struct gd_json_log log;
  json_t *whole; /* the configuration as it is */
  struct refusal refusals[64];
  int n_refusals;
  uint32_t capacity;
  struct gd_field *list; /* in gd_mem */
};

static const char *say_value(struct gd_fields *fields, const json_t *value) {
  struct gd_strbuf text = {0};
  char clean[64];
  const char *said = NULL;
  if (gd_json_append(&text, value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(15)) &&
      text.text)
    said = gd_arena_copy_string(&fields->arena, gd_json_excerpt(clean, sizeof clean, text.text));
  gd_strbuf_deinit(&text);
  return said;
}

static const char *why_refused(const struct reading *r, const char *inside, const char *key) {
  for (int i = 0; i < r->n_refusals; i++)
    if (strcmp(r->refusals[i].inside, inside) == 0 && strcmp(r->refusals[i].key, key) == 0)
      return r->refusals[i].why;
  return NULL;
}

static enum gd_status add_field(struct reading *r, const char *prefix, const char *key,
                                const json_t *value, bool asked, struct gd_error *err) {
  struct gd_fields *fields = r->fields;
  char clean[64];
  const char *refused = why_refused(r, prefix, key), *why = why_ignored(key, prefix[0] != '\0');
  struct gd_field field = {.name = gd_arena_printf(&fields->arena, "%s%s%s", prefix,
                                                   prefix[0] ? "." : "",
                                                   gd_json_excerpt(clean, sizeof clean, key)),
                           .value = say_value(fields, value),
                           .use = refused ? GD_FIELD_UNSUPPORTED
                                  : asked ? GD_FIELD_USED
                                  : why   ? GD_FIELD_IGNORED
                                          : GD_FIELD_UNKNOWN,
                           .why = refused ? refused
                                  : asked ? NULL
                                          : why};
  if (!field.name || !field.value ||
      !gd_vec_reserve((void **)&r->list, &r->capacity, (uint32_t)fields->count + 1,
                      sizeof *r->list))
    return gd_nomem(err, "while listing fields");
  r->list[fields->count++] = field;
  fields->of[field.use]++;
  return GD_OK;
}

/* whole: as it was; now: the same less what was refused, which is what the log is about. */
static enum gd_status add_fields(struct reading *r, json_t *whole, const json_t *now,
                                 const char *prefix, struct gd_error *err) {
  const char *key;
  json_t *value;
  json_object_foreach(whole, key, value) {
    const json_t *left = json_object_get(now, key);
    bool asked = left && gd_json_log_has(&r->log, now, key);
    if (prefix[0] == '\0' && left && is_looked_into(&r->log, left))
      GD_TRY(add_fields(r, value, left, key, err)); /* NOLINT(misc-no-recursion): once */
    else
      GD_TRY(add_field(r, prefix, key, value, asked, err));
  }
  return GD_OK;
}

/* "" for the configuration itself, or the field whose value is that object; NULL: neither. */
static const char *inside_of(const struct reading *r, json_t *config, const json_t *object) {
  const char *key;
  json_t *value;
  if (object == config)
    return "";
  json_object_foreach(config, key, value) {
    if (value == object)
      return json_object_iter_key(json_object_iter_at(r->whole, key));
  }
  return NULL;
}

/* Takes the refused field out, so that the rest is read; false: there is none to take. */
static bool take_out(struct reading *r, json_t *config, const char *sentence) {
  struct gd_json_field at = r->log.refused;
  const char *inside = at.key ? inside_of(r, config, at.object) : NULL, *begin;
  if (!inside || r->n_refusals == (int)(sizeof r->refusals / sizeof *r->refusals) ||
      !json_object_get(at.object, at.key))
    return false;
  begin = strstr(sentence, ": ");
  r->refusals[r->n_refusals++] = (struct refusal){
      .inside = inside,
      .key = at.key,
      .why = gd_arena_copy_string(&r->fields->arena, begin ? begin + 2 : sentence)};
  json_object_del(inside[0] ? json_object_get(config, inside) : config,
                  at.key); /* r->whole has it still */
  return true;
}

/* A copy whose objects are its own, to the second level. */
static json_t *copy_objects(json_t *from) {
  json_t *to = json_object();
  const char *key;
  json_t *value;
  json_object_foreach(from, key, value) {
    if (json_is_object(value))
      json_object_set_new(to, key, json_copy(value));
    else
      json_object_set(to, key, value);
  }
  return to;
}

/* Puts a copy in the configuration's place, to take fields out of; NULL: memory ran out. */
static json_t *make_copy(struct reading *r) {
  json_t *preset = json_object_get(r->json.root, "config");
  r->whole = json_incref(json_is_object(preset) ? preset : r->json.root);
  json_t *copy = copy_objects(r->whole);
  if (!copy)
    return NULL;
  if (json_is_object(preset))
    return json_object_set_new(r->json.root, "config", copy) == 0 ? copy : NULL;
  json_decref(r->json.root);
  r->json.root = copy;
  return copy;
}

/* Refused already: that it is missing now is our doing. */
static bool is_our_doing(const struct reading *r) {
  return r->log.refused.key && why_refused(r, "", r->log.refused.key);
}

static enum gd_status read_all(struct reading *r, struct gd_error *err) {
  struct gd_fields *fields = r->fields;
  json_t *config = make_copy(r);
  struct gd_model model;
  struct gd_error refused;
  enum gd_status status;
  if (!config)
    return gd_nomem(err, "while listing fields");
  r->json.log = &r->log;
  do {
    refused = (struct gd_error){0};
    gd_json_log_deinit(&r->log);
    status = gd_model_parse(&r->json, &model, &refused);
    if (status == GD_ENVIRONMENT || r->log.failed)
      return gd_fail(err, GD_ENVIRONMENT, "%s", refused.text);
  } while (status != GD_OK && take_out(r, config, refused.text));
  if (status == GD_OK)
    fields->family = model.family->title;
  else if (!is_our_doing(r))
    fields->problem = gd_arena_copy_string(&fields->arena, refused.text);
  if (status != GD_OK) /* its size is counted all the same */
    gd_outline_ask(&r->json, config);
  const char *type = json_string_value(json_object_get(r->whole, "model_type"));
  fields->model_type = type ? gd_arena_copy_string(&fields->arena, type) : NULL;
  return add_fields(r, r->whole, config, "", err);
}

enum gd_status gd_fields_read(const char *name_or_path, struct gd_fields *fields,
                              struct gd_error *err) {
  struct reading r = {.fields = fields};
  *fields = (struct gd_fields){0};
  enum gd_status status = gd_model_read_json(name_or_path, &r.json, err);
  if (status == GD_OK)
    status = read_all(&r, err);
  if (status == GD_OK) {
    fields->list = gd_arena_alloc(&fields->arena, (size_t)fields->count + 1, sizeof *fields->list);
    if (fields->list && r.list)
      memcpy(fields->list, r.list, (size_t)fields->count * sizeof *fields->list);
    else if (!fields->list)
      status = gd_nomem(err, "while listing fields");
  }
  gd_mem_free(r.list);
  gd_json_log_deinit(&r.log);
  json_decref(r.whole);
  gd_json_deinit(&r.json);
  if (status != GD_OK)
    gd_fields_deinit(fields);
  return status;
}

void gd_fields_deinit(struct gd_fields *fields) {
  gd_arena_deinit(&fields->arena);
  *fields = (struct gd_fields){0};
}
