/*
 * What the cpu backend's kernels share: the loops over rows that exist once per instruction set,
 * and how work is cut into pieces.
 *
 * A kernel (cpu_<family>.c) reads its arguments, shares rows or elements out to threads and calls
 * the loops of `struct gd_cpu_rows`, which know vectors and dtypes but no threads. The loops are
 * written once, in cpu_rows.inc, and compiled once per instruction set (cpu_rows_*.c).
 *
 * Rounding: every result is the same for any number of threads. Elementwise and row work does not
 * care who does it; sums over rows are cut into chunks that depend on the shape alone and are added
 * in order.
 *
 * Bound, unless a kernel says otherwise: bytes. Each tensor is streamed once; the second sweep over
 * a row finds it in L1 or L2.
 */
#ifndef GD_BACKEND_CPU_CPU_INT_H
#define GD_BACKEND_CPU_CPU_INT_H

#include <stddef.h>

#include "backend/cpu/isa.h"
#include "backend/kernel.h"

/* --- loops ---------------------------------------------------------------------------------- */

struct gd_cpu_norm {
  enum gd_dtype dtype; /* of x and y */
  int64_t columns;
  float eps;
  const void *x;       /* [rows, columns] */
  const float *weight; /* [columns] */
  const float *bias;   /* [columns] or NULL; rmsnorm has none */
  void *y;             /* may be x */
  float *mean, *rstd;  /* [rows]; rmsnorm has no mean */
};

struct gd_cpu_norm_grad {
  enum gd_dtype dtype; /* of dy, x and dx */
  int64_t columns;
  const void *dy, *x;
  const float *weight, *mean, *rstd; /* rmsnorm has no mean */
  void *dx;                          /* may be dy */
};

struct gd_cpu_dropout {
  enum gd_dtype dtype;
  uint32_t seed;
  uint64_t stream;
  uint64_t first;     /* element 0 has the bits of gd_rng_dropout(seed, stream, first), and so on */
  uint32_t threshold; /* 16 bits that are at least this keep their element */
  float scale;        /* of what is kept */
  const void *x;
  void *y; /* may be x */
};

struct gd_cpu_rope {
  enum gd_dtype dtype;
  int64_t columns, rotary;
  int64_t positions;      /* row r is at position r mod positions */
  int64_t x_step, y_step; /* elements from row to row */
  bool inverse;
  const float *table; /* [positions, rotary] */
  const void *x;
  void *y; /* may be x */
};

struct gd_cpu_adam {
  float *param, *m, *v;
  const float *grad;
  void *compute; /* 16-bit copy; NULL: none */
  enum gd_dtype half_dtype;
  float factor;       /* of the gradient */
  float keep;         /* of the parameter: 1 - lr * decay when decoupled */
  float decay;        /* of the parameter into the gradient, when coupled */
  float beta1, beta2; /* and what complements them to one */
  float rest1, rest2;
  float rate; /* lr / (1 - beta1^step) */
  float root; /* 1 / sqrt(1 - beta2^step) */
  float eps;
};

struct gd_cpu_depthwise {
  enum gd_dtype dtype; /* of x, y and dy */
  int64_t height, width, channels, k;
  const void *x;        /* [B, height, width, channels] */
  const void *dy;       /* the same; of dw alone */
  const float *filters; /* [groups][k * k][lanes] */
  const float *bias;    /* [channels] or NULL */
  void *y;
};

struct gd_cpu_conv1d {
  enum gd_dtype dtype; /* of x, y and dy */
  int64_t steps, channels, taps;
  int64_t begin, end; /* channels to work on */
  bool ahead;         /* reads later steps instead of earlier ones (for dx) */
  const void *x, *dy; /* [B][steps][channels]; dy: used for dw only */
  const float *w;     /* [taps][end - begin]: of the present step, the one next to it, ... */
  const float *bias;  /* [channels] or NULL */
  void *y;
};

enum {
  GD_CPU_SCAN_CHANNELS = 64,     /* of a group, which one thread takes at a time */
  GD_CPU_SCAN_STATES = 16,       /* of a block: what the backward pass saves per step */
  GD_CPU_SCAN_PAIR = 32,         /* channels of the widest pair of vectors */
  GD_CPU_SCAN_MOST_STATES = 256, /* S past this, or more states in all than */
  GD_CPU_SCAN_CARRIED = 3 << 16  /* ... this, goes to the reference kernels */
};

