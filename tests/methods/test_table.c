/*
 * docs/methods.md is normative: its tables are read here and compared with real graphs and plans,
 * flat by flat, for models of every kind, both precisions and 1 to 7 ranks. Then what the methods
 * say of memory: shards of a quarter on four ranks, and what ckpt and free-lunch leave of the
 * activations.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backend/backend.h"
#include "pass/pass.h"
#include "plan/plan.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* --- the page ------------------------------------------------------------------------------ */

enum { MOST_ROWS = 16, MOST_COLUMNS = 12, CELL = 48 };

struct table {
  char cells[MOST_ROWS][MOST_COLUMNS][CELL]; /* row 0 is the header */
  int rows, columns;
};

static const char *page(void) {
  static char text[1 << 16];
  FILE *file = fopen(GD_SOURCE_DIR "/docs/methods.md", "r");
  assert_non_null(file);
  size_t bytes = fread(text, 1, sizeof text - 1, file);
  fclose(file);
  assert_true(bytes > 0 && bytes < sizeof text - 1);
  text[bytes] = '\0';
  return text;
}

/* Cells between bars, without the blanks around them; returns their number. */
static int split_row(const char *line, size_t length, char cells[MOST_COLUMNS][CELL]) {
  int count = 0;
  assert_true(length >= 2 && line[0] == '|' && line[length - 1] == '|');
  for (const char *at = line + 1, *end = line + length; at < end;) {
    const char *bar = memchr(at, '|', (size_t)(end - at));
    const char *next = bar + 1;
    while (at < bar && *at == ' ')
      at++;
    while (bar > at && bar[-1] == ' ')
      bar--;
    assert_true(count < MOST_COLUMNS && bar - at < CELL);
    snprintf(cells[count++], CELL, "%.*s", (int)(bar - at), at);
    at = next;
  }
  return count;
}

/* The first table under a heading, which must have exactly these columns. */
static void read_table(const char *heading, const char *const *columns, struct table *table) {
  char line[128];
  snprintf(line, sizeof line, "\n### %s\n", heading);
  const char *at = strstr(page(), line);
  if (!at)
    fail_msg("docs/methods.md has no section \"%s\"", heading);
  at = strstr(at, "\n|");
  assert_non_null(at);
  *table = (struct table){0};
  int lines = 0;
  for (at++; *at == '|'; lines++) {
    size_t length = strcspn(at, "\n");
    assert_true(table->rows < MOST_ROWS);
    if (lines != 1) { /* that is the rule under the header */
      int count = split_row(at, length, table->cells[table->rows]);
      if (lines > 0 && count != table->columns)
        fail_msg("%s: \"%s\" has %d columns, not %d", heading, table->cells[table->rows][0], count,
                 table->columns);
      table->columns = count;
      table->rows++;
    }
    at += length + (at[length] == '\n');
  }
  int wanted = 0;
  for (; columns[wanted]; wanted++)
    if (wanted >= table->columns || strcmp(table->cells[0][wanted], columns[wanted]) != 0)
      fail_msg("%s: column %d is not \"%s\"", heading, wanted, columns[wanted]);
  assert_int_equal(table->columns, wanted);
}

/* The row whose first cells are these; b may be NULL. There must be one. */
static int find_row(const struct table *table, const char *a, const char *b) {
  int found = 0;
  for (int row = 1; row < table->rows; row++)
    if (strcmp(table->cells[row][0], a) == 0 && (!b || strcmp(table->cells[row][1], b) == 0)) {
      assert_int_equal(found, 0);
      found = row;
    }
  if (!found)
    fail_msg("docs/methods.md lacks the row %s %s", a, b ? b : "");
  return found;
}

/* "8/R": 8 bytes, divided among ranks. C: what the parameter computes in. */
struct formula {
  int64_t bytes;
  bool shared;
};

