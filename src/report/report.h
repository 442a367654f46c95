/*
 * The report: one page (HTML with its figures inside, which needs no network), and next to it
 * SVG, PNG and CSV of every item. Tables and figures of the paper, from the paper's numbers, from
 * the trials of a store, and predicted; each says which.
 *
 *   struct gd_report_summary made;
 *   GD_TRY(gd_report_write(&(struct gd_report_order){.folder = "out", .store = store}, &made,
 * err)); printf("%s\n", made.page);
 */
#ifndef GD_REPORT_REPORT_H
#define GD_REPORT_REPORT_H

#include "base/status.h"
#include "store/store.h"

struct gd_report_order {
  const char *folder;      /* is made where it is not there; files in it are replaced one by one */
  struct gd_store *store;  /* NULL: nothing is measured */
  bool no_predictions;     /* they take some seconds */
  const char *survey;      /* a file of answers for Figures 1 and 8; NULL: none */
  const char *const *runs; /* folders of runs of `train` */
  int n_runs;
};

enum { GD_REPORT_PATH = 4096 };

struct gd_report_summary {
  char page[GD_REPORT_PATH]; /* of the page */
  int tables, figures;       /* on the page */
  int files;                 /* written, the page included */
  int64_t trials;            /* of the store that are in it */
  int runs;                  /* of `train`, likewise */
  char note[512]; /* what is missing, such as gnuplot, and how to get it; empty: nothing */
};

/*
 * Files appear by rename, the page last, so that what an older report wrote stays whole until the
 * new one is. GD_ENVIRONMENT: the folder cannot be made or written, the disk is full. A gnuplot
 * that is missing is no error: summary->note says it, and the page has the numbers.
 */
enum gd_status gd_report_write(const struct gd_report_order *order,
                               struct gd_report_summary *summary, struct gd_error *err) GD_MUST_USE;

#endif