struct gd_cpu_scan {
  enum gd_dtype dtype;       /* of u, y and du */
  enum gd_dtype dtype_delta; /* of delta and ddelta */
  enum gd_dtype dtype_b;     /* of b, c */
  enum gd_dtype dtype_dy;
  int64_t steps, channels, states, chunks; /* T, C, S; chunks of a sequence */
  const void *u, *delta, *b, *c, *dy;
  const float *a_log, *d;
  float *saved; /* [B][chunks][C][S]: written by scan, read by scan_grad */
  void *y, *du, *ddelta;
  float *da_log, *dd;
  bool adds_a_log, adds_d; /* these two are added to, not overwritten */
  float *carried;          /* [groups][S][GD_CPU_SCAN_CHANNELS]: dL/dh, from chunk to chunk */
  float *partials;         /* [groups][2][GD_SCAN_CHUNK][S]: db and dc of one chunk */
};

struct gd_cpu_scan_forward { /* [state][channel] */
  float a[GD_CPU_SCAN_MOST_STATES * GD_CPU_SCAN_CHANNELS];
  float h[GD_CPU_SCAN_MOST_STATES * GD_CPU_SCAN_CHANNELS];
};

struct gd_cpu_scan_backward {
  float a[GD_CPU_SCAN_STATES * GD_CPU_SCAN_CHANNELS]; /* [state][channel] */
  float q[GD_CPU_SCAN_STATES * GD_CPU_SCAN_CHANNELS];
  float first[GD_CPU_SCAN_STATES * GD_CPU_SCAN_CHANNELS];
  float gb[GD_SCAN_CHUNK * GD_CPU_SCAN_CHANNELS]; /* [step][channel] */
  float ap[GD_SCAN_CHUNK * GD_CPU_SCAN_CHANNELS];
  float h[(GD_SCAN_CHUNK + 1) * GD_CPU_SCAN_STATES * GD_CPU_SCAN_PAIR]; /* [step][state][channel] */
  float e[GD_SCAN_CHUNK * GD_CPU_SCAN_STATES * GD_CPU_SCAN_PAIR];
};

/* One thread's: 376 KiB, to stay in L2. y is dy in the backward pass. */
struct gd_cpu_scan_scratch {
  float delta[GD_SCAN_CHUNK * GD_CPU_SCAN_CHANNELS], u[GD_SCAN_CHUNK * GD_CPU_SCAN_CHANNELS];
  float y[GD_SCAN_CHUNK * GD_CPU_SCAN_CHANNELS];
  float b[GD_SCAN_CHUNK * GD_CPU_SCAN_STATES], c[GD_SCAN_CHUNK * GD_CPU_SCAN_STATES];
  union {
    struct gd_cpu_scan_forward forward;
    struct gd_cpu_scan_backward backward;
  } of;
};

enum {
  GD_CPU_STATES_BLOCK = 24576, /* floats of a block of channels in the unfused scan: 96 KiB */
  GD_CPU_STATES_MOST = 256     /* S past this goes to the reference kernels */
};

/* The parts of an unfused scan. A row is one step of one sequence: [C], [S] or [C][S]. */
struct gd_cpu_states {
  enum gd_dtype dtype_c; /* of along_c and of what is written there */
  enum gd_dtype dtype_s; /* likewise */
  int64_t steps, channels, states;
  const void *along_c; /* [rows][C]: delta, x or y */
  const void *along_s; /* [rows][S]: b or c */
  const float *a_log;  /* [C][S] */
  const float *a, *x;  /* [rows][C][S]; the gradients read h as x */
  const float *grad;   /* of what is differentiated */
  float *out;          /* [rows][C][S]; recur: may be x, recur_grad: may be grad */
  float *out_a;        /* da */
  float *out_a_log;    /* [C][S] */
  void *out_c, *out_s;
};

/* One thread's. */
struct gd_cpu_states_scratch {
  float a[GD_CPU_STATES_BLOCK], c[GD_CPU_STATES_BLOCK], s[GD_CPU_STATES_BLOCK];
};

enum {
  GD_CPU_ATTENTION_BLOCK = 224, /* most keys of a block; queries too, in the backward pass */
  GD_CPU_ATTENTION_ROWS = 224,  /* queries of a task, forward; or twice as many */
  GD_CPU_ATTENTION_SIZE = 256   /* heads past this size go to the reference kernels */
};