static struct formula read_formula(const char *text, bool copied) {
  struct formula f = {0};
  char *end;
  if (*text == 'C') {
    f.bytes = copied ? 2 : 4;
    end = (char *)(uintptr_t)(text + 1);
  } else {
    f.bytes = strtoll(text, &end, 10);
    assert_true(end > text);
  }
  if (strcmp(end, "/R") == 0)
    f.shared = true;
  else if (*end)
    fail_msg("docs/methods.md: \"%s\" is no formula", text);
  return f;
}

/* --- graphs -------------------------------------------------------------------------------- */

/* What the table distinguishes, from the graph of one device. */
struct parameter {
  const char *name;
  int64_t elements;
  bool copied;   /* computes through a 16-bit copy */
  bool backward; /* the backward pass reads it */
};

struct subject {
  struct gd_model model;
  enum gd_precision precision;
  struct gd_graph plain;
  struct parameter *parameters;
  uint32_t n_parameters;
  int64_t elements[2]; /* by copied */
};

static void build(const struct gd_model *model, enum gd_precision precision,
                  struct gd_method method, int ranks, struct gd_graph *graph) {
  struct gd_error err = {0};
  struct gd_setup setup = {.model = model,
                           .precision = precision,
                           .micro_batch = 1,
                           .method = method,
                           .ranks = ranks,
                           .rank = ranks - 1};
  if (gd_pipeline_build(&setup, graph, &err) != GD_OK)
    fail_msg("%s", err.text);
}

static struct parameter *find_parameter(const struct subject *s, const char *name) {
  for (uint32_t i = 0; i < s->n_parameters; i++)
    if (strcmp(s->parameters[i].name, name) == 0)
      return &s->parameters[i];
  fail_msg("%s is no parameter", name);
  return NULL;
}

/* Builds the graph without sharding and learns from it what there is. */
static void subject_init(struct subject *s, const char *preset, enum gd_precision precision,
                         struct gd_method base) {
  struct gd_error err = {0};
  *s = (struct subject){.precision = precision};
  assert_int_equal(gd_model_load(preset, &s->model, &err), GD_OK);
  if (!s->model.family->images)
    s->model.recipe.seq = 64;
  build(&s->model, precision, base, 1, &s->plain);
  const struct gd_graph *graph = &s->plain;
  s->parameters = gd_mem_alloc(graph->n_tensors, sizeof *s->parameters);
  assert_non_null(s->parameters);
  for (gd_tensor_id id = 0; id < graph->n_tensors; id++)
    if (graph->tensors[id].role == GD_ROLE_PARAM)
      s->parameters[s->n_parameters++] = (struct parameter){
          .name = graph->tensors[id].name, .elements = gd_tensor_elements(graph, id)};
  for (gd_tensor_id id = 0; id < graph->n_tensors; id++)
    if (graph->tensors[id].role == GD_ROLE_PARAM_COMPUTE)
      find_parameter(s, graph->tensors[graph->tensors[id].owner].name)->copied = true;
  for (uint32_t i = 0; i < s->n_parameters; i++)
    s->elements[s->parameters[i].copied] += s->parameters[i].elements;
  for (gd_op_id id = 0; id < graph->n_ops; id++)
    for (uint32_t i = 0; graph->ops[id].phase == GD_PHASE_BACKWARD && i < graph->ops[id].n_in;
         i++) {
      if (graph->ops[id].in[i] == GD_NONE)
        continue;
      const struct gd_tensor *t =
          &graph->tensors[gd_tensor_root(graph, graph->ops[id].in[i], NULL)];
      if (t->role == GD_ROLE_PARAM)
        find_parameter(s, t->name)->backward = true;
      else if (t->role == GD_ROLE_PARAM_COMPUTE)
        find_parameter(s, graph->tensors[t->owner].name)->backward = true;
    }
}

static void subject_deinit(struct subject *s) {
  gd_mem_free(s->parameters);
  gd_graph_deinit(&s->plain);
}

/* A flat is of one kind, and is read backwards if any of its parameters is. */
struct flat {
  bool copied, backward;
  int64_t shard;
};

