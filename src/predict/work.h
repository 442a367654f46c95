/*
 * What one op asks of a device, in the terms in which ops are compared: kind, unit of arithmetic,
 * variant, a few sizes, FLOPs and bytes. Calibration stores measured times with it, prediction
 * looks for the nearest ones. Nothing here knows a device.
 */
#ifndef GD_PREDICT_WORK_H
#define GD_PREDICT_WORK_H

#include "hw/hw.h"
#include "ir/graph.h"

enum { GD_WORK_SIZES = 4 };

struct gd_work {
  enum gd_op_kind kind;
  enum gd_peak unit;           /* what multiplies, or the dtype that is moved */
  uint64_t variant;            /* bits that change the kernel: masks, transposes, fused kinds */
  bool on_host;                /* its data lie in host memory: a GPU's host computes it */
  double sizes[GD_WORK_SIZES]; /* at least 1; matmul: batch, M, N, K. Others: see work.c */
  double flops;                /* GEMMs, as executed */
  double bytes;                /* read and written, each at least once */
};

/* counted_share: of the rows of a masked loss; linear_xent multiplies no others. */
void gd_work_of(const struct gd_graph *graph, gd_op_id id, double counted_share,
                struct gd_work *work);

/* From one to the other, size by size: 1 where a factor of two counts in full. */
void gd_work_steps(const struct gd_work *from, const struct gd_work *to,
                   double steps[GD_WORK_SIZES]);

/* How unlike two pieces of work of one kind are: 0, or about the factor of two between sizes. */
double gd_work_distance(const struct gd_work *a, const struct gd_work *b);

/* Whether they are the same in all that counts, but for rounding. */
bool gd_work_same(const struct gd_work *a, const struct gd_work *b);
uint64_t gd_work_hash(const struct gd_work *work);

/* Of a GEMM on tensor cores in 16 bits whose rows do not all begin at multiples of 8 elements: the
   elements that one load can take, 1 to 4. Of all else 8: a whole load. */
int gd_work_load_elements(const struct gd_work *work);

bool gd_work_is_collective(enum gd_op_kind kind);
bool gd_work_is_transfer(enum gd_op_kind kind);

const char *gd_unit_name(enum gd_peak peak); /* "fp32", "tf32", "fp16", "bf16" */
bool gd_unit_parse(const char *text, enum gd_peak *peak);

#endif