/* Some queries by a block of keys: a piece of the score matrix, while it exists. */
struct gd_cpu_strip {
  int64_t rows, keys;
  int64_t width;           /* columns to write: zeros past those that a row sees */
  int64_t seen, seen_step; /* keys that row 0 sees, and how many more each next row does; any may
                              be more than there are, or below 0 */
  float scale;             /* of the scores, times log2(e) */
  const float *scores;     /* tiles of 2^tile_bits columns, each row by row */
  const float *dweights;   /* dout v^T, likewise; of the backward pass */
  int tile_bits;
  int64_t tile_floats;
  bool bf16;  /* weights and dscores are bf16, not fp32 */
  bool drops; /* dropout: see struct gd_cpu_dropout */
  uint32_t seed;
  uint64_t stream;
  uint64_t first;    /* of row 0, column 0 */
  uint64_t row_step; /* from row to row */
  uint32_t threshold;
  float kept;    /* scale of what dropout leaves: of dweights; the weights come without */
  void *weights; /* [rows][ld] */
  int64_t ld;
  bool is_first;      /* nothing has been summed yet */
  float *shift;       /* by row: what exponents, to the base 2, are relative to */
  float *sum;         /* by row: the sum of weights so far, in `lanes` parts */
  float *factor;      /* by row: what older sums are to be multiplied by */
  const float *lse;   /* s: by row, to the base 2 */
  const float *delta; /* s: by row: dout . out */
  void *dscores;      /* s: [rows][ld] */
  uint32_t *weight_pairs, *dscore_pairs; /* s: [rows / 2][ld], bf16 of rows 2i and 2i + 1; NULL:
                                            weights instead */
};

/* x, y, ... are the first element to touch; n counts elements. Nothing outside is touched. */
struct gd_cpu_rows {
  void (*convert)(enum gd_dtype dtype_y, void *y, enum gd_dtype dtype_x, const void *x, int64_t n);
  /* y = a + b and y = a * b, in fp32; y may be a. */
  void (*add)(enum gd_dtype dtype, void *y, const void *a, enum gd_dtype dtype_b, const void *b,
              int64_t n);
  void (*mul)(enum gd_dtype dtype, void *y, const void *a, enum gd_dtype dtype_b, const void *b,
              int64_t n);
  /* y = x * factor. */
  void (*scale)(enum gd_dtype dtype_y, void *y, enum gd_dtype dtype_x, const void *x, float factor,
                int64_t n);
  /* Elements begin .. end - 1. */
  void (*dropout)(const struct gd_cpu_dropout *dropout, int64_t begin, int64_t end);
  void (*activate)(enum gd_activation function, enum gd_dtype dtype, void *y, const void *x,
                   int64_t n);
  void (*activate_grad)(enum gd_activation function, enum gd_dtype dtype, void *dx, const void *x,
                        const void *dy, int64_t n);
  double (*sum_squares)(enum gd_dtype dtype, const void *x, int64_t n);
  void (*adam)(const struct gd_cpu_adam *adam, int64_t begin, int64_t end);

  /* Rows begin .. end - 1. */
  void (*layernorm)(const struct gd_cpu_norm *norm, int64_t begin, int64_t end);
  /* Also adds these rows to dweight and dbias; dbias may be NULL. */
  void (*layernorm_grad)(const struct gd_cpu_norm_grad *norm, int64_t begin, int64_t end,
                         float *dweight, float *dbias);
  void (*rmsnorm)(const struct gd_cpu_norm *norm, int64_t begin, int64_t end);
  void (*rmsnorm_grad)(const struct gd_cpu_norm_grad *norm, int64_t begin, int64_t end,
                       float *dweight, float *dbias);
  void (*rope)(const struct gd_cpu_rope *rope, int64_t begin, int64_t end);

  /* One row; the columns from `seen` on become 0 and are not read. buffer: `seen` floats. */
  void (*softmax)(enum gd_dtype dtype, void *y, const void *x, int64_t seen, int64_t columns,
                  float *buffer);
  void (*softmax_grad)(enum gd_dtype dtype, void *dx, const void *y, const void *dy, int64_t seen,
                       int64_t columns);
  double (*logsumexp)(enum gd_dtype dtype, const void *x, int64_t columns);
  /* dx = exp(x - lse) * scale; dx may be x. */
  void (*xent_grad)(enum gd_dtype dtype, void *dx, const void *x, int64_t columns, float lse,
                    float scale);
  /* sum[j] += the sum over rows of x[row * stride + j]. */
  void (*sum_rows)(enum gd_dtype dtype, float *sum, const void *x, int64_t rows, int64_t stride,
                   int64_t columns);

