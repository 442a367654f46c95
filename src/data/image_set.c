/*
 * Samples of images; see image_set.h.
 */
#include "data/image_set.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/rng.h"
#include "data/permute.h"

/* --- random numbers ------------------------------------------------------------------------ */

/* A sequence for one purpose and one sample. */
struct draws {
  uint64_t seed, stream, index;
  uint32_t words[4];
  int used; /* of them; 4: all */
};

static struct draws draws_of(const struct gd_image_set *set, const char *purpose, int64_t index) {
  return (struct draws){.seed = set->options.seed,
                        .stream = gd_hash_string(purpose),
                        .index = (uint64_t)index,
                        .used = 4};
}

static double uniform(struct draws *d, double low, double high) {
  if (d->used == 4) {
    gd_rng_philox(d->seed, d->stream++, d->index, d->words);
    d->used = 0;
  }
  return low + (high - low) * ((double)d->words[d->used++] * 0x1p-32);
}

static int64_t below(struct draws *d, int64_t bound) {
  int64_t value = (int64_t)uniform(d, 0, (double)bound);
  return value < bound ? value : bound - 1;
}

static double normal_of(struct draws *d) {
  const double two_pi = 6.283185307179586;
  double radius = sqrt(-2 * log(1 - uniform(d, 0, 1)));
  return radius * cos(two_pi * uniform(d, 0, 1));
}

/* Gamma(alpha, 1): Marsaglia and Tsang, "A simple method for generating gamma variables", 2000; for
   alpha below 1 by that of alpha + 1. */
static double gamma_of(struct draws *d, double alpha) {
  double boost = alpha < 1 ? pow(1 - uniform(d, 0, 1), 1 / alpha) : 1;
  double base = (alpha < 1 ? alpha + 1 : alpha) - 1.0 / 3, c = 1 / sqrt(9 * base);
  for (;;) {
    double x = normal_of(d), v = pow(1 + c * x, 3);
    double u = 1 - uniform(d, 0, 1);
    if (v > 0 && log(u) < 0.5 * x * x + base * (1 - v + log(v)))
      return boost * base * v;
  }
}

static double beta_of(struct draws *d, double alpha) {
  double a = gamma_of(d, alpha), b = gamma_of(d, alpha);
  return a + b > 0 ? a / (a + b) : 0.5;
}

/* --- settings ------------------------------------------------------------------------------ */

/* A section of "rand-m9-mstd0.5-inc1", as timm writes them: a name and a number. */
static bool parse_section(const char *section, struct gd_rand_augment *rand) {
  char name[8] = "", *end;
  size_t length = strcspn(section, "0123456789.");
  if (length == 0 || length >= sizeof name || !section[length])
    return false;
  memcpy(name, section, length);
  double value = strtod(section + length, &end);
  if (*end || !(value >= 0))
    return false;
  bool whole = value == floor(value);
  if (strcmp(name, "m") == 0 && value <= GD_IMAGE_MOST_LEVEL)
    rand->magnitude = value;
  else if (strcmp(name, "mstd") == 0 && value <= 100)
    rand->deviation = value;
  else if (strcmp(name, "p") == 0 && value <= 1)
    rand->probability = value;
  else if (strcmp(name, "n") == 0 && whole && value >= 1 && value <= GD_RAND_MOST_OPS)
    rand->ops = (int)value;
  else if (strcmp(name, "inc") == 0 && whole && value <= 1)
    rand->increasing = value > 0;
  else
    return false;
  return true;
}

static enum gd_status parse_rand(const char *part, struct gd_rand_augment *rand,
                                 struct gd_error *err) {
  *rand = (struct gd_rand_augment){
      .ops = 2, .magnitude = GD_IMAGE_MOST_LEVEL, .probability = 0.5}; /* timm's defaults */
  char section[64];
  for (const char *at = part + strlen("rand"); *at;) {
    size_t length = strcspn(at + 1, "-");
    snprintf(section, sizeof section, "%.*s", (int)length, at + 1);
    if (!parse_section(section, rand))
      return gd_fail(err, GD_BAD_INPUT,
                     "--augment %s: \"%s\" is no setting of RandAugment; they are m0 to m10, n1 "
                     "to n%d, mstd0.5, p0.5, inc0 or inc1, as in rand-m9-mstd0.5-inc1",
                     part, section, GD_RAND_MOST_OPS);
    at += 1 + length;
  }
  return GD_OK;
}

