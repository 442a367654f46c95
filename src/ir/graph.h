/*
 * The graph: what a model is once built, and what every later stage reads and rewrites.
 *
 * Ops and tensors are two arrays; everything refers to them by id. One graph holds three programs
 * over the same leaves: the init program (16-bit copies of the parameters), the micro-step
 * (forward + backward of one micro-batch, gradients accumulated) and the update program (once per
 * training step). A phase on each op says which.
 *
 * Building is sticky: after the first failure every builder returns GD_NONE and the reason waits
 * in graph->error, so that model files read as mathematics. gd_graph_check() hands it over.
 *
 *   struct gd_graph g = {0};
 *   int64_t dims[2] = {3, 4};
 *   gd_tensor_id x = gd_graph_leaf(&g, GD_ROLE_INPUT, "x", GD_DTYPE_F32, 2, dims);
 *   gd_tensor_id y = gd_activate(&g, x, GD_ACTIVATION_GELU);
 *   enum gd_status status = gd_graph_check(&g, &err);
 *   gd_graph_deinit(&g);
 */
#ifndef GD_IR_GRAPH_H
#define GD_IR_GRAPH_H

#include "base/mem.h"
#include "base/status.h"
#include "base/strbuf.h"
#include "ir/op.h"

typedef uint32_t gd_tensor_id;
typedef uint32_t gd_op_id;
#define GD_NONE UINT32_MAX

/* Whose bytes a tensor's are. Leaves live as long as the run; activations are planned. */
enum gd_role {
  GD_ROLE_ACTIVATION,    /* produced by an op */
  GD_ROLE_PARAM,         /* fp32 master */
  GD_ROLE_PARAM_COMPUTE, /* compute copy of a master */
  GD_ROLE_GRAD,          /* fp32 accumulator of a parameter's gradient */
  GD_ROLE_OPTIMIZER,     /* Adam moments */
  GD_ROLE_INPUT,         /* written by the host before a program: ids, labels, learning rate */
  GD_ROLE_CONST,         /* computed once: rotary table */
  GD_ROLE_STATE,         /* small scalars that persist: step, loss scale, summed loss */
  GD_ROLE_PIECE, /* part of a flat leaf (alias_of), or nowhere: a parameter that lies in shards */
};

enum gd_phase { GD_PHASE_FORWARD, GD_PHASE_BACKWARD, GD_PHASE_UPDATE, GD_PHASE_INIT };
/*
 * The programs that phases belong to. LAST is the micro-step of a step's last micro-batch: the
 * same ops, and those that are due once a step while the backward pass still runs (op.last_only:
 * gradients reduced over ranks).
 */
enum gd_program {
  GD_PROGRAM_MICRO_STEP,
  GD_PROGRAM_UPDATE,
  GD_PROGRAM_INIT,
  GD_PROGRAM_LAST_MICRO_STEP,
  GD_PROGRAM_COUNT
};
static inline enum gd_program gd_phase_program(enum gd_phase phase) {
  return phase == GD_PHASE_UPDATE ? GD_PROGRAM_UPDATE
         : phase == GD_PHASE_INIT ? GD_PROGRAM_INIT
                                  : GD_PROGRAM_MICRO_STEP;
}

/* Steps between the states that scan saves; the backward pass recomputes those between. */
enum { GD_SCAN_CHUNK = 64 };

/* How a parameter or a constant starts. */
enum gd_init {
  GD_INIT_ZEROS,
  GD_INIT_ONES,
  GD_INIT_NORMAL,    /* init_value is the deviation */
  GD_INIT_ROPE,      /* [T,R]: cos | sin of t frequencies[i], times init_value */
  GD_INIT_UNIFORM,   /* in [-init_value, init_value) */
  GD_INIT_CONSTANT,  /* init_value */
  GD_INIT_LOG_INDEX, /* log(1 + index in the last dim) */
  GD_INIT_STEPS,     /* softplus of it is log-uniform in [init_low, init_value] */
};

