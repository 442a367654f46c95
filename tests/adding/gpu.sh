# A GPU. Sourced by test_adding.sh, in the copy of the tree.
# shellcheck shell=bash
new_file data/gpus/toy-gpu.json
insert_before tests/hw/test_hw.c '"a4000"};$' <<'END'
                                    "toy-gpu",
END