static enum gd_status parse_part(const char *part, struct gd_augment *a, struct gd_error *err) {
  const struct {
    const char *name;
    double *value, most;
  } numbers[] = {{"erase=", &a->erase, 1},
                 {"noise=", &a->erase, 1},
                 {"mixup=", &a->mixup, 100},
                 {"cutmix=", &a->cutmix, 100}};
  if (strcmp(part, "crop") == 0)
    a->crop = true;
  else if (strcmp(part, "bicubic") == 0)
    a->bicubic = true;
  else if (strcmp(part, "flip") == 0)
    a->flip = true;
  else if (strcmp(part, "rand") == 0 || strncmp(part, "rand-", 5) == 0)
    return parse_rand(part, &a->rand, err);
  else {
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
      size_t length = strlen(numbers[i].name);
      char *end;
      if (strncmp(part, numbers[i].name, length) != 0)
        continue;
      double value = strtod(part + length, &end);
      if (end == part + length || *end || !(value >= 0 && value <= numbers[i].most))
        return gd_fail(err, GD_BAD_INPUT, "--augment %s: not a number from 0 to %g", part,
                       numbers[i].most);
      if (numbers[i].value == &a->erase && a->erase > 0)
        return gd_fail(err, GD_BAD_INPUT, "--augment has erase and noise; one of them erases");
      *numbers[i].value = value;
      a->noise |= part[0] == 'n';
      return GD_OK;
    }
    return gd_fail(
        err, GD_BAD_INPUT,
        "--augment has no part \"%s\"; parts are crop, bicubic, flip, "
        "rand-m9-mstd0.5-inc1, erase=P, noise=P, mixup=ALPHA, cutmix=ALPHA, or none alone",
        part);
  }
  return GD_OK;
}

enum gd_status gd_augment_parse(const char *text, struct gd_augment *augment,
                                struct gd_error *err) {
  struct gd_augment parsed = {0};
  char part[64];
  if (strcmp(text, "none") == 0) {
    *augment = parsed;
    return GD_OK;
  }
  for (const char *at = text;; at++) {
    size_t length = strcspn(at, ",");
    snprintf(part, sizeof part, "%.*s", length < sizeof part ? (int)length : 63, at);
    GD_TRY(parse_part(part, &parsed, err));
    at += length;
    if (!*at)
      break;
  }
  *augment = parsed;
  return GD_OK;
}

const struct gd_normalization gd_normalizations[] = {
    [GD_NORMALIZE_IMAGENET] = {"imagenet", {0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}},
    [GD_NORMALIZE_HALF] = {"half", {0.5, 0.5, 0.5}, {0.5, 0.5, 0.5}},
    [GD_NORMALIZE_NONE] = {"none", {0, 0, 0}, {1, 1, 1}}};

bool gd_normalize_parse(const char *text, enum gd_normalize *normalize) {
  for (int i = 0; i < GD_NORMALIZE_COUNT; i++)
    if (strcmp(text, gd_normalizations[i].name) == 0) {
      *normalize = (enum gd_normalize)i;
      return true;
    }
  return false;
}

/* The images, numbered by the classes of options->classes_of where that is given. */
static enum gd_status list_images(struct gd_image_set *set, const struct gd_image_options *options,
                                  const struct gd_image_files *known, struct gd_error *err) {
  struct gd_image_files classes = {0};
  enum gd_status status = GD_OK;
  if (!known && options->classes_of) {
    GD_TRY(gd_image_files_open_classes(&classes, options->classes_of, err));
    known = &classes;
    if (classes.n_classes != options->classes)
      status = gd_fail(err, GD_BAD_INPUT,
                       "%s has %u classes now, and the model has %" PRId64
                       ": bring back the folder that it was trained on",
                       options->classes_of, classes.n_classes, options->classes);
  }
  if (!known && options->n_class_names > 0) {
    status = gd_image_files_match_classes(&classes, options->class_names, options->n_class_names,
                                          options->files, options->n_files, err);
    known = status == GD_OK && classes.classes ? &classes : NULL;
  }
  if (status == GD_OK)
    status = gd_image_files_open(&set->files, options->files, options->n_files, options->classes,
                                 known, err);
  gd_image_files_close(&classes);
  return status;
}

enum gd_status gd_image_set_open(struct gd_image_set *set, const struct gd_image_options *options,
                                 const struct gd_image_files *known, struct gd_error *err) {
  const struct gd_normalization *by = &gd_normalizations[options->normalize];
  struct gd_image_codec codec;
  *set = (struct gd_image_set){.options = *options};
  set->options.files = NULL;
  set->options.classes_of = NULL;
  set->options.class_names = NULL;
  for (int c = 0; c < 3; c++)
    set->mean[c] = (uint8_t)rint(255 * (double)(float)by->mean[c]);
  for (int c = 0; c < 3; c++)
    for (int x = 0; x < 256; x++)
      set->value[c][x] = ((float)x / 255.0f - (float)by->mean[c]) / (float)by->deviation[c];
  GD_TRY(list_images(set, options, known, err));
  gd_image_codec_open(&codec);
  enum gd_status status = gd_image_codec_check(&codec, set->files.jpeg, set->files.png, err);
  gd_image_codec_close(&codec);
  if (status != GD_OK)
    gd_image_set_close(set);
  return status;
}