struct gd_tensor {
  enum gd_dtype dtype;
  enum gd_role role;
  uint32_t rank;
  const int64_t *dims;      /* rank entries, in the graph's arena */
  gd_op_id producer;        /* GD_NONE for a leaf */
  gd_tensor_id alias_of;    /* shares the memory of this older tensor; GD_NONE: its own */
  int64_t alias_elements;   /* where in alias_of it starts, in elements */
  gd_tensor_id owner;       /* PARAM_COMPUTE, GRAD, OPTIMIZER: the parameter it belongs to */
  int32_t block;            /* layer; -1: outside the layers */
  const char *name;         /* leaves: Hugging Face name or ours; activations: NULL or a hint */
  enum gd_init init;        /* PARAM and CONST */
  double init_value;        /* see enum gd_init */
  double init_low;          /* likewise */
  const float *frequencies; /* GD_INIT_ROPE: R/2 of them, in the graph's arena */
  bool no_decay;            /* PARAM: left out of weight decay by those who made the model */
  enum gd_space space;
  uint32_t flat;      /* 1 + index in graph->flats of what this leaf holds; 0: an ordinary tensor */
  int64_t flat_first; /* the first of the flat's elements that it holds */
};

/* Parameters behind each other in one flat piece of memory, padded so that all shards are equal. */
struct gd_flat {
  uint32_t n_pieces;
  const gd_tensor_id *pieces; /* parameters: their names, dims and starting values */
  const int64_t *starts;      /* where each begins, in elements */
  int64_t elements;           /* without padding */
  int64_t shard;              /* of one rank */
};

/* What one Adam op of the update program works on, where that is not simply a parameter. */
struct gd_adam_target {
  gd_tensor_id param, grad, compute; /* compute: 16-bit copy; GD_NONE: the parameter computes */
  gd_tensor_id norm;                 /* this rank's part of the gradient norm */
  gd_tensor_id clear;                /* zeroed afterwards */
  gd_tensor_id gather; /* flat leaf whose slices the ranks then exchange, or GD_NONE */
};

struct gd_op {
  enum gd_op_kind kind;
  enum gd_phase phase;
  int32_t block;
  uint32_t n_in, n_out;
  const gd_tensor_id *in;  /* GD_NONE where an optional input is absent */
  const gd_tensor_id *out; /* consecutive ids */
  uint32_t adds;           /* bit i: output i is added to the leaf that its alias_of names */
  union gd_attr attr;
  bool last_only;  /* in the micro-step of a step's last micro-batch alone */
  bool recomputed; /* a second time, for the backward pass: no model FLOPs */
};

struct gd_fusion; /* ir/fusion.h */

struct gd_graph {
  struct gd_tensor *tensors;
  struct gd_op *ops;
  struct gd_fusion *fusions; /* what fused ops consist of */
  uint32_t n_fusions, fusions_capacity;
  uint32_t n_tensors, tensors_capacity;
  uint32_t n_ops, ops_capacity;
  int32_t block;       /* given to what is added next */
  enum gd_phase phase; /* likewise */
  bool backward_done;  /* autodiff ran */
  double model_flops;  /* GEMM FLOPs of one micro-step, as the paper counts; set by gd_autodiff */

  /* Leaves the executor talks to; GD_NONE when the graph has none. */
  gd_tensor_id ids, pixels, labels, loss_weight, dropout_seed;
  gd_tensor_id loss_scale, step, lr, loss, loss_sum, norm, factor;
  gd_tensor_id hits, hits_sum; /* samples whose class was found; of soft_xent alone */
  uint32_t n_dropouts;         /* streams given out */
  bool trims;                  /* set before building: see gd_blocks_causal_tokens */
  bool no_dropout;             /* likewise: gd_dropout and gd_drop_path add nothing */
  bool predicts_next;          /* a label is scored against the position before it */

  /* Several ranks, or state in shards. */
  int32_t rank, ranks;            /* ranks is at least 1 */
  struct gd_flat *flats;          /* in the arena */
  struct gd_adam_target *targets; /* likewise; none: every parameter is updated by itself */
  uint32_t n_flats, n_targets;

