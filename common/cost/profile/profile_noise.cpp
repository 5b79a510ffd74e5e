#include "common/cost/profile/profile_noise.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "common/base/text.hpp"

namespace plumb {
namespace {

constexpr double quartile_distance = 1.349;  // of a normal distribution, in standard deviations
constexpr double sure_errors = 1.96;         // standard errors, of 95%
constexpr double most_rounds = 1000;         // who would need more has a machine that is not idle

// A key begins with the kind; the sizes behind it would fill the screen. Kinds that are there in several sizes are
// counted as they stand in the profile.
std::string short_name(const Profile& profile, const std::string& key) {
  const auto kind_of = [](const std::string& text) { return text.substr(0, text.find(' ')); };
  int sizes = 0;
  int place = 0;
  for (const MeasuredBlock& block : profile.blocks) {
    if (kind_of(block.block) == kind_of(key)) ++sizes;
    if (block.block == key) place = sizes;
  }
  return sizes > 1 ? fmt::format("{}, size {} of {}", kind_of(key), place, sizes) : kind_of(key);
}

}  // namespace

double median_uncertainty_fraction(const MeasuredBlock& block, int samples) {
  const double error = std::sqrt(std::numbers::pi / 2) * block.spread_fraction / quartile_distance;
  return sure_errors * error / std::sqrt(std::max(1, samples));
}

std::vector<NoisyBlock> noisy_blocks(const Profile& profile) {
  std::vector<NoisyBlock> noisy;
  for (const MeasuredBlock& block : profile.blocks) {
    const double uncertainty = median_uncertainty_fraction(block, profile.samples);
    if (uncertainty <= trusted_uncertainty_fraction) continue;
    noisy.push_back(
        {.block = block.block, .spread_fraction = block.spread_fraction, .uncertainty_fraction = uncertainty});
  }
  return noisy;
}

Json noisy_blocks_json(const Profile& profile) {
  Json blocks = Json::array();
  for (const NoisyBlock& noisy : noisy_blocks(profile)) {
    blocks.push_back({{"block", noisy.block},
                      {"spread_fraction", noisy.spread_fraction},
                      {"median_uncertainty_fraction", noisy.uncertainty_fraction}});
  }
  return blocks;
}

std::string noise_text(const Profile& profile) {
  const std::vector<NoisyBlock> noisy = noisy_blocks(profile);
  if (noisy.empty()) return "";
  std::string names;
  double worst = 0;
  for (const NoisyBlock& block : noisy) {
    names +=
        fmt::format("{}{} (spread {}, its median ±{})", names.empty() ? "" : "; ", short_name(profile, block.block),
                    percent_text(block.spread_fraction), percent_text(block.uncertainty_fraction));
    worst = std::max(worst, block.uncertainty_fraction);
  }
  // Of each rank that was busy; the uncertainty falls with the square root of their number.
  const double measured = static_cast<double>(profile.samples) / std::max(1, profile.busy_ranks);
  const double needed =
      std::ceil(measured * (worst / trusted_uncertainty_fraction) * (worst / trusted_uncertainty_fraction));
  const std::string rounds = needed <= most_rounds ? fmt::format(", with --rounds {:.0f}", needed)
                                                   : std::string("; more rounds alone will not do");
  const bool one = noisy.size() == 1;
  const bool of_gpu = !profile.rates.empty();  // which no cores can be kept for
  const std::string on_cores =
      of_gpu ? "" : ", its threads kept to cores of their own (taskset -c 0,1 plumb-exec\ncalibrate …)";
  return fmt::format(
      "{} of {} kinds of block {} measured too unevenly to trust what is predicted from {}:\n{}.\n"
      "Calibrate again on an otherwise idle machine{}{}.",
      noisy.size(), profile.blocks.size(), one ? "was" : "were", one ? "it" : "them", names, on_cores, rounds);
}

constexpr std::string_view noise_ending = "measured too unevenly to trust";

std::string noise_mark(const Profile& profile) {
  const std::size_t noisy = noisy_blocks(profile).size();
  if (noisy == 0) return "";
  return fmt::format(", {} of {} kinds of block {}", noisy, profile.blocks.size(), noise_ending);
}

bool has_noise_mark(std::string_view provenance) { return provenance.ends_with(noise_ending); }

}  // namespace plumb
