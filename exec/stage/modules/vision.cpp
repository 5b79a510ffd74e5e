// First and last block of a model of images: patches, class token and positions; class head.
#include "exec/stage/modules/module.hpp"
#include "exec/stage/primitives/autograd.hpp"
#include "exec/stage/primitives/functions.hpp"
#include "exec/stage/primitives/operations.hpp"

namespace plumb::exec {
namespace {

// Reference-counted, so that one autograd node keeps them all.
struct PatchWeights final : torch::CustomClassHolder {
  WeightPtr projection;  // [hidden, channels · patch²]: a convolution whose stride is its kernel
  WeightPtr bias;
  WeightPtr class_token;
  WeightPtr positions;
};
using PatchWeightsPtr = c10::intrusive_ptr<PatchWeights>;

// Pixels have no gradient, so it takes an anchor. W needs the patches and the output's gradient.
struct EmbedPatches : Function<EmbedPatches> {
  static Variable forward(AutogradContext* context, const Variable& /*anchor*/, const at::Tensor& patches,
                          const PatchWeightsPtr& weights, const WeightQueuePtr& queue) {
    context->save_for_backward({patches});
    keep(context, "weights", weights);
    keep(context, "queue", queue);
    const at::Tensor& table = weights->positions->value;
    at::Tensor y = at::empty({patches.size(0), table.size(0), table.size(1)}, table.options());
    y.select(1, 0).copy_(weights->class_token->value);
    y.narrow(1, 1, patches.size(1)).copy_(at::linear(patches, weights->projection->value, weights->bias->value));
    return y.add_(table);
  }

  static variable_list backward(AutogradContext* context, const variable_list& output_gradients) {
    const at::Tensor patches = context->get_saved_variables()[0];
    const auto weights = kept<PatchWeights>(context, "weights");
    const at::Tensor dy = output_gradients[0];
    kept<WeightQueue>(context, "queue")->push([patches, dy, weights] {
      const at::Tensor of_patches = rows(dy.narrow(1, 1, patches.size(1)));
      const auto type = weights->bias->gradient.scalar_type();
      accumulate_product(weights->projection->gradient, of_patches, rows(patches));
      weights->bias->gradient.add_(of_patches.sum(0, false, type));
      weights->class_token->gradient.add_(dy.select(1, 0).sum(0, false, type));
      weights->positions->gradient.add_(dy.sum(0, false, type));
    });
    return {Variable(), Variable(), Variable(), Variable()};
  }
};

}  // namespace

Module make_patch_embedding(const ModuleContext& context, const Vision& vision) {
  const std::int64_t hidden = context.model.hidden;
  const std::int64_t pixels = vision.channels * vision.patch_size * vision.patch_size;
  auto weights = c10::make_intrusive<PatchWeights>();
  weights->projection = weight_of(context, "embedding.patches", {hidden, pixels});
  weights->bias = context.weights.take("embedding.patches.bias", {hidden});
  weights->class_token = context.weights.take("embedding.class_token", {hidden});
  weights->positions = context.weights.take("embedding.positions", {tokens(vision), hidden});
  return [weights](const at::Tensor& patches, const Pass& pass) -> at::Tensor {
    const Weight& positions = *weights->positions;
    return EmbedPatches::apply(anchor_of(positions, positions.is_trained()), patches, weights, pass.queue);
  };
}

Module make_class_head(const ModuleContext& context, const Vision& vision) {
  const Module norm = make_norm(context, "final_norm", context.model.final_norm).of;
  const Module logits = make_linear(context, "head", vision.classes, context.model.hidden, context.model.head_bias);
  return [=](const at::Tensor& x, const Pass& pass) {
    // A copy, so that the norm's output of all other tokens is not kept with it.
    const at::Tensor class_token = norm(x, pass).select(1, 0).contiguous();
    return cross_entropy(logits(class_token, pass), pass.targets);
  };
}

}  // namespace plumb::exec
