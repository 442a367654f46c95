/*
 * Asynchronous ops overlap computation: collectives and copies are started early enough that
 * computation of something else stands between them and whoever waits for them.
 *
 * First from the program, which is certain: for every op of the side thread, the ops behind it up
 * to the first that waits for it. Then from the times that runs record: on a busy machine the side
 * thread may come late now and then, so one run out of several must show it.
 *
 * Two ranks, started under mpirun by this program; copies of offloading on one.
 */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "exec/run.h"
#include "pass/pass.h"
#include "support/ranks.h"
#include "support/tiny.h"

enum { PATIENCE_S = 200 }; /* the first run shows it, unless the machine is very busy */
#define COUNT(array) (sizeof(array) / sizeof *(array))

static int failures;

/* Six layers: units enough that most have others before and behind them. */
static const char config[] =
    "{\"model_type\": \"gpt_neox\", \"vocab_size\": 2000, \"hidden_size\": 192,"
    " \"intermediate_size\": 768, \"num_hidden_layers\": 6, \"num_attention_heads\": 3,"
    " \"hidden_act\": \"gelu\", \"max_position_embeddings\": 256, \"rotary_pct\": 0.25,"
    " \"layer_norm_eps\": 1e-05, \"tie_word_embeddings\": false,"
    " \"use_parallel_residual\": true}";

/* --- what is expected ---------------------------------------------------------------------- */

/* Which computation may hide a side op. */
enum hides {
  HIDES_UNIT,     /* GEMMs of another unit */
  HIDES_BACKWARD, /* the backward pass */
  HIDES_ADAM,
};

struct expectation {
  const char *method;
  enum gd_program program;
  enum gd_op_kind kind; /* of the side op */
  enum hides hides;
  int least_bytes; /* of its output: scalars do not count */
  int bare;        /* so many of them have nothing to hide behind */
};

/* Bare are the first gathers of a pass, the last reduction and the last (or first) of an update;
   with ckpt one more gather, where the backward pass begins with a norm. */
static const struct expectation two_ranks[] = {
    {"free-lunch", GD_PROGRAM_LAST_MICRO_STEP, GD_OP_all_reduce, HIDES_BACKWARD, 0, 1},
    {"free-lunch+zero1", GD_PROGRAM_LAST_MICRO_STEP, GD_OP_reduce_scatter, HIDES_BACKWARD, 0, 1},
    {"free-lunch+zero1", GD_PROGRAM_UPDATE, GD_OP_all_gather, HIDES_ADAM, 0, 1},
    {"free-lunch+zero2", GD_PROGRAM_MICRO_STEP, GD_OP_reduce_scatter, HIDES_BACKWARD, 0, 1},
    {"free-lunch+zero3", GD_PROGRAM_MICRO_STEP, GD_OP_gather, HIDES_UNIT, 0, 3},
    {"free-lunch+zero3", GD_PROGRAM_MICRO_STEP, GD_OP_reduce_scatter, HIDES_BACKWARD, 0, 1},
    {"free-lunch+fsdp2", GD_PROGRAM_MICRO_STEP, GD_OP_gather, HIDES_UNIT, 0, 3},
    {"free-lunch+fsdp3", GD_PROGRAM_MICRO_STEP, GD_OP_gather, HIDES_UNIT, 0, 3},
    {"free-lunch+fsdp3", GD_PROGRAM_MICRO_STEP, GD_OP_reduce_scatter, HIDES_BACKWARD, 0, 1},
    {"free-lunch+ckpt+fsdp3", GD_PROGRAM_MICRO_STEP, GD_OP_gather, HIDES_UNIT, 0, 4},
    {"free-lunch+ckpt+fsdp3+offload", GD_PROGRAM_MICRO_STEP, GD_OP_gather, HIDES_UNIT, 0, 4},
};
/* In the pass these are shares on their way to the device and gradients on their way back. */
static const struct expectation one_rank[] = {
    {"free-lunch+zero1+offload", GD_PROGRAM_UPDATE, GD_OP_transfer, HIDES_ADAM, 64, 1},
    {"free-lunch+zero1+offload", GD_PROGRAM_UPDATE, GD_OP_transfer_into, HIDES_ADAM, 64, 1},
    {"free-lunch+zero3+offload", GD_PROGRAM_UPDATE, GD_OP_transfer, HIDES_ADAM, 64, 1},
    {"free-lunch+fsdp3+offload", GD_PROGRAM_MICRO_STEP, GD_OP_transfer, HIDES_UNIT, 64, 6},
};

/* --- programs ------------------------------------------------------------------------------ */

struct program {
  const struct gd_graph *graph;
  const gd_op_id *order;
  uint32_t n;
  uint32_t *number; /* by place: 1, 2, ... for what goes to the side thread, 0 for the others */
  uint32_t *waits;  /* by place: the highest number that must be done before */
};

