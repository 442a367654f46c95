/*
 * Methods: the points of the search space, by name. A method is a set of parts, and a part says
 * which passes run; methods.def is the table of the parts, docs/methods.md says what each means in
 * bytes and messages.
 *
 *   struct gd_method method;
 *   GD_TRY(gd_method_parse("free-lunch+ckpt+zero2+offload", &method, err));
 */
#ifndef GD_PASS_METHOD_H
#define GD_PASS_METHOD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/mem.h"
#include "base/status.h"
#include "base/strbuf.h"

/* The columns of methods.def. */
enum gd_part_kind {
  GD_KIND_FLAG,    /* there or not: `bool name` of struct gd_method */
  GD_KIND_NUMBER,  /* with a number, as tp2: `int name`, 0 where it is absent */
  GD_KIND_SHARDING /* one value of `enum gd_sharding sharding` */
};
enum gd_part_group {
  GD_GROUP_NONE,
  GD_GROUP_ALONE,
  GD_GROUP_FREE_LUNCH, /* free-lunch stands for all of them, naive for none */
  GD_GROUP_SHARDING    /* one of them at most */
};
/* In the search space, `--methods all`. */
enum gd_part_search {
  GD_SEARCH_ALWAYS,  /* in every point */
  GD_SEARCH_VARIES,  /* with and without */
  GD_SEARCH_ENABLES, /* likewise; on one device only where another part of the point needs it */
  GD_SEARCH_ASKED    /* never searched, only on request: what changes the numerics */
};
/* Loss and gradients, against the same method without the part. */
enum gd_part_numerics {
  GD_NUMERICS_BITS,     /* the same bits */
  GD_NUMERICS_ROUNDING, /* the same mathematics: sums are taken in another order */
  GD_NUMERICS_CHANGED   /* other mathematics, or a lower precision than the recipe's */
};
/* What --stack paper knows; this engine runs all parts. */
enum gd_part_paper {
  GD_ON_PAPER_NO,
  GD_ON_PAPER_WHOLE_GROUP, /* with all of free-lunch alone */
  GD_ON_PAPER_YES
};
/* What training keeps for a parameter. */
enum gd_part_state {
  GD_STATE_NONE = 0,
  GD_STATE_MASTER = 1,   /* fp32 */
  GD_STATE_COMPUTE = 2,  /* what GEMMs read: a 16-bit copy, or the master itself */
  GD_STATE_GRADIENT = 4, /* fp32 */
  GD_STATE_MOMENTS = 8,  /* fp32, two */
  GD_STATE_ALL = 15
};
/* Formats of src/export that can say something for a part. */
enum gd_part_format { GD_FORMAT_HF, GD_FORMAT_DEEPSPEED, GD_FORMAT_TORCHTITAN, GD_FORMAT_COUNT };

#define PART(id, ...) GD_METHOD_PART_##id,
enum gd_method_part_id {
#include "pass/methods.def"
  GD_METHOD_PART_COUNT
};
#undef PART

struct gd_method_part {
  const char *name;
  const char *passes; /* of pipeline.c, separated by blanks */
  enum gd_part_kind kind;
  enum gd_part_group group, needs; /* needs: another part of this group must be there */
  enum gd_part_search search;
  enum gd_part_numerics numerics;
  enum gd_part_paper paper;
  unsigned divides, offloads; /* enum gd_part_state; offloads: what the part offload moves */
  const char *exports[GD_FORMAT_COUNT]; /* what a format says for it; NULL: it cannot */
  const char *title;                    /* in reports: "ZeRO 1" */
  const char *words;                    /* for people who do not know this program; or NULL */
  const char *doc;                      /* one line */
  size_t offset;                        /* of its field in struct gd_method */
  int value;                            /* that the field has; NUMBER: any above 0 */
  bool by_layer;  /* units are layers; otherwise buckets of about equal size */
  bool regathers; /* gathered weights are freed between the forward and the backward pass */
};
const struct gd_method_part *gd_method_row(enum gd_method_part_id id);

