/*
 * The part of NVML that gpudays uses, loaded at run time as driver.h has it. Names and values are
 * the library's own (nvml.h of CUDA 12 and 13).
 */
#ifndef GD_BACKEND_CUDA_LIB_NVML_H
#define GD_BACKEND_CUDA_LIB_NVML_H

#include "backend/cuda/runtime/driver.h"

typedef struct nvmlDevice_st *nvmlDevice_t;

enum {
  NVML_SUCCESS = 0,
  NVML_ERROR_NOT_SUPPORTED = 3,
  NVML_ERROR_NOT_FOUND = 6,
  NVML_CLOCK_SM = 1, /* nvmlClockType_t */

  /* Bits of nvmlDeviceGetCurrentClocksEventReasons. Hardware slowdown comes with its cause, heat or
     power brake, where the card tells it. */
  nvmlClocksEventReasonGpuIdle = 0x1,
  nvmlClocksEventReasonApplicationsClocksSetting = 0x2,
  nvmlClocksEventReasonSwPowerCap = 0x4,
  nvmlClocksThrottleReasonHwSlowdown = 0x8,
  nvmlClocksEventReasonSwThermalSlowdown = 0x20,
  nvmlClocksThrottleReasonHwThermalSlowdown = 0x40,
  nvmlClocksThrottleReasonHwPowerBrakeSlowdown = 0x80,
};

/* Clocks in MHz, power in milliwatts. Drivers before 535 have
   nvmlDeviceGetCurrentClocksEventReasons under another name, which load.c knows. */
#define GD_NVML_FUNCTIONS(X)                                                                      \
  X(Init, nvmlInit_v2, (void))                                                                    \
  X(Shutdown, nvmlShutdown, (void))                                                               \
  X(SystemGetNVMLVersion, nvmlSystemGetNVMLVersion, (char *version, unsigned size))               \
  X(DeviceGetHandleByPciBusId, nvmlDeviceGetHandleByPciBusId_v2,                                  \
    (const char *bus_id, nvmlDevice_t *device))                                                   \
  X(DeviceGetClockInfo, nvmlDeviceGetClockInfo, (nvmlDevice_t device, int type, unsigned *clock)) \
  X(DeviceGetMaxClockInfo, nvmlDeviceGetMaxClockInfo,                                             \
    (nvmlDevice_t device, int type, unsigned *clock))                                             \
  X(DeviceGetCurrentClocksEventReasons, nvmlDeviceGetCurrentClocksEventReasons,                   \
    (nvmlDevice_t device, unsigned long long *reasons))                                           \
  X(DeviceGetEnforcedPowerLimit, nvmlDeviceGetEnforcedPowerLimit,                                 \
    (nvmlDevice_t device, unsigned *limit))                                                       \
  X(DeviceGetPowerUsage, nvmlDeviceGetPowerUsage, (nvmlDevice_t device, unsigned *power))

/* NOLINTBEGIN(bugprone-macro-parentheses) */
struct gd_nvml {
  GD_NVML_FUNCTIONS(GD_CU_FIELD)
};
/* NOLINTEND(bugprone-macro-parentheses) */

#endif
