// What modules are made of in a block that a grid of ranks shares out (2d to 3d).
#include <memory>
#include <utility>

#include "exec/stage/modules/module.hpp"
#include "exec/stage/tensor/divided_norm.hpp"
#include "exec/stage/tensor/grid_products.hpp"
#include "exec/stage/tensor/vocabulary.hpp"

namespace plumb::exec {
namespace {

GridWeightPtr grid_weight_of(const ModuleContext& context, const std::string& name) {
  const std::string weight = name + ".weight";
  return grid_weight(*context.divided, weight, context.weights.take(context.prefix + weight));
}

}  // namespace

bool on_grid(const ModuleContext& context) {
  return context.divided != nullptr && is_grid(context.divided->group->layout());
}

namespace {

// Where its input's blocks come in panels, that makes it.
Module grid_product(const ModuleContext& context, const std::string& site, const GridWeightPtr& weight,
                    const WeightPtr& bias) {
  if (!reads_in_pieces(context.divided, site)) {
    return [=](const at::Tensor& x, const Pass& pass) {
      return grid_linear(x, weight, bias, pass.queue, pass.part_of(x));
    };
  }
  const std::string& value = site_of(context.divided->of.placed(), site).inputs.front().whole.name;
  context.readers[value].in_panels.push_back({.weight = weight, .bias = bias});
  return [=](const at::Tensor& /*x*/, const Pass& pass) { return pass.take_product(*weight->stored); };
}

}  // namespace

// A bias is added to what is kept of the sum.
Module make_grid_linear(const ModuleContext& context, const std::string& name, bool bias) {
  const GridWeightPtr weight = grid_weight_of(context, name);
  const WeightPtr offset = bias ? context.weights.take(context.prefix + name + ".bias") : WeightPtr();
  const CrossingPtr exit = exit_of(context.divided, name);
  const Module product = grid_product(context, name, weight, exit ? WeightPtr() : offset);
  if (!exit) return product;
  return [=](const at::Tensor& x, const Pass& pass) {
    const at::Tensor sum = crossed(product(x, pass), exit);
    return offset ? add_bias(sum, offset, pass.queue) : sum;
  };
}

Module make_grid_leaving_linear(const ModuleContext& context, const std::string& name, bool bias) {
  const Module product = make_grid_linear(context, name, bias);
  const Entry entry = module_entry_into(context, name);
  return [=](const at::Tensor& x, const Pass& pass) {
    const Pass inside = entered(x, pass, entry);
    return product(inside.gathered, inside);
  };
}

std::optional<Norm> make_grid_norm(const ModuleContext& context, const std::string& name, NormKind kind) {
  if (!on_grid(context)) return std::nullopt;
  Statistics statistics = statistics_of(context.divided, name);
  if (!statistics.group) return std::nullopt;
  auto norm = c10::make_intrusive<DividedNorm>();
  norm->statistics = std::move(statistics);
  norm->hidden = context.model.hidden;
  norm->epsilon = norm_epsilon(context.model, kind);
  const WeightPtr weight = context.weights.take(context.prefix + name + ".weight");
  if (kind == NormKind::rmsnorm) {
    return Norm{
        .of = [=](const at::Tensor& x, const Pass& pass) { return divided_rms_norm(x, weight, pass.queue, norm); },
        .of_sum =
            [=](const at::Tensor& x, const at::Tensor& beside, const Pass& pass) {
              NormOfSum made = divided_sum_rms_norm(x, beside, weight, pass.queue, norm);
              return std::pair(std::move(made.sum), std::move(made.normal));
            }};
  }
  const WeightPtr bias = context.weights.take(context.prefix + name + ".bias");
  return Norm{.of = [=](const at::Tensor& x,
                        const Pass& pass) { return divided_layer_norm(x, weight, bias, pass.queue, norm); },
              .of_sum =
                  [=](const at::Tensor& x, const at::Tensor& beside, const Pass& pass) {
                    at::Tensor sum = x + beside;
                    at::Tensor normal = divided_layer_norm(sum, weight, bias, pass.queue, norm);
                    return std::pair(std::move(sum), std::move(normal));
                  }};
}

// Positions are of this rank's channels.
Module make_grid_embedding(const ModuleContext& context) {
  const GridWeightPtr table = grid_weight_of(context, "embedding");
  const WeightPtr positions =
      context.model.positions == Positions::learned ? context.weights.take("embedding.positions") : WeightPtr();
  const CrossingPtr exit = exit_of(context.divided, "embedding");
  const std::int64_t first_row = context.divided->of.first_of_vocabulary();
  return [=](const at::Tensor& tokens, const Pass& pass) {
    const at::Tensor y = grid_embed(tokens, table, first_row, exit, pass.queue);
    return positions ? add_positions(y, positions, 0, pass.queue) : y;
  };
}

}  // namespace plumb::exec
