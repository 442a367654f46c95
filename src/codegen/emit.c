/*
 * Emission: a lowered fusion as source text. The walk over sweeps and values is the same for every
 * dialect; a dialect is a table of snippets: how a row, a sweep, a buffer, a reduction look. The
 * formulas of values and the functions of the prelude they call have the same names everywhere.
 *
 * All arithmetic is fp32. Loads convert to it, stores round to nearest even; what stays inside a
 * kernel is not rounded to the dtype that the op by itself would have stored.
 */
#include <inttypes.h>

#include "codegen/codegen_int.h"

const struct gd_dialect gd_dialect_c = {
    .prelude = gd_prelude_c,
    .chains = 2,
    .kernel_open = "void gd_rows(const void *const *in, void *const *out,\n"
                   "             const uint32_t *streams, int64_t begin, int64_t end,\n"
                   "             float *buffer, float *sums) {\n"
                   "  (void)streams, (void)buffer, (void)sums;\n",
    .input = "  const gd_~ *i$0 = in[$0];\n",
    .output = "  gd_~ *o$0 = out[$0];\n",
    .buffer = "  float *b$0 = buffer + $1;\n",
    .sum_open = "",
    .sum_close = "",
    .row_open = "  for (int64_t r = begin; r < end; r++) {\n"
                "    const int64_t at = r * $0;\n",
    .row_close = "  }\n",
    .load_row = "",
    .words = "    const uint16_t *w$0 =\n"
             "        gd_draw((uint32_t *)(buffer + $1), i$2, streams[$0], $3, at, $4);\n",
    .sample_words =
        "    const uint16_t *w$0 =\n"
        "        gd_draw_samples((uint16_t *)(buffer + $1), i$2, streams[$0], $3, at, $4);\n",
    .reduce_open = {"    gd_val a$0[$1] = {{0}};\n", "    gd_val a$0[$1];\n"
                                                     "    for (int c = 0; c < $1; c++)\n"
                                                     "      a$0[c] = gd_all(-__builtin_inff());\n"},
    .sweep_open = "    for (int64_t c = 0; c < $0; c += $1 * GD_LANES) {\n",
    .chain_open = "      if ($2 == 0 || $0 % ($1 * GD_LANES) == 0 || c + $2 * GD_LANES < $0) {\n"
                  "        const int64_t j = c + $2 * GD_LANES, n = GD_COUNT($0, $1, j);\n",
    .chain_close = "      }\n",
    .load = "        const gd_val v$0 = gd_load_~(i$1, at + j, n);\n",
    .load_repeated = "        const gd_val v$0 = gd_load_~(i$1, at_i$1 + j, n);\n",
    .load_buffer = "        const gd_val v$0 = gd_load_buffer(b$1, j);\n",
    .load_word = "        const gd_word v$0 = gd_load_word(w$1, j);\n",
    .element = "        const gd_val v$0 = ",
    .store = "        gd_store_~(o$0, at + j, v$1, n);\n",
    .store_buffer = "        gd_store_buffer(b$0, j, v$1);\n",
    .reduce_step = {"        a$0[$2] += gd_first(v$1, n, 0.0f);\n",
                    "        a$0[$2] = gd_larger(a$0[$2], gd_first(v$1, n, -__builtin_inff()));\n"},
    .reduce_join = {"    a$0[0] += a$0[$1];\n", "    a$0[0] = gd_larger(a$0[0], a$0[$1]);\n"},
    .reduce_share = {"", ""},
    .reduce_wait = "",
    .reduce_close = {"    const float v$0 = gd_sum(a$0[0]);\n",
                     "    const float v$0 = gd_max(a$0[0]);\n"},
    .column_sum = "        gd_store_f32(sums, $0 * $1 + j,\n"
                  "                     gd_load_f32(sums, $0 * $1 + j, n) + v$2, n);\n",
    .row_load = "    const float v$0 = i$1[r];\n",
    .row_store = "    o$0[r] = v$1;\n",
};

/* What every dialect of C has in common. */
static const char row_value[] = "    const float v$0 = "; /* value */
static const char repeated[] =
    "    const int64_t at_i$0 = r % $1 * $2;\n"; /* input, rows, columns */

