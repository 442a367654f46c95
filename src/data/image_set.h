/*
 * A data set of images as samples: pixels [3,H,W] in floats, and what the loss compares with, a
 * probability for each class. Sample `index` of a run is a function of seed and index alone, as
 * that of token files (dataset.h): the order of an epoch is a keyed permutation, and crops and all
 * else that is random are drawn for the index.
 *
 * Training: a random part of the image at the model's size, mirrored half of the time, and what
 * else struct gd_augment asks for. Evaluation: the shorter side becomes size x 256 / 224, and the
 * middle is taken; in the order of the files. Samples behind the last one of an evaluation are
 * zeros of no class, which count nothing.
 */
#ifndef GD_DATA_IMAGE_SET_H
#define GD_DATA_IMAGE_SET_H

#include "data/image_codec.h"
#include "data/image_files.h"
#include "data/image_ops.h"
#include "data/image_resize.h"

/*
 * By name, with torchvision's settings: crop is RandomResizedCrop (scale 0.08 to 1, ratio 3/4 to
 * 4/3; without it, the crop of evaluation), bilinear or bicubic, flip RandomHorizontalFlip, erase
 * RandomErasing (scale 0.02 to 0.33, ratio 0.3 to 3.3, zeros) with its probability; noise the same
 * filled with normal noise, as timm's remode pixel. rand-m9-mstd0.5-inc1 is timm's RandAugment of
 * that name, bicubic: two operations of image_ops.h (another number: -n), each with probability 0.5
 * (-p) and a magnitude of 9 with deviation 0.5, filled with the mean colour. mixup and cutmix have
 * their alpha: samples 2k and 2k + 1 of a run are mixed with each other, where both are asked for
 * by one or the other.
 */
struct gd_augment {
  bool crop, flip;
  struct gd_rand_augment {
    int ops; /* of an image; 0: none */
    double magnitude, deviation, probability;
    bool increasing;
  } rand;
  bool bicubic;         /* crops are resized so */
  bool noise;           /* what is erased becomes noise, not zeros */
  double erase;         /* 0: none; likewise below */
  double mixup, cutmix; /* alpha */
};
/* "crop,flip,rand-m9-mstd0.5-inc1,erase=0.25,mixup=0.8", "none". GD_BAD_INPUT names the part that
 * is wrong. */
enum gd_status gd_augment_parse(const char *text, struct gd_augment *augment,
                                struct gd_error *err) GD_MUST_USE;

/* (x / 255 - mean) / deviation. imagenet: 0.485 0.456 0.406 and 0.229 0.224 0.225, of ConvNeXt,
   DeiT and torchvision; half: 0.5 and 0.5, of ViT; none: 0 and 1. */
enum gd_normalize {
  GD_NORMALIZE_IMAGENET,
  GD_NORMALIZE_HALF,
  GD_NORMALIZE_NONE,
  GD_NORMALIZE_COUNT
};
extern const struct gd_normalization {
  const char *name;
  double mean[3], deviation[3];
} gd_normalizations[GD_NORMALIZE_COUNT];
bool gd_normalize_parse(const char *text, enum gd_normalize *normalize);

struct gd_image_options {
  const char *const *files; /* a folder, or tar archives */
  int n_files;
  int64_t height, width, classes; /* of the model */
  uint64_t seed;
  bool evaluates;
  const char *classes_of;         /* of an evaluation alone: a folder by whose classes, those of the
                                     training data, its own are numbered; NULL: by its own names */
  const char *const *class_names; /* likewise: names by number, if each of its own is one of them */
  int64_t n_class_names;
  struct gd_augment augment; /* of training */
  enum gd_normalize normalize;
  double smoothing; /* of labels in training: so much of a target is spread over all classes */
  int threads;      /* that decode */
};

struct gd_image_set {
  struct gd_image_options options; /* without the list of files */
  struct gd_image_files files;
  float value[3][256]; /* what a byte of a channel becomes */
  uint8_t mean[3];     /* the mean colour, in bytes */
};

/* Lists the images and checks that their libraries are there. known: as in image_files.h. */
enum gd_status gd_image_set_open(struct gd_image_set *set, const struct gd_image_options *options,
                                 const struct gd_image_files *known,
                                 struct gd_error *err) GD_MUST_USE;
void gd_image_set_close(struct gd_image_set *set); /* safe on a zeroed one */

/* The length to which evaluation brings a side, to cut `side` out of it: torchvision's 256 for 224.
 */
int64_t gd_image_scaled(int64_t side);

/* What one thread needs. */
struct gd_image_work {
  struct gd_image_codec codec;
  struct gd_resizer resizer;
  struct gd_strbuf file;
  struct gd_image decoded, part;
  struct gd_image made[2]; /* the last even and the last odd sample at the model's size, in bytes */
  int64_t made_index[2];
  float *other; /* the sample that is mixed in */
};
void gd_image_work_init(struct gd_image_work *work);
void gd_image_work_deinit(struct gd_image_work *work);

/* Which image a sample is made of, in which epoch. */
int64_t gd_image_set_locate(const struct gd_image_set *set, int64_t index, int64_t *epoch);
/* pixels [3,H,W], targets [classes]. GD_BAD_INPUT with the file that is broken. */
enum gd_status gd_image_set_sample(const struct gd_image_set *set, struct gd_image_work *work,
                                   int64_t index, float *pixels, float *targets,
                                   struct gd_error *err) GD_MUST_USE;

/* The part of a width x height image that a sample shows, and whether it is mirrored. Evaluation
   takes the box out of the image at size *scaled_width x *scaled_height, training out of the image
   itself. */
struct gd_box gd_image_crop(const struct gd_image_set *set, int64_t index, int64_t width,
                            int64_t height, int64_t *scaled_width, int64_t *scaled_height,
                            bool *mirrored);

/* The operations that RandAugment has for a sample, in order; returns how many. */
enum { GD_RAND_MOST_OPS = 15 };
struct gd_image_change {
  enum gd_image_op op;
  double value; /* as gd_image_op_value makes it */
};
int gd_image_changes(const struct gd_image_set *set, int64_t index,
                     struct gd_image_change changes[GD_RAND_MOST_OPS]);

#endif
