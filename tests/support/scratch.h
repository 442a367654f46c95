/*
 * A folder of its own for a test: made by scratch_setup, gone after scratch_teardown. Both have
 * the shape cmocka wants for setup and teardown; tests that use them run one after another.
 *
 *   scratch_write("config.json", "{}", 2);
 *   gd_json_load(&json, scratch_path("config.json"), &err);
 */
#ifndef GD_TESTS_SUPPORT_SCRATCH_H
#define GD_TESTS_SUPPORT_SCRATCH_H

#include <stddef.h>

int scratch_setup(void **state);
int scratch_teardown(void **state);
/* The path of `name` in the folder; "" is the folder. Good until the eighth call after this one. */
const char *scratch_path(const char *name);
/* Writes a file; folders in `name` are made on the way. */
void scratch_write(const char *name, const void *data, size_t bytes);
void scratch_write_text(const char *name, const char *text);
/* How many entries the folder has, "." and ".." left out. */
int scratch_count(const char *name);

#endif