static void fail(const struct expectation *p, const char *what) {
  fprintf(stderr, "%s, %s: %s\n", p->method, gd_op_info(p->kind)->name, what);
  failures++;
}

/* The number of the last side op that this one reads from: the side thread works in order. */
static void program_init(struct program *program, const struct gd_plan *plan,
                         enum gd_program which) {
  const struct gd_graph *graph = plan->graph;
  uint32_t *number_of = gd_mem_alloc(graph->n_ops, sizeof *number_of), next = 0;
  *program = (struct program){.graph = graph,
                              .order = plan->order[which],
                              .n = plan->n_order[which],
                              .number = gd_mem_alloc(plan->n_order[which], sizeof(uint32_t)),
                              .waits = gd_mem_alloc(plan->n_order[which], sizeof(uint32_t))};
  GD_ASSERT(number_of && program->number && program->waits);
  for (uint32_t at = 0; at < program->n; at++) {
    const struct gd_op *op = &graph->ops[program->order[at]];
    if (gd_op_is_async(op->kind)) {
      program->number[at] = number_of[program->order[at]] = ++next;
      continue;
    }
    for (uint32_t i = 0; i < op->n_in; i++)
      for (gd_tensor_id in = op->in[i]; in != GD_NONE; in = graph->tensors[in].alias_of) {
        gd_op_id from = graph->tensors[in].producer;
        if (from != GD_NONE && number_of[from] > program->waits[at])
          program->waits[at] = number_of[from];
      }
  }
  gd_mem_free(number_of);
}

static void program_deinit(struct program *program) {
  gd_mem_free(program->number);
  gd_mem_free(program->waits);
}

static bool is_matmul(enum gd_op_kind kind) {
  return gd_op_info(kind)->flops_per_element == GD_FLOPS_GEMM;
}

/* Not a view, nor what merely puts results somewhere. */
static bool computes(enum gd_op_kind kind) {
  return gd_op_info(kind)->op_class == GD_CLASS_PURE && kind != GD_OP_buffer;
}

/* Whether a computation that reads what this side op makes, or a part of it, is the same unit. */
static bool reads(const struct gd_graph *graph, const struct gd_op *op, gd_tensor_id what) {
  for (uint32_t i = 0; i < op->n_in; i++)
    if (op->in[i] != GD_NONE && gd_tensor_root(graph, op->in[i], NULL) == what)
      return true;
  return false;
}

static bool can_hide(const struct expectation *p, const struct gd_graph *graph,
                     const struct gd_op *op, gd_tensor_id made) {
  switch (p->hides) {
  case HIDES_UNIT: return is_matmul(op->kind) && !reads(graph, op, made);
  case HIDES_BACKWARD: return computes(op->kind) && op->phase == GD_PHASE_BACKWARD;
  case HIDES_ADAM: return op->kind == GD_OP_adam;
  }
  return false;
}

/* The next op behind `from` that may hide the side op at a place, before anything waits for it;
   0: none. */
static uint32_t next_hiding(const struct expectation *p, const struct program *program, uint32_t at,
                            uint32_t from) {
  gd_tensor_id made = program->graph->ops[program->order[at]].out[0];
  for (uint32_t next = from + 1; next < program->n; next++) {
    if (program->waits[next] >= program->number[at])
      break;
    if (!program->number[next] &&
        can_hide(p, program->graph, &program->graph->ops[program->order[next]], made))
      return next;
  }
  return 0;
}

static bool is_meant(const struct expectation *p, const struct program *program, uint32_t at) {
  const struct gd_op *op = &program->graph->ops[program->order[at]];
  return op->kind == p->kind && gd_tensor_bytes(program->graph, op->out[0]) >= p->least_bytes;
}

/* From the program alone: how many there are, and how many have nothing to hide behind. */
static void check_program(const struct expectation *p, const struct program *program) {
  int count = 0, bare = 0;
  char what[96];
  for (uint32_t at = 0; at < program->n; at++)
    if (is_meant(p, program, at)) {
      count++;
      bare += next_hiding(p, program, at, at) == 0;
    }
  snprintf(what, sizeof what, "%d of %d have nothing to overlap, %d may", bare, count, p->bare);
  if (count < 2 * p->bare + 2 || bare > p->bare)
    fail(p, what);
}

/* From the times of one run: how many ran at the same time as an op that may hide them. */
static int count_seen(const struct expectation *p, const struct program *program,
                      const struct gd_event *events) {
  int seen = 0;
  for (uint32_t at = 0; at < program->n; at++) {
    bool together = false;
    for (uint32_t other = at; is_meant(p, program, at) && !together;) {
      other = next_hiding(p, program, at, other);
      if (other == 0)
        break;
      together =
          events[other].begin_ns < events[at].end_ns && events[at].begin_ns < events[other].end_ns;
    }
    seen += together;
    if (events[at].op != program->order[at] || events[at].async != (program->number[at] > 0) ||
        events[at].begin_ns > events[at].end_ns)
      fail(p, "an event is not that of its op");
    for (uint32_t next = at + 1; program->number[at] && next < program->n; next++)
      if (program->waits[next] >= program->number[at]) { /* and nothing runs too early */
        if (events[next].begin_ns < events[at].end_ns)
          fail(p, "an op did not wait for what it reads");
        break;
      }
  }
  return seen;
}

