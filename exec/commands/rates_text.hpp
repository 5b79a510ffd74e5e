// What devices were measured to do, for people and for programs.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "common/base/text.hpp"
#include "common/cost/profile/profile.hpp"

namespace plumb::exec {

// A row for each operation: latency, bandwidth and the largest sample.
[[nodiscard]] Table rates_table(const std::vector<MeasuredRate>& rates);
[[nodiscard]] nlohmann::ordered_json rates_json(const std::vector<MeasuredRate>& rates);

}  // namespace plumb::exec
