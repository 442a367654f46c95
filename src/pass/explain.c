/*
 * The pipeline, watched: see explain.h. A diff works on lines of text, one for each leaf and each
 * op. Tensor ids change with every rewrite, so lines are compared without them.
 */
#include "pass/explain.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/cache.h"
#include "base/mem.h"

/* --- the graph as lines --------------------------------------------------------------------- */

enum { LEAVES = -1 }; /* a phase of their own */

struct line {
  size_t start, length; /* in the text; a fused op has several lines of it */
  uint64_t hash;        /* without what a rewrite renumbers */
  int phase;            /* enum gd_phase, or LEAVES */
  int32_t block;
};

struct snapshot {
  struct gd_strbuf text;
  struct line *lines;
  uint32_t count;
};

static void snapshot_deinit(struct snapshot *s) {
  gd_strbuf_deinit(&s->text);
  gd_mem_free(s->lines);
  *s = (struct snapshot){0};
}

static bool ends_with(const char *start, const char *end, const char *word) {
  size_t length = strlen(word);
  return (size_t)(end - start) >= length && memcmp(end - length, word, length) == 0;
}

/* Text without ids of tensors and fusions; `alike`: also without numbers of layers, so that layers
   can be compared with each other. */
static uint64_t hash_text(const char *text, size_t length, bool alike) {
  uint64_t hash = 0;
  for (const char *at = text, *end = text + length; at < end;) {
    bool number = ends_with(text, at, "%") || ends_with(text, at, "fusion=") ||
                  (alike && (ends_with(text, at, ".") || ends_with(text, at, "stream=") ||
                             ends_with(text, at, "flat")));
    if (number && isdigit((unsigned char)*at)) {
      while (at < end && isdigit((unsigned char)*at))
        at++;
      continue;
    }
    hash = gd_cache_hash(hash, at++, 1);
  }
  return hash;
}

static void add_line(struct snapshot *s, size_t start, int phase, int32_t block) {
  size_t length = s->text.length - start;
  if (!s->text.failed)
    s->lines[s->count++] = (struct line){.start = start,
                                         .length = length,
                                         .hash = hash_text(s->text.text + start, length, false),
                                         .phase = phase,
                                         .block = block};
}

/* Cuts off what gd_op_print begins a line with, such as "b3   fwd  ": the header of a hunk names
   block and phase. */
static void drop_columns(struct gd_strbuf *text, size_t start) {
  char *at = text->text + start;
  const char *rest = strstr(at, "d  ");
  rest = rest ? rest + 3 : (rest = strstr(at, "ini  ")) ? rest + 5 : at;
  size_t dropped = (size_t)(rest - at);
  memmove(at, rest, text->length - start - dropped + 1);
  text->length -= dropped;
}

static bool snapshot_make(struct snapshot *s, const struct gd_graph *graph) {
  *s = (struct snapshot){
      .lines = gd_mem_alloc((size_t)graph->n_ops + graph->n_tensors + 1, sizeof *s->lines)};
  for (gd_tensor_id id = 0; s->lines && id < graph->n_tensors; id++) {
    const struct gd_tensor *t = &graph->tensors[id];
    size_t start = s->text.length;
    if (t->producer != GD_NONE)
      continue;
    gd_tensor_print(graph, id, &s->text);
    gd_strbuf_printf(&s->text, " : %s[%lld]%s\n", gd_dtype_name(t->dtype),
                     (long long)gd_tensor_elements(graph, id),
                     t->space == GD_SPACE_HOST ? " host" : "");
    add_line(s, start, LEAVES, -1);
  }
  for (gd_op_id id = 0; s->lines && id < graph->n_ops; id++) {
    size_t start = s->text.length;
    const struct gd_op *op = &graph->ops[id];
    gd_op_print(graph, id, &s->text);
    if (s->text.failed)
      break;
    drop_columns(&s->text, start);
    if (gd_op_info(op->kind)->attr == GD_ATTR_matmul && op->attr.matmul.tf32) {
      s->text.length--; /* the end of the line */
      gd_strbuf_append(&s->text, " tf32\n");
    }
    add_line(s, start, (int)op->phase, op->block);
  }
  return s->lines && !s->text.failed;
}

