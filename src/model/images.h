/*
 * What the families that classify images share: the fields of their config.json that describe
 * images and classes, the leaves of their graphs, and convolutions whose patches do not overlap.
 *
 * Letters: B batch, C channels, H W rows and columns, O outputs.
 */
#ifndef GD_MODEL_IMAGES_H
#define GD_MODEL_IMAGES_H

#include "base/json.h"
#include "model/blocks.h"

struct gd_images {
  int64_t channels, height, width;
  int64_t patch_height, patch_width; /* of the first convolution: its filter and its stride */
  int64_t classes;
};

/* Reads num_channels, image_size, patch_size, and the classes out of id2label or num_labels;
   *images holds the family's defaults. Another loss than that of one class an image:
   GD_UNSUPPORTED. */
enum gd_status gd_images_parse(const struct gd_json *json, const json_t *config,
                               struct gd_images *images, struct gd_error *err) GD_MUST_USE;

/* Makes the leaves; returns the pixels [B,C,H,W] in the compute dtype. graph->labels are numbers of
   classes [B], or soft targets [B,classes]. */
gd_tensor_id gd_images_leaves(struct gd_graph *graph, const struct gd_images *images, int64_t b,
                              bool soft);

/*
 * A convolution with filters of height x width and the same stride: every patch is one row of a
 * GEMM with "<module>.weight" [O,C,height,width]. Rows and columns that fill no patch are left
 * out. x is [B,C,H,W], or [B,H,W,C] where channels are last; the result is [B,H/height,W/width,O].
 */
gd_tensor_id gd_images_patches(struct gd_blocks *m, const char *module, gd_tensor_id x,
                               bool channels_last, int64_t height, int64_t width, int64_t outputs);

/*
 * Stochastic depth (Huang et al. 2016, arXiv:1603.09382) of a residual branch of block `block`:
 * whole samples of x become 0 with a probability that grows over the blocks, from 0 at the first
 * to `rate` at the last, as in timm and in transformers' ConvNeXt; the others are scaled.
 */
gd_tensor_id gd_images_drop_path(struct gd_graph *graph, gd_tensor_id x, double rate, int64_t block,
                                 int64_t blocks);

/* graph->loss out of features [B,C], by the linear layer "classifier"; with soft targets also
   graph->hits. */
void gd_images_loss(struct gd_blocks *m, gd_tensor_id x_BC, int64_t classes);

#endif
