/*
 * Any bytes as the record of a trial, which a file of another lab or a process that is dying may
 * hold: refused with a sentence, or a trial that is written and read back the same.
 */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "store/record.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_again(const struct gd_trial *trial) {
  struct gd_strbuf first = {0}, second = {0};
  struct gd_trial copy;
  struct gd_error err = {0};
  GD_ASSERT(gd_record_print(trial, &first, &err) == GD_OK);
  GD_ASSERT(!strchr(first.text, '\n'));
  GD_ASSERT(gd_record_parse("again", first.text, (int64_t)first.length, &copy, &err) == GD_OK);
  GD_ASSERT(gd_record_print(&copy, &second, &err) == GD_OK);
  GD_ASSERT(strcmp(first.text, second.text) == 0);
  gd_strbuf_deinit(&first);
  gd_strbuf_deinit(&second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  struct gd_trial trial;
  struct gd_error err = {0};
  int64_t blocks = gd_mem_live_blocks();
  enum gd_status status = gd_record_parse("fuzz", (const char *)data, (int64_t)size, &trial, &err);
  GD_ASSERT(status == err.status);
  if (status == GD_OK)
    check_again(&trial);
  else
    GD_ASSERT(status == GD_BAD_INPUT && err.text[0] && !strchr(err.text, '\n'));
  GD_ASSERT(gd_mem_live_blocks() == blocks);
  return 0;
}
