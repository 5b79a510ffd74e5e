// How fast devices copy, add and talk to each other, by their own clocks.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "common/cost/profile/profile.hpp"
#include "exec/device/device.hpp"

namespace plumb::exec {

struct DeviceRates {
  TransferCost transfer;            // of a message between two ranks
  std::vector<MeasuredRate> rates;  // copy, add, send; over NCCL the collectives of 2, 4, … and of all
};

// Latency and bandwidth that fit the samples best, by the squares of their relative errors: small messages count as
// much as large ones. Neither is negative. Precondition: there are samples of two sizes at least.
[[nodiscard]] TransferCost fitted(const std::vector<RateSample>& samples);

struct RateOptions {
  std::string transport = "local";  // ranks that share a device, as threads; "nccl": each has its own
  std::string nccl_library = {};    // empty: searched
  std::vector<std::size_t> sizes = {4U << 10U, 64U << 10U, 1U << 20U, 16U << 20U, 64U << 20U};  // bytes, ascending
};

// Of a device alone and, where there are two and more, between them: one thread each. They must be asynchronous.
// Throws RunError as the transport does.
[[nodiscard]] DeviceRates measure_rates(const std::vector<std::unique_ptr<Device>>& devices,
                                        const RateOptions& options);

}  // namespace plumb::exec
