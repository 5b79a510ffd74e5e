#include "exec/check/replayed_routing.hpp"

#include <ATen/ATen.h>

#include <variant>

#include "common/base/error.hpp"

namespace plumb::exec {

RoutingLog replayed(const Plan& plan, const NamedGradients& chosen) {
  RoutingLog log;
  log.replay = true;
  const int microbatches = plan.schedule.microbatches * plan.layout.data.degree;
  for (std::size_t layer = 0; layer < plan.model.layers.size(); ++layer) {
    const auto* const moe = std::get_if<MoeMlp>(&plan.model.layers[layer].mlp);
    for (int microbatch = 0; moe != nullptr && microbatch < microbatches; ++microbatch) {
      const auto index = static_cast<std::int64_t>(layer);
      const std::string name = routing_name(index, microbatch);
      const auto found = chosen.find(name);
      if (found == chosen.end()) throw RunError("check", "the run has no " + name);
      at::Tensor experts = at::empty({static_cast<std::int64_t>(found->second.size())}, at::kLong);
      std::copy(found->second.begin(), found->second.end(), experts.mutable_data_ptr<std::int64_t>());
      log.chosen[{index, microbatch}] = experts.view({-1, moe->top_k});
    }
  }
  return log;
}

}  // namespace plumb::exec
