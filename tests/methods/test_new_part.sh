#!/usr/bin/env bash
# A new part of a method is one row of methods.def: with such a row, here one that has a number, names are read and
# printed, needs are checked, and parts that change the numerics stay outside of the search space.
set -euo pipefail
export LC_ALL=C
mkdir -p "$TMPDIR/src/pass"
cp "$GD_SOURCE_DIR"/src/pass/method.[ch] "$GD_SOURCE_DIR/src/pass/methods.def" "$TMPDIR/src/pass/"
cat >>"$TMPDIR/src/pass/methods.def" <<'END'
PART(TP, tp, NUMBER, ALONE, NONE, ASKED, ROUNDING, NO,
     "shard", MEMORY_SAME, EXPORT(NULL, NULL, "parallelism.tensor_parallel_degree"),
     "TP", "tensor parallelism", "layers are divided among so many ranks")
PART(FP8, fp8, FLAG, ALONE, NONE, ASKED, CHANGED, NO,
     "precision", MEMORY_SAME, EXPORT(NULL, NULL, NULL),
     "fp8", "fp8 matrix multiplications", "GEMMs in fp8")
END
cat >"$TMPDIR/main.c" <<'END'
#include <stdio.h>
#include "pass/pass.h"
/* A pipeline of two passes, instead of the real one and all that it needs. */
static const struct gd_pass passes[] = {{.name = "precision", .needs = ""},
                                        {.name = "shard", .needs = ""}};
const struct gd_pass *gd_passes(int *count) { *count = 2; return passes; }
int gd_pass_find(const char *name, size_t length) { (void)name; (void)length; return -1; }
void gd_pass_list(struct gd_strbuf *out) { gd_strbuf_append(out, "precision, shard"); }
int main(int argc, char **argv) {
  struct gd_method methods[GD_METHODS_MOST];
  for (int i = 1; i < argc; i++) {
    struct gd_error err = {0};
    char name[GD_METHOD_NAME];
    bool ok = gd_method_parse(argv[i], &methods[0], &err) == GD_OK;
    printf("%s: %s\n", argv[i], ok ? gd_method_name(&methods[0], name) : err.text);
  }
  printf("%d %d\n", gd_method_space(false, methods), gd_method_space(true, methods));
  return 0;
}
END
cc -std=c17 -Wall -Wextra -Werror -I"$TMPDIR/src" -I"$GD_SOURCE_DIR/src" -o "$TMPDIR/main" "$TMPDIR/main.c" \
  "$TMPDIR/src/pass/method.c" "$GD_SOURCE_DIR"/src/base/{status,mem,strbuf}.c -lm
"$TMPDIR/main" free-lunch+tp2 tp16+zero1+ckpt naive+fp8 tp tp0 tp2x tp2+offload >"$TMPDIR/out"
diff - "$TMPDIR/out" <<'END'
free-lunch+tp2: free-lunch+tp2
tp16+zero1+ckpt: naive+ckpt+zero1+tp16
naive+fp8: naive+fp8
tp: unknown part "tp" of method "tp"; there are naive, free-lunch, compile, kernels, tf32, ckpt, zero1, zero2, zero3, fsdp2, fsdp3, offload, tp and fp8, joined by +
tp0: unknown part "tp0" of method "tp0"; there are naive, free-lunch, compile, kernels, tf32, ckpt, zero1, zero2, zero3, fsdp2, fsdp3, offload, tp and fp8, joined by +
tp2x: unknown part "tp2x" of method "tp2x"; there are naive, free-lunch, compile, kernels, tf32, ckpt, zero1, zero2, zero3, fsdp2, fsdp3, offload, tp and fp8, joined by +
tp2+offload: method "tp2+offload" has offload, which needs a sharding, and shards nothing; add zero1, zero2, zero3, fsdp2 or fsdp3
12 22
END
