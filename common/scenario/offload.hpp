// What stands in the host's memory in the place of the device's.
#pragma once

#include <compare>
#include <string>
#include <string_view>
#include <vector>

namespace plumb {

// ZeRO-Offload (arXiv 2101.06840), ZeRO-Infinity (arXiv 2104.07857).
struct Offload {
  bool optimizer = false;    // its states and master weights, which the host updates
  bool activations = false;  // what blocks keep of a microbatch between F and I or B
  bool parameters = false;   // of data-parallel ranks that share weights out, each one's parts
  auto operator<=>(const Offload&) const = default;
};

[[nodiscard]] inline bool offloads(const Offload& offload) { return offload != Offload{}; }

// As scenarios write it: "none", "optimizer", "optimizer+parameters+activations".
[[nodiscard]] std::string describe(const Offload& offload);

// The words of a scenario: "none", and what may be offloaded, which it may put together with "+".
[[nodiscard]] const std::vector<std::string>& offload_names();

}  // namespace plumb
