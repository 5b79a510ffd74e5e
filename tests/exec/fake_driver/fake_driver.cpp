// The few calls of the CUDA driver and of NVML that tell what a device is, with the answers of a made-up machine: two
// devices, the second under another name.
#include <cstdio>
#include <cstring>

extern "C" {

int cuInit(unsigned flags) { return flags == 0 ? 0 : 1; }
int cuDeviceGet(int* device, int index) {
  *device = index + 100;
  return index == 0 || index == 1 ? 0 : 101;
}
int cuDeviceGetName(char* name, int room, int device) {
  std::snprintf(name, static_cast<std::size_t>(room), device == 100 ? "Made-up 80GB" : "Made-up 96GB");
  return 0;
}
int cuDeviceGetPCIBusId(char* bus, int room, int device) {
  std::snprintf(bus, static_cast<std::size_t>(room), device == 100 ? "0000:1B:00.0" : "0001:C3:00.0");
  return 0;
}
int cuDeviceTotalMem_v2(std::size_t* bytes, int device) {
  *bytes = std::size_t{80} << 30;
  return device == 100 ? 0 : 1;
}
int cuDriverGetVersion(int* version) {
  *version = 13020;
  return 0;
}

int nvmlInit_v2() { return 0; }
int nvmlSystemGetDriverVersion(char* version, unsigned room) {
  std::snprintf(version, room, "580.95.05");
  return 0;
}
// Knows the first device alone, as where a container shows NVML less than the driver.
int nvmlDeviceGetHandleByPciBusId_v2(const char* bus, void** device) {
  static int first = 0;
  *device = &first;
  return std::strcmp(bus, "0000:1B:00.0") == 0 ? 0 : 6;
}
int nvmlDeviceGetClockInfo(void* /*device*/, unsigned kind, unsigned* mhz) {
  *mhz = kind == 1 ? 1755 : 2619;
  return 0;
}
int nvmlDeviceGetMaxClockInfo(void* /*device*/, unsigned kind, unsigned* mhz) {
  *mhz = 1980;
  return kind == 1 ? 0 : 3;
}
}