void gd_image_set_close(struct gd_image_set *set) {
  gd_image_files_close(&set->files);
  *set = (struct gd_image_set){0};
}

void gd_image_work_init(struct gd_image_work *work) {
  *work = (struct gd_image_work){.made_index = {-1, -1}};
  gd_image_codec_open(&work->codec);
}

void gd_image_work_deinit(struct gd_image_work *work) {
  gd_image_codec_close(&work->codec);
  gd_resizer_free(&work->resizer);
  gd_strbuf_deinit(&work->file);
  gd_image_free(&work->decoded);
  gd_image_free(&work->part);
  gd_image_free(&work->made[0]);
  gd_image_free(&work->made[1]);
  gd_mem_free(work->other);
  *work = (struct gd_image_work){0};
}

/* --- which image, and which part of it ----------------------------------------------------- */

int64_t gd_image_set_locate(const struct gd_image_set *set, int64_t index, int64_t *epoch) {
  uint32_t key[4];
  int64_t count = set->files.count, at = index % count;
  *epoch = index / count;
  if (set->options.evaluates)
    return at;
  gd_rng_philox(set->options.seed, gd_hash_string("order"), (uint64_t)*epoch, key);
  return (int64_t)gd_permute((uint64_t)key[0] << 32 | key[1], (uint64_t)count, (uint64_t)at);
}

int64_t gd_image_scaled(int64_t side) {
  return side * 256 / 224;
}

/* The middle of the image at a size of which the model sees 224/256. */
static struct gd_box middle(const struct gd_image_options *o, int64_t width, int64_t height,
                            int64_t *scaled_width, int64_t *scaled_height) {
  if (height * o->width <= width * o->height) {
    *scaled_height = gd_image_scaled(o->height);
    *scaled_width = *scaled_height * width / height;
  } else {
    *scaled_width = gd_image_scaled(o->width);
    *scaled_height = *scaled_width * height / width;
  }
  *scaled_width = *scaled_width < o->width ? o->width : *scaled_width;
  *scaled_height = *scaled_height < o->height ? o->height : *scaled_height;
  return (struct gd_box){.left = (int64_t)rint((double)(*scaled_width - o->width) / 2),
                         .top = (int64_t)rint((double)(*scaled_height - o->height) / 2),
                         .width = o->width,
                         .height = o->height};
}

/* torchvision's RandomResizedCrop.get_params: ten attempts, then as much of the middle as the
   ratios allow. */
static struct gd_box random_part(struct draws *d, int64_t width, int64_t height) {
  const double low = 3.0 / 4, high = 4.0 / 3;
  for (int attempt = 0; attempt < 10; attempt++) {
    double area = (double)(width * height) * uniform(d, 0.08, 1);
    double ratio = exp(uniform(d, log(low), log(high)));
    int64_t w = (int64_t)rint(sqrt(area * ratio)), h = (int64_t)rint(sqrt(area / ratio));
    if (w < 1 || w > width || h < 1 || h > height)
      continue;
    int64_t top = below(d, height - h + 1);
    return (struct gd_box){.left = below(d, width - w + 1), .top = top, .width = w, .height = h};
  }
  double ratio = (double)width / (double)height;
  struct gd_box box = {.width = width, .height = height};
  if (ratio < low)
    box.height = (int64_t)rint((double)width / low);
  else if (ratio > high)
    box.width = (int64_t)rint((double)height * high);
  box.width = box.width < 1 ? 1 : box.width > width ? width : box.width;
  box.height = box.height < 1 ? 1 : box.height > height ? height : box.height;
  box.left = (width - box.width) / 2;
  box.top = (height - box.height) / 2;
  return box;
}

struct gd_box gd_image_crop(const struct gd_image_set *set, int64_t index, int64_t width,
                            int64_t height, int64_t *scaled_width, int64_t *scaled_height,
                            bool *mirrored) {
  const struct gd_image_options *o = &set->options;
  struct draws d = draws_of(set, "crop", index);
  bool augments = !o->evaluates;
  *mirrored = augments && o->augment.flip && uniform(&d, 0, 1) < 0.5;
  *scaled_width = width;
  *scaled_height = height;
  if (augments && o->augment.crop)
    return random_part(&d, width, height);
  return middle(o, width, height, scaled_width, scaled_height);
}

