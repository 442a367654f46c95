/*
 * What every fuzzer does first. The order of an object's fields depends on jansson's seed: the same
 * one every run.
 */
#include <jansson.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);

int LLVMFuzzerInitialize(int *argc, char ***argv) {
  (void)argc;
  (void)argv;
  json_object_seed(1);
  return 0;
}