  struct gd_arena arena;
  struct gd_error error; /* the first failure while building */

  struct gd_graph_shared *shared; /* whose names, dims and ids a copy also uses; NULL: no copy */
  uint32_t n_shared_fusions;      /* the first ones, likewise */
};

void gd_graph_init(struct gd_graph *graph);
void gd_graph_deinit(struct gd_graph *graph); /* safe on a zeroed graph */

/*
 * A graph that several copies start from. Tensors and ops are copied; names, dims, ids and fusions
 * are shared, since no pass changes them in place. Copies may be made and freed by several threads,
 * in any order.
 *
 *   GD_TRY(gd_graph_share(&graph, &shared, err)); // takes the graph over, also when it fails
 *   GD_TRY(gd_graph_clone(shared, &copy, err));   // to be deinitialised, also when it fails
 *   gd_graph_unshare(shared);                     // the copy lives on
 */
struct gd_graph_shared;
enum gd_status gd_graph_share(struct gd_graph *graph, struct gd_graph_shared **shared,
                              struct gd_error *err) GD_MUST_USE;
enum gd_status gd_graph_clone(struct gd_graph_shared *shared, struct gd_graph *graph,
                              struct gd_error *err) GD_MUST_USE;
void gd_graph_unshare(struct gd_graph_shared *shared); /* NULL is fine */
/* About what it takes. */
int64_t gd_graph_shared_bytes(const struct gd_graph_shared *shared);

/* The sticky failure, if any, copied into err. */
enum gd_status gd_graph_check(const struct gd_graph *graph, struct gd_error *err) GD_MUST_USE;

gd_tensor_id gd_graph_leaf(struct gd_graph *graph, enum gd_role role, const char *name,
                           enum gd_dtype dtype, uint32_t rank, const int64_t *dims);
gd_tensor_id gd_graph_param(struct gd_graph *graph, const char *name, uint32_t rank,
                            const int64_t *dims, enum gd_init init, double init_value);

/* The leaf of the loss scale and of the good steps since it changed; made on first use. */
gd_tensor_id gd_graph_loss_scale(struct gd_graph *graph);

/* Appends an op after checking it against its shape rule; returns its first output. */
gd_tensor_id gd_graph_op(struct gd_graph *graph, enum gd_op_kind kind, const union gd_attr *attr,
                         uint32_t n_in, const gd_tensor_id *in);

/* One builder per forward op. Each returns its first output. */
gd_tensor_id gd_reshape(struct gd_graph *graph, gd_tensor_id x, uint32_t rank, const int64_t *dims);
gd_tensor_id gd_split(struct gd_graph *graph, gd_tensor_id x, uint32_t parts);
gd_tensor_id gd_concat(struct gd_graph *graph, uint32_t n, const gd_tensor_id *parts);
gd_tensor_id gd_transpose(struct gd_graph *graph, gd_tensor_id x, const uint8_t *perm);
gd_tensor_id gd_slice(struct gd_graph *graph, gd_tensor_id x, uint32_t dim, int64_t start,
                      int64_t length);
gd_tensor_id gd_pad(struct gd_graph *graph, gd_tensor_id x, uint32_t dim, int64_t start,
                    int64_t length);
/* GD_DTYPE_COUNT: whatever the precision pass decides; a no-op in fp32. */
gd_tensor_id gd_cast(struct gd_graph *graph, gd_tensor_id x, enum gd_dtype dtype);
gd_tensor_id gd_positions(struct gd_graph *graph, gd_tensor_id ids, int32_t pad);
gd_tensor_id gd_embed(struct gd_graph *graph, gd_tensor_id table, gd_tensor_id ids);
/* The row of id pad gets no gradient from here; pad < 0: as gd_embed. */
gd_tensor_id gd_embed_padded(struct gd_graph *graph, gd_tensor_id table, gd_tensor_id ids,
                             int64_t pad);
gd_tensor_id gd_matmul(struct gd_graph *graph, gd_tensor_id a, gd_tensor_id b, gd_tensor_id bias,
                       struct gd_attr_matmul attr);
