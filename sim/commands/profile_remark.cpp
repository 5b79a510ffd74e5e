#include "sim/commands/profile_remark.hpp"

#include "common/cost/profile_noise.hpp"

namespace plumb::sim {

std::string noise_line(const std::optional<Profile>& profile) {
  std::string text = profile ? noise_text(*profile) : "";
  if (text.empty()) return text;
  for (std::size_t end = 0; (end = text.find('\n', end)) != std::string::npos; ++end) text.insert(end + 1, "  ");
  return "  profile: " + text + "\n";
}

void add_noise(Json& json, const std::optional<Profile>& profile) {
  if (!profile) return;
  json["noisy_blocks"] = Json::array();
  for (const NoisyBlock& noisy : noisy_blocks(*profile)) {
    json["noisy_blocks"].push_back({{"block", noisy.block},
                                    {"spread_fraction", noisy.spread_fraction},
                                    {"median_uncertainty_fraction", noisy.uncertainty_fraction}});
  }
}

}  // namespace plumb::sim
