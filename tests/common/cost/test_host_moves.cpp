// A step over the host's port against closed forms and the longest path through its pieces, written down on its own.
#include "common/cost/host_moves.hpp"

#include <algorithm>
#include <random>

#include "tests/catch.hpp"

using namespace plumb;

namespace {

HostMoves piece(double down, double update, double up) {
  return {.copying_down = {down}, .updating = {update}, .copying_up = {up}};
}

// A flow shop of three machines in a fixed order ends with its longest monotone path: some first pieces go down, some
// then are updated, the rest go up, and each change is on one piece.
double longest_path(const std::vector<HostMoves>& pieces) {
  double longest = 0;
  for (std::size_t first = 0; first < pieces.size(); ++first) {
    for (std::size_t second = first; second < pieces.size(); ++second) {
      double path = 0;
      for (std::size_t i = 0; i < pieces.size(); ++i) {
        if (i <= first) path += pieces[i].copying_down.value;
        if (i >= first && i <= second) path += pieces[i].updating.value;
        if (i >= second) path += pieces[i].copying_up.value;
      }
      longest = std::max(longest, path);
    }
  }
  return longest;
}

}  // namespace

TEST_CASE("equal pieces take the sum of one, and for each other the slowest of its three parts") {
  for (const auto& [down, update, up] :
       {std::array{1.0, 2.0, 3.0}, {3.0, 1.0, 2.0}, {1.0, 5.0, 1.0}, {2.0, 2.0, 2.0}}) {
    for (const std::size_t count : {1U, 2U, 7U}) {
      const std::vector<HostMoves> pieces(count, piece(down, update, up));
      const double slowest = std::max({down, update, up});
      CHECK(offloaded_step_time(pieces, true).value ==
            Approx(down + update + up + static_cast<double>(count - 1) * slowest));
      CHECK(offloaded_step_time(pieces, false).value == Approx(static_cast<double>(count) * (down + update + up)));
    }
  }
  CHECK(offloaded_step_time({}, true) == Seconds{});
}

TEST_CASE("pieces of any size take the longest path through them") {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> time(0, 1);
  for (int round = 0; round < 200; ++round) {
    std::vector<HostMoves> pieces(static_cast<std::size_t>(1 + round % 6));
    for (HostMoves& each : pieces) each = piece(time(random), time(random), time(random));
    CHECK(offloaded_step_time(pieces, true).value == Approx(longest_path(pieces)).epsilon(1e-12));
  }
}

TEST_CASE("a copy takes its latency and its bytes, and no bytes nothing") {
  const HostProfile host{.link = {.latency = {.value = {1e-5}}, .bandwidth = {.value = {1e9}}}};
  CHECK(host_copy_time(host, Bytes{2'000'000}).value == Approx(1e-5 + 2e-3));
  CHECK(host_copy_time(host, Bytes{}) == Seconds{});
}