struct emitter {
  const struct gd_dialect *d;
  struct gd_lowered *l;
  struct gd_strbuf *out;
  int64_t n_reductions; /* of the sweeps so far */
  bool ahead;           /* rows are loaded ahead */
};

/* A snippet with its numbers put in. */
static void put(struct emitter *e, const char *text, const char *dtype, const int64_t *numbers) {
  for (; *text; text++) {
    if (*text == '$' && text[1] >= '0' && text[1] <= '9')
      gd_strbuf_printf(e->out, "%" PRId64, numbers[*++text - '0']);
    else if (*text == '~')
      gd_strbuf_append(e->out, dtype);
    else
      gd_strbuf_append(e->out, (char[2]){*text, '\0'});
  }
}

#define PUT(text, ...)             put(e, text, "", (int64_t[]){__VA_ARGS__})
#define PUT_DTYPE(text, name, ...) put(e, text, name, (int64_t[]){__VA_ARGS__})

static const char *dtype_of(const struct emitter *e, gd_tensor_id local) {
  return gd_dtype_name(e->l->fusion->body.tensors[local].dtype);
}

/* A value's formula: see struct gd_value. */
static void put_formula(struct emitter *e, uint32_t id) {
  const struct gd_value *v = &e->l->values[id];
  PUT(v->kind == GD_VALUE_EXPR ? e->d->element : row_value, id);
  for (const char *text = v->text; *text; text++) {
    if (*text == '$')
      gd_strbuf_printf(e->out, "v%u", v->arg[*++text - '0']);
    else if (*text == '@') /* hexadecimal: exactly this float */
      gd_strbuf_printf(e->out, "%af", (double)(float)v->number[*++text - '0']);
    else if (*text == '#')
      gd_strbuf_printf(e->out, "%" PRIu32 "u", (uint32_t)v->number[*++text - '0']);
    else
      gd_strbuf_append(e->out, (char[2]){*text, '\0'});
  }
  gd_strbuf_append(e->out, ";\n");
}

static int which_reduce(const struct gd_value *v) {
  return v->kind == GD_VALUE_MAX;
}

static bool ends_in(const struct gd_value *v, uint32_t sweep) {
  return (v->kind == GD_VALUE_SUM || v->kind == GD_VALUE_MAX) && v->used && v->sweep == sweep + 1;
}

/* Row values that the previous sweep made available to this one. */
static void emit_row_values(struct emitter *e, uint32_t sweep) {
  for (uint32_t i = 0; i < e->l->n_values; i++) {
    const struct gd_value *v = &e->l->values[i];
    if (v->kind == GD_VALUE_ROW_LOAD && v->used && sweep == 0)
      PUT(e->ahead ? e->d->take_value : e->d->row_load, i, v->input);
    if (v->kind == GD_VALUE_ROW_EXPR && v->used && v->sweep == sweep)
      put_formula(e, i);
  }
}

/* What is the same for every row, hoisted out of the loop over rows. */
static bool is_kept(const struct emitter *e, const struct gd_value *v) {
  return e->ahead && v->kind == GD_VALUE_LOAD && v->repeat_rows == 1;
}

/* Loads first: an output may lie where an input was. */
static void emit_loads(struct emitter *e, uint32_t sweep, const bool *wanted) {
  for (uint32_t i = 0; i < e->l->n_values; i++) {
    const struct gd_value *v = &e->l->values[i];
    if (!wanted[i])
      continue;
    if (v->kind == GD_VALUE_LOAD)
      PUT_DTYPE(v->repeat_rows && !is_kept(e, v) ? e->d->load_repeated : e->d->load,
                dtype_of(e, v->input), i, v->input);
    else if (v->kind == GD_VALUE_WORD)
      PUT(e->d->load_word, i, v->input);
    else if (v->kind == GD_VALUE_EXPR && v->buffer != GD_NONE && v->sweep < sweep)
      PUT(e->d->load_buffer, i, v->buffer);
  }
}

