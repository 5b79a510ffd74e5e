// What crosses a stage boundary, and that two views of it are compared name by name.
#include "common/scenario/boundary.hpp"

#include "tests/catch.hpp"
#include "tests/common/plan/scenarios.hpp"

using namespace plumb;
using namespace plumb::testing;

TEST_CASE("hidden states of one microbatch in the training precision cross a boundary") {
  const Scenario scenario = read_text(scenario_text("training: {sequence: 32, microbatch: 3, precision: bf16}\n"));
  const BoundaryManifest manifest = boundary_manifest(scenario.model, scenario.training);
  REQUIRE(manifest.tensors.size() == 1);
  CHECK(manifest.tensors.front().name == "hidden_states");
  CHECK(bytes(manifest) == Bytes{3 * 32 * 64 * 2});
}

TEST_CASE("differing manifests are reported by their first differing tensor, in both forms") {
  const Scenario scenario = read_text(scenario_text("training: {sequence: 32, microbatch: 3}\n"));
  const BoundaryManifest sender = boundary_manifest(scenario.model, scenario.training);
  BoundaryManifest receiver = sender;
  receiver.tensors.front().dimensions.at(1).size = 31;
  CHECK_THAT(first_difference(sender, receiver).first, ContainsSubstring("sequence 32"));
  CHECK_THAT(first_difference(sender, receiver).second, ContainsSubstring("sequence 31"));
  receiver.tensors.clear();
  CHECK(first_difference(sender, receiver).second == "nothing");
}

TEST_CASE("a boundary that no memory holds is refused") {
  Training training{.sequence = std::int64_t{1} << 31, .global_batch = 1, .microbatch = std::int64_t{1} << 31};
  CHECK_THROWS_WITH(bytes(boundary_manifest(Model{.hidden = 1 << 20}, training)),
                    ContainsSubstring("larger than 16 TiB"));
}
