#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "common/base/error.hpp"
#include "common/cost/costs_json.hpp"
#include "tests/catch.hpp"

namespace plumb {
namespace {

// Doubles of every magnitude, so that a decimal detour that loses a bit is seen.
PipelineCosts random_costs(std::mt19937_64& random) {
  const auto seconds = [&] {
    return Seconds{std::ldexp(std::uniform_real_distribution<double>(0.5, 1)(random),
                              std::uniform_int_distribution<int>(-60, 20)(random))};
  };
  const auto count = [&] { return std::uniform_int_distribution<std::int64_t>(0, std::int64_t{1} << 50)(random); };
  const auto bytes = [&] { return Bytes{count()}; };
  PipelineCosts costs;
  for (int i = 0; i < 5; ++i) {
    costs.stages.push_back({.forward = seconds(),
                            .input_gradient = seconds(),
                            .weight_gradient = seconds(),
                            .gradient_reduction = seconds(),
                            .optimizer = seconds(),
                            .parameters = count(),
                            .parameter_bytes = bytes(),
                            .gradient_bytes = bytes(),
                            .tensor_gradient_bytes = bytes(),
                            .optimizer_bytes = bytes(),
                            .kept_bytes = bytes(),
                            .kept_for_weight_bytes = bytes(),
                            .forward_workspace_bytes = bytes(),
                            .input_gradient_workspace_bytes = bytes(),
                            .weight_gradient_workspace_bytes = bytes()});
    ComputeCost& made = costs.stages.back();
    made.hidden_in_backward = std::min(seconds(), made.input_gradient + made.weight_gradient);
    if (i == 1) costs.stages.back().second_gradient_bytes = costs.stages.back().gradient_bytes / 2;
    if (i == 2) costs.stages.back().weight_gathering = seconds();
    if (i == 2) costs.stages.back().gathered_bytes = bytes();
    if (i == 3) costs.stages.back().slices = {{seconds(), seconds(), seconds(), {}}, {seconds()}};
    if (i == 3) made.slices[0].hidden_in_backward = made.slices[0].input_gradient;
    if (i == 4)
      costs.stages.back().slice_bytes = {{bytes(), bytes(), bytes(), bytes(), bytes(), {}, bytes(), bytes()},
                                         {bytes()}};
  }
  costs.slice_tokens = {1536, 512};
  costs.slice_gathering = {seconds(), seconds()};
  costs.boundary_bytes = bytes();
  costs.tied_bytes = bytes();
  costs.inside = {.latency = seconds(), .bandwidth = {1e9 / 3}};
  costs.outside = {.latency = seconds(), .bandwidth = {std::numeric_limits<double>::infinity()}};
  costs.across = {.latency = seconds(), .bandwidth = {1e9 / 7}};
  costs.shared = {.ranks_per_nic = 2,
                  .nic = {1e10 / 3},
                  .ranks_per_switch = 4,
                  .uplink = {2e10 / 3},
                  .ranks_per_leaf = 16,
                  .leaf = {3e10 / 7},
                  .ranks_per_site = 32,
                  .site = {1e9 / 9},
                  .site_latency = seconds()};
  costs.ranks_per_machine = 8;
  costs.cores_per_machine = 2;
  costs.exchange = PipelineExchange::synchronous;
  costs.hidden_in_pairs = 1.0 / 3;
  costs.provenance = "profile \"a\\b\".yaml, measured\n";
  costs.transport = "gloo";
  return costs;
}

PipelineCosts read_back(const std::string& text) {
  const Json document = parse_json(text, "costs.json");
  return pipeline_costs_from_json(JsonValue(document, "costs.json", "costs"));
}

void replace(std::string& text, const std::string& from, const std::string& to) {
  const std::size_t found = text.find(from);
  REQUIRE(found != std::string::npos);
  text.replace(found, from.size(), to);
}

}  // namespace

TEST_CASE("costs survive JSON bit by bit") {
  std::mt19937_64 random(7);
  for (int i = 0; i < 100; ++i) {
    const PipelineCosts costs = random_costs(random);
    REQUIRE(read_back(to_text(to_json(costs))) == costs);
  }
}

TEST_CASE("costs that are wrong are refused with file and key") {
  std::mt19937_64 random(7);
  const std::string good = to_text(to_json(random_costs(random)));
  const auto refused = [&](const std::string& from, const std::string& to, const std::string& said) {
    std::string text = good;
    replace(text, from, to);
    REQUIRE_THROWS_WITH(read_back(text), ContainsSubstring("costs.json: costs") && ContainsSubstring(said));
  };
  refused("\"forward_s\": ", "\"forward_s\": -", "costs.stages[0].forward_s: is");
  refused("\"forward_s\"", "\"forwrd_s\"", "did you mean 'forward_s'?");
  refused("\"parameters\": ", "\"parameters\": 5,\"kept\": ", "unknown key 'kept'");
  refused("\"ranks_per_machine\": 8", "\"ranks_per_machine\": 0", "expected an integer of at least 1");
  refused("\"ranks_per_machine\": 8", "\"ranks_per_machine\": 18446744073709551615", "ranks_per_machine: is 184");
  refused("\"cores_per_machine\": 2", "\"cores_per_machine\": \"two\"", "cores_per_machine");
  refused("\"bandwidth_bytes_per_s\": 3", "\"bandwidth_bytes_per_s\": -3", "must not be negative");
  refused("\"bandwidth_bytes_per_s\": null", "\"bandwidth_bytes_per_s\": 0",
          "costs.outside.bandwidth_bytes_per_s: expected a bandwidth from 1 to 1e18");
  refused("\"latency_s\": ", "\"latency_s\": 1000000001, \"was\": ", "expected seconds from 0 to 1e9");
}

TEST_CASE("text that is not JSON is refused with line and column") {
  REQUIRE_THROWS_WITH(parse_json("{\"a\": 1,\n  \"b\": tru}", "x.json"), ContainsSubstring("x.json:2:11: not JSON"));
  REQUIRE_THROWS_WITH(parse_json("{\"a\": 1, \"b\": {\"a\": 2}, \"a\": 3}", "x.json"),
                      ContainsSubstring("x.json: key 'a' stands twice"));
  REQUIRE_NOTHROW(parse_json("[{\"a\": 1, \"b\": {\"a\": 2}}, {\"a\": 3}]", "x.json"));
  REQUIRE_THROWS_WITH(parse_json("{\"a\": [1,\n 2", "x.json"),
                      ContainsSubstring("x.json:2:") && ContainsSubstring("truncated"));
  REQUIRE_THROWS_WITH(parse_json("", "x.json"), ContainsSubstring("x.json:1:1") && ContainsSubstring("truncated"));
  REQUIRE_THROWS_WITH(parse_json("{\"a\": 1e999}", "x.json"), ContainsSubstring("x.json"));
  REQUIRE_THROWS_AS(parse_json("{\"a\": \"\xff\"}", "x.json"), InputError);
}

}  // namespace plumb
