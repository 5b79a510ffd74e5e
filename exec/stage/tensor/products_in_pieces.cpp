#include "exec/stage/tensor/products_in_pieces.hpp"

#include <utility>

#include "exec/stage/primitives/autograd.hpp"

namespace plumb::exec {
namespace {

struct Readers final : torch::CustomClassHolder {
  explicit Readers(std::vector<ReadingProduct> of) : products(std::move(of)) {}
  std::vector<ReadingProduct> products;
};
using ReadersPtr = c10::intrusive_ptr<Readers>;

// Of all tokens those of one rank, in each sequence.
at::Tensor tokens_of(const at::Tensor& all, std::int64_t whose, std::int64_t tokens) {
  return all.narrow(1, whose * tokens, tokens);
}

at::Tensor of_all_ranks(const at::Tensor& part, std::int64_t ranks, std::int64_t features) {
  return at::empty({part.size(0), ranks * part.size(1), features}, part.options().requires_grad(false));
}

// As matrices without gaps: one where both have none between sequences, else one for each.
template <class Body>
void for_matrices(const at::Tensor& x, const at::Tensor& out, const Body& body) {
  if (x.is_contiguous() && out.is_contiguous()) return body(rows(x), out.view({-1, out.size(-1)}));
  for (std::int64_t sequence = 0; sequence < x.size(0); ++sequence) body(x[sequence], out[sequence]);
}

// out = x · matrix, where it is: or added to what is there.
void multiply(const at::Tensor& x, const at::Tensor& matrix, const at::Tensor& out, bool adds = false) {
  for_matrices(x, out, [&](const at::Tensor& from, at::Tensor to) { to.addmm_(from, matrix, adds ? 1 : 0); });
}

void multiply_by(const ReadingProduct& product, const at::Tensor& x, const at::Tensor& out) {
  const at::Tensor matrix = product.weight->value.t();
  if (!product.bias) return multiply(x, matrix, out);
  for_matrices(x, out,
               [&](const at::Tensor& from, at::Tensor to) { at::addmm_out(to, product.bias->value, from, matrix); });
}

// What products of pieces, whose sum it is, add to a weight's gradient: in the type of the training, each to what the
// piece before has made, as one product of all would make it; and then added, where the gradient is wider.
class SumOfPieces {
 public:
  explicit SumOfPieces(WeightPtr weight) : weight_(std::move(weight)) {}

  void add(const at::Tensor& dy, const at::Tensor& x) {
    if (weight_->gradient.scalar_type() == x.scalar_type()) return accumulate_product(weight_->gradient, dy, x);
    if (!sum_.defined()) {
      sum_ = at::mm(dy.t(), x);
    } else {
      sum_.addmm_(dy.t(), x);
    }
  }

  void finish() {
    if (sum_.defined()) accumulate(*weight_, sum_);
    sum_.reset();
  }

 private:
  WeightPtr weight_;
  at::Tensor sum_;
};

void accumulate_in_pieces(const Crossing& entry, const at::Tensor& x, const std::vector<ReadingProduct>& products,
                          const std::vector<at::Tensor>& gradients) {
  std::vector<SumOfPieces> sums;
  for (const ReadingProduct& product : products) sums.emplace_back(product.weight);
  entry.group->gather_in_pieces(x, entry.for_weights, [&](std::int64_t whose, const at::Tensor& piece) {
    for (std::size_t i = 0; i < products.size(); ++i) {
      sums[i].add(rows(tokens_of(gradients[i], whose, x.size(1))), rows(piece));
    }
  });
  for (std::size_t i = 0; i < products.size(); ++i) {
    sums[i].finish();
    if (products[i].bias) accumulate_rows(*products[i].bias, gradients[i]);
  }
}

struct ProductsInPieces : Function<ProductsInPieces> {
  static variable_list forward(AutogradContext* context, const Variable& x, const CrossingPtr& entry,
                               const ReadersPtr& readers, const WeightQueuePtr& queue) {
    context->save_for_backward({x});
    context->set_materialize_grads(false);
    keep(context, "entry", entry);
    keep(context, "readers", readers);
    keep(context, "queue", queue);
    const std::int64_t ranks = std::ssize(entry->forward.group);
    variable_list made{of_all_ranks(x, ranks, x.size(-1))};
    for (const ReadingProduct& product : readers->products) {
      made.push_back(of_all_ranks(x, ranks, product.weight->value.size(0)));
    }
    entry->group->gather_in_pieces(x, entry->forward, [&](std::int64_t whose, const at::Tensor& piece) {
      for (std::size_t i = 0; i < readers->products.size(); ++i) {
        multiply_by(readers->products[i], piece, tokens_of(made[i + 1], whose, x.size(1)));
      }
      tokens_of(made[0], whose, x.size(1)).copy_(piece);
    });
    return made;
  }

