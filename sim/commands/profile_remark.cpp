#include "sim/commands/profile_remark.hpp"

#include "common/cost/profile_noise.hpp"

namespace plumb::sim {

std::string noise_line(const std::optional<Profile>& profile) {
  const std::string text = profile ? noise_text(*profile) : "";
  return text.empty() ? "" : "  profile: " + text + "\n";
}

void add_noise(Json& json, const std::optional<Profile>& profile) {
  if (!profile) return;
  json["noisy_blocks"] = Json::array();
  for (const NoisyBlock& noisy : noisy_blocks(*profile)) {
    json["noisy_blocks"].push_back({{"block", noisy.block},
                                    {"spread_fraction", noisy.spread_fraction},
                                    {"median_doubt_fraction", noisy.doubt_fraction}});
  }
}

}  // namespace plumb::sim
