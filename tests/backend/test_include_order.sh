#!/usr/bin/env bash
# The rooms of src/backend/cuda have an order, which lint checks: a file includes from its own room and
# from those before it. Likewise the backends.
set -euo pipefail
cd "$TMPDIR"
mkdir -p src/base src/backend/cpu src/backend/cuda/{runtime,lib,gemm,pointwise,scan,odd}
cp "$GD_SOURCE_DIR/src/base/switches.def" src/base/
echo '#include "backend/cuda/lib/cudnn.h"' >src/backend/cuda/gemm/good.c
echo '#include "backend/kernel.h"' >>src/backend/cuda/gemm/good.c
echo '#include "backend/cpu/gemm.h"' >>src/backend/cuda/gemm/good.c
echo '#include "backend/cuda/gemm/cuda_gemm.h"' >src/backend/cuda/runtime/a.c
echo '#include "backend/cuda/pointwise/columns.h"' >src/backend/cuda/gemm/b.c
echo '#include "backend/cuda/runtime/cuda_int.h"' >src/backend/cpu/c.c
echo '#include "backend/cuda/runtime/cuda_int.h"' >src/backend/d.c
echo '#include "backend/cuda/runtime/cuda_int.h"' >src/backend/cuda/odd/e.c
find src/backend -name '*.c' | sort | xargs awk -f "$GD_SOURCE_DIR/tools/lint_c.awk" >found
diff - found <<'END'
src/backend/cpu/c.c:1: src/backend/cpu may not include from src/backend/cuda: it comes later
src/backend/cuda/gemm/b.c:1: src/backend/cuda/gemm may not include from src/backend/cuda/pointwise: it comes later
src/backend/cuda/odd/e.c:1: folder src/backend/cuda/odd is not in the suborder of tools/lint_c.awk
src/backend/cuda/runtime/a.c:1: src/backend/cuda/runtime may not include from src/backend/cuda/gemm: it comes later
src/backend/d.c:1: src/backend may not include from its sub-folder src/backend/cuda
END
