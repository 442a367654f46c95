# A family of models with a preset. Sourced by test_adding.sh, in the copy of the tree.
# shellcheck shell=bash
new_file src/model/toy.c
new_file data/models/toy.json
insert_before src/model/families.def '^GD_FAMILY(vit)' <<'END'
GD_FAMILY(toy)
END
insert_before tests/model/test_recipes.c '^enum \{ PUBLISHED = ' 1 <<'END'
    {"toy", 1e-3, 1e-4, 0.95, 1e-8, 0.1, 1, 10},
END
