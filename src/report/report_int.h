/*
 * Inside of src/report: the report under construction, tables, and what the store holds.
 *
 * report.c    order of the items, page, files
 * blocks.c    sections, figures and tables as HTML; their files
 * page.c      the page around them, and the files of an older report
 * table.c     a table as HTML and as CSV
 * map.c       models as rows of coloured cells
 * measured.c  trials of the store, grouped
 * predicted.c what was not measured: the engine on the paper's GPUs, and the paper's software
 * items_*.c   the items themselves: what each shows and where its numbers come from
 */
#ifndef GD_REPORT_REPORT_INT_H
#define GD_REPORT_REPORT_INT_H

#include <math.h>

#include "base/mem.h"
#include "base/strbuf.h"
#include "hw/hw.h"
#include "paper/paper.h"
#include "pass/method.h"
#include "plot/plot.h"
#include "report/report.h"
#include "survey/survey.h"

/* --- tables -------------------------------------------------------------------------------- */

struct gd_report_column {
  const char *title;
  const char *group; /* stands over neighbours with the same one; NULL: none */
  bool number;
};

struct gd_report_cell {
  const char *text;       /* NULL: empty */
  double value;           /* of a number: what it sorts by and what the CSV has; NaN: the text */
  const char *class_name; /* "none" (infeasible), "doubt" (near the peak), "wrong" (above), ... */
  const char *href;       /* what the text links to; NULL: nothing */
};

struct gd_report_table {
  const struct gd_report_column *columns;
  int n_columns;
  struct gd_report_cell *cells; /* rows x columns */
  int n_rows, room;             /* rows that cells has room for */
  bool prose;                   /* the first column holds sentences */
};

/* In the arena; NULL when memory is out. */
struct gd_report_table *gd_report_table_new(struct gd_arena *arena,
                                            const struct gd_report_column *columns, int n_columns,
                                            int rows);
/* The next row, cells empty with NaN values. There must be room. */
struct gd_report_cell *gd_report_table_row(struct gd_report_table *table);
void gd_report_table_html(const struct gd_report_table *table, struct gd_strbuf *out);
void gd_report_table_csv(const struct gd_report_table *table, struct gd_strbuf *out);

/* --- the store ----------------------------------------------------------------------------- */

struct gd_report_trial {
  const char *model, *method_name, *device, *host, *date, *version, *backend, *reason;
  const char *recipe, *origin; /* as in the store: empty where not known, or measured here */
  struct gd_method method;
  bool known_method, naive, free_lunch; /* free_lunch: that alone */
  bool memory_saving;                   /* free-lunch and something that saves memory */
  enum gd_trial_status status;
  int ranks, nodes;
  bool disturbed; /* gd_trial_is_disturbed */
  double days, days_low, days_high, mfu;
  double train_flops; /* 0: not even planned */
  int place;          /* of its model among the paper's */
  int64_t micro_batch, accumulation, peak_bytes;
};

/* The trials of one model on one device with one number of ranks. */
struct gd_report_group {
  const char *model, *device;
  int ranks, nodes;
  const struct gd_report_trial *trials;
  int count;
  const struct gd_report_trial *naive, *free_lunch; /* NULL: not in the store */
  const struct gd_report_trial *best;   /* ok, free-lunch with or without more; NULL: none */
  const struct gd_report_trial *saving; /* ok, the best of the memory-saving ones */
  double median_days, worst_days;       /* of the ok memory-saving ones; NaN: fewer than 3 */
  int n_saving;                         /* ok */
};

/* So many of one device. */
struct gd_report_site {
  const char *device, *label; /* "NVIDIA H200", "H200 x 1" */
  int ranks, nodes;
};

struct gd_report_measured {
  struct gd_report_trial *trials;
  int n_trials;
  struct gd_report_group *groups; /* models in the paper's order, then the others by name */
  int n_groups;
  struct gd_report_site *sites; /* in the order of their first use */
  int n_sites;
  const char **models; /* of the groups, each once, in their order */
  int n_models;
  struct gd_report_trial *others; /* in the table of all trials alone: their batch, length or steps
                                     are not the preset's */
  int other_recipes;
  int limited;   /* likewise: infeasible within a limit that was set (gd_trial_is_limited) */
  int n_devices; /* different ones of the sites */
  const char *devices, *dates; /* "NVIDIA H200 (1), ...", "2026-11-15" or a range */
};