int gd_image_changes(const struct gd_image_set *set, int64_t index,
                     struct gd_image_change changes[GD_RAND_MOST_OPS]) {
  const struct gd_rand_augment *rand = &set->options.augment.rand;
  struct draws d = draws_of(set, "rand", index);
  int count = 0;
  for (int i = 0; i < rand->ops && !set->options.evaluates; i++) {
    enum gd_image_op op = (enum gd_image_op)below(&d, GD_IMAGE_OP_COUNT);
    if (uniform(&d, 0, 1) >= rand->probability)
      continue;
    double level = rand->magnitude + (rand->deviation > 0 ? rand->deviation * normal_of(&d) : 0);
    bool negative = uniform(&d, 0, 1) < 0.5;
    level = level < 0 ? 0 : level > GD_IMAGE_MOST_LEVEL ? GD_IMAGE_MOST_LEVEL : level;
    changes[count++] =
        (struct gd_image_change){op, gd_image_op_value(op, level, rand->increasing, negative)};
  }
  return count;
}

/* --- a sample ------------------------------------------------------------------------------ */

static void mirror(struct gd_image *image) {
  for (int64_t y = 0; y < image->height; y++) {
    uint8_t *row = image->rgb + 3 * y * image->width;
    for (int64_t left = 0, right = image->width - 1; left < right; left++, right--) {
      uint8_t pixel[3];
      memcpy(pixel, row + 3 * left, 3);
      memcpy(row + 3 * left, row + 3 * right, 3);
      memcpy(row + 3 * right, pixel, 3);
    }
  }
}

/* The image of a sample in bytes at the model's size, unless it is there from the last call. */
static enum gd_status make(const struct gd_image_set *set, struct gd_image_work *work,
                           int64_t index, struct gd_image **out, struct gd_error *err) {
  const struct gd_image_options *o = &set->options;
  struct gd_image *made = &work->made[index & 1];
  *out = made;
  if (work->made_index[index & 1] == index)
    return GD_OK;
  work->made_index[index & 1] = -1;
  char name[2 * GD_FILE_PATH];
  const uint8_t *bytes;
  size_t size;
  int64_t epoch, image = gd_image_set_locate(set, index, &epoch), width, height;
  GD_TRY(gd_image_files_get(&set->files, image, &work->file, &bytes, &size, err));
  GD_TRY(gd_image_decode(&work->codec, bytes, size,
                         gd_image_files_name(&set->files, image, name, sizeof name), &work->decoded,
                         err));
  const struct gd_image *from = &work->decoded;
  enum gd_filter filter =
      o->augment.bicubic && !o->evaluates ? GD_FILTER_BICUBIC : GD_FILTER_BILINEAR;
  bool mirrored;
  struct gd_box box =
      gd_image_crop(set, index, from->width, from->height, &width, &height, &mirrored);
  if (width != from->width || height != from->height) {
    GD_TRY(gd_resize(&work->resizer, from, (struct gd_box){0, 0, from->width, from->height}, filter,
                     width, height, &work->part, err));
    from = &work->part;
  }
  GD_TRY(gd_resize(&work->resizer, from, box, filter, o->width, o->height, made, err));
  if (mirrored)
    mirror(made);
  struct gd_image_change changes[GD_RAND_MOST_OPS];
  int n_changes = gd_image_changes(set, index, changes);
  for (int i = 0; i < n_changes; i++)
    GD_TRY(gd_image_op_apply(changes[i].op, changes[i].value, set->mean, made, &work->part, err));
  work->made_index[index & 1] = index;
  return GD_OK;
}

/* torchvision's RandomErasing.get_params: ten attempts, or nothing. */
static void erase(const struct gd_image_set *set, int64_t index, float *pixels) {
  const struct gd_image_options *o = &set->options;
  struct draws noise = draws_of(set, "noise", index);
  struct draws d = draws_of(set, "erase", index);
  if (uniform(&d, 0, 1) >= o->augment.erase)
    return;
  for (int attempt = 0; attempt < 10; attempt++) {
    double area = (double)(o->width * o->height) * uniform(&d, 0.02, 0.33);
    double ratio = exp(uniform(&d, log(0.3), log(3.3)));
    int64_t h = (int64_t)rint(sqrt(area * ratio)), w = (int64_t)rint(sqrt(area / ratio));
    if (h >= o->height || w >= o->width)
      continue;
    int64_t top = below(&d, o->height - h + 1), left = below(&d, o->width - w + 1);
    for (int64_t c = 0; c < 3; c++)
      for (int64_t y = top; y < top + h; y++) {
        int64_t at = (c * o->height + y) * o->width + left;
        for (int64_t x = 0; x < w && o->augment.noise; x++)
          pixels[at + x] = (float)normal_of(&noise);
        if (!o->augment.noise)
          memset(pixels + at, 0, (size_t)w * sizeof *pixels);
      }
    return;
  }
}

