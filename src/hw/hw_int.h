/*
 * What the files of src/hw share: the reader of records, which hw.c feeds with the files of the
 * catalogue, of the user's folders and of paths.
 */
#ifndef GD_HW_HW_INT_H
#define GD_HW_HW_INT_H

#include "base/json.h"
#include "hw/hw.h"

/* What a file held: how many records, and the first name of each kind that can be asked for. */
struct gd_hw_read {
  int n_records;
  const char *what; /* "GPU mine, price of mine" */
  const char *gpu, *machine, *network, *energy;
};

/* Adds the file's records to hw, hiding those of the same name. Strings are copied. */
enum gd_status gd_hw_read(struct gd_hw *hw, const struct gd_json *json, struct gd_hw_read *read,
                          struct gd_error *err) GD_MUST_USE;
/* Whether two names are the same: case does not matter, nor which of '-', '_' and ' ' joins. */
bool gd_hw_same_name(const char *a, const char *b);

#endif