static struct flat describe_flat(const struct subject *s, const struct gd_graph *graph,
                                 uint32_t index) {
  const struct gd_flat *flat = &graph->flats[index];
  struct flat f = {.shard = flat->shard};
  int64_t elements = 0;
  for (uint32_t i = 0; i < flat->n_pieces; i++) {
    const struct parameter *p = find_parameter(s, graph->tensors[flat->pieces[i]].name);
    if (i > 0)
      assert_int_equal(f.copied, p->copied);
    f.copied = p->copied;
    f.backward |= p->backward;
    elements += p->elements;
  }
  assert_int_equal(elements, flat->elements);
  assert_true(flat->shard * graph->ranks >= elements);
  assert_true(flat->shard * graph->ranks < elements + 64 * (int64_t)graph->ranks);
  return f;
}

/* --- bytes --------------------------------------------------------------------------------- */

static const char *const bytes_columns[] = {
    "sharding",   "offload",          "master, device", "master, host",    "copy, device",
    "copy, host", "gradient, device", "gradient, host", "moments, device", "moments, host",
    NULL};
static const enum gd_role roles[] = {GD_ROLE_PARAM, GD_ROLE_PARAM_COMPUTE, GD_ROLE_GRAD,
                                     GD_ROLE_OPTIMIZER};

/* Leaf bytes by kind, role and space. */
struct tally {
  int64_t bytes[2][COUNT(roles)][GD_SPACE_COUNT];
  int64_t flats[2];
};

static void tally_leaves(const struct subject *s, const struct gd_graph *graph, struct tally *sum) {
  *sum = (struct tally){0};
  for (uint32_t i = 0; i < graph->n_flats; i++)
    sum->flats[describe_flat(s, graph, i).copied]++;
  for (gd_tensor_id id = 0; id < graph->n_tensors; id++) {
    const struct gd_tensor *t = &graph->tensors[id];
    for (size_t role = 0; role < COUNT(roles); role++) {
      if (t->role != roles[role])
        continue;
      gd_tensor_id owner = t->role == GD_ROLE_PARAM ? id : t->owner;
      bool copied = t->flat ? describe_flat(s, graph, t->flat - 1).copied
                            : find_parameter(s, graph->tensors[owner].name)->copied;
      sum->bytes[copied][role][t->space] += gd_tensor_bytes(graph, id);
    }
  }
}

static void check_bytes(const struct subject *s, const struct gd_graph *graph,
                        const struct gd_method *method, const char *name) {
  struct tally sum;
  tally_leaves(s, graph, &sum);
  for (int copied = 0; copied < 2; copied++) {
    struct table table;
    read_table(copied ? "Parameters with a 16-bit copy" : "Parameters that compute in fp32",
               bytes_columns, &table);
    const char *sharding = method->sharding ? gd_sharding_name(method->sharding) : "none";
    int row = find_row(&table, sharding, method->offload ? "yes" : "no");
    for (size_t i = 0; i < COUNT(roles) * GD_SPACE_COUNT; i++) {
      struct formula f = read_formula(table.cells[row][2 + i], copied);
      int64_t bytes = sum.bytes[copied][i / 2][i % 2], least = f.bytes * s->elements[copied];
      int64_t padding = f.bytes * 64 * graph->ranks * sum.flats[copied];
      if (f.shared)
        bytes *= graph->ranks;
      if (bytes < least || bytes > least + padding)
        fail_msg("%s, %d ranks, %s: %lld bytes of %s, the page says %s for %lld parameters", name,
                 graph->ranks, copied ? "16-bit copy" : "fp32",
                 (long long)sum.bytes[copied][i / 2][i % 2], bytes_columns[2 + i],
                 table.cells[row][2 + i], (long long)s->elements[copied]);
    }
  }
}

/* --- messages and copies ------------------------------------------------------------------- */

static const char *const collective_columns[] = {
    "sharding",
    "every micro-step, forward",
    "every micro-step, backward",
    "last micro-step of a step, besides",
    "update",
    NULL,
};
static const char *const copy_columns[] = {
    "sharding",
    "forward, to the device",
    "backward, to the device",
    "backward, to the host",
    "update, to the host",
    "update, to the device",
    NULL,
};

