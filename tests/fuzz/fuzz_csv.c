/*
 * Any bytes as a CSV file: refused with a sentence, or a table that is written and read back the
 * same. The same bytes as answers to the survey: refused, or counted.
 */
#include <stdlib.h>
#include <string.h>

#include "survey/survey.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void write_row(struct gd_strbuf *out, const char *const *cells, int count) {
  for (int i = 0; i < count; i++) {
    gd_strbuf_append(out, i ? "," : "");
    if (count == 1 && cells[0][0] == '\0')
      gd_strbuf_append(out, "\"\""); /* else the line would be an empty one */
    gd_csv_append_cell(out, cells[i]);
  }
  gd_strbuf_append(out, "\n");
}

static void check_table(const struct gd_csv *csv) {
  struct gd_strbuf text = {0};
  struct gd_csv again;
  struct gd_error err = {0};
  write_row(&text, csv->header, csv->columns);
  for (int r = 0; r < csv->rows; r++)
    write_row(&text, csv->cells + (ptrdiff_t)r * csv->columns, csv->columns);
  GD_ASSERT(gd_csv_parse(&again, "again", text.text, (int64_t)text.length, &err) == GD_OK);
  GD_ASSERT(again.rows == csv->rows && again.columns == csv->columns);
  for (int c = 0; c < csv->columns; c++)
    GD_ASSERT(strcmp(again.header[c], csv->header[c]) == 0);
  for (int r = 0; r < csv->rows; r++)
    for (int c = 0; c < csv->columns; c++)
      GD_ASSERT(strcmp(gd_csv_cell(&again, r, c), gd_csv_cell(csv, r, c)) == 0);
  gd_csv_deinit(&again);
  gd_strbuf_deinit(&text);
}

static void check_survey(const uint8_t *data, size_t size) {
  struct gd_survey survey;
  struct gd_error err = {0};
  const struct gd_survey_figure *figures;
  int count;
  enum gd_status status = gd_survey_parse(&survey, "fuzz", (const char *)data, (int64_t)size, &err);
  GD_ASSERT(status == err.status);
  if (status == GD_OK)
    GD_ASSERT(gd_survey_plots(&survey, &figures, &count, &err) == GD_OK && count > 0);
  else
    GD_ASSERT(status == GD_BAD_INPUT && err.text[0] && !strchr(err.text, '\n'));
  gd_survey_deinit(&survey);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  struct gd_csv csv;
  struct gd_error err = {0};
  int64_t blocks = gd_mem_live_blocks();
  enum gd_status status = gd_csv_parse(&csv, "fuzz", (const char *)data, (int64_t)size, &err);
  GD_ASSERT(status == err.status);
  if (status == GD_OK)
    check_table(&csv);
  else
    GD_ASSERT(status == GD_BAD_INPUT && err.text[0] && !strchr(err.text, '\n'));
  /* The schema is read each time, which takes long: only for what looks like answers. */
  if (status == GD_OK && gd_csv_column(&csv, "q2_role") >= 0)
    check_survey(data, size);
  gd_csv_deinit(&csv);
  GD_ASSERT(gd_mem_live_blocks() == blocks);
  return 0;
}
