#include "common/cost/costs_json.hpp"

#include <cmath>
#include <limits>

#include "common/base/error.hpp"

namespace plumb {
namespace {

Json to_json(const TransferCost& cost) {
  const bool limited = std::isfinite(cost.bandwidth.value);
  return {{"latency_s", cost.latency.value},
          {"bandwidth_bytes_per_s", limited ? Json(cost.bandwidth.value) : Json(nullptr)}};
}

TransferCost transfer_cost_from_json(const JsonValue& value) {
  value.require_only({"latency_s", "bandwidth_bytes_per_s"});
  TransferCost cost{.latency = value.at("latency_s").seconds(), .bandwidth = {}};
  const JsonValue bandwidth = value.at("bandwidth_bytes_per_s");
  cost.bandwidth = {bandwidth.raw().is_null() ? std::numeric_limits<double>::infinity() : bandwidth.number()};
  if (cost.bandwidth.value <= 0) bandwidth.fail("expected a bandwidth above zero");
  return cost;
}

}  // namespace

Json to_json(const ComputeCost& cost) {
  return {{"forward_s", cost.forward.value},
          {"input_gradient_s", cost.input_gradient.value},
          {"weight_gradient_s", cost.weight_gradient.value},
          {"optimizer_s", cost.optimizer.value},
          {"parameters", cost.parameters},
          {"parameter_bytes", cost.parameter_bytes.value},
          {"gradient_bytes", cost.gradient_bytes.value},
          {"optimizer_bytes", cost.optimizer_bytes.value},
          {"kept_bytes", cost.kept_bytes.value},
          {"kept_for_weight_bytes", cost.kept_for_weight_bytes.value},
          {"forward_workspace_bytes", cost.forward_workspace_bytes.value},
          {"input_gradient_workspace_bytes", cost.input_gradient_workspace_bytes.value},
          {"weight_gradient_workspace_bytes", cost.weight_gradient_workspace_bytes.value}};
}

ComputeCost compute_cost_from_json(const JsonValue& value) {
  value.require_only({"forward_s", "input_gradient_s", "weight_gradient_s", "optimizer_s", "parameters",
                      "parameter_bytes", "gradient_bytes", "optimizer_bytes", "kept_bytes", "kept_for_weight_bytes",
                      "forward_workspace_bytes", "input_gradient_workspace_bytes", "weight_gradient_workspace_bytes"});
  return {.forward = value.at("forward_s").seconds(),
          .input_gradient = value.at("input_gradient_s").seconds(),
          .weight_gradient = value.at("weight_gradient_s").seconds(),
          .optimizer = value.at("optimizer_s").seconds(),
          .parameters = value.at("parameters").integer(),
          .parameter_bytes = value.at("parameter_bytes").bytes(),
          .gradient_bytes = value.at("gradient_bytes").bytes(),
          .optimizer_bytes = value.at("optimizer_bytes").bytes(),
          .kept_bytes = value.at("kept_bytes").bytes(),
          .kept_for_weight_bytes = value.at("kept_for_weight_bytes").bytes(),
          .forward_workspace_bytes = value.at("forward_workspace_bytes").bytes(),
          .input_gradient_workspace_bytes = value.at("input_gradient_workspace_bytes").bytes(),
          .weight_gradient_workspace_bytes = value.at("weight_gradient_workspace_bytes").bytes()};
}

Json to_json(const PipelineCosts& costs) {
  Json stages = Json::array();
  for (const ComputeCost& stage : costs.stages) stages.push_back(to_json(stage));
  return {{"stages", std::move(stages)},
          {"recomputed", costs.recomputed},
          {"boundary_bytes", costs.boundary_bytes.value},
          {"tied_bytes", costs.tied_bytes.value},
          {"inside", to_json(costs.inside)},
          {"outside", to_json(costs.outside)},
          {"ranks_per_machine", costs.ranks_per_machine},
          {"cores_per_machine", costs.cores_per_machine},
          {"provenance", costs.provenance}};
}

PipelineCosts pipeline_costs_from_json(const JsonValue& value) {
  value.require_only({"stages", "recomputed", "boundary_bytes", "tied_bytes", "inside", "outside", "ranks_per_machine",
                      "cores_per_machine", "provenance"});
  PipelineCosts costs{.stages = {},
                      .recomputed = {},
                      .boundary_bytes = value.at("boundary_bytes").bytes(),
                      .tied_bytes = value.at("tied_bytes").bytes(),
                      .inside = transfer_cost_from_json(value.at("inside")),
                      .outside = transfer_cost_from_json(value.at("outside")),
                      .ranks_per_machine = value.at("ranks_per_machine").small_integer(1),
                      .cores_per_machine = value.at("cores_per_machine").small_integer(0),
                      .provenance = value.at("provenance").text()};
  const JsonValue stages = value.at("stages");
  for (std::size_t i = 0; i < stages.size(); ++i) costs.stages.push_back(compute_cost_from_json(stages[i]));
  const JsonValue recomputed = value.at("recomputed");
  for (std::size_t i = 0; i < recomputed.size(); ++i) costs.recomputed.push_back(recomputed[i].boolean());
  if (!costs.recomputed.empty() && costs.recomputed.size() != costs.stages.size()) {
    recomputed.fail("has " + std::to_string(costs.recomputed.size()) + " entries for " +
                    std::to_string(costs.stages.size()) + " stages");
  }
  return costs;
}

}  // namespace plumb