enum gd_sharding {
  GD_SHARDING_NONE, /* every rank has everything: plain data parallel where there are several */
#define GD_CHOICE_FLAG(id)
#define GD_CHOICE_NUMBER(id)
#define GD_CHOICE_SHARDING(id)    GD_SHARDING_##id,
#define PART(id, name, kind, ...) GD_CHOICE_##kind(id)
#include "pass/methods.def"
#undef PART
  GD_SHARDING_COUNT
};
const char *gd_sharding_name(enum gd_sharding sharding); /* "zero1"; "" for none */
/* Its row; NULL for none. */
const struct gd_method_part *gd_sharding_part(enum gd_sharding sharding);

struct gd_method {
#define GD_FIELD_FLAG(name)   bool name;
#define GD_FIELD_NUMBER(name) int name;
#define GD_FIELD_SHARDING(name)
#define PART(id, name, kind, ...) GD_FIELD_##kind(name)
#include "pass/methods.def"
#undef PART
  enum gd_sharding sharding;
  uint32_t without; /* passes that are switched off: bits of gd_passes(), of those that would run */
};

/* What a sharding keeps one shard of per rank, instead of all; none: no bit. */
bool gd_shards_gradients(enum gd_sharding sharding);
bool gd_shards_parameters(enum gd_sharding sharding);
/* Units are layers; otherwise buckets of about equal size. */
bool gd_shards_by_block(enum gd_sharding sharding);
/* Gathered parameters are freed between the forward and the backward pass. */
bool gd_regathers(enum gd_sharding sharding);

/* 0: the method does not have the part. Otherwise 1, or the number. */
int gd_method_has(const struct gd_method *method, enum gd_method_part_id id);
/* None, or all, of what free-lunch stands for. */
bool gd_method_is_naive(const struct gd_method *method);
bool gd_method_is_free_lunch(const struct gd_method *method);

/*
 * Parts joined by +, in any order: naive, or free-lunch (= compile+kernels+tf32), then ckpt, one
 * sharding, offload; then, maybe, " without " and passes joined by +. What contradicts itself is
 * GD_BAD_INPUT with the reason.
 */
enum gd_status gd_method_parse(const char *text, struct gd_method *method,
                               struct gd_error *err) GD_MUST_USE;
/*
 * Switches off passes, a list with that separator. Those that would not run anyway leave the method
 * as it is. GD_BAD_INPUT: one is unknown, may not be switched off, or is needed by another one.
 */
enum gd_status gd_method_leave_out(struct gd_method *method, const char *passes, char separator,
                                   struct gd_error *err) GD_MUST_USE;
enum { GD_METHOD_NAME = 128 };
/* The canonical name; returns it. */
const char *gd_method_name(const struct gd_method *method, char name[GD_METHOD_NAME]);
/* Words that a name can have, in order: naive, free-lunch, then the parts; NULL ends. */
const char *gd_method_word(int number);
/* ", "-separated and with "or" or "and" before the last: what can be chosen among. */
void gd_method_list_parts(struct gd_strbuf *out, enum gd_part_group group, const char *last);

enum { GD_METHODS_MOST = 22 };
/*
 * The search space with the constraints of the paper's Appendix F: 12 points on one device, 22 on
 * several. Offload needs sharding; sharding without offload is left out on one device.
 */
int gd_method_space(bool several, struct gd_method methods[GD_METHODS_MOST]);
/*
 * Names joined by commas, of which `all` is that space; *methods is in the arena. Passes of
 * `without`, joined by commas, are switched off in each as gd_method_leave_out does; NULL: none.
 */
enum gd_status gd_method_parse_list(const char *list, bool several, const char *without,
                                    struct gd_arena *arena, struct gd_method **methods, int *count,
                                    struct gd_error *err) GD_MUST_USE;

#endif
