/*
 * Figures as files: what gnuplot makes of their scripts (plot_script.c). gnuplot runs as a child,
 * on files in a folder of its own under $TMPDIR; what it drew is read from there, so that no name
 * of the user's gets into a script.
 */
#define _GNU_SOURCE
#include "plot/plot.h"

#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/cpus.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/process.h"
#include "base/scratch.h"
#include "plot/plot_int.h"

enum { MOST_BYTES = 64 << 20 }; /* of a drawing */

/* --- gnuplot ------------------------------------------------------------------------------- */

static enum gd_status fail_missing(const char *why, struct gd_error *err) {
  return gd_fail(err, GD_ENVIRONMENT,
                 "figures need gnuplot, and it does not run here (%s); install it: apt-get install "
                 "gnuplot-nox",
                 why);
}

enum gd_status gd_plot_works(struct gd_error *err) {
  static const char *const arguments[] = {"gnuplot", "--version", NULL};
  struct gd_process_output output;
  struct gd_error why = {0};
  enum gd_status status = gd_process_run(arguments, 30, &output, &why);
  bool fine = status == GD_OK && output.code == 0;
  gd_process_output_deinit(&output);
  if (status != GD_OK)
    return fail_missing(why.text, err);
  return fine ? GD_OK : fail_missing("gnuplot --version failed", err);
}

/* --- SVG ----------------------------------------------------------------------------------- */

static void append_escaped(struct gd_strbuf *out, const char *text) {
  for (size_t bytes; *text; text += bytes) {
    bool shown = gd_text_shown(text, &bytes);
    switch (*text) {
    case '&': gd_strbuf_append(out, "&amp;"); break;
    case '<': gd_strbuf_append(out, "&lt;"); break;
    case '>': gd_strbuf_append(out, "&gt;"); break;
    case '"': gd_strbuf_append(out, "&quot;"); break;
    default: gd_strbuf_append_bytes(out, shown ? text : " ", shown ? bytes : 1);
    }
  }
}

/* What gnuplot writes (from), and what replaces it: before, then, where named, the figure's name
   and after. Ids become the figure's own, so that a page may hold many; texts get classes in
   addition to colours. */
static const struct {
  const char *from, *before, *after; /* before and after the name, where named */
  bool named;
} rewrites[] = {
    {"id='gp", "id='", "-gp", true},
    {"href='#gp", "href='#", "-gp", true},
    {"id='textbox'", "id='", "-textbox'", true},
    {"id='greybox'", "id='", "-greybox'", true},
    {"id=\"gnuplot_canvas\"", "id=\"", "-canvas\"", true},
    {"id=\"gd_plot_", "id=\"", "-plot-", true},
    {"fill=\"rgb(30,31,33)\"", "class=\"gd-ink\" fill=\"" GD_PLOT_INK "\"", NULL, false},
    {"fill=\"rgb(91,95,102)\"", "class=\"gd-muted\" fill=\"" GD_PLOT_MUTED "\"", NULL, false},
    {"stroke='rgb( 30,  31,  33)'", "class='gd-line' stroke='" GD_PLOT_INK "'", NULL, false},
    {"font-family=\":Bold\"", "font-family=\"sans-serif\" font-weight=\"bold\"", NULL, false},
};

/* Whether a place in the drawing is in a CDATA section; its texts hold no ]]> of their own. */
static bool is_in_cdata(const char *text, const char *at) {
  for (; at > text; at--)
    if (strncmp(at, "]]>", 3) == 0)
      return false;
    else if (strncmp(at, "<![CDATA[", 9) == 0)
      return true;
  return false;
}

/* The ]]> of a text: two sections share it where it is in one, as some versions of gnuplot write
   texts; elsewhere its end is escaped. Returns what follows. */
static const char *split_end(const char *text, const char *at, struct gd_strbuf *out) {
  const char *end = at + strlen(GD_PLOT_JOINER);
  if (is_in_cdata(text, at)) {
    gd_strbuf_append(out, "]]><![CDATA[");
    return end;
  }
  if (*end != '>') /* escaped already */
    return end;
  gd_strbuf_append(out, "&gt;");
  return end + 1;
}