static void emit_values(struct emitter *e, uint32_t sweep, const bool *wanted) {
  for (uint32_t i = 0; i < e->l->n_values; i++) {
    const struct gd_value *v = &e->l->values[i];
    bool kept = v->buffer != GD_NONE;
    if (!wanted[i] || v->kind != GD_VALUE_EXPR || (kept && v->sweep < sweep))
      continue;
    put_formula(e, i);
    if (kept)
      PUT(e->d->store_buffer, v->buffer, i);
  }
}

static void emit_ends(struct emitter *e, uint32_t sweep, int64_t chain) {
  const struct gd_fusion *f = e->l->fusion;
  uint32_t n_sums = 0; /* numbered in the order of outputs */
  for (uint32_t i = 0; i < e->l->n_values; i++)
    if (ends_in(&e->l->values[i], sweep))
      PUT(e->d->reduce_step[which_reduce(&e->l->values[i])], i, e->l->values[i].arg[0], chain);
  for (uint32_t i = 0; i < f->n_out; i++) {
    const struct gd_result *result = &e->l->results[i];
    bool ends = result->kind != GD_RESULT_ROW && e->l->values[result->value].sweep == sweep;
    bool new_sum = result->kind == GD_RESULT_SUM && result->sum == n_sums;
    n_sums += new_sum;
    if (ends && new_sum)
      PUT(e->d->column_sum, result->sum, f->columns, result->value);
    if (ends && result->kind == GD_RESULT_FULL)
      PUT_DTYPE(e->d->store, dtype_of(e, f->out[i]), i, result->value);
  }
}

/* All reductions of a sweep are combined at its end, so that threads synchronise once a sweep. */
static void emit_reductions(struct emitter *e, uint32_t sweep, int64_t chains) {
  const struct gd_value *values = e->l->values;
  int64_t before = e->n_reductions;
  for (uint32_t i = 0; i < e->l->n_values; i++) {
    if (!ends_in(&values[i], sweep))
      continue;
    for (int64_t chain = 1; chain < chains; chain++)
      PUT(e->d->reduce_join[which_reduce(&values[i])], i, chain);
    PUT(e->d->reduce_share[which_reduce(&values[i])], i, e->n_reductions++);
  }
  if (e->n_reductions > before)
    PUT(e->d->reduce_wait, 0);
  for (uint32_t i = 0; i < e->l->n_values; i++)
    if (ends_in(&values[i], sweep))
      PUT(e->d->reduce_close[which_reduce(&values[i])], i, before++);
}

static void emit_sweep(struct emitter *e, uint32_t sweep) {
  bool wanted[GD_LOWER_MAX_VALUES];
  const struct gd_dialect *d = e->d;
  const struct gd_value *values = e->l->values;
  int64_t columns = e->l->fusion->columns, chains = 1;
  gd_lower_wanted(e->l, sweep, wanted);
  for (uint32_t i = 0; i < e->l->n_values; i++)
    chains = ends_in(&values[i], sweep) ? d->chains : chains;
  for (uint32_t i = 0; i < e->l->n_values; i++)
    if (ends_in(&values[i], sweep))
      PUT(d->reduce_open[which_reduce(&values[i])], i, chains);
  PUT(d->sweep_open, columns, chains);
  for (int64_t chain = 0; chain < chains; chain++) {
    PUT(d->chain_open, columns, chains, chain);
    emit_loads(e, sweep, wanted);
    emit_values(e, sweep, wanted);
    emit_ends(e, sweep, chain);
    PUT(d->chain_close, 0);
  }
  gd_strbuf_append(e->out, "    }\n");
  emit_reductions(e, sweep, chains);
}

static void emit_declarations(struct emitter *e) {
  const struct gd_lowered *l = e->l;
  int64_t row = gd_lower_row_floats(l);
  for (uint32_t i = 0; i < l->fusion->n_in; i++)
    PUT_DTYPE(e->d->input, dtype_of(e, i), i);
  for (uint32_t i = 0; i < l->fusion->n_out; i++)
    if (l->results[i].kind != GD_RESULT_SUM)
      PUT_DTYPE(e->d->output, dtype_of(e, l->fusion->out[i]), i);
  for (uint32_t i = 0; i < l->n_buffers; i++)
    PUT(e->d->buffer, i, i * row);
  for (uint32_t i = 0; i < l->n_sums; i++)
    PUT(e->d->sum_open, i, l->n_sums);
}

