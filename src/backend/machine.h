/*
 * What a trial is measured on, as one line of text: two machines on which a trial would take
 * equally long share it, and a new driver, another limit of memory or of CPUs (quota) or a switch
 * in the environment changes it; for several ranks also OpenMPI's version and what it was told.
 * Host names are not in it: equal nodes of a cluster have different ones.
 *
 *   "cpu=AMD EPYC 9654;cores=16;memory=128 GiB;gpu=NVIDIA H200;gpus=2;gpu_memory=140 GiB;
 *    driver=580.65.06;CUDA driver=CUDA 13.0;NVRTC=13.0;cuBLASLt=13.1.0;GPUDAYS_NCCL=off"
 */
#ifndef GD_BACKEND_MACHINE_H
#define GD_BACKEND_MACHINE_H

#include "backend/backend.h"

enum { GD_MACHINE_TEXT = 1024 }; /* bytes of the text, with its end */

/*
 * This machine for so many ranks on that backend, whose device was described by gd_backend_ops.
 * What cannot be found out is left out. A text that does not fit ends in a hash of the whole.
 */
void gd_machine_print(const char *backend, const struct gd_device_info *info, int ranks,
                      char text[GD_MACHINE_TEXT]);

/* A number of that text by its name, without its unit ("memory" is in GiB); 0: it is not there. */
int64_t gd_machine_number(const char *text, const char *name);

/* Of the GPU's driver and libraries alone; empty on a machine without. */
void gd_machine_driver(char *text, size_t size);

#endif