/* One image: normalised, with its class. */
static enum gd_status single(const struct gd_image_set *set, struct gd_image_work *work,
                             int64_t index, float *pixels, int32_t *class_number,
                             struct gd_error *err) {
  const struct gd_image_options *o = &set->options;
  int64_t epoch, count = o->height * o->width;
  struct gd_image *made;
  GD_TRY(make(set, work, index, &made, err));
  for (int c = 0; c < 3; c++)
    for (int64_t i = 0; i < count; i++)
      pixels[c * count + i] = set->value[c][made->rgb[3 * i + c]];
  if (!o->evaluates && o->augment.erase > 0)
    erase(set, index, pixels);
  *class_number = set->files.entries[gd_image_set_locate(set, index, &epoch)].class_number;
  return GD_OK;
}

/* A box of the area (1 - share), cut where it leaves the image; returns the share that is left.
   Yun et al. 2019, arXiv:1905.04899, section 3.1. */
static double cut_box(const struct gd_image_options *o, struct draws *d, double share,
                      struct gd_box *box) {
  double side = sqrt(1 - share);
  int64_t h = (int64_t)((double)o->height * side), w = (int64_t)((double)o->width * side);
  int64_t y = below(d, o->height), x = below(d, o->width);
  int64_t top = y - h / 2 < 0 ? 0 : y - h / 2, left = x - w / 2 < 0 ? 0 : x - w / 2;
  int64_t bottom = y + h / 2 > o->height ? o->height : y + h / 2;
  int64_t right = x + w / 2 > o->width ? o->width : x + w / 2;
  *box = (struct gd_box){.left = left, .top = top, .width = right - left, .height = bottom - top};
  return 1 - (double)(box->width * box->height) / (double)(o->width * o->height);
}

/* Mixes the other sample of the pair in; returns the share that stays. Both draw the same. */
static double mix(const struct gd_image_set *set, int64_t index, float *pixels,
                  const float *other) {
  const struct gd_image_options *o = &set->options;
  const struct gd_augment *a = &o->augment;
  struct draws d = draws_of(set, "mix", index >> 1);
  bool cuts = a->cutmix > 0 && (a->mixup == 0 || uniform(&d, 0, 1) < 0.5);
  double share = beta_of(&d, cuts ? a->cutmix : a->mixup);
  if (!cuts) {
    for (int64_t i = 0; i < 3 * o->height * o->width; i++)
      pixels[i] = (float)share * pixels[i] + (float)(1 - share) * other[i];
    return share;
  }
  struct gd_box box;
  share = cut_box(o, &d, share, &box);
  for (int64_t c = 0; c < 3; c++)
    for (int64_t y = box.top; y < box.top + box.height; y++) {
      int64_t at = (c * o->height + y) * o->width + box.left;
      memcpy(pixels + at, other + at, (size_t)box.width * sizeof *pixels);
    }
  return share;
}

enum gd_status gd_image_set_sample(const struct gd_image_set *set, struct gd_image_work *work,
                                   int64_t index, float *pixels, float *targets,
                                   struct gd_error *err) {
  const struct gd_image_options *o = &set->options;
  size_t count = (size_t)(3 * o->height * o->width);
  bool mixes = !o->evaluates && (o->augment.mixup > 0 || o->augment.cutmix > 0);
  double smoothing = o->evaluates ? 0 : o->smoothing, share = 1;
  int32_t mine, others = 0;
  if (o->evaluates && index >= set->files.count) {
    memset(pixels, 0, count * sizeof *pixels);
    memset(targets, 0, (size_t)o->classes * sizeof *targets);
    return GD_OK;
  }
  GD_TRY(single(set, work, index, pixels, &mine, err));
  if (mixes) {
    if (!work->other && !(work->other = gd_mem_alloc(count, sizeof *work->other)))
      return gd_nomem(err, "for an image");
    GD_TRY(single(set, work, index ^ 1, work->other, &others, err));
    share = mix(set, index, pixels, work->other);
  }
  for (int64_t v = 0; v < o->classes; v++)
    targets[v] = (float)(smoothing / (double)o->classes);
  targets[mine] += (float)((1 - smoothing) * share);
  if (mixes)
    targets[others] += (float)((1 - smoothing) * (1 - share));
  return GD_OK;
}