/* A snippet for every full input that is used, with its number and the bytes that one column of all
   inputs before it takes. */
static void emit_full_rows(struct emitter *e, const char *text) {
  int64_t before = 0;
  for (uint32_t i = 0; i < e->l->n_values; i++) {
    const struct gd_value *v = &e->l->values[i];
    if (v->kind != GD_VALUE_LOAD || !v->used || v->repeat_rows)
      continue;
    PUT_DTYPE(text, dtype_of(e, v->input), v->input, before);
    before += gd_dtype_bytes(e->l->fusion->body.tensors[v->input].dtype);
  }
}

/* Before all rows, where they are loaded ahead. */
static void emit_ahead(struct emitter *e) {
  for (uint32_t i = 0; i < e->l->n_values; i++) {
    const struct gd_value *v = &e->l->values[i];
    if (is_kept(e, v) && v->used)
      PUT_DTYPE(e->d->keep_row, dtype_of(e, v->input), v->input);
    if (v->kind == GD_VALUE_ROW_LOAD && v->used)
      PUT(e->d->keep_value, i, v->input);
  }
  PUT(e->d->ahead_open, e->l->fusion->columns);
  emit_full_rows(e, e->d->ahead_row);
  PUT(e->d->ahead_close, 0);
}

/* Before the first sweep of a row: addresses of inputs, or their values, and the random words of
   dropouts. */
static void emit_row_start(struct emitter *e) {
  const struct gd_lowered *l = e->l;
  int64_t columns = l->fusion->columns, before = l->n_buffers * gd_lower_row_floats(l);
  for (uint32_t i = 0; i < l->n_values; i++) {
    const struct gd_value *v = &l->values[i];
    if (v->kind == GD_VALUE_LOAD && v->used && v->repeat_rows && !is_kept(e, v))
      PUT(repeated, v->input, v->repeat_rows, columns);
  }
  if (e->ahead)
    PUT(e->d->take_open, 0);
  emit_full_rows(e, e->ahead ? e->d->take_row : e->d->load_row);
  if (e->ahead)
    PUT(e->d->take_close, 0);
  for (uint32_t i = 0; i < l->n_dropouts; i++)
    PUT(l->dropouts[i].per_sample ? e->d->sample_words : e->d->words, i,
        before + i * gd_lower_words_floats(l), l->dropouts[i].seed_input,
        l->dropouts[i].sample_elements, columns);
}

void gd_emit(const struct gd_dialect *dialect, struct gd_lowered *lowered, struct gd_strbuf *out) {
  const struct gd_fusion *f = lowered->fusion;
  struct gd_teams teams;
  gd_emit_teams(lowered, &teams);
  struct emitter emitter = {.d = dialect, .l = lowered, .out = out}, *e = &emitter;
  e->ahead = dialect->ahead_open && teams.depth > 1;
  PUT(dialect->kernel_open, teams.lanes, teams.team, teams.per, teams.block, f->columns,
      teams.n_reductions, lowered->n_sums, teams.resident, teams.depth, teams.full_bytes);
  emit_declarations(e);
  if (e->ahead)
    emit_ahead(e);
  PUT(dialect->row_open, f->columns);
  emit_row_start(e);
  for (uint32_t sweep = 0; sweep < lowered->n_sweeps; sweep++) {
    emit_row_values(e, sweep);
    emit_sweep(e, sweep);
  }
  emit_row_values(e, lowered->n_sweeps);
  for (uint32_t i = 0; i < f->n_out; i++)
    if (lowered->results[i].kind == GD_RESULT_ROW)
      PUT(dialect->row_store, i, lowered->results[i].value);
  PUT(dialect->row_close, 0);
  for (uint32_t i = 0; i < lowered->n_sums; i++)
    PUT(dialect->sum_close, i, lowered->n_sums);
  gd_strbuf_append(out, "}\n");
}

void gd_emit_prelude(const struct gd_dialect *dialect, struct gd_strbuf *out) {
  for (const char *const *piece = dialect->prelude; *piece; piece++)
    gd_strbuf_append(out, *piece);
}
