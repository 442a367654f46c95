/*
 * What RandAugment (Cubuk et al. 2019, arXiv:1909.13719) does to the bytes of an image: the fifteen
 * operations of timm's "rand" policies, as Pillow computes them. Which ones an image gets is
 * drawn in image_set.c.
 *
 *   double value = gd_image_op_value(GD_IMAGE_ROTATE, 9, true, true);   -27 degrees
 *   GD_TRY(gd_image_op_apply(GD_IMAGE_ROTATE, value, fill, &image, &buffer, err));
 */
#ifndef GD_DATA_IMAGE_OPS_H
#define GD_DATA_IMAGE_OPS_H

#include "data/image_codec.h"

enum gd_image_op { /* in the order of timm's list */
                   GD_IMAGE_AUTO_CONTRAST,
                   GD_IMAGE_EQUALIZE,
                   GD_IMAGE_INVERT,
                   GD_IMAGE_ROTATE,
                   GD_IMAGE_POSTERIZE,
                   GD_IMAGE_SOLARIZE,
                   GD_IMAGE_SOLARIZE_ADD,
                   GD_IMAGE_COLOR,
                   GD_IMAGE_CONTRAST,
                   GD_IMAGE_BRIGHTNESS,
                   GD_IMAGE_SHARPNESS,
                   GD_IMAGE_SHEAR_X,
                   GD_IMAGE_SHEAR_Y,
                   GD_IMAGE_TRANSLATE_X,
                   GD_IMAGE_TRANSLATE_Y,
                   GD_IMAGE_OP_COUNT
};

#define GD_IMAGE_MOST_LEVEL 10.0

/*
 * What a magnitude from 0 to GD_IMAGE_MOST_LEVEL means: degrees, bits that stay, a threshold, what
 * is added, a factor, a tangent, a share of the side. Where a change can go both ways, `negative`
 * takes the other one. increasing: a higher magnitude always changes more ("inc1"); otherwise
 * posterize, solarize and the factors are as in the paper's code, where it does not.
 */
double gd_image_op_value(enum gd_image_op op, double level, bool increasing, bool negative);

/* Pixels that come from outside become `fill`; what lies between pixels is bicubic. The buffer
   may be exchanged with the image's. GD_NOMEM_HOST. */
enum gd_status gd_image_op_apply(enum gd_image_op op, double value, const uint8_t fill[3],
                                 struct gd_image *image, struct gd_image *buffer,
                                 struct gd_error *err) GD_MUST_USE;

#endif
