// Which blocks of a profile were measured too unevenly for their medians to be believed.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/base/document/json.hpp"
#include "common/cost/profile/profile.hpp"

namespace plumb {

// How far the median of a block's rounds may be from that of ever more of them: 1.96 standard errors (95%) of a normal
// sample's median, as a fraction of it. The standard error of a median is √(π/2)·σ/√n, and σ the distance of the
// quartiles over 1.349 (Kendall & Stuart, The Advanced Theory of Statistics 1, 10.11).
[[nodiscard]] double median_uncertainty_fraction(const MeasuredBlock& block, int samples);

// From where on a rank counts as a straggler (straggler.hpp), and a demo's prediction as wrong: a block that is not
// known as well as that can make either by itself.
inline constexpr double trusted_uncertainty_fraction = 0.05;

struct NoisyBlock {
  std::string block = {};  // as MeasuredBlock has it
  double spread_fraction = 0;
  double uncertainty_fraction = 0;
  bool operator==(const NoisyBlock&) const = default;
};

// Those whose median is less sure than that, in the profile's order.
[[nodiscard]] std::vector<NoisyBlock> noisy_blocks(const Profile& profile);

// The same for --json: an array, empty if there are none.
[[nodiscard]] Json noisy_blocks_json(const Profile& profile);

// Which they are, how unsure and what to do, in lines without a last end; empty if there are none.
[[nodiscard]] std::string noise_text(const Profile& profile);

// What the provenance of costs from such a profile ends with, "" of others: all that plans and timelines know of it.
[[nodiscard]] std::string noise_mark(const Profile& profile);
// Whether a provenance has it.
[[nodiscard]] bool has_noise_mark(std::string_view provenance);
// What to say of differences from a prediction with such costs.
inline constexpr std::string_view noise_warning =
    "The prediction stands on a profile that was measured too unevenly to trust: what looks like a cause may be that "
    "profile's. Calibrate again on an otherwise idle machine.";

}  // namespace plumb