/* --- runs ---------------------------------------------------------------------------------- */

struct session {
  struct gd_comm *comm;
  struct gd_model model;
  struct gd_graph graph;
  struct gd_plan plan;
  struct gd_backend *backend;
  struct gd_run run;
};

static enum gd_status start(struct session *s, const struct expectation *p, struct gd_error *err) {
  struct gd_backend_options options = {.threads = 1, .comm = s->comm, .trace = true};
  struct gd_setup setup = {.model = &s->model,
                           .precision = GD_PRECISION_BF16,
                           .micro_batch = 2,
                           .ranks = s->comm ? gd_comm_size(s->comm) : 1,
                           .rank = s->comm ? gd_comm_rank(s->comm) : 0,
                           .no_compiler = true}; /* what is fused does not matter here */
  struct gd_caps caps;
  GD_TRY(tiny_parse(config, &s->model, err));
  s->model.recipe.seq = 128;
  GD_TRY(gd_method_parse(p->method, &setup.method, err));
  GD_TRY(gd_pipeline_build(&setup, &s->graph, err));
  gd_backend_cpu.caps(&options, &caps);
  GD_TRY(gd_plan_make(&s->graph, &caps, &s->plan, err));
  GD_TRY(gd_backend_open("cpu", &options, &s->backend, err));
  GD_TRY(gd_run_open(&s->run, s->backend, &s->plan, NULL, err));
  GD_TRY(gd_run_init(&s->run, 1, err));
  return gd_run_random_batch(&s->run, GD_RUN_FULL, 2000, 1, err);
}

static void stop(struct session *s) {
  gd_run_close(&s->run);
  gd_backend_close(s->backend);
  gd_plan_deinit(&s->plan);
  gd_graph_deinit(&s->graph);
}

static enum gd_status run_program(struct session *s, enum gd_program program,
                                  struct gd_error *err) {
  return program == GD_PROGRAM_UPDATE            ? gd_run_update(&s->run, 0, err)
         : program == GD_PROGRAM_LAST_MICRO_STEP ? gd_run_last_micro_step(&s->run, GD_RUN_FULL, err)
                                                 : gd_run_micro_step(&s->run, GD_RUN_FULL, err);
}

/* Runs the program until every rank has seen an overlap. */
static enum gd_status watch(struct session *s, const struct expectation *p,
                            const struct program *program, struct gd_error *err) {
  int seen = 0, tries = 0;
  int64_t start_ns = gd_clock_ns();
  double states[2] = {1, 0}; /* ranks that have seen none, and that are out of patience */
  for (; states[0] > 0 && states[1] == 0; tries++) {
    GD_TRY(run_program(s, p->program, err));
    uint32_t count;
    const struct gd_event *events =
        s->backend->ops->events(s->backend, s->run.bound[GD_RUN_FULL], p->program, &count);
    GD_ASSERT(count == program->n);
    seen += count_seen(p, program, events);
    states[0] = seen == 0;
    states[1] = gd_clock_ns() - start_ns > PATIENCE_S * 1000000000LL;
    if (s->comm)
      GD_TRY(gd_comm_sum_doubles(s->comm, states, 2, err));
  }
  if (seen == 0)
    fail(p, "no run showed it overlap computation");
  if (!s->comm || gd_comm_rank(s->comm) == 0)
    printf("%-32s %-14s seen %d times in %d runs\n", p->method, gd_op_info(p->kind)->name, seen,
           tries);
  return GD_OK;
}

static void check(const struct expectation *p, struct gd_comm *comm) {
  struct session s = {.comm = comm};
  struct program program = {0};
  struct gd_error err = {0};
  enum gd_status status = start(&s, p, &err);
  if (status == GD_OK) {
    program_init(&program, &s.plan, p->program);
    check_program(p, &program);
    status = watch(&s, p, &program, &err);
  }
  if (status != GD_OK)
    fail(p, err.text);
  program_deinit(&program);
  stop(&s);
}

static int run_rank(void) {
  struct gd_comm *comm = ranks_join();
  for (size_t i = 0; i < COUNT(two_ranks); i++)
    check(&two_ranks[i], comm);
  gd_comm_close(comm);
  return failures > 0;
}

int main(int argc, char **argv) {
  int rank, size;
  (void)argc;
  if (gd_comm_in_job(&rank, &size))
    return run_rank();
  for (size_t i = 0; i < COUNT(one_rank); i++)
    check(&one_rank[i], NULL);
  if (!ranks_can_start())
    return failures ? 1 : 77;
  failures += ranks_run(argv[0], 2);
  return failures > 0;
}
