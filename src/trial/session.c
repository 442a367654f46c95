/*
 * Sessions; see session.h.
 */
#include "trial/session.h"

#include "trial/agree.h"

void gd_session_close(struct gd_session *session) {
  gd_run_close(&session->run);
  gd_backend_close(session->backend);
  gd_candidate_deinit(&session->evaluation);
  gd_candidate_deinit(&session->remainder);
  gd_candidate_deinit(&session->full);
  gd_planner_free(session->planner);
  *session = (struct gd_session){0};
}

/* A failure of one rank is one of all. */
static enum gd_status open_backend(struct gd_session *s, struct gd_error *err) {
  struct gd_comm *comm = s->opened.comm;
  enum gd_status status = gd_backend_open(s->options.backend, &s->opened, &s->backend, err);
  return comm ? gd_comm_agree(comm, status, err) : status;
}

/* Looks at the device and chooses a plan for it, the same on all ranks. */
static enum gd_status choose(struct gd_session *s, const struct gd_model *model,
                             struct gd_trial *trial, struct gd_error *err) {
  GD_TRY(open_backend(s, err));
  gd_place_of(s->backend, &s->opened, &s->own);
  s->options.place = &s->own;
  enum gd_status status = gd_planner_choose(s->planner, &s->options, trial, &s->full, err);
  s->place = gd_planner_place(s->planner);
  if (status == GD_OK && trial->status != GD_TRIAL_INFEASIBLE && trial->remainder)
    status = gd_planner_remainder(s->planner, &s->remainder, err);
  if (status == GD_OK && trial->status != GD_TRIAL_INFEASIBLE && s->options.evaluates)
    status = gd_planner_evaluation(s->planner, &s->evaluation, err);
  GD_TRY(gd_planner_settle(s->planner, status, err));
  return gd_agree_plan(
      s->options.comm,
      &(struct gd_offer){.trial = trial,
                         .model = model,
                         .sample_seconds = s->options.sample_seconds,
                         .seed = s->options.seed,
                         .profile = s->options.profile,
                         .full = &s->full.plan,
                         .remainder = trial->remainder ? &s->remainder.plan : NULL},
      err);
}

/* Ranks with unequal threads were planned for the least of them: all open their backend again. */
static enum gd_status reopen_with_least(struct gd_session *s, struct gd_error *err) {
  if (!s->place->reduced)
    return GD_OK;
  gd_backend_close(s->backend);
  s->backend = NULL;
  s->opened.threads = s->place->info.threads;
  return gd_backend_open(s->options.backend, &s->opened, &s->backend, err);
}

static enum gd_status open_session(struct gd_session *s, const struct gd_model *model,
                                   struct gd_trial *trial, struct gd_error *err) {
  s->planner = gd_planner_new(model);
  if (!s->planner)
    return gd_nomem(err, "before the first plan");
  GD_TRY(choose(s, model, trial, err));
  if (trial->status == GD_TRIAL_INFEASIBLE)
    return GD_OK;
  GD_TRY(reopen_with_least(s, err));
  const struct gd_plan *plans[GD_RUN_PARTS] = {
      [GD_RUN_FULL] = &s->full.plan,
      [GD_RUN_REMAINDER] = trial->remainder ? &s->remainder.plan : NULL,
      [GD_RUN_EVALUATION] = s->options.evaluates ? &s->evaluation.plan : NULL};
  GD_TRY(gd_run_open_parts(&s->run, s->backend, plans, err));
  s->run.batch = model->recipe.batch;
  return GD_OK;
}

enum gd_status gd_session_open(struct gd_session *session, const struct gd_model *model,
                               const struct gd_trial_options *options, struct gd_trial *trial,
                               struct gd_error *err) {
  *session = (struct gd_session){.options = *options,
                                 .opened = {.threads = options->threads,
                                            .comm = options->comm,
                                            .trace = options->profile,
                                            .choices = options->choices}};
  enum gd_status status = open_session(session, model, trial, err);
  if (status != GD_OK)
    gd_session_close(session);
  return status;
}
