/*
 * Any bytes as a tokenizer.json, a NUL, and a text: refused with a sentence, or the text gets ids
 * that are the same when it is asked again, and the ids have a text.
 */
#include <string.h>

#include "base/mem.h"
#include "data/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_text(const struct gd_tokenizer *tokenizer, const char *text, size_t length) {
  struct gd_tokenizer_work *work;
  struct gd_error err = {0};
  struct gd_token_ids ids = {0}, again = {0};
  struct gd_strbuf back = {0};
  GD_ASSERT(gd_tokenizer_work_new(&work, tokenizer, &err) == GD_OK);
  enum gd_status status = gd_tokenizer_encode(tokenizer, work, text, length, true, &ids, &err);
  GD_ASSERT(status == err.status);
  if (status == GD_OK) {
    /* Words are known now, and must have the same ids. */
    GD_ASSERT(gd_tokenizer_encode(tokenizer, work, text, length, true, &again, &err) == GD_OK);
    GD_ASSERT(ids.count == again.count);
    GD_ASSERT(ids.count == 0 ||
              memcmp(ids.ids, again.ids, (size_t)ids.count * sizeof *ids.ids) == 0);
    for (int64_t i = 0; i < ids.count; i++)
      GD_ASSERT(ids.ids[i] >= 0);
    status = gd_tokenizer_decode(tokenizer, ids.ids, ids.count, false, &back, &err);
    GD_ASSERT(status == err.status);
  }
  if (status != GD_OK)
    GD_ASSERT(err.text[0] && !strchr(err.text, '\n'));
  gd_strbuf_deinit(&back);
  gd_token_ids_deinit(&ids);
  gd_token_ids_deinit(&again);
  gd_tokenizer_work_free(work);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  struct gd_tokenizer *tokenizer;
  struct gd_error err = {0};
  int64_t blocks = gd_mem_live_blocks();
  const uint8_t *end = memchr(data, 0, size);
  size_t length = end ? (size_t)(end - data) : size;
  enum gd_status status = gd_tokenizer_parse(&tokenizer, "fuzz", (const char *)data, length, &err);
  GD_ASSERT(status == err.status);
  if (status == GD_OK && end)
    check_text(tokenizer, (const char *)end + 1, size - length - 1);
  else if (status == GD_OK)
    check_text(tokenizer, "a b", 3);
  else
    GD_ASSERT(err.text[0] && !strchr(err.text, '\n'));
  gd_tokenizer_free(tokenizer);
  GD_ASSERT(gd_mem_live_blocks() == blocks);
  return 0;
}