/* --- the difference of one block ------------------------------------------------------------ */

/* Lines of one phase and block, by number. */
struct segment {
  int phase;
  int32_t block;
  const uint32_t *before, *after;
  uint32_t n_before, n_after;
};

struct hunk {
  int phase;
  int32_t block;
  uint32_t removed, added;
  uint64_t alike; /* the same for blocks that change alike */
  struct gd_strbuf text;
};

struct diff {
  const struct snapshot *before, *after;
  struct hunk *hunks;
  uint32_t n_hunks;
  bool failed;
};

static void put_line(struct diff *d, struct hunk *hunk, bool added, uint32_t number) {
  const struct snapshot *from = added ? d->after : d->before;
  const struct line *line = &from->lines[number];
  const char *text = from->text.text + line->start;
  hunk->alike =
      gd_cache_hash(hunk->alike, added ? "+" : "-", 1) ^ hash_text(text, line->length, true);
  *(added ? &hunk->added : &hunk->removed) += 1;
  for (size_t at = 0; at < line->length;) {
    size_t length = strcspn(text + at, "\n") + 1;
    gd_strbuf_append(&hunk->text, added ? "+" : "-");
    gd_strbuf_append_bytes(&hunk->text, text + at, length);
    at += length;
  }
}

static bool same(const struct diff *d, const struct segment *s, uint32_t i, uint32_t k) {
  return d->before->lines[s->before[i]].hash == d->after->lines[s->after[k]].hash;
}

/*
 * The longest common subsequence, by the table of lengths. A segment that is too long for the
 * table, such as an update program of thousands of ops, keeps its common start and end, and all
 * between them counts as replaced.
 */
static void compare_segment(struct diff *d, const struct segment *s, struct hunk *hunk) {
  enum { MOST_CELLS = 1 << 24 };
  uint32_t first = 0, n = s->n_before, m = s->n_after;
  while (first < n && first < m && same(d, s, first, first))
    first++;
  while (n > first && m > first && same(d, s, n - 1, m - 1)) {
    n--;
    m--;
  }
  size_t rows = n - first, columns = m - first, width = columns + 1;
  uint16_t *lengths = NULL;
  if (rows > 0 && columns > 0 && (rows + 1) * width <= MOST_CELLS && rows < UINT16_MAX)
    lengths = gd_mem_alloc((rows + 1) * width, sizeof *lengths); /* of what follows (i, k) */
  for (size_t i = rows; lengths && i-- > 0;)
    for (size_t k = columns; k-- > 0;) {
      uint16_t down = lengths[(i + 1) * width + k], right = lengths[i * width + k + 1];
      lengths[i * width + k] = same(d, s, first + (uint32_t)i, first + (uint32_t)k)
                                   ? (uint16_t)(lengths[(i + 1) * width + k + 1] + 1)
                               : down > right ? down
                                              : right;
    }
  size_t i = 0, k = 0;
  while (i < rows || k < columns) {
    if (lengths && i < rows && k < columns &&
        same(d, s, first + (uint32_t)i, first + (uint32_t)k)) {
      i++;
      k++;
    } else if (i < rows && (!lengths || k == columns ||
                            lengths[(i + 1) * width + k] >= lengths[i * width + k + 1])) {
      put_line(d, hunk, false, s->before[first + i++]);
    } else {
      put_line(d, hunk, true, s->after[first + k++]);
    }
  }
  gd_mem_free(lengths);
}

/* --- all of it ------------------------------------------------------------------------------ */

/* Numbers of the lines of one segment. */
static uint32_t *collect(const struct snapshot *s, int phase, int32_t block, uint32_t *count) {
  uint32_t *numbers = gd_mem_alloc((size_t)s->count + 1, sizeof *numbers);
  *count = 0;
  for (uint32_t i = 0; numbers && i < s->count; i++)
    if (s->lines[i].phase == phase && s->lines[i].block == block)
      numbers[(*count)++] = i;
  return numbers;
}

