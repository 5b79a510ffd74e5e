#include "common/block_cost/offloaded.hpp"

#include <algorithm>
#include <utility>

#include "common/layout/shared_ports.hpp"

namespace plumb {

HostProfile host_in_training(const Scenario& scenario) {
  const Machine& machine = scenario.cluster.machine;
  HostProfile host = machine.host;
  const int sharing = std::min(host.devices_per_link, ranks(scenario.layout));
  const double slower = core_slowdown(scenario.layout, machine);
  host.link.bandwidth.value = host.link.bandwidth.value / (sharing * slower);
  host.memory_bandwidth.value = host.memory_bandwidth.value / slower;
  return host;
}

bool copies_beside_update(const Machine& machine) { return machine.device.type != DeviceType::cpu; }

ComputeCost with_activations_on_host(ComputeCost block, const Scenario& scenario) {
  const Seconds copying = host_copy_time(host_in_training(scenario), block.kept_bytes);
  return on_host_between_actions(std::move(block), copying, copies_beside_update(scenario.cluster.machine));
}

void offload_optimizer(ComputeCost& cost, ParameterShare parameters, const Scenario& scenario) {
  constexpr std::int64_t wide = element_bytes(ElementType::fp32);
  const std::int64_t weight = element_bytes(scenario.training.precision);
  const std::int64_t moments = moments_of(scenario.training.optimizer);
  const Bytes states{parameters.updated * wide * (moments + 1)};
  const HostProfile host = host_in_training(scenario);
  HostMoves& moves = cost.host_moves;
  moves.down = {parameters.updated * element_bytes(scenario.software.gradients)};
  moves.up = {parameters.updated * weight};
  moves.kept = states + moves.down;
  moves.copying_down = host_copy_time(host, moves.down);
  moves.copying_up = host_copy_time(host, moves.up);
  const Bytes narrow = weight < wide ? moves.up : Bytes{};
  moves.updating = (moves.down + std::int64_t{2} * states + narrow) / host.memory_bandwidth.value;
  cost.optimizer_bytes = {};
}

void offload_parameters(ComputeCost& cost, ParameterShare parameters, const Scenario& scenario) {
  const std::int64_t weight = element_bytes(scenario.training.precision);
  const bool wide = scenario.training.precision == ElementType::fp32;
  const bool host_updates = scenario.training.offload.optimizer;
  const Bytes updated{parameters.updated * weight};
  HostMoves& moves = cost.host_moves;
  cost.parameter_bytes = {};
  cost.parameter_moves.up = {parameters.stored * weight};
  moves.kept += cost.parameter_moves.up - (wide && host_updates ? updated : Bytes{});
  moves.up = wide && !host_updates ? updated : Bytes{};
  if (!host_updates) moves.down = updated;
  const HostProfile host = host_in_training(scenario);
  moves.copying_up = host_copy_time(host, moves.up);
  moves.copying_down = host_copy_time(host, moves.down);
}

ParameterMoves weights_coming_up(const ComputeCost& block, const Scenario& scenario) {
  const Bytes up = block.parameter_moves.up;
  if (up == Bytes{}) return {};
  return {.up = up,
          .copying = host_copy_time(host_in_training(scenario), up),
          .beside = copies_beside_update(scenario.cluster.machine)};
}

}  // namespace plumb