/* --- predictions --------------------------------------------------------------------------- */

enum gd_report_state { GD_REPORT_UNKNOWN, GD_REPORT_INFEASIBLE, GD_REPORT_KNOWN };
enum { GD_REPORT_COUNTS = 4, GD_REPORT_GPUS = 4, GD_REPORT_CELLS = 16 };
enum { GD_REPORT_SPREAD_GPUS = 4 }; /* for so many the whole search space is predicted */

struct gd_report_prediction {
  enum gd_report_state state;
  double days, low, high; /* low and high 0: no interval of its own */
  char method[GD_METHOD_NAME];
};

/* Days of the memory-saving methods of one model on one kind of machine. */
struct gd_report_spread {
  double best, median, worst;
  double lunch; /* of free-lunch alone */
};

/* Cells of the paper's tables: models x (GPU, count), row by row. */
struct gd_report_predicted {
  bool known;
  struct gd_report_prediction *best, *naive; /* this program's own engine */
  struct gd_report_prediction *lunch,
      *saving; /* of it: free-lunch alone, and the best of the rest */
  struct gd_report_prediction *stack_best, *stack_naive; /* the paper's software */
  struct gd_report_prediction *stack_lunch, *stack_saving;
  const char *basis[GD_REPORT_GPUS]; /* what the engine's rest on, by GPU */
  const char *stack_basis;
  /* Of the whole search space: of the engine where that was planned, of the paper's software for
     Pythia on several GPUs. */
  struct gd_report_spread *spreads, *stack_spreads;
  int n_spreads, n_stack_spreads;
};

/* --- the report ---------------------------------------------------------------------------- */

enum gd_report_source { GD_REPORT_PAPER, GD_REPORT_MEASURED, GD_REPORT_PREDICTED, GD_REPORT_DATA };

/* Where the body has a figure, which is drawn when all are known. */
struct gd_report_place {
  size_t offset;
  int figure; /* in the batch */
};

struct gd_report {
  const struct gd_report_order *order;
  struct gd_report_summary *made;
  struct gd_arena arena;
  struct gd_paper paper;
  struct gd_hw hw;
  struct gd_report_measured measured;
  struct gd_report_predicted predicted;
  struct gd_strbuf body, contents; /* of the page */
  struct gd_plot_batch *batch;     /* figures, drawn together at the end */
  struct gd_report_place *places;  /* of the figures in the body, in gd_mem */
  uint32_t n_places, places_room;
  int n_drawn;              /* figures of the batch */
  struct gd_strbuf files;   /* names of what was written next to it, a line each */
  struct gd_survey answers; /* of order->survey; zeroed without one */
  const struct gd_survey_figure *answer_figures; /* of answers */
  int n_answer_figures;
  const char **run_models; /* of runs that were read, each once */
  int n_run_models;
  bool draws;          /* gnuplot works */
  bool chapter;        /* one has begun */
  bool appendix;       /* what comes now is in the appendix: its headings are a level lower */
  bool paired;         /* what comes now has half of the page's width */
  const char *made_at; /* when, and from what */
};

/* A table or a figure of an item, with where its numbers come from. */
struct gd_report_block {
  const char *name;    /* of its files and its anchor: "figure-2-paper" */
  const char *caption; /* a sentence */
  enum gd_report_source source;
  const char *from; /* what the chip of the source goes on with: "Table 1, 2024-10-30" */
};

/* A heading over the sections that follow, also in the contents. */
void gd_report_chapter(struct gd_report *report, const char *anchor, const char *title);
/* What is between is folded away until somebody opens it, links to it or prints the page. */
void gd_report_appendix(struct gd_report *report, const char *anchor, const char *title);
void gd_report_appendix_end(struct gd_report *report);
/* Sections of the page. The kind is "Table 1", "Figure 2", "Appendix J"; NULL: the title alone. */
void gd_report_begin(struct gd_report *report, const char *anchor, const char *kind,
                     const char *title);