/* The drawing without gnuplot's root element and title: append_root writes another one. */
static enum gd_status rewrite(const char *text, const char *name, struct gd_strbuf *out,
                              struct gd_error *err) {
  const char *at = strstr(text, "<g id=\"gnuplot_canvas\">");
  if (!at || !strstr(at, "</svg>"))
    return gd_fail(err, GD_ENVIRONMENT, "gnuplot wrote an SVG that is not whole");
  while (*at) {
    if (strncmp(at, GD_PLOT_JOINER, strlen(GD_PLOT_JOINER)) == 0) {
      at = split_end(text, at, out);
      continue;
    }
    size_t next = 0, count = sizeof rewrites / sizeof *rewrites;
    for (; next < count; next++)
      if (strncmp(at, rewrites[next].from, strlen(rewrites[next].from)) == 0)
        break;
    if (next < count) {
      gd_strbuf_append(out, rewrites[next].before);
      if (rewrites[next].named)
        gd_strbuf_printf(out, "%s%s", name, rewrites[next].after);
      at += strlen(rewrites[next].from);
      continue;
    }
    size_t length = 1 + strcspn(at + 1, "ihfs\xe2");
    gd_strbuf_append_bytes(out, at, length);
    at += length;
  }
  return GD_OK;
}

static void append_root(const struct gd_plot *plot, bool alone, struct gd_strbuf *out) {
  int width, height;
  gd_plot_size(plot, &width, &height);
  if (alone)
    gd_strbuf_append(out, "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n");
  gd_strbuf_printf(out,
                   "<svg xmlns=\"http://www.w3.org/2000/svg\" "
                   "xmlns:xlink=\"http://www.w3.org/1999/xlink\" viewBox=\"0 0 %d %d\" "
                   "width=\"%d\" height=\"%d\" role=\"img\" aria-label=\"",
                   width, height, width, height);
  const char *alt = plot->alt ? plot->alt : plot->title;
  append_escaped(out, alt ? alt : "figure");
  gd_strbuf_append(out, "\">\n");
  if (alone)
    gd_strbuf_append(out, "<style>svg{background:#fff}"
                          "@media(prefers-color-scheme:dark){svg{background:#14171b}"
                          ".gd-ink{fill:#e8eaed}.gd-muted{fill:#a7adb5}.gd-line{stroke:#e8eaed}}"
                          "</style>\n");
}

/* What gnuplot wrote there, behind the root that `to` begins with. */
static enum gd_status take_svg(const char *path, const char *name, struct gd_strbuf *to,
                               struct gd_error *err) {
  struct gd_strbuf drawn = {0};
  enum gd_status status = gd_file_read(path, MOST_BYTES, &drawn, err);
  if (status == GD_OK)
    status = rewrite(drawn.text ? drawn.text : "", name, to, err);
  if (status == GD_OK && to->failed)
    status = gd_nomem(err, "while drawing a figure");
  gd_strbuf_deinit(&drawn);
  return status;
}

/* --- scripts ------------------------------------------------------------------------------- */

enum part { PART_SVG, PART_PNG, PART_INSIDE };

static void path_of(const struct gd_scratch *folder, int figure, enum part part, char *path,
                    size_t size) {
  static const char *const endings[] = {"svg", "png", "inside"};
  snprintf(path, size, "%s/%d.%s", folder->path, figure, endings[part]);
}

/* In single quotes nothing but the quote itself has a meaning. */
static void append_output(struct gd_strbuf *script, const struct gd_scratch *folder, int figure,
                          enum part part) {
  char path[PATH_MAX + 32];
  path_of(folder, figure, part, path, sizeof path);
  gd_strbuf_append(script, "set output '");
  for (const char *at = path; *at; at++)
    gd_strbuf_printf(script, "%s%c", *at == '\'' ? "'" : "", *at);
  gd_strbuf_append(script, "'\n");
}