/* Bytes that one flat's ops of a kind work on in a program. Copies: by where they go. */
struct traffic {
  int64_t bytes[GD_OP_COUNT];
  int64_t copied[GD_SPACE_COUNT];
};

static gd_op_id reader_of(const struct gd_graph *graph, gd_tensor_id id) {
  for (gd_op_id op = 0; op < graph->n_ops; op++)
    for (uint32_t i = 0; i < graph->ops[op].n_in; i++)
      if (graph->ops[op].in[i] == id)
        return op;
  return GD_NONE;
}

/* 1 + the flat that a tensor is of: a leaf, what came out of one, or what goes into one. 0: none */
static uint32_t flat_of(const struct gd_graph *graph, gd_tensor_id id) {
  for (gd_tensor_id at = id;;) {
    const struct gd_tensor *t = &graph->tensors[at];
    if (t->flat)
      return t->flat;
    if (t->alias_of != GD_NONE)
      at = t->alias_of;
    else if (t->producer != GD_NONE && graph->ops[t->producer].n_in > 0 &&
             gd_op_is_async(graph->ops[t->producer].kind))
      at = graph->ops[t->producer].in[0];
    else
      break;
  }
  for (gd_op_id op = reader_of(graph, id); op != GD_NONE;) {
    uint32_t flat = graph->tensors[gd_tensor_root(graph, graph->ops[op].in[0], NULL)].flat;
    if (graph->ops[op].kind == GD_OP_accumulate && flat)
      return flat;
    if (!gd_op_is_async(graph->ops[op].kind))
      break;
    op = reader_of(graph, graph->ops[op].out[0]);
  }
  return 0;
}

static void count_op(const struct gd_graph *graph, const struct gd_op *op,
                     struct traffic *traffic) { /* by 1 + flat; 0: what belongs to none */
  const bool into = op->kind == GD_OP_transfer_into;
  gd_tensor_id reads = op->in[into], writes = op->out[0];
  uint32_t flat = into ? flat_of(graph, op->in[0]) : flat_of(graph, reads);
  if (!flat && op->kind == GD_OP_reduce_scatter)
    flat = flat_of(graph, writes);
  struct traffic *t = &traffic[flat];
  if (op->kind == GD_OP_transfer || into) {
    t->copied[graph->tensors[gd_tensor_root(graph, writes, NULL)].space] +=
        gd_tensor_bytes(graph, reads);
    return;
  }
  if (op->attr.ranks.ranks == 1)
    return; /* nothing is sent */
  assert_int_equal(op->attr.ranks.ranks, graph->ranks);
  t->bytes[op->kind] += gd_tensor_bytes(graph, op->kind == GD_OP_gather ? writes : reads);
}

static struct traffic *count_program(const struct gd_plan *plan, enum gd_program program) {
  const struct gd_graph *graph = plan->graph;
  struct traffic *traffic = gd_mem_alloc((size_t)graph->n_flats + 1, sizeof *traffic);
  assert_non_null(traffic);
  for (uint32_t i = 0; i < plan->n_order[program]; i++) {
    const struct gd_op *op = &graph->ops[plan->order[program][i]];
    if (gd_op_is_async(op->kind))
      count_op(graph, op, traffic);
  }
  return traffic;
}

/* Adds what a cell such as "gather C, reduce_scatter 4" says of one flat. */
static void expect_cell(const char *cell, const struct flat *flat, int ranks, bool no_gather,
                        struct traffic *expected) {
  static const enum gd_op_kind kinds[] = {GD_OP_all_reduce, GD_OP_reduce_scatter, GD_OP_all_gather,
                                          GD_OP_gather};
  char part[CELL];
  if (strcmp(cell, "-") == 0)
    return;
  for (const char *at = cell; *at;) {
    size_t length = strcspn(at, ","), word = strcspn(at, " ");
    int found = -1;
    assert_true(word < length);
    for (size_t i = 0; i < COUNT(kinds); i++)
      if (strlen(gd_op_info(kinds[i])->name) == word &&
          strncmp(gd_op_info(kinds[i])->name, at, word) == 0)
        found = (int)kinds[i];
    if (found < 0)
      fail_msg("docs/methods.md: \"%s\" is no collective", cell);
    snprintf(part, sizeof part, "%.*s", (int)(length - word - 1), at + word + 1);
    struct formula f = read_formula(part, flat->copied);
    assert_false(f.shared);
    if (ranks > 1 && !(found == GD_OP_gather && no_gather))
      expected->bytes[found] += f.bytes * flat->shard * ranks;
    at += length;
    at += strspn(at, ", ");
  }
}