static void diff_segment(struct diff *d, int phase, int32_t block) {
  struct segment s = {.phase = phase, .block = block};
  struct hunk *hunk = &d->hunks[d->n_hunks];
  uint32_t *before = collect(d->before, phase, block, &s.n_before);
  uint32_t *after = collect(d->after, phase, block, &s.n_after);
  s.before = before;
  s.after = after;
  *hunk = (struct hunk){.phase = phase, .block = block, .alike = 0};
  d->failed |= !before || !after;
  if (before && after)
    compare_segment(d, &s, hunk);
  d->failed |= hunk->text.failed;
  if (hunk->removed + hunk->added > 0)
    d->n_hunks++;
  gd_mem_free(before);
  gd_mem_free(after);
}

static int32_t last_block(const struct snapshot *s) {
  int32_t last = -1;
  for (uint32_t i = 0; i < s->count; i++)
    last = s->lines[i].block > last ? s->lines[i].block : last;
  return last;
}

/* " 0-5, 7": blocks whose hunks are like this one's. */
static void print_blocks(const struct diff *d, uint32_t number, bool *printed,
                         struct gd_strbuf *out) {
  const struct hunk *hunk = &d->hunks[number];
  int32_t first = hunk->block, last = hunk->block;
  const char *separator = " ";
  for (uint32_t i = number; i <= d->n_hunks; i++) {
    const struct hunk *other = i < d->n_hunks ? &d->hunks[i] : NULL;
    if (other && (other->phase != hunk->phase || other->alike != hunk->alike))
      continue;
    if (!other || other->block > last + 1) {
      gd_strbuf_printf(out, "%s%d", separator, first);
      if (last > first)
        gd_strbuf_printf(out, "-%d", last);
      separator = ", ";
      first = other ? other->block : first;
    }
    if (other) {
      last = other->block;
      printed[i] = true;
    }
  }
}

/* Blocks that change alike are one hunk; the lines are the first one's. */
static void print_hunk(const struct diff *d, uint32_t number, bool *printed,
                       struct gd_strbuf *out) {
  static const char *const phases[] = {[GD_PHASE_FORWARD] = "forward",
                                       [GD_PHASE_BACKWARD] = "backward",
                                       [GD_PHASE_UPDATE] = "update",
                                       [GD_PHASE_INIT] = "init"};
  const struct hunk *hunk = &d->hunks[number];
  if (hunk->phase == LEAVES) {
    gd_strbuf_append(out, "@@ leaves");
  } else if (hunk->block < 0) {
    gd_strbuf_printf(out, "@@ %s, outside the blocks", phases[hunk->phase]);
  } else {
    gd_strbuf_printf(out, "@@ %s, block", phases[hunk->phase]);
    print_blocks(d, number, printed, out);
  }
  gd_strbuf_printf(out, ": -%u +%u @@\n", hunk->removed, hunk->added);
  if (hunk->text.text)
    gd_strbuf_append(out, hunk->text.text);
}

static enum gd_status print_diff(const struct snapshot *before, const struct snapshot *after,
                                 struct gd_strbuf *out, struct gd_error *err) {
  static const int order[] = {LEAVES, GD_PHASE_INIT, GD_PHASE_FORWARD, GD_PHASE_BACKWARD,
                              GD_PHASE_UPDATE};
  enum { PHASES = sizeof order / sizeof *order };
  struct diff d = {.before = before, .after = after};
  int32_t blocks = last_block(before) > last_block(after) ? last_block(before) : last_block(after);
  size_t most = (size_t)(blocks + 2) * PHASES;
  bool *printed = gd_mem_alloc(most, sizeof *printed);
  d.hunks = gd_mem_alloc(most + 1, sizeof *d.hunks);
  d.failed = !printed || !d.hunks;
  for (int phase = 0; phase < PHASES && !d.failed; phase++)
    for (int32_t block = -1; block <= blocks && !d.failed; block++)
      diff_segment(&d, order[phase], block);
  for (uint32_t i = 0; i < d.n_hunks && !d.failed; i++)
    if (!printed[i])
      print_hunk(&d, i, printed, out);
  if (d.n_hunks == 0 && !d.failed)
    gd_strbuf_append(out, "nothing changes\n");
  for (uint32_t i = 0; i < d.n_hunks; i++)
    gd_strbuf_deinit(&d.hunks[i].text);
  gd_mem_free(d.hunks);
  gd_mem_free(printed);
  return d.failed ? gd_nomem(err, "while comparing graphs") : GD_OK;
}