  int64_t lanes; /* channels of a group */
  /* One group of one image, rows begin .. end - 1. */
  void (*depthwise)(const struct gd_cpu_depthwise *depthwise, int64_t image, int64_t group,
                    int64_t begin, int64_t end);
  /* One group, rows of all images: taps[t * stride + lane] for the k * k taps and the bias. */
  void (*depthwise_dw)(const struct gd_cpu_depthwise *depthwise, int64_t group, int64_t begin,
                       int64_t end, float *taps, int64_t stride);

  /* Steps begin .. end - 1 of one sequence. */
  void (*conv1d)(const struct gd_cpu_conv1d *conv, int64_t batch, int64_t begin, int64_t end);
  /* Adds them to sums[taps + 1][channels worked on]; the last row is dbias. */
  void (*conv1d_dw)(const struct gd_cpu_conv1d *conv, int64_t batch, int64_t begin, int64_t end,
                    float *sums);
  /* One group of one sequence; one group in one chunk of steps, the last chunk first. */
  void (*scan)(const struct gd_cpu_scan *scan, int64_t batch, int64_t group,
               struct gd_cpu_scan_scratch *own);
  void (*scan_grad)(const struct gd_cpu_scan *scan, int64_t batch, int64_t chunk, int64_t group,
                    struct gd_cpu_scan_scratch *own);

  /* Rows begin .. end - 1. */
  void (*decay)(const struct gd_cpu_states *p, int64_t begin, int64_t end,
                struct gd_cpu_states_scratch *own);
  void (*outer)(const struct gd_cpu_states *p, int64_t begin, int64_t end,
                struct gd_cpu_states_scratch *own);
  void (*contract_states)(const struct gd_cpu_states *p, int64_t begin, int64_t end,
                          struct gd_cpu_states_scratch *own);
  void (*contract_channels)(const struct gd_cpu_states *p, int64_t begin, int64_t end,
                            struct gd_cpu_states_scratch *own);
  /* Channels begin .. end - 1 of all rows. */
  void (*decay_grad)(const struct gd_cpu_states *p, int64_t rows, int64_t begin, int64_t end,
                     struct gd_cpu_states_scratch *own);
  /* Elements begin .. end - 1 of the [C][S] of every step of one sequence. */
  void (*recur)(const struct gd_cpu_states *p, int64_t batch, int64_t begin, int64_t end);
  void (*recur_grad)(const struct gd_cpu_states *p, int64_t batch, int64_t begin, int64_t end);

  /* A strip forward, and the end of its rows; backward. Rows of count tiles side by side, times
     factor[row]. The dot products of rows of x with rows of y. */
  void (*attention_weights)(const struct gd_cpu_strip *strip);
  void (*attention_finish)(int64_t rows, const float *shift, const float *sum, float kept,
                           float *lse, float *factor);
  void (*attention_dscores)(const struct gd_cpu_strip *strip);
  void (*scale_tile_rows)(float *tiles, int64_t rows, int64_t count, int64_t tile_floats,
                          int64_t tile_columns, const float *factor);
  void (*row_dots)(enum gd_dtype dtype, float *dots, const void *x, const void *y, int64_t rows,
                   int64_t columns);

  /* The functions under softmax and gelu, for their tests. */
  void (*exp)(float *y, const float *x, int64_t n);
  void (*normal_tail)(float *y, const float *x, int64_t n); /* P(N(0,1) > |x|) */
};

extern const struct gd_cpu_rows gd_cpu_rows_plain;
#if defined(__x86_64__)
extern const struct gd_cpu_rows gd_cpu_rows_avx2;
extern const struct gd_cpu_rows gd_cpu_rows_avx512;
extern const struct gd_cpu_rows gd_cpu_rows_avx512_bf16;
#endif

/* The loops for a level of this CPU. */
static inline const struct gd_cpu_rows *gd_cpu_rows_for(enum gd_isa isa) {
#if defined(__x86_64__)
  if (isa >= GD_ISA_AVX512_BF16)
    return &gd_cpu_rows_avx512_bf16;
  if (isa >= GD_ISA_AVX512)
    return &gd_cpu_rows_avx512;
  if (isa >= GD_ISA_AVX2)
    return &gd_cpu_rows_avx2;
#endif
  (void)isa;
  return &gd_cpu_rows_plain;
}

