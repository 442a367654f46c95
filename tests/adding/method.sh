# A part of a method: its row, its pass, and the pass's place. Sourced by test_adding.sh, in the copy of the tree.
# shellcheck shell=bash
new_file src/pass/pass_nodecay.c
insert_before src/pass/methods.def '^PART(OFFLOAD, ' <<'END'
PART(NODECAY, nodecay, FLAG, ALONE, NONE, ASKED, CHANGED, NO,
     "nodecay", MEMORY_SAME, EXPORT(NULL, NULL, NULL),
     "no decay", NULL, "no parameter is decayed")
END
insert_before src/pass/pass.h '^/\* Lets fp32 GEMMs round' <<'END'
/* No parameter is decayed. */
enum gd_status gd_pass_nodecay(struct gd_pass_ctx *ctx, struct gd_graph *graph) GD_MUST_USE;
END
insert_before src/pass/pipeline.c '^    {"shard", gd_pass_shard' <<'END'
    {"nodecay", gd_pass_nodecay, GD_STAGE_MICRO_STEP, .needs = "", .doc = "no parameter is decayed"},
END
# shellcheck disable=SC2016 # backticks of Markdown
insert_before docs/methods.md '^\| `offload` \| offload ' <<'END'
| `nodecay` | nodecay | - | no | changed | no | - | - | - |
END
# shellcheck disable=SC2016
insert_before docs/methods.md '^\| `shard` \| micro-step ' <<'END'
| `nodecay` | micro-step | - | no | yes | no parameter is decayed |
END
edit tests/methods/test_parts.c 'fsdp3 and offload, joined' 'fsdp3, nodecay and offload, joined'