/* --- watching ------------------------------------------------------------------------------- */

struct watching {
  const char *which;
  bool summary; /* a line for each pass, no diff */
  bool found;   /* the pass `which` has run */
  bool failed;  /* out of memory */
  int between;  /* steps that are no passes, so far */
  uint32_t n_ops;
  struct snapshot before, after;
  struct gd_strbuf *out;
};

static void watch(void *user, const struct gd_pass *pass, const struct gd_graph *graph,
                  double seconds) {
  static const char *const steps[] = {"(forward graph)", "(autodiff)", "(update program)"};
  struct watching *w = user;
  const char *name = pass ? pass->name : steps[w->between];
  w->between += !pass;
  if (w->summary)
    gd_strbuf_printf(w->out, "%-16s  %7u ops %+7d  %7u tensors  %8.3f ms%s%s\n", name, graph->n_ops,
                     (int)(graph->n_ops - w->n_ops), graph->n_tensors, 1e3 * seconds,
                     pass ? "  " : "", pass ? pass->doc : "");
  w->n_ops = graph->n_ops;
  if (w->summary || w->found || w->failed)
    return;
  w->found = pass && strcmp(pass->name, w->which) == 0;
  struct snapshot *to = w->found ? &w->after : &w->before;
  snapshot_deinit(to);
  w->failed = !snapshot_make(to, graph);
}

/* Passes that do not run: first those of other methods, then those that are switched off. */
static void print_rest(const struct gd_method *method, struct gd_strbuf *out) {
  int count;
  const struct gd_pass *passes = gd_passes(&count);
  for (int off = 0; off < 2; off++) {
    const char *separator = off ? "switched off: " : "not in this method: ";
    for (int i = 0; i < count; i++)
      if (!gd_pass_is_on(method, i) && (int)(method->without >> i & 1u) == off) {
        gd_strbuf_printf(out, "%s%s", separator, passes[i].name);
        separator = ", ";
      }
    gd_strbuf_append(out, separator[0] == ',' ? "\n" : "");
  }
}

enum gd_status gd_pipeline_explain(const struct gd_setup *setup, const char *which,
                                   struct gd_strbuf *out, struct gd_error *err) {
  struct gd_graph graph = {0};
  struct watching w = {.which = which, .summary = strcmp(which, "passes") == 0, .out = out};
  struct gd_setup watched = *setup;
  char name[GD_METHOD_NAME];
  watched.watch = watch;
  watched.watch_user = &w;
  enum gd_status status = gd_pipeline_build(&watched, &graph, err);
  if (status == GD_OK && w.failed)
    status = gd_nomem(err, "while printing a graph");
  if (status == GD_OK && w.summary) {
    print_rest(&setup->method, out);
  } else if (status == GD_OK && w.found && !w.before.lines) {
    gd_strbuf_printf(out,
                     "pass %s runs before there is a graph; --without %s shows the other one\n",
                     which, which);
  } else if (status == GD_OK && w.found) {
    status = print_diff(&w.before, &w.after, out, err);
  } else if (status == GD_OK) {
    gd_strbuf_printf(out, "pass %s is not part of %s\n", which,
                     gd_method_name(&setup->method, name));
  }
  snapshot_deinit(&w.before);
  snapshot_deinit(&w.after);
  gd_graph_deinit(&graph);
  return status;
}
