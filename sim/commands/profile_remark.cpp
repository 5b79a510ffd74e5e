#include "sim/commands/profile_remark.hpp"

#include "common/cost/profile/profile_noise.hpp"

namespace plumb::sim {

std::string noise_line(const std::optional<Profile>& profile) {
  std::string text = profile ? noise_text(*profile) : "";
  if (text.empty()) return text;
  for (std::size_t end = 0; (end = text.find('\n', end)) != std::string::npos; ++end) text.insert(end + 1, "  ");
  return "  profile: " + text + "\n";
}

void add_noise(Json& json, const std::optional<Profile>& profile) {
  if (profile) json["noisy_blocks"] = noisy_blocks_json(*profile);
}

}  // namespace plumb::sim