  static variable_list backward(AutogradContext* context, const variable_list& output_gradients) {
    const auto entry = kept<Crossing>(context, "entry");
    const auto readers = kept<Readers>(context, "readers");
    const at::Tensor x = without_history(context->get_saved_variables()[0]);
    const at::Tensor& beside = output_gradients[0];  // of what reads all tokens without a product; of nothing none
    std::vector<at::Tensor> gradients;
    for (std::size_t i = 1; i < output_gradients.size(); ++i) gradients.push_back(output_gradients[i].contiguous());
    const at::Tensor dx = entry->group->scatter_in_pieces(entry->backward, x.nbytes(), [&](std::int64_t whose) {
      at::Tensor sum = beside.defined() ? tokens_of(beside, whose, x.size(1)).clone(at::MemoryFormat::Contiguous)
                                        : at::empty(x.sizes(), x.options());
      for (std::size_t i = 0; i < gradients.size(); ++i) {
        multiply(tokens_of(gradients[i], whose, x.size(1)), readers->products[i].weight->value, sum,
                 i > 0 || beside.defined());
      }
      return sum;
    });
    kept<WeightQueue>(context, "queue")->push([entry, readers, x, gradients = std::move(gradients)] {
      accumulate_in_pieces(*entry, x, readers->products, gradients);
    });
    return {dx, Variable(), Variable(), Variable()};
  }
};

struct ScatteredProduct : Function<ScatteredProduct> {
  static Variable forward(AutogradContext* context, const Variable& x, const WeightPtr& weight, const CrossingPtr& exit,
                          const WeightQueuePtr& queue) {
    context->save_for_backward({x});
    keep(context, "weight", weight);
    keep(context, "exit", exit);
    keep(context, "queue", queue);
    const std::int64_t tokens = x.size(1) / std::ssize(exit->forward.group);
    const std::vector<std::int64_t> sizes{x.size(0), tokens, weight->value.size(0)};
    const std::size_t bytes = static_cast<std::size_t>(c10::multiply_integers(sizes)) * x.element_size();
    return exit->group->scatter_in_pieces(exit->forward, bytes, [&](std::int64_t whose) {
      at::Tensor piece = at::empty(sizes, x.options().requires_grad(false));
      multiply(tokens_of(x, whose, tokens), weight->value.t(), piece);
      return piece;
    });
  }

  static variable_list backward(AutogradContext* context, const variable_list& output_gradients) {
    const auto weight = kept<Weight>(context, "weight");
    const auto exit = kept<Crossing>(context, "exit");
    const at::Tensor& part = output_gradients[0];
    const std::int64_t ranks = std::ssize(exit->backward.group);
    const at::Tensor dy = of_all_ranks(part, ranks, part.size(-1));
    const at::Tensor dx = of_all_ranks(part, ranks, weight->value.size(1));
    exit->group->gather_in_pieces(part, exit->backward, [&](std::int64_t whose, const at::Tensor& piece) {
      multiply(piece, weight->value, tokens_of(dx, whose, part.size(1)));
      tokens_of(dy, whose, part.size(1)).copy_(piece);
    });
    const at::Tensor x = without_history(context->get_saved_variables()[0]);
    kept<WeightQueue>(context, "queue")->push([weight, x, dy] {
      accumulate_product(weight->gradient, rows(dy), rows(x));
    });
    return {dx, Variable(), Variable(), Variable()};
  }
};

// Moved to, or from, as the site has it beside its product.
bool is_in_pieces(const Divided* divided, Phase phase, Role role, std::string_view tensor, const Placement* needed) {
  if (divided == nullptr) return false;
  const PlacedMove* const move = find_move(divided->of.placed(), phase, role, tensor);
  return move != nullptr && divided->moves.in_pieces.contains(move) && (needed == nullptr || move->move.to == *needed);
}

}  // namespace

bool reads_in_pieces(const Divided* divided, std::string_view site) {
  if (divided == nullptr) return false;
  const PlacedTensor& input = site_of(divided->of.placed(), site).inputs.front();
  return is_in_pieces(divided, Phase::forward, Role::input, input.whole.name, &input.placement);
}

bool leaves_in_pieces(const Divided* divided, std::string_view site) {
  return is_in_pieces(divided, Phase::forward, Role::output, site, nullptr);
}

GatheredProducts products_in_pieces(const at::Tensor& x, const CrossingPtr& entry,
                                    const std::vector<ReadingProduct>& products, const WeightQueuePtr& queue) {
  variable_list made = ProductsInPieces::apply(x, entry, c10::make_intrusive<Readers>(products), queue);
  GatheredProducts all{.gathered = std::move(made[0]), .products = {}};
  for (std::size_t i = 1; i < made.size(); ++i) all.products.push_back(std::move(made[i]));
  return all;
}

at::Tensor scattered_product(const at::Tensor& x, const WeightPtr& weight, const CrossingPtr& exit,
                             const WeightQueuePtr& queue) {
  return ScatteredProduct::apply(x, weight, exit, queue);
}

}  // namespace plumb::exec
