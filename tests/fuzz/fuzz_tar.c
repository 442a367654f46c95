/*
 * Any bytes as a tar archive: refused with a sentence, or walked to its end, with members that lie
 * inside of it.
 */
#include <string.h>

#include "data/tar.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  struct gd_tar tar = {.bytes = data, .size = (int64_t)size, .path = "fuzz"};
  struct gd_tar_member member;
  struct gd_error err = {0};
  enum gd_status status;
  int64_t before = 0;
  while (gd_tar_next(&tar, &member, &status, &err)) {
    GD_ASSERT(tar.at > before && tar.at <= tar.size);
    GD_ASSERT(member.first > before && member.bytes >= 0);
    GD_ASSERT(member.first + member.bytes <= tar.size);
    GD_ASSERT(memchr(member.name, 0, sizeof member.name));
    before = tar.at;
  }
  GD_ASSERT(status == err.status);
  GD_ASSERT(status == GD_OK || status == GD_BAD_INPUT);
  return 0;
}