void gd_report_end(struct gd_report *report);
void gd_report_text(struct gd_report *report, const char *text); /* a paragraph */
/* What there is nothing of, and how to get it. */
void gd_report_lacks(struct gd_report *report, enum gd_report_source source, const char *text);
/* The word that says where numbers come from. */
void gd_report_chip(struct gd_strbuf *out, enum gd_report_source source);
void gd_report_pair(struct gd_report *report, bool open); /* what is between stands side by side */
/* What is between can be folded away, and is at first. */
void gd_report_fold(struct gd_report *report, const char *summary); /* NULL: ends there */
enum gd_status gd_report_add_table(struct gd_report *report, const struct gd_report_block *block,
                                   const struct gd_report_table *table,
                                   struct gd_error *err) GD_MUST_USE;
/* The plot's title says what the figure shows; the caption goes on from there. */
enum gd_status gd_report_add_plot(struct gd_report *report, const struct gd_report_block *block,
                                  const struct gd_plot *plot, struct gd_error *err) GD_MUST_USE;
/* A plot that has its files alone, for a link: SVG and CSV. */
enum gd_status gd_report_write_plot(struct gd_report *report, const char *name,
                                    const struct gd_plot *plot, struct gd_error *err) GD_MUST_USE;
/* The paper's models as rows of cells. */
struct gd_report_map {
  const char *const *columns; /* NULL: memory was out */
  int n_columns;
  bool pythia_only;
  /* Of a model (its place in the paper's recipes) in a column; NaN: there is nothing. */
  double (*value)(const struct gd_report *report, const void *user, int model, int column);
  const void *user;
  struct gd_plot look; /* titles and colours */
};
enum gd_status gd_report_add_map(struct gd_report *report, const struct gd_report_block *block,
                                 const struct gd_report_map *map, struct gd_error *err) GD_MUST_USE;
/* The numbers that the paper states of a figure, by the name in their `where`: a table. */
enum gd_status gd_report_add_statements(struct gd_report *report, const char *name,
                                        const char *figure, struct gd_error *err) GD_MUST_USE;
/* A file next to the page, and in the list of them. */
enum gd_status gd_report_write_text(struct gd_report *report, const char *name, const char *ending,
                                    const struct gd_strbuf *text, struct gd_error *err) GD_MUST_USE;
enum gd_status gd_report_write_page(struct gd_report *report, struct gd_error *err) GD_MUST_USE;
/* Writes the list of files, and removes those of an older report's list that this one has not. */
enum gd_status gd_report_replace_files(struct gd_report *report, struct gd_error *err) GD_MUST_USE;

/* "18", "2.4", "1,240": a number of days, as all tables show it. */
const char *gd_report_days(struct gd_report *report, double days);
/* Cells of numbers: of days, with three digits, and whole. What is not finite stays empty. */
void gd_report_set_days(struct gd_report *report, struct gd_report_cell *cell, double days);
void gd_report_set_digits(struct gd_report *report, struct gd_report_cell *cell, double value);
void gd_report_set_count(struct gd_report *report, struct gd_report_cell *cell, int64_t value);
/* A text in the arena; never NULL: without memory it is empty, and the page fails. */
#define gd_report_print(report, ...) \
  gd_report_keep((report), gd_arena_printf(&(report)->arena, __VA_ARGS__))
const char *gd_report_keep(struct gd_report *report, const char *text);
/* "Pythia 160M" of a preset that the paper has, else the name itself. */
const char *gd_report_model_title(struct gd_report *report, const char *model);
/* Where measured numbers come from: devices, dates, version. */
const char *gd_report_measured_from(struct gd_report *report);
enum gd_status gd_report_no_memory(struct gd_error *err);

