/*
 * What the process of a trial does; see child.h.
 */
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/switches.h"
#include "comm/comm.h"
#include "search/child.h"
#include "search/child_fault.h"

/* An srun without the MPI that was asked for starts processes that know nothing of each other: each
 * would be a trial. */
enum gd_status gd_child_check_ranks(int ranks, struct gd_error *err) {
  int rank, size;
  bool joined = gd_comm_in_job(&rank, &size);
  if (!joined)
    return gd_fail(err, GD_ENVIRONMENT,
                   "srun started a process that is no rank of an MPI job, instead of one of %d; "
                   "'srun --mpi=list' must list what slurm.json names as \"mpi\" (pmix)",
                   ranks);
  if (size != ranks)
    return gd_fail(
        err, GD_ENVIRONMENT,
        "srun started %d ranks, and not the %d that were asked for; look at \"extra\" in "
        "slurm.json",
        size, ranks);
  return GD_OK;
}

static enum gd_status check_nodes(const struct gd_trial_options *options, struct gd_error *err) {
  int64_t nodes;
  const char *text = gd_env("SLURM_STEP_NUM_NODES");
  if (text && gd_parse_int(text, 1, 1 << 20, &nodes) && nodes != options->nodes)
    return gd_fail(err, GD_ENVIRONMENT,
                   "srun started the ranks on %s node%s, and not on the %d that were asked for; "
                   "look at \"extra\" in slurm.json",
                   text, nodes == 1 ? "" : "s", options->nodes);
  return GD_OK;
}

/* Rank 0 reads the order and sends it to the others, whose nodes may not have the file. */
static enum gd_status read_order(const struct gd_child_side *side, struct gd_child_task *task,
                                 struct gd_error *err) {
  enum { MOST_BYTES = 1 << 20 };
  struct gd_strbuf file = {0};
  enum gd_status status =
      side->rank == 0 ? gd_file_read(side->order, MOST_BYTES, &file, err) : GD_OK;
  int64_t length = (int64_t)file.length;
  if (status == GD_OK && side->comm)
    status = gd_comm_broadcast(side->comm, &length, sizeof length, 0, err);
  char *text = status == GD_OK ? gd_mem_alloc((size_t)length + 1, 1) : NULL;
  if (status == GD_OK && !text)
    status = gd_nomem(err, "before the trial");
  if (status == GD_OK && side->rank == 0 && file.text)
    memcpy(text, file.text, (size_t)length);
  if (status == GD_OK && side->comm)
    status = gd_comm_broadcast(side->comm, text, length, 0, err);
  if (status == GD_OK)
    status = gd_child_parse_order(text, length, task, err);
  gd_mem_free(text);
  gd_strbuf_deinit(&file);
  return status;
}

enum gd_status gd_child_answer(const struct gd_child_side *side, struct gd_error *err) {
  struct gd_child_task *task = gd_mem_alloc(1, sizeof *task);
  struct gd_trial *trial = gd_mem_alloc(1, sizeof *trial);
  struct gd_child_reported reported = {0};
  enum gd_status status = task && trial ? GD_OK : gd_nomem(err, "before the trial");
  if (status == GD_OK)
    status = read_order(side, task, err);
  if (status == GD_OK && side->comm && side->by_srun)
    status = check_nodes(&task->order.trial, err);
  if (status == GD_OK) {
    struct gd_trial_options *options = &task->order.trial;
    options->comm = side->comm;
    if (side->comm && options->threads == 0)
      options->threads = side->threads;
    if (task->progress && side->rank == 0) {
      options->progress = gd_child_report;
      options->progress_user = &reported;
    }
    gd_child_inject_fault(side->rank, options);
    status = gd_trial_measure(&task->model, options, trial, err);
  }
  if (status == GD_OK && side->rank == 0)
    status = gd_child_write_result(side->result, trial, err);
  gd_mem_free(trial);
  gd_mem_free(task);
  return status;
}