static void append_svg(const struct gd_plot *plot, const struct gd_scratch *folder, int figure,
                       enum part part, struct gd_strbuf *script) {
  int width, height;
  gd_plot_size(plot, &width, &height);
  gd_strbuf_printf(
      script,
      "reset\nset terminal svg size %d,%d dynamic noenhanced font 'sans-serif,13' name 'gd'\n",
      width, height);
  append_output(script, folder, figure, part);
  gd_plot_script(plot, script);
}

/* The last drawing again as PNG, with twice the pixels, so that it is sharp on screens and in
   print. Font sizes are pixels in the SVG and points of 4/3 pixels here. */
static void append_png(const struct gd_plot *plot, const struct gd_scratch *folder, int figure,
                       struct gd_strbuf *script) {
  int width, height;
  gd_plot_size(plot, &width, &height);
  gd_strbuf_printf(script,
                   "set terminal pngcairo size %d,%d noenhanced font 'sans-serif,13' fontscale 1.5 "
                   "linewidth 2 pointscale 2 background rgb 'white'\n",
                   2 * width, 2 * height);
  append_output(script, folder, figure, PART_PNG);
  gd_strbuf_append(script, "replot\n");
}

/* --- a batch ------------------------------------------------------------------------------- */

struct figure {
  struct gd_strbuf dir, name, script;
  struct gd_strbuf svg, inside; /* their root elements, then all of them */
  bool whole;                   /* with PNG and inside */
};

struct gd_plot_batch {
  struct gd_scratch folder;
  struct figure *figures; /* in gd_mem */
  uint32_t count, capacity;
};

struct gd_plot_batch *gd_plot_batch_new(void) {
  struct gd_plot_batch *batch = gd_mem_alloc(1, sizeof *batch);
  if (batch)
    batch->folder = GD_SCRATCH_NONE;
  return batch;
}

void gd_plot_batch_free(struct gd_plot_batch *batch) {
  if (!batch)
    return;
  for (uint32_t i = 0; i < batch->count; i++) {
    struct figure *figure = &batch->figures[i];
    gd_strbuf_deinit(&figure->dir);
    gd_strbuf_deinit(&figure->name);
    gd_strbuf_deinit(&figure->script);
    gd_strbuf_deinit(&figure->svg);
    gd_strbuf_deinit(&figure->inside);
  }
  gd_mem_free(batch->figures);
  gd_scratch_remove(&batch->folder);
  gd_mem_free(batch);
}

const char *gd_plot_batch_svg(const struct gd_plot_batch *batch, int i) {
  const char *text = batch->figures[i].inside.text;
  return text ? text : "";
}

static enum gd_status write_part(const struct figure *figure, const char *ending,
                                 const struct gd_strbuf *text, struct gd_error *err) {
  struct gd_strbuf path = {0};
  gd_strbuf_printf(&path, "%s/%s.%s", figure->dir.text, figure->name.text, ending);
  enum gd_status status =
      text->failed || path.failed
          ? gd_nomem(err, "while writing %s.%s", figure->name.text, ending)
          : gd_file_write(path.text, text->text ? text->text : "", text->length, err);
  gd_strbuf_deinit(&path);
  return status;
}

