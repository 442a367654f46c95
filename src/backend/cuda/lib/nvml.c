/*
 * The clocks of a GPU and what lowers them, from NVML. It is asked while trials run and changes
 * nothing about them: without the library the clocks are not watched. GPUDAYS_NVML=off does without
 * it, GPUDAYS_NVML=on makes its absence a failure.
 *
 * The GPU is found by its place on the bus: that is one for all instances of a GPU that is divided
 * (MIG), whose clocks are the whole card's.
 */
#include "backend/cuda/lib/nvml.h"

#include <stdlib.h>
#include <string.h>

#include "backend/cuda/runtime/cuda_int.h"
#include "base/switches.h"

struct gd_cuda_nvml {
  const struct gd_nvml *api;
  nvmlDevice_t device;
  int max_mhz;
};

static enum gd_status find_gpu(struct gd_cuda *cuda, const struct gd_nvml *api,
                               struct gd_cuda_nvml *nvml, struct gd_error *err) {
  char bus[32] = "";
  unsigned long long reasons;
  unsigned mhz;
  nvml->api = api;
  GD_TRY(gd_cuda_check(cuda, cuda->cu->DeviceGetPCIBusId(bus, sizeof bus, cuda->device),
                       "cuDeviceGetPCIBusId", err));
  int result = api->DeviceGetHandleByPciBusId(bus, &nvml->device);
  if (result == NVML_SUCCESS)
    result = api->DeviceGetCurrentClocksEventReasons(nvml->device, &reasons);
  if (result != NVML_SUCCESS)
    return gd_fail(err, GD_ENVIRONMENT,
                   "NVML does not tell what lowers the clocks of the GPU at %s (result %d); "
                   "GPUDAYS_NVML=off does without",
                   bus, result);
  if (api->DeviceGetMaxClockInfo(nvml->device, NVML_CLOCK_SM, &mhz) == NVML_SUCCESS)
    nvml->max_mhz = (int)mhz;
  return GD_OK;
}

static enum gd_status open_nvml(struct gd_cuda *cuda, struct gd_error *err) {
  const struct gd_nvml *api;
  GD_TRY(gd_nvml_load(&api, err));
  int result = api->Init();
  if (result != NVML_SUCCESS)
    return gd_fail(err, GD_ENVIRONMENT,
                   "NVML fails in nvmlInit_v2 (result %d); nvidia-smi says more, "
                   "GPUDAYS_NVML=off does without it",
                   result);
  struct gd_cuda_nvml *nvml = gd_mem_alloc(1, sizeof *nvml);
  enum gd_status status =
      nvml ? find_gpu(cuda, api, nvml, err) : gd_nomem(err, "while opening NVML");
  if (status == GD_OK) {
    cuda->nvml = nvml;
    return GD_OK;
  }
  gd_mem_free(nvml);
  api->Shutdown();
  return status;
}

enum gd_status gd_cuda_nvml_open(struct gd_cuda *cuda, struct gd_error *err) {
  const char *wish = gd_env("GPUDAYS_NVML");
  struct gd_error why = {0};
  bool is_wanted = wish && strcmp(wish, "on") == 0;
  if (cuda->nvml || (wish && !is_wanted))
    return GD_OK;
  enum gd_status status = open_nvml(cuda, &why);
  if (status == GD_OK || !is_wanted)
    return GD_OK;
  return gd_fail(err, status, "GPUDAYS_NVML=on cannot be had: %s", why.text);
}

void gd_cuda_nvml_free(struct gd_cuda *cuda) {
  if (!cuda->nvml)
    return;
  cuda->nvml->api->Shutdown();
  gd_mem_free(cuda->nvml);
  cuda->nvml = NULL;
}

static unsigned reasons_of(unsigned long long bits) {
  static const struct {
    unsigned bits, reason;
  } table[] = {
      {nvmlClocksEventReasonGpuIdle, GD_CLOCKS_IDLE},
      {nvmlClocksEventReasonApplicationsClocksSetting, GD_CLOCKS_SETTING},
      {nvmlClocksEventReasonSwPowerCap, GD_CLOCKS_POWER_CAP},
      {nvmlClocksThrottleReasonHwSlowdown, GD_CLOCKS_SLOWDOWN},
      {nvmlClocksEventReasonSwThermalSlowdown | nvmlClocksThrottleReasonHwThermalSlowdown,
       GD_CLOCKS_THERMAL},
      {nvmlClocksThrottleReasonHwPowerBrakeSlowdown, GD_CLOCKS_POWER_BRAKE},
  };
  unsigned reasons = 0;
  for (size_t i = 0; i < sizeof table / sizeof *table; i++)
    if (bits & table[i].bits)
      reasons |= table[i].reason;
  return reasons;
}

bool gd_cuda_clocks(struct gd_backend *backend, struct gd_clocks *now) {
  const struct gd_cuda_nvml *nvml = ((struct gd_cuda *)backend)->nvml;
  unsigned long long bits;
  unsigned value;
  if (!nvml || nvml->api->DeviceGetCurrentClocksEventReasons(nvml->device, &bits) != NVML_SUCCESS)
    return false;
  *now = (struct gd_clocks){.reasons = reasons_of(bits), .max_mhz = nvml->max_mhz};
  if (nvml->api->DeviceGetClockInfo(nvml->device, NVML_CLOCK_SM, &value) == NVML_SUCCESS)
    now->mhz = (int)value;
  if (nvml->api->DeviceGetPowerUsage(nvml->device, &value) == NVML_SUCCESS)
    now->power_w = 1e-3 * value;
  if (nvml->api->DeviceGetEnforcedPowerLimit(nvml->device, &value) == NVML_SUCCESS)
    now->power_limit_w = 1e-3 * value;
  return true;
}
