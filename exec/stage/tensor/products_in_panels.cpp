#include "exec/stage/tensor/products_in_panels.hpp"

#include <algorithm>
#include <functional>
#include <utility>

#include "exec/stage/primitives/autograd.hpp"

namespace plumb::exec {
namespace {

// In the order in which F gathers their matrices; I and W go against it.
struct PanelProducts final : torch::CustomClassHolder {
  explicit PanelProducts(std::vector<PanelProduct> of) : products(std::move(of)) {
    std::ranges::sort(products, std::less<>(), [](const PanelProduct& each) { return each.weight->forward.place; });
  }
  std::vector<PanelProduct> products;
};
using PanelProductsPtr = c10::intrusive_ptr<PanelProducts>;

// The first panel's product is all that there is until the next one's.
void add_panel(int panel, const at::Tensor& sum, const at::Tensor& a, const at::Tensor& b) {
  sum.addmm_(a, b, panel > 0 ? 1 : 0);
}

std::vector<at::Tensor> multiply(const at::Tensor& x, const Crossing& entry,
                                 const std::vector<PanelProduct>& products) {
  TensorGroup::PanelMoves moves{.before = {entry.forward}};
  std::vector<at::Tensor> operands{x.detach().contiguous()};
  std::vector<at::Tensor> made;
  for (const PanelProduct& product : products) {
    moves.before.push_back(product.weight->forward);
    operands.push_back(product.weight->stored->value);
    made.push_back(at::empty({x.size(0), x.size(1), operands.back().size(0)}, operands.front().options()));
  }
  (void)entry.group->in_panels(moves, operands, [&](int panel, const std::vector<at::Tensor>& blocks) {
    for (std::size_t i = 0; i < products.size(); ++i) {
      at::Tensor sum = made[i].view({-1, made[i].size(-1)});
      const at::Tensor matrix = blocks[i + 1].t();
      if (panel == 0 && products[i].bias) {
        at::addmm_out(sum, products[i].bias->value, rows(blocks[0]), matrix);
      } else {
        add_panel(panel, sum, rows(blocks[0]), matrix);
      }
    }
    return std::vector<at::Tensor>();
  });
  return made;
}

// Of each output's gradient, in the order of the products, that of x.
at::Tensor input_gradient(const Crossing& entry, const std::vector<PanelProduct>& products,
                          const std::vector<at::Tensor>& gradients) {
  TensorGroup::PanelMoves moves{.behind = {entry.backward}};
  std::vector<at::Tensor> operands;
  for (auto product = products.rbegin(); product != products.rend(); ++product) {
    moves.before.push_back(product->weight->again);
    operands.push_back(product->weight->stored->value);
  }
  return entry.group
      ->in_panels(moves, operands,
                  [&](int /*panel*/, const std::vector<at::Tensor>& blocks) {
                    const at::Tensor& last = gradients.back();
                    at::Tensor sum = at::empty({last.size(0), last.size(1), blocks[0].size(1)}, last.options());
                    const at::Tensor made = sum.view({-1, sum.size(-1)});
                    for (std::size_t i = 0; i < blocks.size(); ++i) {
                      made.addmm_(rows(gradients[gradients.size() - 1 - i]), blocks[i], i > 0 ? 1 : 0);
                    }
                    return std::vector<at::Tensor>{sum};
                  })
      .front();
}

// Each as its transpose, as GridLinear makes it.
void weight_gradients(const at::Tensor& x, const Crossing& entry, const std::vector<PanelProduct>& products,
                      const std::vector<at::Tensor>& gradients) {
  TensorGroup::PanelMoves moves{.before = {entry.for_weights}};
  for (auto product = products.rbegin(); product != products.rend(); ++product) {
    moves.behind.push_back(product->weight->scattered);
  }
  const std::vector<at::Tensor> sums =
      entry.group->in_panels(moves, {x.contiguous()}, [&](int /*panel*/, const std::vector<at::Tensor>& blocks) {
        std::vector<at::Tensor> made;
        for (auto gradient = gradients.rbegin(); gradient != gradients.rend(); ++gradient) {
          made.push_back(at::mm(rows(blocks[0]).t(), rows(*gradient)));
        }
        return made;
      });
  for (std::size_t i = 0; i < products.size(); ++i) {
    accumulate(*products[i].weight->stored, sums[products.size() - 1 - i].t());
    if (products[i].bias) accumulate_rows(*products[i].bias, gradients[i]);
  }
}

struct ProductsInPanels : Function<ProductsInPanels> {
  static variable_list forward(AutogradContext* context, const Variable& x, const CrossingPtr& entry,
                               const PanelProductsPtr& all, const WeightQueuePtr& queue) {
    context->save_for_backward({x});
    keep(context, "entry", entry);
    keep(context, "products", all);
    keep(context, "queue", queue);
    return multiply(x, *entry, all->products);
  }

  static variable_list backward(AutogradContext* context, const variable_list& output_gradients) {
    const auto entry = kept<Crossing>(context, "entry");
    const auto all = kept<PanelProducts>(context, "products");
    const at::Tensor x = without_history(context->get_saved_variables()[0]);
    std::vector<at::Tensor> gradients;
    for (const Variable& gradient : output_gradients) gradients.push_back(gradient.contiguous());
    const at::Tensor dx = input_gradient(*entry, all->products, gradients);
    kept<WeightQueue>(context, "queue")->push([entry, all, x, gradients = std::move(gradients)] {
      weight_gradients(x, *entry, all->products, gradients);
    });
    return {dx, Variable(), Variable(), Variable()};
  }
};

}  // namespace

std::vector<at::Tensor> products_in_panels(const at::Tensor& x, const CrossingPtr& entry,
                                           std::vector<PanelProduct> products, const WeightQueuePtr& queue) {
  const auto all = c10::make_intrusive<PanelProducts>(products);
  variable_list made = ProductsInPanels::apply(x, entry, all, queue);
  std::vector<at::Tensor> in_order;  // of the caller
  for (const PanelProduct& product : products) {
    const auto same = [&](const PanelProduct& each) { return each.weight == product.weight; };
    in_order.push_back(
        std::move(made[static_cast<std::size_t>(std::ranges::find_if(all->products, same) - all->products.begin())]));
  }
  return in_order;
}

}  // namespace plumb::exec
