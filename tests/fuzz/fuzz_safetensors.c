/*
 * Any bytes as a safetensors file: refused with a sentence, or every tensor can be read from its
 * first element to its last.
 */
#include <stdlib.h>
#include <string.h>

#include "model/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_tensor(const struct gd_safetensors *file, uint32_t i, const uint8_t *data,
                         size_t size) {
  const struct gd_safetensor *tensor = &file->tensors[i];
  const uint8_t *begin = tensor->data;
  int64_t elements = 1;
  GD_ASSERT(gd_safetensors_find(file, tensor->name) == tensor);
  GD_ASSERT(begin >= data && tensor->bytes >= 0 && begin + tensor->bytes <= data + size);
  GD_ASSERT(i == 0 || strcmp(tensor[-1].name, tensor->name) < 0);
  for (uint32_t d = 0; d < tensor->rank; d++)
    elements *= tensor->dims[d];
  if (elements > 0) {
    (void)gd_safetensor_value(tensor, 0);
    (void)gd_safetensor_value(tensor, elements - 1);
  }
}

static void check_file(const uint8_t *data, size_t size) {
  struct gd_safetensors file;
  struct gd_error err = {0};
  int64_t blocks = gd_mem_live_blocks();
  enum gd_status status = gd_safetensors_parse(&file, "fuzz", data, (int64_t)size, &err);
  GD_ASSERT(status == err.status);
  if (status == GD_OK) {
    for (uint32_t i = 0; i < file.count; i++)
      check_tensor(&file, i, data, size);
    gd_safetensors_close(&file);
  } else {
    GD_ASSERT(status == GD_BAD_INPUT || status == GD_UNSUPPORTED);
    GD_ASSERT(err.text[0] != '\0' && !strchr(err.text, '\n'));
  }
  GD_ASSERT(gd_mem_live_blocks() == blocks);
}

/* As they are, and with the length set to where the last brace is: hardly any change of the header
   would get past the length otherwise. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  check_file(data, size);
  size_t end = size;
  while (end > 8 && data[end - 1] != '}')
    end--;
  if (end <= 8)
    return 0;
  uint8_t *copy = gd_mem_alloc(size, 1);
  GD_ASSERT(copy);
  memcpy(copy, data, size);
  for (int i = 0; i < 8; i++)
    copy[i] = (uint8_t)((uint64_t)(end - 8) >> (8 * i));
  check_file(copy, size);
  gd_mem_free(copy);
  return 0;
}