gd_tensor_id gd_linear(struct gd_graph *graph, gd_tensor_id x, gd_tensor_id weight_NK,
                       gd_tensor_id bias);
gd_tensor_id gd_add(struct gd_graph *graph, gd_tensor_id a, gd_tensor_id b);
gd_tensor_id gd_mul(struct gd_graph *graph, gd_tensor_id a, gd_tensor_id b);
/* Returns x itself where the probability is 0; makes the seed leaf on first use. */
gd_tensor_id gd_dropout(struct gd_graph *graph, gd_tensor_id x, double probability);
/* Stochastic depth: the same of whole samples (dim 0). */
gd_tensor_id gd_drop_path(struct gd_graph *graph, gd_tensor_id x, double probability);
gd_tensor_id gd_rmsnorm(struct gd_graph *graph, gd_tensor_id x, gd_tensor_id weight, float eps);
gd_tensor_id gd_pool(struct gd_graph *graph, gd_tensor_id x_BSC);
gd_tensor_id gd_depthwise(struct gd_graph *graph, gd_tensor_id x_BHWC, gd_tensor_id weight,
                          gd_tensor_id bias);
gd_tensor_id gd_conv1d(struct gd_graph *graph, gd_tensor_id x_BTC, gd_tensor_id weight,
                       gd_tensor_id bias);
gd_tensor_id gd_scan(struct gd_graph *graph, gd_tensor_id u_BTC, gd_tensor_id delta_BTC,
                     gd_tensor_id a_log_CS, gd_tensor_id b_BTS, gd_tensor_id c_BTS,
                     gd_tensor_id d_C);
gd_tensor_id gd_decay(struct gd_graph *graph, gd_tensor_id delta_BTC, gd_tensor_id a_log_CS);
gd_tensor_id gd_outer(struct gd_graph *graph, gd_tensor_id x_BTC, gd_tensor_id b_BTS);
gd_tensor_id gd_recur(struct gd_graph *graph, gd_tensor_id a_BTCS, gd_tensor_id x_BTCS);
/* GD_DTYPE_COUNT: the dtype of c. */
gd_tensor_id gd_contract_states(struct gd_graph *graph, gd_tensor_id h_BTCS, gd_tensor_id c_BTS,
                                enum gd_dtype dtype);
gd_tensor_id gd_layernorm(struct gd_graph *graph, gd_tensor_id x, gd_tensor_id weight,
                          gd_tensor_id bias, float eps);
gd_tensor_id gd_rope(struct gd_graph *graph, gd_tensor_id x, gd_tensor_id table, int64_t rotary);
/* table is GD_NONE where nothing is rotated. The parts of a split have consecutive ids. */
gd_tensor_id gd_split_heads(struct gd_graph *graph, gd_tensor_id x_BTC, gd_tensor_id table,
                            struct gd_attr_heads attr);
gd_tensor_id gd_merge_heads(struct gd_graph *graph, const gd_tensor_id *parts_BNTD,
                            gd_tensor_id table, struct gd_attr_heads attr);
gd_tensor_id gd_softmax(struct gd_graph *graph, gd_tensor_id x, bool causal);
/* seed is GD_NONE where the probability is 0; M divides N, and N / M heads in a row share a key. */
gd_tensor_id gd_attention(struct gd_graph *graph, gd_tensor_id q_BNTD, gd_tensor_id k_BMTD,
                          gd_tensor_id v_BMTD, gd_tensor_id seed, struct gd_attr_attention attr);
gd_tensor_id gd_activate(struct gd_graph *graph, gd_tensor_id x, enum gd_activation function);
gd_tensor_id gd_view(struct gd_graph *graph, gd_tensor_id flat, int64_t start, uint32_t rank,
                     const int64_t *dims);
gd_tensor_id gd_buffer(struct gd_graph *graph, struct gd_attr_buffer attr);
gd_tensor_id gd_transfer(struct gd_graph *graph, gd_tensor_id x, enum gd_space space);
gd_tensor_id gd_xent(struct gd_graph *graph, gd_tensor_id logits, gd_tensor_id labels,
                     gd_tensor_id weight, struct gd_attr_xent attr);