enum gd_status gd_plot_batch_add(struct gd_plot_batch *batch, const struct gd_plot *plot,
                                 const struct gd_plot *inside, const char *dir, const char *name,
                                 struct gd_error *err) {
  struct gd_strbuf csv = {0};
  if (!gd_vec_reserve((void **)&batch->figures, &batch->capacity, batch->count + 1,
                      sizeof *batch->figures))
    return gd_nomem(err, "while drawing a figure");
  int number = (int)batch->count++;
  struct figure *figure = &batch->figures[number];
  *figure = (struct figure){.whole = inside};
  gd_strbuf_append(&figure->dir, dir);
  gd_strbuf_append(&figure->name, name);
  if (figure->dir.failed || figure->name.failed)
    return gd_nomem(err, "while drawing a figure");
  gd_plot_csv(plot, &csv);
  enum gd_status status = write_part(figure, "csv", &csv, err);
  gd_strbuf_deinit(&csv);
  GD_TRY(status);
  if (!batch->folder.path[0])
    GD_TRY(gd_scratch_open(&batch->folder, NULL, "gpudays-plot-", err));
  append_root(plot, true, &figure->svg);
  append_svg(plot, &batch->folder, number, PART_SVG, &figure->script);
  if (inside) {
    append_png(plot, &batch->folder, number, &figure->script);
    append_root(inside, false, &figure->inside);
    append_svg(inside, &batch->folder, number, PART_INSIDE, &figure->script);
  }
  gd_strbuf_append(&figure->script, "unset output\n");
  return figure->script.failed ? gd_nomem(err, "while drawing a figure") : GD_OK;
}

/* Every so many figures from the first on, which one run of gnuplot draws. */
struct share {
  const struct gd_plot_batch *batch;
  uint32_t first, every;
  enum gd_status status;
  struct gd_error err;
};

static enum gd_status run_gnuplot(const char *path, struct gd_error *err) {
  const char *arguments[] = {"gnuplot", path, NULL};
  struct gd_process_output output = {0};
  struct gd_error why = {0};
  enum gd_status status = gd_process_run(arguments, 600, &output, &why);
  if (status != GD_OK)
    status = fail_missing(why.text, err);
  else if (output.code != 0)
    status = gd_fail(err, GD_ENVIRONMENT, "gnuplot ended with code %d: %.400s", output.code,
                     output.errors.text ? output.errors.text : "it said nothing");
  gd_process_output_deinit(&output);
  return status;
}

static void *draw_share(void *argument) {
  struct share *share = argument;
  struct gd_strbuf script = {0};
  char path[PATH_MAX + 32];
  for (uint32_t i = share->first; i < share->batch->count; i += share->every)
    gd_strbuf_append(&script, share->batch->figures[i].script.text);
  snprintf(path, sizeof path, "%s/%u.gp", share->batch->folder.path, share->first);
  share->status = script.failed ? gd_nomem(&share->err, "while drawing a figure")
                                : gd_file_write(path, script.text, script.length, &share->err);
  gd_strbuf_deinit(&script);
  if (share->status == GD_OK)
    share->status = run_gnuplot(path, &share->err);
  return NULL;
}

static enum gd_status draw_all(const struct gd_plot_batch *batch, struct gd_error *err) {
  enum { MOST = 8, FIGURES = 2 }; /* a start of gnuplot takes as long as so many figures */
  struct share shares[MOST] = {0};
  pthread_t threads[MOST];
  int cpus = gd_cpus(1), wanted = (int)(batch->count + FIGURES - 1) / FIGURES, started = 1;
  if (wanted > cpus)
    wanted = cpus;
  if (wanted > MOST)
    wanted = MOST;
  if (wanted < 1)
    return GD_OK; /* no figure */
  for (int i = 0; i < wanted; i++)
    shares[i] = (struct share){.batch = batch, .first = (uint32_t)i, .every = (uint32_t)wanted};
  while (started < wanted &&
         pthread_create(&threads[started], NULL, draw_share, &shares[started]) == 0)
    started++;
  draw_share(&shares[0]);
  for (int i = 1; i < wanted; i++)
    if (i < started)
      pthread_join(threads[i], NULL);
    else
      draw_share(&shares[i]); /* no thread could be had for it */
  for (int i = 0; i < wanted; i++)
    if (shares[i].status != GD_OK)
      return gd_fail(err, shares[i].status, "%s", shares[i].err.text);
  return GD_OK;
}

