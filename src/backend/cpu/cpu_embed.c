/*
 * Embedding rows and their gradient. Letters: V vocabulary, C columns.
 */
#include <string.h>

#include "backend/cpu/cpu_int.h"

/* One thread owns a range of output rows. Bytes: the rows read and written once. */
void gd_cpu_embed(const struct gd_kernel_args *args) {
  const struct gd_view *table = &args->in[0], *ids = &args->in[1], *y = &args->out[0];
  const int32_t *id = ids->data;
  int64_t columns = gd_view_columns(table);
  size_t row_bytes = (size_t)(columns * gd_dtype_bytes(table->dtype));
  int threads = gd_cpu_threads(args, 2 * ids->elements * (int64_t)row_bytes);
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int64_t r = 0; r < ids->elements; r++)
    if (row_bytes)
      memcpy(gd_cpu_at(y, r * columns), gd_cpu_at(table, id[r] * columns), row_bytes);
}

/*
 * Ranges of the vocabulary for one task: small enough that a range is still in L2 when rows are
 * added to it, and few enough that reading all ids once per range stays small compared with
 * clearing the table.
 */
static int64_t range_count(int64_t table_elements, int64_t ids, int threads) {
  int64_t by_cache = table_elements / (64 * 1024), by_ids = table_elements / (4 * ids + 1);
  int64_t ranges = by_cache < by_ids ? by_cache : by_ids;
  return ranges > threads ? ranges : threads;
}

/*
 * A task owns a range of the vocabulary: it clears those rows, unless they are added to, and adds
 * to them in the order of the positions, so the result does not depend on how the vocabulary is
 * cut. Bytes: the table written once (added to: only the rows in the batch), dy read once.
 */
void gd_cpu_embed_grad(const struct gd_kernel_args *args) {
  const struct gd_cpu_rows *rows = gd_cpu_rows();
  const struct gd_view *dy = &args->in[0], *ids = &args->in[1], *dtable = &args->out[0];
  const int32_t *id = ids->data;
  float *sums = dtable->data;
  const struct gd_attr_embed *attr = &args->attr->embed;
  int64_t skipped = attr->has_pad ? attr->pad : -1;
  int64_t vocabulary = attr->rows, columns = gd_view_columns(dy);
  bool adds = gd_kernel_adds(args, 0);
  int threads = gd_cpu_threads(args, 4 * (adds ? dy->elements : dtable->elements));
  /* Nothing to clear: some ranges a thread, so that frequent ids do not leave one alone. */
  int64_t ranges =
      adds ? 4 * (int64_t)threads : range_count(dtable->elements, ids->elements, threads);
#pragma omp parallel for num_threads(threads) schedule(dynamic)
  for (int64_t task = 0; task < ranges; task++) {
    struct gd_cpu_range range = gd_cpu_share(vocabulary, 1, task, ranges);
    if (!adds)
      memset(sums + range.begin * columns, 0,
             (size_t)((range.end - range.begin) * columns) * sizeof *sums);
    for (int64_t r = 0; r < ids->elements; r++)
      if (id[r] >= range.begin && id[r] < range.end && id[r] != skipped) {
        float *row = sums + id[r] * columns;
        rows->add(GD_DTYPE_F32, row, row, dy->dtype, gd_cpu_at(dy, r * columns), columns);
      }
  }
}