/* The loss; out 2 of its op, two ids behind, counts the rows whose class was found. */
gd_tensor_id gd_soft_xent(struct gd_graph *graph, gd_tensor_id logits, gd_tensor_id targets,
                          gd_tensor_id weight);

/* The loss of logits = x w' + bias that are never stored, and its gradients. bias may be GD_NONE.
 */
gd_tensor_id gd_linear_xent(struct gd_graph *graph, gd_tensor_id x, gd_tensor_id weight_VC,
                            gd_tensor_id bias, gd_tensor_id labels, gd_tensor_id weight,
                            struct gd_attr_xent attr);

/* Facts about a tensor. */
int64_t gd_tensor_elements(const struct gd_graph *graph, gd_tensor_id id);
int64_t gd_tensor_bytes(const struct gd_graph *graph, gd_tensor_id id);
/* The tensor whose memory this one uses, and the byte offset in it. */
gd_tensor_id gd_tensor_root(const struct gd_graph *graph, gd_tensor_id id, int64_t *offset_bytes);
/* A parameter's number of elements summed over the graph. */
int64_t gd_graph_parameters(const struct gd_graph *graph);
/* How many blocks, layers as a rule, its tensors belong to. */
int32_t gd_graph_blocks(const struct gd_graph *graph);

/* What an op costs. Bytes: what it must read and write at least once. */
struct gd_cost {
  double gemm_flops;     /* 2 m n k: what the paper counts, attention in full */
  double executed_flops; /* GEMMs as executed: without what a causal mask saves, with what is
                            recomputed */
  double other_flops;    /* everything else it executes */
  double read_bytes, write_bytes;
};
void gd_op_cost(const struct gd_graph *graph, gd_op_id op, struct gd_cost *cost);
/* Sum over the ops of the micro-step. */
void gd_graph_cost(const struct gd_graph *graph, struct gd_cost *cost);

/* Rows of logits that linear_xent holds at a time: by shape and attribute alone, as the sums depend
   on it. */
int64_t gd_loss_chunk_rows(const struct gd_attr_xent *attr, int64_t rows, int64_t vocabulary,
                           enum gd_dtype dtype);
/* Whether it gathers the rows whose label counts and multiplies those alone: a CPU always, a GPU
   where whole chunks can be left out. */
bool gd_loss_gathers(const struct gd_attr_xent *attr, int64_t rows);
/* Rows of logits at a time on a GPU that gathers; labels are not known when memory is planned. */
int64_t gd_loss_gathered_rows(const struct gd_attr_xent *attr, int64_t rows, int64_t vocabulary,
                              enum gd_dtype dtype);
/* Elements from one row of its logits to the next: on a GPU a multiple of the step. */
enum { GD_LOSS_PITCH_STEP = 64 };
int64_t gd_loss_row_pitch(const struct gd_attr_xent *attr, int64_t vocabulary);
/* Whether its GEMMs are padded to that many columns: a GPU's are slow over an odd vocabulary. */
bool gd_loss_pads(const struct gd_attr_xent *attr, int64_t vocabulary);
/* Scratch that an op needs in the workspace behind what struct gd_caps promises; mostly 0. */
int64_t gd_op_scratch_bytes(const struct gd_graph *graph, gd_op_id op);

/* Columns of the widest tensor: kernels may want scratch for a row of it per thread. */
int64_t gd_graph_widest_row(const struct gd_graph *graph);

/* Recomputes every dtype and shape from the leaves: after a pass changed some of them. */
enum gd_status gd_graph_infer(struct gd_graph *graph, struct gd_error *err) GD_MUST_USE;

/* Checks every rule that later stages rely on; the message names the op. See verify.c. */
enum gd_status gd_graph_verify(const struct gd_graph *graph, struct gd_error *err) GD_MUST_USE;

/* --- rewriting ------------------------------------------------------------------------------ */