static void expect_copy(const char *cell, const struct flat *flat, enum gd_space to,
                        struct traffic *expected) {
  struct formula f = read_formula(cell, flat->copied);
  assert_true(f.shared || f.bytes == 0);
  expected->copied[to] += f.bytes * flat->shard;
}

static void compare_traffic(const struct traffic *counted, const struct traffic *expected,
                            const char *name, int ranks, uint32_t flat, const char *program) {
  for (int kind = 0; kind < GD_OP_COUNT; kind++)
    if (counted->bytes[kind] != expected->bytes[kind])
      fail_msg("%s, %d ranks, flat %u, %s: %s on %lld bytes, the page says %lld", name, ranks, flat,
               program, gd_op_info((enum gd_op_kind)kind)->name, (long long)counted->bytes[kind],
               (long long)expected->bytes[kind]);
  for (int space = 0; space < GD_SPACE_COUNT; space++)
    if (counted->copied[space] != expected->copied[space])
      fail_msg("%s, %d ranks, flat %u, %s: %lld bytes to the %s, the page says %lld", name, ranks,
               flat, program, (long long)counted->copied[space],
               space == GD_SPACE_HOST ? "host" : "device", (long long)expected->copied[space]);
}

static void check_traffic(const struct subject *s, const struct gd_plan *plan,
                          const struct gd_method *method, const char *name) {
  const struct gd_graph *graph = plan->graph;
  const char *sharding = method->sharding ? gd_sharding_name(method->sharding) : "none";
  struct table sent, copied;
  read_table("Collectives", collective_columns, &sent);
  read_table("Copies between the memories", copy_columns, &copied);
  int sent_row = find_row(&sent, sharding, NULL);
  int copied_row = method->offload ? find_row(&copied, sharding, NULL) : 0;
  struct traffic *pass = count_program(plan, GD_PROGRAM_MICRO_STEP);
  struct traffic *last = count_program(plan, GD_PROGRAM_LAST_MICRO_STEP);
  struct traffic *update = count_program(plan, GD_PROGRAM_UPDATE);
  for (uint32_t i = 0; i < graph->n_flats; i++) {
    struct flat flat = describe_flat(s, graph, i);
    struct traffic in_pass = {0}, in_update = {0};
    char(*row)[CELL] = sent.cells[sent_row];
    expect_cell(row[1], &flat, graph->ranks, false, &in_pass);
    expect_cell(row[2], &flat, graph->ranks, !flat.backward, &in_pass);
    expect_cell(row[4], &flat, graph->ranks, false, &in_update);
    if (method->offload) {
      char(*copy)[CELL] = copied.cells[copied_row];
      expect_copy(copy[1], &flat, GD_SPACE_DEVICE, &in_pass);
      if (flat.backward)
        expect_copy(copy[2], &flat, GD_SPACE_DEVICE, &in_pass);
      expect_copy(copy[3], &flat, GD_SPACE_HOST, &in_pass);
      expect_copy(copy[4], &flat, GD_SPACE_HOST, &in_update);
      expect_copy(copy[5], &flat, GD_SPACE_DEVICE, &in_update);
    }
    struct traffic in_last = in_pass;
    expect_cell(row[3], &flat, graph->ranks, false, &in_last);
    compare_traffic(&pass[i + 1], &in_pass, name, graph->ranks, i, "pass");
    compare_traffic(&last[i + 1], &in_last, name, graph->ranks, i, "last micro-step");
    compare_traffic(&update[i + 1], &in_update, name, graph->ranks, i, "update");
  }
  /* Of no flat: the norm, and scalars on their way to Adam. */
  struct traffic rest = {0};
  compare_traffic(&pass[0], &rest, name, graph->ranks, 0, "pass, of no flat");
  compare_traffic(&last[0], &rest, name, graph->ranks, 0, "last micro-step, of no flat");
  if (graph->ranks > 1)
    rest.bytes[GD_OP_gather] = 8 * (int64_t)graph->n_flats * graph->ranks;
  rest.copied[GD_SPACE_HOST] = update[0].copied[GD_SPACE_HOST];
  assert_true(rest.copied[GD_SPACE_HOST] <= (method->offload ? 16 : 0));
  compare_traffic(&update[0], &rest, name, graph->ranks, 0, "update, of no flat");
  gd_mem_free(pass);
  gd_mem_free(last);
  gd_mem_free(update);
}

