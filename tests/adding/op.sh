# An op: y = a - b, b may lack leading dims. Sourced by test_adding.sh, in the copy of the tree.
# shellcheck shell=bash
insert_before src/ir/ops.def '^GD_OP(mul, ' <<'END'
GD_OP(sub, 2, 2, none, "a - b; b may lack leading dims",
      add,                sub,               elements,        1,     none,            own,   own,         combine,  PURE,   SAVED,   BROADCAST,       ELEMENTS)
END
insert_before src/ir/rules_pointwise.c '^enum gd_status gd_grad_mul(' <<'END'
/* da = dy, db = 0 - dy summed over the dims that b lacks. */
enum gd_status gd_grad_sub(struct gd_diff *d, const struct gd_op *op, struct gd_error *err) {
  gd_tensor_id dy = grad_of_output(d, op, 0);
  (void)err;
  gd_diff_contribute(d, op->in[0], dy);
  if (wants(d, op->in[1])) {
    gd_tensor_id zero = gd_graph_op(d->graph, GD_OP_sub, NULL, 2, (gd_tensor_id[]){dy, dy});
    gd_tensor_id minus = gd_graph_op(d->graph, GD_OP_sub, NULL, 2, (gd_tensor_id[]){zero, dy});
    gd_diff_contribute(d, op->in[1], unbroadcast(d, minus, op));
  }
  return GD_OK;
}

END
insert_before src/backend/ref/ref.c '^ \* mean = sum(x) / C' 1 <<'END'
void gd_ref_sub(const struct gd_kernel_args *args) {
  const struct gd_view *a = &args->in[0], *b = &args->in[1];
  for (int64_t i = 0; i < a->elements; i++)
    put(&args->out[0], i, get(a, i) - get(b, i % b->elements));
}

END
insert_before src/backend/cpu/cpu_pointwise.c '^void gd_cpu_mul(' <<'END'
void gd_cpu_sub(const struct gd_kernel_args *args) {
  const struct gd_view *y = &args->out[0], *a = &args->in[0], *b = &args->in[1];
  for (int64_t i = 0; i < a->elements; i++)
    gd_dtype_store(y->dtype, y->data, i,
                   gd_dtype_load(a->dtype, a->data, i) -
                       gd_dtype_load(b->dtype, b->data, i % b->elements));
}

END
insert_before src/backend/cuda/kernels/pointwise.cu '^#define COMBINE(' <<'END'
struct minus {
  static GD_DEVICE float of(float a, float b) {
    return a - b;
  }
};

END
insert_before src/backend/cuda/kernels/pointwise.cu '^  COMBINE(mul, times, NAME, V)' <<'END'
  COMBINE(sub, minus, NAME, V)                            \
END
insert_before tests/op/cases_pointwise.c '^void cases_mul(void)' <<'END'
void cases_sub(void) {
  broadcast_cases(GD_OP_sub);
}

END
# Its gradient: tests/grad makes a case of an op without attributes by itself.
