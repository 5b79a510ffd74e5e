#include "exec/stage/tensor/crossing.hpp"

#include <utility>

#include "exec/stage/primitives/autograd.hpp"
#include "exec/stage/primitives/weights.hpp"

namespace plumb::exec {
namespace {

struct Cross : Function<Cross> {
  static Variable forward(AutogradContext* context, const Variable& x, const CrossingPtr& crossing) {
    keep(context, "crossing", crossing);
    return crossing->group->moved(x, crossing->forward);
  }

  static variable_list backward(AutogradContext* context, const variable_list& output_gradients) {
    const auto crossing = kept<Crossing>(context, "crossing");
    return {crossing->group->moved(output_gradients[0], crossing->backward), Variable()};
  }
};

struct MoveOf {
  Phase phase;
  Role role;
};

CrossingPtr crossing_of(const Divided& divided, std::string_view tensor, MoveOf forward, MoveOf backward,
                        Role in_weights) {
  auto crossing = c10::make_intrusive<Crossing>();
  crossing->group = divided.group;
  crossing->forward = divided.find(forward.phase, forward.role, tensor);
  crossing->backward = divided.find(backward.phase, backward.role, tensor);
  crossing->for_weights = divided.find(Phase::weight_gradient, in_weights, tensor);
  const bool moves = crossing->forward || crossing->backward || crossing->for_weights;
  return moves ? crossing : CrossingPtr();
}

}  // namespace

LocalMove Divided::find(Phase phase, Role role, std::string_view tensor) const {
  return local_move(of.placed(), find_move(of.placed(), phase, role, tensor), group->position());
}

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
  LocalMove forward = divided->find(Phase::forward, Role::statistics, name);
  if (!forward) return {};
  return {.group = divided->group,
          .forward = std::move(forward),
          .backward = divided->find(Phase::input_gradient, Role::statistics, name)};
}

at::Tensor crossed(const at::Tensor& x, const CrossingPtr& crossing) {
  return crossing ? Cross::apply(x, crossing) : x;
}

KeptPartPtr kept_part(const at::Tensor& x, const CrossingPtr& crossing) {
  if (!crossing || !crossing->for_weights) return {};
  return c10::make_intrusive<KeptPart>(
      [part = without_history(x), crossing] { return crossing->group->moved(part, crossing->for_weights); });
}

}  // namespace plumb::exec