static enum gd_status take_figure(struct gd_plot_batch *batch, int number, struct gd_error *err) {
  struct figure *figure = &batch->figures[number];
  struct gd_strbuf png = {0};
  char path[PATH_MAX + 32];
  path_of(&batch->folder, number, PART_SVG, path, sizeof path);
  GD_TRY(take_svg(path, figure->name.text, &figure->svg, err));
  GD_TRY(write_part(figure, "svg", &figure->svg, err));
  gd_strbuf_deinit(&figure->svg);
  if (!figure->whole)
    return GD_OK;
  path_of(&batch->folder, number, PART_INSIDE, path, sizeof path);
  GD_TRY(take_svg(path, figure->name.text, &figure->inside, err));
  path_of(&batch->folder, number, PART_PNG, path, sizeof path);
  enum gd_status status = gd_file_read(path, MOST_BYTES, &png, err);
  if (status == GD_OK)
    status = write_part(figure, "png", &png, err);
  gd_strbuf_deinit(&png);
  return status;
}

enum gd_status gd_plot_batch_draw(struct gd_plot_batch *batch, struct gd_error *err) {
  if (batch->count == 0)
    return GD_OK;
  GD_TRY(draw_all(batch, err));
  for (uint32_t i = 0; i < batch->count; i++)
    GD_TRY(take_figure(batch, (int)i, err));
  return GD_OK;
}

enum gd_status gd_plot_write(const struct gd_plot *plot, const char *dir, const char *name,
                             struct gd_error *err) {
  struct gd_plot_batch *batch = gd_plot_batch_new();
  if (!batch)
    return gd_nomem(err, "while drawing a figure");
  enum gd_status status = gd_plot_batch_add(batch, plot, plot, dir, name, err);
  if (status == GD_OK)
    status = gd_plot_batch_draw(batch, err);
  gd_plot_batch_free(batch);
  return status;
}

/* --- one file ------------------------------------------------------------------------------- */

static bool ends_in(const char *path, const char *ending) {
  size_t length = strlen(path), most = strlen(ending);
  return length > most && path[length - most - 1] != '/' &&
         strcmp(path + length - most, ending) == 0;
}

bool gd_plot_file_is_drawn(const char *path) {
  return ends_in(path, ".svg") || ends_in(path, ".png");
}

bool gd_plot_file_known(const char *path) {
  return gd_plot_file_is_drawn(path) || ends_in(path, ".csv");
}

/* The picture that the file ends in; to may have its root element. */
static enum gd_status draw_alone(const struct gd_plot *plot, bool png, struct gd_strbuf *to,
                                 struct gd_error *err) {
  struct gd_plot_batch batch = {.folder = GD_SCRATCH_NONE};
  struct figure figure = {0};
  char path[PATH_MAX + 32];
  batch.figures = &figure;
  batch.count = 1;
  GD_TRY(gd_scratch_open(&batch.folder, NULL, "gpudays-plot-", err));
  append_svg(plot, &batch.folder, 0, PART_SVG, &figure.script);
  if (png)
    append_png(plot, &batch.folder, 0, &figure.script);
  else
    append_root(plot, true, to);
  gd_strbuf_append(&figure.script, "unset output\n");
  enum gd_status status = draw_all(&batch, err);
  path_of(&batch.folder, 0, png ? PART_PNG : PART_SVG, path, sizeof path);
  if (status == GD_OK) /* ids in it begin with a word that no path of the user's gets into */
    status = png ? gd_file_read(path, MOST_BYTES, to, err) : take_svg(path, "gpudays", to, err);
  gd_strbuf_deinit(&figure.script);
  gd_scratch_remove(&batch.folder);
  return status;
}

enum gd_status gd_plot_write_file(const struct gd_plot *plot, const char *path,
                                  struct gd_error *err) {
  struct gd_strbuf text = {0};
  enum gd_status status = GD_OK;
  GD_ASSERT(gd_plot_file_known(path));
  if (gd_plot_file_is_drawn(path))
    status = draw_alone(plot, ends_in(path, ".png"), &text, err);
  else
    gd_plot_csv(plot, &text);
  if (status == GD_OK && text.failed)
    status = gd_nomem(err, "while drawing a figure");
  if (status == GD_OK)
    status = gd_file_write(path, text.text ? text.text : "", text.length, err);
  gd_strbuf_deinit(&text);
  return status;
}