/* What a preset of this program is, counted on its graph. */
struct gd_report_preset {
  bool known; /* false: there is no such preset (any more) */
  double parameters, train_flops;
  char recipe[GD_HASH_TEXT];
};
enum gd_status gd_report_count_preset(const char *name, struct gd_report_preset *preset,
                                      struct gd_error *err) GD_MUST_USE;
enum gd_status gd_report_measure(struct gd_report *report, struct gd_error *err) GD_MUST_USE;
enum gd_status gd_report_predict(struct gd_report *report, struct gd_error *err) GD_MUST_USE;
/* NULL: the store has nothing of it. */
const struct gd_report_group *gd_report_find_group(const struct gd_report_measured *measured,
                                                   const char *model,
                                                   const struct gd_report_site *site);
bool gd_report_is_at(const struct gd_report_trial *trial, const struct gd_report_site *site);
/* The paper's GPU that a device is, or NULL. */
const struct gd_paper_gpu *gd_report_paper_gpu(const struct gd_report *report, const char *device);

/* Arrays of figures, in the arena; numbers start as NaN. NULL, with report->body failed, when
   memory is out: callers may go on and let the page fail. */
double *gd_report_numbers(struct gd_report *report, int count);
const char **gd_report_texts(struct gd_report *report, int count);
struct gd_plot_series *gd_report_series(struct gd_report *report, int count);

/* Mean, and half of its 95 % interval (Student's t; NaN for fewer than two). */
struct gd_report_mean {
  int count;
  double mean, half;
};
struct gd_report_mean gd_report_mean_of(const double *values, int count);

/* --- items --------------------------------------------------------------------------------- */

extern const int gd_report_counts[GD_REPORT_COUNTS]; /* 1, 2, 4, 8 */

/* The paper's grid: the model and 16 columns. NULL: memory is out. */
const struct gd_report_column *gd_report_grid_columns(struct gd_report *report);
/* "4 A100": names of the 16 cells in a figure; NULL: memory is out. */
const char **gd_report_grid_names(struct gd_report *report);
/* The class of a cell with so many days, and more classes behind it (" wrong", or ""). */
const char *gd_report_shade(struct gd_report *report, double days, const char *more);
const struct gd_paper_days *gd_report_paper_cell(const struct gd_report *report,
                                                 enum gd_paper_table table, const char *model,
                                                 int cell);

/* A trial, and what would have been predicted without those of its model. */
struct gd_report_compared {
  const struct gd_report_trial *trial;
  double measured_s, predicted_s, low_s, high_s; /* of a step */
};
struct gd_report_comparing {
  struct gd_report_compared *all; /* in the arena */
  int count;
  double median, worst; /* relative errors */
};
enum gd_status gd_report_compare(struct gd_report *report, struct gd_report_comparing *to,
                                 struct gd_error *err) GD_MUST_USE;
/* NULL: it was not compared. */
const struct gd_report_compared *gd_report_compared_of(const struct gd_report_comparing *from,
                                                       const struct gd_report_trial *trial);
enum gd_status gd_report_items_compared(struct gd_report *report,
                                        const struct gd_report_comparing *comparing,
                                        struct gd_error *err) GD_MUST_USE;
enum gd_status gd_report_items_results(struct gd_report *report, struct gd_error *err) GD_MUST_USE;
enum gd_status gd_report_items_bill(struct gd_report *report, struct gd_error *err) GD_MUST_USE;
enum gd_status gd_report_items_days(struct gd_report *report, struct gd_error *err) GD_MUST_USE;
enum gd_status gd_report_items_methods(struct gd_report *report, struct gd_error *err) GD_MUST_USE;
enum gd_status gd_report_items_cost(struct gd_report *report, struct gd_error *err) GD_MUST_USE;
enum gd_status gd_report_items_rest(struct gd_report *report, struct gd_error *err) GD_MUST_USE;
enum gd_status gd_report_items_runs(struct gd_report *report, struct gd_error *err) GD_MUST_USE;
enum gd_status gd_report_predicted_days(struct gd_report *report, enum gd_paper_table which,
                                        struct gd_error *err) GD_MUST_USE;

#endif