/*
 * Replaces ops by others. The old ops go by in order; each is kept, or left out, or dropped later
 * when an op behind it turns out to be the end of a pattern. New ops are appended by the usual
 * builders, so they are checked, and stand where they were built: behind everything kept so far.
 *
 *   struct gd_graph_rewrite r;
 *   GD_TRY(gd_graph_rewrite_begin(&r, graph, err));
 *   for (gd_op_id id = 0; id < r.n_ops; id++) {
 *     if (!ends_pattern(&r, id, &first)) {            // reads r.ops and graph->tensors
 *       gd_graph_rewrite_keep(&r, id);
 *       continue;
 *     }
 *     gd_graph_rewrite_drop(&r, first);               // kept before, not wanted after all
 *     gd_graph_rewrite_enter(&r, id);                 // the new op gets the block and phase of id
 *     gd_tensor_id x = gd_graph_rewrite_now(&r, r.ops[first].in[0]);
 *     gd_graph_rewrite_replace(&r, r.ops[id].out[0], gd_softmax(graph, x, true));
 *   }
 *   return gd_graph_rewrite_end(&r, err);
 *
 * Between begin and end, ids of old ops and tensors stay valid, graph->tensors[t].producer names an
 * old op (r.ops) for t < r.n_tensors, and graph->ops is under construction. The end renumbers ops
 * and tensors and forgets tensors without a producer: ids from before are void, those that struct
 * gd_graph itself holds are brought up to date. Leaves all stay. Works at any stage: before and
 * after autodiff, with or without the update program.
 */
struct gd_graph_rewrite {
  struct gd_graph *graph;
  struct gd_op *ops; /* the old list; inputs are the old ones: see gd_graph_rewrite_now */
  uint32_t n_ops, n_tensors;
  uint32_t *n_readers;   /* by old tensor: reads by ops, plus one where struct gd_graph names it */
  gd_op_id *reader;      /* by old tensor: the last op that reads it; GD_NONE */
  gd_tensor_id *instead; /* by old tensor: what replaces it; GD_NONE */
  uint32_t *place;       /* by old op: where it is in the new list; GD_NONE */
  int32_t block;         /* of the graph before */
  enum gd_phase phase;
};
/* Nothing to undo after a failure; after success, gd_graph_rewrite_end must follow. */
enum gd_status gd_graph_rewrite_begin(struct gd_graph_rewrite *rewrite, struct gd_graph *graph,
                                      struct gd_error *err) GD_MUST_USE;
/* What is built next belongs to the block and phase of this old op. */
void gd_graph_rewrite_enter(struct gd_graph_rewrite *rewrite, gd_op_id id);
/* Appends an old op, reading what its inputs have been replaced by so far. At most once each. */
void gd_graph_rewrite_keep(struct gd_graph_rewrite *rewrite, gd_op_id id);
/* Takes back an op that was kept. Something that stays must not read its outputs. */
void gd_graph_rewrite_drop(struct gd_graph_rewrite *rewrite, gd_op_id id);
/* Old ops kept from here on, and struct gd_graph, read this one, of as many elements, instead. */
void gd_graph_rewrite_replace(struct gd_graph_rewrite *rewrite, gd_tensor_id old, gd_tensor_id by);
/* What now stands for an old tensor: what to give to builders. */
gd_tensor_id gd_graph_rewrite_now(const struct gd_graph_rewrite *rewrite, gd_tensor_id id);
/* Takes over the new list. After a failure the graph holds the reason and is good for deinit. */
enum gd_status gd_graph_rewrite_end(struct gd_graph_rewrite *rewrite,
                                    struct gd_error *err) GD_MUST_USE;

/* Stable text, one line an op: `%7 = matmul(%3, gpt_neox.embed_in.weight) ... : bf16[2,9,64]`. */
void gd_graph_print(const struct gd_graph *graph, struct gd_strbuf *out);
void gd_tensor_print(const struct gd_graph *graph, gd_tensor_id id, struct gd_strbuf *out);
void gd_op_print(const struct gd_graph *graph, gd_op_id op, struct gd_strbuf *out);

#endif
