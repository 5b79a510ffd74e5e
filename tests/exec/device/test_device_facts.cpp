// What a device is, as a made-up driver tells it; and that nobody needs one.
#include "exec/device/device_facts.hpp"

#include "tests/catch.hpp"

using namespace plumb::exec;

TEST_CASE("a device's name, place, driver and clocks are the driver's own words") {
  const DriverLibraries made_up{.driver = PLUMB_FAKE_DRIVER, .management = PLUMB_FAKE_DRIVER};
  const std::optional<DeviceFacts> first = device_facts(0, made_up);
  REQUIRE(first);
  CHECK(*first == DeviceFacts{.name = "Made-up 80GB",
                              .bus = "0000:1B:00",
                              .driver = "580.95.05, CUDA 13.2",
                              .memory_bytes = std::int64_t{80} << 30,
                              .processor_clock_mhz = 1755,
                              .processor_clock_most = 1980,
                              .memory_clock_mhz = 2619});
  CHECK(describe(*first) == "Made-up 80GB at 0000:1B:00, processors at 1755 of 1980 MHz, memory at 2619 MHz");
  const std::optional<DeviceFacts> second = device_facts(1, made_up);
  REQUIRE(second);
  CHECK(describe(*second) == "Made-up 96GB at 0001:C3:00");
  CHECK_FALSE(device_facts(2, made_up));
}

TEST_CASE("without NVML the driver's part stays, without a driver there is nothing") {
  const std::optional<DeviceFacts> facts =
      device_facts(0, {.driver = PLUMB_FAKE_DRIVER, .management = "/nowhere/libnvidia-ml.so.1"});
  REQUIRE(facts);
  CHECK(facts->driver == "CUDA 13.2");
  CHECK(facts->processor_clock_mhz == 0);
  CHECK_FALSE(device_facts(0, {.driver = "/nowhere/libcuda.so.1"}));
  CHECK_FALSE(device_facts(0, {.driver = "libm.so.6"}));
}
