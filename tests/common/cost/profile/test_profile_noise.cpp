// How sure a profile's medians are, held against medians of made-up rounds, and what is said of those that are not.
#include "common/cost/profile/profile_noise.hpp"

#include <cmath>

#include "common/base/quantile.hpp"
#include "common/base/random.hpp"
#include "tests/catch.hpp"

using namespace plumb;

namespace {

Profile profile_of(const std::vector<std::pair<std::string, double>>& blocks, int samples, int ranks = 2) {
  Profile profile{.busy_ranks = ranks, .samples = samples};
  for (const auto& [name, spread] : blocks) {
    profile.blocks.push_back({.block = name, .spread_fraction = spread});
  }
  return profile;
}

}  // namespace

TEST_CASE("nineteen of twenty medians are as near to the true one as is said") {
  constexpr int samples = 31;
  constexpr int calibrations = 4000;
  constexpr double deviation = 0.1;
  int within = 0;
  double uncertainties = 0;
  for (int n = 0; n < calibrations; ++n) {
    std::vector<double> rounds;
    for (int i = 0; i < samples; ++i) {
      rounds.push_back(1 + deviation * normal_draw(7, "round", static_cast<std::uint64_t>(n * samples + i)));
    }
    const double found = quantile(rounds, 0.5);
    const MeasuredBlock block{.spread_fraction = (quantile(rounds, 0.75) - quantile(rounds, 0.25)) / found};
    const double uncertainty = median_uncertainty_fraction(block, samples);
    uncertainties += uncertainty / calibrations;
    within += std::abs(found - 1) <= uncertainty * found ? 1 : 0;
  }
  // 1.96 · 1.2533 · σ / √31; the quartiles of 31 rounds are themselves not sure.
  CHECK(uncertainties == Approx(1.96 * 1.2533 * deviation / std::sqrt(samples)).epsilon(0.05));
  CHECK(within > 0.91 * calibrations);
  CHECK(within < 0.97 * calibrations);
}

TEST_CASE("blocks that are less sure than 5% are named, with how unsure and what to do") {
  // Of 30 rounds 1.96 · 1.2533 / 1.349 / √30 = 0.3324 of the spread: 15.04% is the most.
  CHECK(noisy_blocks(profile_of({{"a", 0.150}, {"b", 0}}, 30)).empty());
  CHECK(noise_text(profile_of({{"a", 0.150}}, 30)).empty());
  const Profile noisy = profile_of({{"full/dense h=64", 0.02}, {"head h=64", 0.30}, {"embedding v=7", 0.16}}, 30);
  const std::vector<NoisyBlock> found = noisy_blocks(noisy);
  REQUIRE(found.size() == 2);
  CHECK(found[0].block == "head h=64");
  CHECK(found[0].spread_fraction == 0.30);
  CHECK(found[0].uncertainty_fraction == Approx(0.0997).epsilon(0.001));
  CHECK(found[1].block == "embedding v=7");
  const std::string text = noise_text(noisy);
  CHECK_THAT(text, ContainsSubstring("2 of 3 kinds of block were measured too unevenly"));
  CHECK_THAT(text, ContainsSubstring("head (spread 30.0%, its median ±10.0%); embedding (spread 16.0%"));
  // 15 rounds of each rank, (0.0997 / 0.05)² times as many.
  CHECK_THAT(text, ContainsSubstring("idle machine") && ContainsSubstring("taskset") &&
                       ContainsSubstring("with --rounds 60."));
  // A GPU's blocks are not timed on cores of the host.
  Profile of_gpu = noisy;
  of_gpu.rates = {{.operation = "copy"}};
  CHECK_THAT(noise_text(of_gpu), ContainsSubstring("on an otherwise idle machine, with --rounds 60."));
  CHECK(noise_text(of_gpu).find("taskset") == std::string::npos);
}

TEST_CASE("where no number of rounds would do, that is said instead") {
  const std::string text = noise_text(profile_of({{"full/dense h=64", 6.12}, {"full/dense h=96", 0.01}}, 30));
  CHECK_THAT(text, ContainsSubstring("1 of 2 kinds of block was measured too unevenly"));
  CHECK_THAT(text, ContainsSubstring("full/dense, size 1 of 2 (spread 612.0%"));
  CHECK_THAT(text, ContainsSubstring("more rounds alone will not do"));
  CHECK(text.find("--rounds") == std::string::npos);
}
