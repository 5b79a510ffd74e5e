#include "exec/stage/tensor/crossing.hpp"

#include "common/base/error.hpp"
#include "exec/stage/primitives/autograd.hpp"
#include "exec/stage/primitives/weights.hpp"

namespace plumb::exec {
namespace {

at::Tensor moved(const at::Tensor& x, const PlacedMove* move, TensorGroup& group) {
  return move == nullptr ? x : group.moved(x, *move);
}

struct Cross : Function<Cross> {
  static Variable forward(AutogradContext* context, const Variable& x, const CrossingPtr& crossing) {
    keep(context, "crossing", crossing);
    return moved(x, crossing->forward, *crossing->group);
  }

  static variable_list backward(AutogradContext* context, const variable_list& output_gradients) {
    const auto crossing = kept<Crossing>(context, "crossing");
    return {moved(output_gradients[0], crossing->backward, *crossing->group), Variable()};
  }
};

struct MoveOf {
  Phase phase;
  Role role;
};

CrossingPtr crossing_of(const Divided& divided, std::string_view tensor, MoveOf forward, MoveOf backward,
                        Role in_weights) {
  const PlacedBlock& block = divided.of.placed();
  const PlacedMove* const there = find_move(block, forward.phase, forward.role, tensor);
  const PlacedMove* const back = find_move(block, backward.phase, backward.role, tensor);
  const PlacedMove* const for_weights = find_move(block, Phase::weight_gradient, in_weights, tensor);
  if (there == nullptr && back == nullptr && for_weights == nullptr) return {};
  auto crossing = c10::make_intrusive<Crossing>();
  crossing->group = divided.group;
  crossing->forward = there;
  crossing->backward = back;
  crossing->for_weights = for_weights;
  return crossing;
}

}  // namespace

CrossingPtr entry_of(const Divided* divided, std::string_view value) {
  if (divided == nullptr) return {};
  return crossing_of(*divided, value, {Phase::forward, Role::input}, {Phase::input_gradient, Role::input_gradient},
                     Role::input);
}

CrossingPtr entry_into(const Divided* divided, std::string_view site) {
  if (divided == nullptr) return {};
  return entry_of(divided, site_of(divided->of.placed(), site).inputs.front().whole.name);
}

CrossingPtr exit_of(const Divided* divided, std::string_view site) {
  if (divided == nullptr) return {};
  return crossing_of(*divided, site, {Phase::forward, Role::output}, {Phase::input_gradient, Role::output_gradient},
                     Role::output_gradient);
}

Statistics statistics_of(const Divided* divided, std::string_view site) {
  if (divided == nullptr) return {};
  const std::string name = std::string(site) + ".statistics";
  const PlacedMove* const move = find_move(divided->of.placed(), Phase::forward, Role::statistics, name);
  if (move == nullptr) throw RunError("site " + std::string(site), "its sums are not moved");
  return {.group = divided->group, .move = move};
}

at::Tensor crossed(const at::Tensor& x, const CrossingPtr& crossing) {
  return crossing ? Cross::apply(x, crossing) : x;
}

KeptPartPtr kept_part(const at::Tensor& x, const CrossingPtr& crossing) {
  if (!crossing || crossing->for_weights == nullptr) return {};
  return c10::make_intrusive<KeptPart>(
      [part = without_history(x), crossing] { return crossing->group->moved(part, *crossing->for_weights); });
}

}  // namespace plumb::exec