/* What is let go after the forward pass is read there alone, and the rest until its backward pass
   is over. */
static void check_spans(const struct gd_graph *graph, const struct gd_method *method,
                        const char *name) {
  if (!gd_regathers(method->sharding))
    return;
  for (gd_op_id id = 0; id < graph->n_ops; id++) {
    const struct gd_op *op = &graph->ops[id];
    for (uint32_t i = 0; op->phase == GD_PHASE_BACKWARD && i < op->n_in; i++) {
      gd_tensor_id root = op->in[i] == GD_NONE ? GD_NONE : gd_tensor_root(graph, op->in[i], NULL);
      gd_op_id from = root == GD_NONE ? GD_NONE : graph->tensors[root].producer;
      if (from == GD_NONE || graph->ops[from].kind != GD_OP_gather)
        continue;
      for (gd_op_id other = from + 1; other < id; other++)
        for (uint32_t j = 0; j < graph->ops[other].n_in; j++)
          if (graph->ops[other].in[j] != GD_NONE && graph->ops[other].phase == GD_PHASE_FORWARD &&
              gd_tensor_root(graph, graph->ops[other].in[j], NULL) == root)
            fail_msg("%s: what op %u gathers is read in the forward pass (op %u) and in the "
                     "backward pass (op %u)",
                     name, from, other, id);
    }
  }
}

/* --- the tests ----------------------------------------------------------------------------- */

static int n_points;

static void check_point(const struct subject *s, struct gd_method method, int ranks,
                        const char *preset) {
  const struct gd_caps caps = {.alignment_bytes = 64, .comm_bytes = 1 << 20};
  char parts[GD_METHOD_NAME], name[160];
  struct gd_graph graph = {0};
  struct gd_plan plan = {0};
  struct gd_error err = {0};
  snprintf(name, sizeof name, "%s, %s, %s", preset, gd_precision_name(s->precision),
           gd_method_name(&method, parts));
  build(&s->model, s->precision, method, ranks, &graph);
  check_bytes(s, &graph, &method, name);
  assert_int_equal(gd_plan_make(&graph, &caps, &plan, &err), GD_OK);
  check_traffic(s, &plan, &method, name);
  check_spans(&graph, &method, name);
  gd_plan_deinit(&plan);
  gd_graph_deinit(&graph);
  n_points++;
}

static void check_subject(const char *preset, enum gd_precision precision, struct gd_method base) {
  static const int ranks[] = {1, 2, 4, 7};
  struct subject s;
  subject_init(&s, preset, precision, base);
  for (size_t i = 0; i < COUNT(ranks); i++)
    for (int sharding = 0; sharding < GD_SHARDING_COUNT; sharding++)
      for (int offload = 0; offload <= (sharding != GD_SHARDING_NONE); offload++) {
        struct gd_method method = base;
        method.sharding = (enum gd_sharding)sharding;
        method.offload = offload;
        check_point(&s, method, ranks[i], preset);
      }
  subject_deinit(&s);
}

