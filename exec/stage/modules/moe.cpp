// Mixture of experts: a softmax router picks top-k experts for each token (Mixtral, arXiv 2401.04088).
#include <ATen/ATen.h>

#include <algorithm>
#include <tuple>
#include <vector>

#include "common/base/error.hpp"
#include "exec/stage/modules/module.hpp"
#include "exec/stage/primitives/expert_moves.hpp"
#include "exec/stage/primitives/functions.hpp"
#include "exec/stage/primitives/operations.hpp"

namespace plumb::exec {
namespace {

double gap(const at::Tensor& probability, const at::Tensor& chosen) {
  const at::Tensor least = std::get<0>(std::get<0>(probability.topk(chosen.size(1), -1)).min(-1));
  const at::Tensor taken = std::get<0>(probability.gather(1, chosen).min(-1));
  return ((least - taken) / least).max().item<double>();
}

at::Tensor choose(const at::Tensor& probability, const MoeMlp& moe, std::int64_t layer, const Pass& pass) {
  if (pass.routing != nullptr && pass.routing->replay) {
    const auto found = pass.routing->chosen.find({layer, pass.microbatch});
    if (found == pass.routing->chosen.end()) {
      throw RunError("layer " + std::to_string(layer), "the routing to be replayed was not recorded");
    }
    const at::Tensor chosen = found->second.to(probability.device());
    pass.routing->worst_gap = std::max(pass.routing->worst_gap, gap(probability.detach(), chosen));
    return chosen;
  }
  const at::Tensor chosen = std::get<1>(probability.detach().topk(moe.top_k, -1));
  if (pass.routing != nullptr) {
    pass.routing->chosen[{layer, pass.microbatch}] = chosen;
  }
  return chosen;
}

// Reads x as it is, and as it is inside the divided part.
using SharedExpert = std::function<at::Tensor(const at::Tensor& x, const Pass& inside)>;

SharedExpert make_shared_expert(const ModuleContext& context, const MoeMlp& moe) {
  const std::int64_t hidden = context.model.hidden;
  const Module gate = make_linear(context, "mlp.shared.gate", moe.shared_width, hidden);
  const Module up = make_linear(context, "mlp.shared.up", moe.shared_width, hidden);
  const Module down = make_leaving_linear(context, "mlp.shared.down", hidden, moe.shared_width);
  const auto expert = [=](const Pass& inside) {
    return down(swiglu(gate(inside.gathered, inside), up(inside.gathered, inside)), inside);
  };
  if (!moe.shared_gate) return [=](const at::Tensor& /*x*/, const Pass& inside) { return expert(inside); };
  const Module share = make_linear(context, "mlp.shared_gate", 1, hidden);
  return [=](const at::Tensor& x, const Pass& inside) { return expert(inside) * at::sigmoid(share(x, inside)); };
}

// Of each token's experts, as all ranks that share them out need it.
at::Tensor entered_probability(const at::Tensor& probability, const at::Tensor& tokens, const CrossingPtr& entry) {
  if (!entry) return probability;
  return crossed(probability.view({tokens.size(0), tokens.size(1), -1}), entry).flatten(0, 1);
}

}  // namespace

// Tokens are dispatched as all ranks have them; each rank's products are summands, which are added up once they are
// combined: of tokens, not of rows.
Module make_moe_mlp(const ModuleContext& context, const MoeMlp& moe) {
  const std::int64_t hidden = context.model.hidden;
  const Module router = make_linear(context, "mlp.router", moe.experts, hidden);
  const ExpertModule gate = make_expert_linear(context, "mlp.experts.gate", {moe.experts, moe.width, hidden});
  const ExpertModule up = make_expert_linear(context, "mlp.experts.up", {moe.experts, moe.width, hidden});
  const ExpertModule down = make_expert_linear(context, "mlp.experts.down", {moe.experts, hidden, moe.width});
  const SharedExpert shared = moe.shared_width > 0 ? make_shared_expert(context, moe) : SharedExpert();
  const Entry entry = module_entry_into(context, "mlp.dispatch");
  const CrossingPtr choice_entry = entry_of(context.divided, "mlp.route");
  const CrossingPtr exit = exit_of(context.divided, "mlp.combine");
  const auto type = wide_type(context.numerics.compute);
  const std::int64_t layer = context.layer;
  const bool raw_shares = context.model.arithmetic.raw_expert_shares;

  return [=](const at::Tensor& input, const Pass& pass) {
    const Pass inside = entered(input, pass, entry);
    const at::Tensor scores = router(input.reshape({-1, hidden}), pass);
    const at::Tensor probability = entered_probability(at::softmax(scores, -1, type), input, choice_entry);
    const at::Tensor chosen = choose(probability, moe, layer, pass);
    at::Tensor share = probability.gather(1, chosen);
    if (!raw_shares) share = share / share.sum(-1, true);

    const at::Tensor x = inside.gathered.reshape({-1, hidden});
    const DispatchPtr plan = dispatched(x, chosen, moe.experts);
    const ExpertRowsPtr& rows = plan->of.rows;
    const at::Tensor given = permuted(x, plan);
    const at::Tensor inner = swiglu(gate(given, rows, pass), up(given, rows, pass));
    const at::Tensor made = unpermuted(down(inner, rows, pass), share, plan).view(inside.gathered.sizes());
    at::Tensor y = crossed(made, exit);
    return shared ? y + shared(input, inside) : y;
  };
}

}  // namespace plumb::exec