static inline const struct gd_cpu_rows *gd_cpu_rows(void) {
  return gd_cpu_rows_for(gd_isa_detect());
}

/* Full unrolling of a short loop over an array of vectors, which -O2 alone does not do. */
#if defined(__clang__)
#define GD_CPU_UNROLL _Pragma("clang loop unroll(full)")
#else
#define GD_CPU_UNROLL _Pragma("GCC unroll 8")
#endif

/* --- pieces of work ------------------------------------------------------------------------- */

/* Threads worth waking for so many bytes: a parallel region costs as much as streaming 32 KiB. */
static inline int gd_cpu_threads(const struct gd_kernel_args *args, int64_t bytes) {
  int64_t useful = 1 + bytes / 32768;
  return useful < args->threads ? (int)useful : args->threads;
}

struct gd_cpu_range {
  int64_t begin, end;
};

/* Part `part` of `parts` of 0 .. n - 1, cut at multiples of `step`. */
static inline struct gd_cpu_range gd_cpu_share(int64_t n, int64_t step, int64_t part,
                                               int64_t parts) {
  int64_t steps = (n + step - 1) / step;
  int64_t begin = steps * part / parts * step, end = steps * (part + 1) / parts * step;
  return (struct gd_cpu_range){begin < n ? begin : n, end < n ? end : n};
}

enum {
  GD_CPU_CHUNKS = 64,        /* most pieces of a sum over rows */
  GD_CPU_CHUNK_ROWS = 8,     /* fewest rows worth a piece */
  GD_CPU_PARTIALS = 1 << 18, /* floats for the sums of all pieces */
  GD_CPU_LINE_ELEMENTS = 64, /* shares of elements start on whole cache lines */
  GD_CPU_FILTER_MOST = 27,   /* largest K of depthwise that has fast loops */
  GD_CPU_LOSS_CHUNKS = 512   /* pieces of a scalar sum: one double each */
};

/* How many chunks a sum over rows is cut into. floats: of the sums that a chunk leaves. */
static inline int64_t gd_cpu_chunks(int64_t rows, int64_t floats) {
  int64_t most = GD_CPU_PARTIALS / (floats > 0 ? floats : 1);
  int64_t chunks = (rows + GD_CPU_CHUNK_ROWS - 1) / GD_CPU_CHUNK_ROWS;
  chunks = chunks < most ? chunks : most;
  chunks = chunks < GD_CPU_CHUNKS ? chunks : GD_CPU_CHUNKS;
  return chunks > 1 ? chunks : 1;
}

/* Floats of one thread's buffer for a row: whole cache lines, so that threads share none. */
static inline int64_t gd_cpu_buffer_floats(int64_t columns) {
  return (columns + 15) / 16 * 16;
}

/* sums[j] = the sum over chunks of partials[chunk * stride + j], for columns begin .. end - 1;
   adds: that sum, rounded, is added to sums[j]. */
void gd_cpu_add_chunks(float *sums, const float *partials, int64_t chunks, int64_t stride,
                       int64_t begin, int64_t end, bool adds);

/* --- views ---------------------------------------------------------------------------------- */

static inline void *gd_cpu_at(const struct gd_view *view, int64_t i) {
  return (char *)view->data + i * gd_dtype_bytes(view->dtype);
}

static inline const float *gd_cpu_optional(const struct gd_kernel_args *args, uint32_t i) {
  return i < args->n_in ? args->in[i].data : NULL;
}

/* The label row r is scored against, or attr->ignore. */
static inline int32_t gd_cpu_label(const struct gd_attr_xent *attr, const struct gd_view *labels,
                                   int64_t r) {
  const int32_t *label = labels->data;
  if (!attr->shift)
    return label[r];
  int64_t positions = labels->dims[labels->rank - 1];
  return r % positions == positions - 1 ? attr->ignore : label[r + 1];
}

/* --- kernels -------------------------------------------------------------------------------- */

/* Leaves an op to ref: shapes past the limits of the cpu kernel. ops.def says `own_or_ref`. */
void gd_cpu_leave_to_ref(enum gd_op_kind kind, const struct gd_kernel_args *args);

/* Attention with the kernels of one level, at most gd_isa_detect(): for tests. */
void gd_cpu_attention_isa(const struct gd_kernel_args *args, enum gd_isa isa);
void gd_cpu_attention_grad_isa(const struct gd_kernel_args *args, enum gd_isa isa);

#endif