static void test_tables(void **state) {
  static const char *const presets[] = {"pythia-14m", "roberta-base", "mamba-130m",
                                        "convnext-large-1k"};
  const struct gd_method naive = {0};
  const struct gd_method ckpt = {.compile = true, .kernels = true, .tf32 = true, .ckpt = true};
  (void)state;
  for (size_t i = 0; i < COUNT(presets); i++) {
    check_subject(presets[i], GD_PRECISION_FP32, naive);
    check_subject(presets[i], GD_PRECISION_BF16, naive);
    check_subject(presets[i], GD_PRECISION_BF16, ckpt);
  }
  print_message("%d points agree with docs/methods.md\n", n_points);
}

/* --- the worked example -------------------------------------------------------------------- */

/* What a rank sends in one run of a program. */
static int64_t sent_bytes(const struct gd_plan *plan, enum gd_program program) {
  const struct gd_graph *graph = plan->graph;
  int64_t sent = 0;
  for (uint32_t i = 0; i < plan->n_order[program]; i++) {
    const struct gd_op *op = &graph->ops[plan->order[program][i]];
    int64_t times = op->kind == GD_OP_all_reduce ? 2 : 1;
    if (!gd_op_is_async(op->kind) || op->kind == GD_OP_transfer || op->kind == GD_OP_transfer_into)
      continue;
    gd_tensor_id whole = op->kind == GD_OP_gather ? op->out[0] : op->in[0];
    sent += times * gd_tensor_bytes(graph, whole) / graph->ranks * (graph->ranks - 1);
  }
  return sent;
}

static const char *with_commas(char out[32], int64_t value) {
  char digits[32];
  int length = snprintf(digits, sizeof digits, "%lld", (long long)value), at = 0;
  for (int i = 0; i < length; i++) {
    if (i > 0 && (length - i) % 3 == 0)
      out[at++] = ',';
    out[at++] = digits[i];
  }
  out[at] = '\0';
  return out;
}

static void test_example(void **state) {
  static const char *const columns[] = {
      "sharding",  "offload",    "parameters",         "gradients",
      "optimizer", "host state", "sent a step, bytes", NULL,
  };
  enum { RANKS = 4, ACCUMULATION = 8 };
  const struct gd_caps caps = {.alignment_bytes = 64, .comm_bytes = 1 << 20};
  struct gd_model model;
  struct gd_error err = {0};
  struct table table;
  (void)state;
  read_table("pythia-1b on 4 ranks", columns, &table);
  assert_int_equal(gd_model_load("pythia-1b", &model, &err), GD_OK);
  int bad = 0;
  for (int offload = 0; offload < 2; offload++)
    for (int sharding = offload; sharding < GD_SHARDING_COUNT; sharding++) {
      struct gd_method method = {.compile = true,
                                 .kernels = true,
                                 .tf32 = true,
                                 .sharding = (enum gd_sharding)sharding,
                                 .offload = offload};
      struct gd_graph graph = {0};
      struct gd_plan plan = {0};
      build(&model, GD_PRECISION_BF16, method, RANKS, &graph);
      assert_int_equal(gd_plan_make(&graph, &caps, &plan, &err), GD_OK);
      int64_t values[] = {
          plan.bytes[GD_CATEGORY_PARAMETERS], plan.bytes[GD_CATEGORY_GRADIENTS],
          plan.bytes[GD_CATEGORY_OPTIMIZER],
          plan.host_parts[GD_CATEGORY_PARAMETERS] + plan.host_parts[GD_CATEGORY_GRADIENTS] +
              plan.host_parts[GD_CATEGORY_OPTIMIZER],
          (ACCUMULATION - 1) * sent_bytes(&plan, GD_PROGRAM_MICRO_STEP) +
              sent_bytes(&plan, GD_PROGRAM_LAST_MICRO_STEP) + sent_bytes(&plan, GD_PROGRAM_UPDATE)};
      const char *name = sharding ? gd_sharding_name(method.sharding) : "none";
      int row = find_row(&table, name, offload ? "yes" : "no");
      char line[256];
      int at = snprintf(line, sizeof line, "| %s | %s |", name, offload ? "yes" : "no");
      for (size_t i = 0; i < COUNT(values); i++) {
        char text[32];
        at += snprintf(line + at, sizeof line - (size_t)at, " %s |", with_commas(text, values[i]));
        bad += strcmp(text, table.cells[row][2 + i]) != 0;
      }
      print_message("%s\n", line);
      gd_plan_deinit(&plan);
      gd_graph_deinit(&graph);
    }
  if (bad)
    fail_msg("%d figures of the worked example are not those above", bad);
}

