// Mixture of experts: a softmax router picks top-k experts for each token (Mixtral, arXiv 2401.04088).
#include <ATen/ATen.h>

#include <tuple>
#include <vector>

#include "common/base/error.hpp"
#include "exec/stage/modules/module.hpp"
#include "exec/stage/primitives/expert_moves.hpp"
#include "exec/stage/primitives/functions.hpp"
#include "exec/stage/primitives/operations.hpp"

namespace plumb::exec {
namespace {

at::Tensor choose(const at::Tensor& probability, const MoeMlp& moe, std::int64_t layer, const Pass& pass) {
  if (pass.routing != nullptr && pass.routing->replay) {
    const auto found = pass.routing->chosen.find({layer, pass.microbatch});
    if (found == pass.routing->chosen.end()) {
      throw RunError("layer " + std::to_string(layer), "the routing to be replayed was not recorded");
    }
    return found->second;
  }
  const at::Tensor chosen = std::get<1>(probability.detach().topk(moe.top_k, -1));
  if (pass.routing != nullptr) {
    pass.routing->chosen[{layer, pass.microbatch}] = chosen;
  }
  return chosen;
}

Module make_shared_expert(const ModuleContext& context, const MoeMlp& moe) {
  const std::int64_t hidden = context.model.hidden;
  const Module gate = make_linear(context, "mlp.shared.gate", moe.shared_width, hidden);
  const Module up = make_linear(context, "mlp.shared.up", moe.shared_width, hidden);
  const Module down = make_linear(context, "mlp.shared.down", hidden, moe.shared_width);
  if (!moe.shared_gate) {
    return [=](const at::Tensor& x, const Pass& pass) { return down(swiglu(gate(x, pass), up(x, pass)), pass); };
  }
  const Module share = make_linear(context, "mlp.shared_gate", 1, hidden);
  return [=](const at::Tensor& x, const Pass& pass) {
    return down(swiglu(gate(x, pass), up(x, pass)), pass) * at::sigmoid(share(x, pass));
  };
}

}  // namespace

Module make_moe_mlp(const ModuleContext& context, const MoeMlp& moe) {
  const std::int64_t hidden = context.model.hidden;
  const Module router = make_linear(context, "mlp.router", moe.experts, hidden);
  const ExpertModule gate = make_expert_linear(context, "mlp.experts.gate", {moe.experts, moe.width, hidden});
  const ExpertModule up = make_expert_linear(context, "mlp.experts.up", {moe.experts, moe.width, hidden});
  const ExpertModule down = make_expert_linear(context, "mlp.experts.down", {moe.experts, hidden, moe.width});
  const Module shared = moe.shared_width > 0 ? make_shared_expert(context, moe) : Module();
  const auto type = wide_type(context.numerics.compute);
  const std::int64_t layer = context.layer;

  return [=](const at::Tensor& input, const Pass& pass) {
    const at::Tensor x = input.reshape({-1, hidden});
    const at::Tensor probability = at::softmax(router(x, pass), -1, type);
    const at::Tensor chosen = choose(probability, moe, layer, pass);
    at::Tensor share = probability.gather(1, chosen);
    share = share / share.sum(-1, true);

    const DispatchPtr plan = dispatched(x, chosen, moe.experts);
    const ExpertRowsPtr& rows = plan->of.rows;
    const at::Tensor gathered = permuted(x, plan);
    const at::Tensor inner = swiglu(gate(gathered, rows, pass), up(gathered, rows, pass));
    at::Tensor y = unpermuted(down(inner, rows, pass), share, plan).view(input.sizes());
    return shared ? y + shared(input, pass) : y;
  };
}

}  // namespace plumb::exec
