// Remarks of `show` and `plan` on a profile whose blocks were measured too unevenly.
#pragma once

#include <optional>
#include <string>

#include "common/base/document/json.hpp"
#include "common/cost/profile/profile.hpp"

namespace plumb::sim {

// Whole lines; empty if there is nothing to say.
[[nodiscard]] std::string noise_line(const std::optional<Profile>& profile);

// `noisy_blocks`, empty where all can be trusted; nothing without a profile.
void add_noise(Json& json, const std::optional<Profile>& profile);

}  // namespace plumb::sim