/* --- what the methods say of memory -------------------------------------------------------- */

static void plan_bytes(const char *preset, const char *method_name, int ranks, int64_t micro_batch,
                       int64_t bytes[GD_CATEGORY_COUNT]) {
  struct gd_model model;
  struct gd_error err = {0};
  struct gd_graph graph = {0};
  struct gd_plan plan = {0};
  struct gd_caps caps;
  struct gd_setup setup = {
      .model = &model, .precision = GD_PRECISION_BF16, .micro_batch = micro_batch, .ranks = ranks};
  gd_backend_cpu.caps(&(struct gd_backend_options){.threads = 2}, &caps);
  assert_int_equal(gd_method_parse(method_name, &setup.method, &err), GD_OK);
  assert_int_equal(gd_model_load(preset, &model, &err), GD_OK);
  assert_int_equal(gd_pipeline_build(&setup, &graph, &err), GD_OK);
  assert_int_equal(gd_plan_make(&graph, &caps, &plan, &err), GD_OK);
  memcpy(bytes, plan.bytes, sizeof plan.bytes);
  gd_plan_deinit(&plan);
  gd_graph_deinit(&graph);
}

/* On four ranks: 1 divides the optimizer by four, 2 gradients too, 3 parameters too. */
static void test_quarters(void **state) {
  static const char *const methods[] = {"free-lunch+zero1", "free-lunch+zero2", "free-lunch+zero3",
                                        "free-lunch+fsdp2", "free-lunch+fsdp3"};
  static const enum gd_category divided[] = {GD_CATEGORY_OPTIMIZER, GD_CATEGORY_GRADIENTS,
                                             GD_CATEGORY_PARAMETERS};
  int64_t whole[GD_CATEGORY_COUNT], bytes[GD_CATEGORY_COUNT];
  (void)state;
  plan_bytes("pythia-160m", "free-lunch", 4, 1, whole);
  for (size_t i = 0; i < COUNT(methods); i++) {
    plan_bytes("pythia-160m", methods[i], 4, 1, bytes);
    for (size_t j = 0; j < COUNT(divided); j++) {
      double ratio = (double)whole[divided[j]] / (double)bytes[divided[j]];
      if (j <= i && !(ratio > 3.99 && ratio <= 4.01))
        fail_msg("%s: %s are divided by %.3f", methods[i], gd_category_name(divided[j]), ratio);
      if (j == i + 1 && divided[j] == GD_CATEGORY_GRADIENTS) /* not divided yet */
        assert_int_equal(bytes[divided[j]], whole[divided[j]]);
    }
  }
}

static void test_activations(void **state) {
  int64_t naive[GD_CATEGORY_COUNT], lunch[GD_CATEGORY_COUNT], ckpt[GD_CATEGORY_COUNT];
  (void)state;
  plan_bytes("pythia-160m", "naive", 1, 4, naive);
  plan_bytes("pythia-160m", "free-lunch", 1, 4, lunch);
  plan_bytes("pythia-160m", "free-lunch+ckpt", 1, 4, ckpt);
  double fused = (double)naive[GD_CATEGORY_ACTIVATIONS] / (double)lunch[GD_CATEGORY_ACTIVATIONS];
  double again = (double)lunch[GD_CATEGORY_ACTIVATIONS] / (double)ckpt[GD_CATEGORY_ACTIVATIONS];
  print_message("pythia-160m, micro-batch 4: activations %.2f GiB naive, %.2f x less with "
                "free-lunch, another %.2f x less with ckpt\n",
                (double)naive[GD_CATEGORY_ACTIVATIONS] / 0x1p30, fused, again);
  assert_true(fused >= 3);
  assert_true(again >= 5);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_tables),
      cmocka_unit_test(test_example),
      cmocka_unit_test(test_quarters),
      cmocka_unit_test(test_activations),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
