/*
 * Identities of recipes and of models; see recipe.h.
 */
#define _GNU_SOURCE /* memmem */
#include "trial/recipe.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/strbuf.h"
#include "ir/autodiff.h"

/* What the text of a graph leaves out: the values that leaves begin with. */
static void print_beginning(const struct gd_graph *graph, gd_tensor_id id, struct gd_strbuf *out) {
  const struct gd_tensor *t = &graph->tensors[id];
  if (t->producer != GD_NONE)
    return;
  gd_strbuf_printf(out, "%u %d %.17g %.17g %d", id, (int)t->init, t->init_value, t->init_low,
                   (int)t->no_decay);
  for (int64_t i = 0; t->frequencies && i < t->dims[t->rank - 1] / 2; i++)
    gd_strbuf_printf(out, " %.9g", (double)t->frequencies[i]);
  gd_strbuf_append(out, "\n");
}

/*
 * Ops by the names that identities have them under. Trials that were stored and published hold
 * hashes of these: an op that gets another name in ops.def keeps the one that it has here.
 */
static const char *const op_names[GD_OP_COUNT] = {
    [GD_OP_reshape] = "reshape",
    [GD_OP_split] = "split",
    [GD_OP_transpose] = "transpose",
    [GD_OP_slice] = "slice",
    [GD_OP_pad] = "pad",
    [GD_OP_cast] = "cast",
    [GD_OP_positions] = "positions",
    [GD_OP_embed] = "embed",
    [GD_OP_matmul] = "matmul",
    [GD_OP_add] = "add",
    [GD_OP_mul] = "mul",
    [GD_OP_dropout] = "dropout",
    [GD_OP_layernorm] = "layernorm",
    [GD_OP_rmsnorm] = "rmsnorm",
    [GD_OP_rope] = "rope",
    [GD_OP_softmax] = "softmax",
    [GD_OP_activate] = "activate",
    [GD_OP_xent] = "xent",
    [GD_OP_soft_xent] = "soft_xent",
    [GD_OP_pool] = "pool",
    [GD_OP_depthwise] = "depthwise",
    [GD_OP_conv1d] = "conv1d",
    [GD_OP_decay] = "decay",
    [GD_OP_outer] = "outer",
    [GD_OP_recur] = "recur",
    [GD_OP_contract_states] = "contract_states",
};

const char *gd_recipe_op_name(enum gd_op_kind kind) {
  return op_names[kind];
}

static const char *lasting_name(const char *name, size_t length) {
  for (int kind = 0; kind < GD_OP_COUNT; kind++) {
    const char *today = gd_op_info((enum gd_op_kind)kind)->name;
    if (strlen(today) == length && strncmp(today, name, length) == 0)
      return op_names[kind];
  }
  return NULL;
}

/* A line of a graph's text: "%7 = matmul(%3, ...) ...", with the lasting name of its op. */
static void append_line(struct gd_strbuf *out, const char *line, size_t length) {
  const char *begin = memmem(line, length, " = ", 3);
  size_t name = begin ? strcspn(begin + 3, "(\n") : 0;
  const char *lasting = begin && begin[3 + name] == '(' ? lasting_name(begin + 3, name) : NULL;
  if (!lasting) {
    gd_strbuf_printf(out, "%.*s", (int)length, line);
    return;
  }
  int before = (int)(begin + 3 - line), after = (int)(length - (size_t)before - name);
  gd_strbuf_printf(out, "%.*s%s%.*s", before, line, lasting, after, begin + 3 + name);
}

static enum gd_status hash_graph(const struct gd_graph *graph, char hash[GD_HASH_TEXT],
                                 struct gd_error *err) {
  struct gd_strbuf text = {0}, lasting = {0};
  gd_graph_print(graph, &text);
  for (const char *at = text.text; at && *at && !text.failed;) {
    size_t length = strcspn(at, "\n") + 1;
    append_line(&lasting, at, length);
    at += length;
  }
  for (gd_tensor_id id = 0; id < graph->n_tensors; id++)
    print_beginning(graph, id, &lasting);
  bool failed = text.failed || lasting.failed;
  if (!failed)
    gd_hash_hex(hash, lasting.text);
  gd_strbuf_deinit(&text);
  gd_strbuf_deinit(&lasting);
  return failed ? gd_nomem(err, "while naming a trial") : GD_OK;
}

enum gd_status gd_model_identify(const struct gd_model *model, struct gd_model_identity *identity,
                                 struct gd_error *err) {
  struct gd_graph graph;
  *identity = (struct gd_model_identity){0};
  gd_graph_init(&graph);
  model->family->build(model, 1, &graph);
  enum gd_status status = gd_graph_check(&graph, err);
  if (status == GD_OK)
    status = hash_graph(&graph, identity->graph, err);
  if (status == GD_OK)
    status = gd_autodiff(&graph, err);
  identity->flops = graph.model_flops;
  gd_graph_deinit(&graph);
  return status;
}

enum gd_status gd_model_hash(const struct gd_model *model, char hash[GD_HASH_TEXT],
                             struct gd_error *err) {
  struct gd_model_identity identity;
  GD_TRY(gd_model_identify(model, &identity, err));
  memcpy(hash, identity.graph, GD_HASH_TEXT);
  return GD_OK;
}

/*
 * Learning rate, schedule, betas, epsilon, decay and clipping change what is learned, but not what
 * is computed: the norm of the gradients is taken in every step.
 */
void gd_recipe_hash_texts(const struct gd_recipe_texts *of, char hash[GD_HASH_TEXT]) {
  char text[512];
  snprintf(text, sizeof text,
           "family=%s;graph=%s;batch=%s;seq=%s;steps=%s;precision=%s;optimizer=%s", of->family,
           of->graph, of->batch, of->seq, of->steps, of->precision, of->optimizer);
  gd_hash_hex(hash, text);
}

void gd_recipe_hash_of(const struct gd_model *model, const struct gd_model_identity *identity,
                       const enum gd_precision *precision, char hash[GD_HASH_TEXT]) {
  const struct gd_recipe *recipe = &model->recipe;
  struct gd_recipe_texts of = {0};
  memcpy(of.graph, identity->graph, sizeof of.graph);
  snprintf(of.family, sizeof of.family, "%s", model->family->model_type);
  snprintf(of.batch, sizeof of.batch, "%" PRId64, recipe->batch);
  snprintf(of.seq, sizeof of.seq, "%" PRId64, recipe->seq);
  snprintf(of.steps, sizeof of.steps, "%" PRId64, recipe->steps);
  snprintf(of.precision, sizeof of.precision, "%s",
           gd_precision_name(precision ? *precision : recipe->precision));
  snprintf(of.optimizer, sizeof of.optimizer, "%s", gd_optimizer_name(recipe->optimizer));
  gd_recipe_hash_texts(&of, hash);
}

enum gd_status gd_recipe_hash(const struct gd_model *model, const enum gd_precision *precision,
                              char hash[GD_HASH_TEXT], struct gd_error *err) {
  struct gd_model_identity identity;
  GD_TRY(gd_model_identify(model, &identity, err));
  gd_recipe_hash_of(model, &identity, precision, hash);
  return GD_OK;
}
