#!/usr/bin/env bash
# Memory of the library that is written and outlives a call: each such variable is listed here with the
# reason why it may be. Tables of constants, which nobody can write, do not count. What the
# library exports is for api/install.
set -euo pipefail
archive=$(dirname "$GPUDAYS")/libgpudays.a
command -v objdump >/dev/null || {
  echo "skipped: objdump is not here"
  exit 77
}
if nm "$archive" 2>/dev/null | grep ' U __asan_init' >/dev/null; then # -q would break nm's pipe
  echo "skipped: sanitizers add variables of their own"
  exit 77
fi
# Object file, variable. Static ones inside of functions have a number behind their name, which is left out.
LC_ALL=C sort >"$TMPDIR/argued" < <(sed 's/ *#.*//' <<'END'
build.c.o asked                       # the compiler's version, asked once a process; under mutex
build.c.o mutex
cache.c.o known                       # the private folder of this process where the user's is not safe; has a mutex
cuda_device.c.o contexts              # one CUDA context a device and process, as the driver wants it; under mutex
cuda_device.c.o mutex
file.c.o n_protected                  # files that no command may overwrite: set by main() before it runs one
file.c.o protected_files
isa.c.o known                         # a fact of the CPU: atomic, the same whoever writes it
load.c.o library_gd_cu_load           # libraries that were loaded, each once a process; under the mutex in it
load.c.o library_gd_cu_nodes_load
load.c.o library_gd_cublaslt_load
load.c.o library_gd_cudnn_load
load.c.o library_gd_nccl_load
load.c.o library_gd_nvml_load
load.c.o library_gd_nvrtc_load
load.c.o table                        # their functions, likewise
mem.c.o fail_countdown                # for tests of failing memory; atomic
mem.c.o live_blocks                   # counts blocks, for tests; atomic
ref_scan.c.o sums                     # of one thread: scratch that is too large for a stack
END
)
objdump -t "$archive" 2>/dev/null |
  awk '/file format/ { file = $1; sub(/:$/, "", file) }
       NF > 3 && $NF !~ /^\./ && $(NF - 2) ~ /^\.(data|bss|tdata|tbss|data\.rel|data\.rel\.local)$/ {
         name = $NF
         sub(/\.[0-9]+$/, "", name)
         print file, name
       }' | LC_ALL=C sort -u >"$TMPDIR/found"
diff "$TMPDIR/argued" "$TMPDIR/found" || {
  echo "FAILED: variables that are written: argued (<) and found (>)"
  exit 1
}
