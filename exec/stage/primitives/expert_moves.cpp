#include "exec/stage/primitives/expert_moves.hpp"

#include "exec/stage/primitives/autograd.hpp"

namespace plumb::exec {
namespace {

struct Permute : Function<Permute> {
  static Variable forward(AutogradContext* context, const Variable& x, const DispatchPtr& plan) {
    keep(context, "plan", plan);
    return primitives_for(x).permute(x, plan->of);
  }

  static variable_list backward(AutogradContext* context, const variable_list& output_gradients) {
    const auto plan = kept<DispatchHolder>(context, "plan");
    const at::Tensor& drows = output_gradients[0];
    return {primitives_for(drows).permute_backward(drows, plan->of), Variable()};
  }
};

struct Unpermute : Function<Unpermute> {
  static Variable forward(AutogradContext* context, const Variable& rows, const Variable& share,
                          const DispatchPtr& plan) {
    context->save_for_backward({rows, share});
    keep(context, "plan", plan);
    return primitives_for(rows).unpermute(rows, share, plan->of);
  }

  static variable_list backward(AutogradContext* context, const variable_list& output_gradients) {
    const variable_list saved = context->get_saved_variables();
    const auto plan = kept<DispatchHolder>(context, "plan");
    auto [drows, dshare] =
        primitives_for(saved[0]).unpermute_backward(output_gradients[0], saved[0], saved[1], plan->of);
    return {drows, dshare, Variable()};
  }
};

}  // namespace

DispatchPtr dispatched(const at::Tensor& x, const at::Tensor& chosen, std::int64_t experts) {
  auto plan = c10::make_intrusive<DispatchHolder>();
  plan->of = primitives_for(x).dispatch(chosen, experts);
  return plan;
}

at::Tensor permuted(const at::Tensor& x, const DispatchPtr& plan) { return Permute::apply(x, plan); }

at::Tensor unpermuted(const at::Tensor& rows, const at::Tensor& share, const DispatchPtr& plan) {
  return Unpermute::apply(rows, share, plan);
}

}  // namespace plumb::exec
