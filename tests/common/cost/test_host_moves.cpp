// A step over the host's port against closed forms and the longest path through its pieces, written down on its own.
#include "common/cost/host_moves.hpp"

#include <algorithm>
#include <random>

#include "tests/catch.hpp"

using namespace plumb;

namespace {

StepPiece piece(double down, double update, double up) {
  return updated_on_host({.copying_down = {down}, .updating = {update}, .copying_up = {up}});
}

// A flow shop of three machines in a fixed order ends with its longest monotone path: some first pieces go down, some
// then are updated, the rest go up, and each change is on one piece.
double longest_path(const std::vector<StepPiece>& pieces) {
  double longest = 0;
  for (std::size_t first = 0; first < pieces.size(); ++first) {
    for (std::size_t second = first; second < pieces.size(); ++second) {
      double path = 0;
      for (std::size_t i = 0; i < pieces.size(); ++i) {
        if (i <= first) path += pieces[i].before.value;
        if (i >= first && i <= second) path += pieces[i].updating.value;
        if (i >= second) path += pieces[i].behind.value;
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
      const std::vector<StepPiece> pieces(count, piece(down, update, up));
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
    std::vector<StepPiece> pieces(static_cast<std::size_t>(1 + round % 6));
    for (StepPiece& each : pieces) each = piece(time(random), time(random), time(random));
    CHECK(offloaded_step_time(pieces, true).value == Approx(longest_path(pieces)).epsilon(1e-12));
  }
}

TEST_CASE("a copy takes its latency and its bytes, and no bytes nothing") {
  const HostProfile host{.link = {.latency = {.value = {1e-5}}, .bandwidth = {.value = {1e9}}}};
  CHECK(host_copy_time(host, Bytes{2'000'000}).value == Approx(1e-5 + 2e-3));
  CHECK(host_copy_time(host, Bytes{}) == Seconds{});
}

// Of two weights that the device updates: they come up in 2 and 1, take 4 and 1, and go down in 3 and 3. The first is
// down at 2 + 4 + 3 = 9, the second behind it at 12.
TEST_CASE("weights that the device updates come up first and go down behind") {
  const HostMoves first{.copying_down = {3}, .updating = {100}, .copying_up = {2}};  // the host's update is none of it
  const HostMoves second{.copying_down = {3}, .copying_up = {1}};
  const std::vector<StepPiece> pieces{updated_on_device(first, {4}), updated_on_device(second, {1})};
  CHECK(offloaded_step_time(pieces, true) == Seconds{12});
  CHECK(offloaded_step_time(pieces, false) == Seconds{14});
}
