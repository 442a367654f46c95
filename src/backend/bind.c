/*
 * From a plan's offsets to addresses: see bind.h. Which op waits for which is the plan's rule
 * (gd_plan.waits).
 */
#include "backend/bind.h"

enum gd_space gd_bind_space(const struct gd_graph *graph, gd_tensor_id id) {
  return graph->tensors[gd_tensor_root(graph, id, NULL)].space;
}

static struct gd_view view_of(const struct gd_memory *memory, const struct gd_plan *plan,
                              gd_tensor_id id) {
  if (id == GD_NONE)
    return (struct gd_view){0};
  const struct gd_tensor *t = &plan->graph->tensors[id];
  enum gd_space space = gd_bind_space(plan->graph, id);
  int64_t at = plan->offset_bytes[id];
  GD_ASSERT(at >= 0 && at <= memory->bytes[space] - gd_tensor_bytes(plan->graph, id));
  return (struct gd_view){.data = (char *)memory->data[space] + at,
                          .dtype = t->dtype,
                          .rank = t->rank,
                          .dims = t->dims,
                          .elements = gd_tensor_elements(plan->graph, id)};
}

static bool bind_op(const struct gd_memory *memory, const struct gd_plan *plan, gd_op_id id,
                    struct gd_arena *arena, struct gd_launch *launch) {
  const struct gd_op *op = &plan->graph->ops[id];
  struct gd_view *views = gd_arena_alloc(arena, (size_t)op->n_in + op->n_out + 1, sizeof *views);
  if (!views)
    return false;
  for (uint32_t i = 0; i < op->n_in; i++)
    views[i] = view_of(memory, plan, op->in[i]);
  for (uint32_t i = 0; i < op->n_out; i++)
    views[op->n_in + i] = view_of(memory, plan, op->out[i]);
  *launch = (struct gd_launch){
      .op = id,
      .kind = op->kind,
      .async = gd_op_is_async(op->kind),
      .args = {.attr = &op->attr,
               .n_in = op->n_in,
               .n_out = op->n_out,
               .adds = op->adds,
               .in = views,
               .out = views + op->n_in,
               .workspace = (char *)memory->data[GD_SPACE_DEVICE] + plan->workspace_at,
               .workspace_bytes = plan->workspace_bytes}};
  return true;
}

enum gd_status gd_bind_program(const struct gd_plan *plan, enum gd_program program,
                               const struct gd_memory *memory, struct gd_arena *arena,
                               struct gd_launches *launches, struct gd_error *err) {
  uint32_t n = plan->n_order[program];
  bool ok;
  *launches = (struct gd_launches){gd_arena_alloc(arena, (size_t)n + 1, sizeof *launches->at), n};
  ok = launches->at != NULL;
  for (uint32_t i = 0; i < n && ok; i++) {
    ok = bind_op(memory, plan, plan->order[program][i], arena, &launches->at[i]);
    launches->at[i].waits = plan->waits[program][i];
  }
  return ok ? GD_OK : gd_nomem(err, "while binding a plan");
}

struct gd_event *gd_bind_events(const struct gd_launches *launches, struct gd_arena *arena) {
  struct gd_event *events = gd_arena_alloc(arena, (size_t)launches->n + 1, sizeof *events);
  for (uint32_t i = 0; events && i < launches->n; i++)
    events[i] = (struct gd_event){.op = launches->at[i].op, .async = launches->at[i].async};
  return events;
}
