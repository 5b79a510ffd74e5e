#include "common/layout/divisible.hpp"

#include <string>
#include <variant>

#include "common/base/error.hpp"
#include "common/layout/tensor_grid.hpp"

namespace plumb {
void require_divides(int tensor_degree, std::int64_t shape, const char* name) {
  if (shape % tensor_degree == 0) return;
  throw InputError("layout", "a tensor degree of " + std::to_string(tensor_degree) + " does not divide " +
                                 std::to_string(shape) + " " + name);
}

namespace {

class Divisor {
 public:
  explicit Divisor(int degree) : degree_(degree) {}

  void require(std::int64_t shape, const char* name) const { require_divides(degree_, shape, name); }

  void operator()(std::monostate) const {}
  void operator()(const SoftmaxAttention& attention) const {
    require(attention.heads, "heads");
    require_kv_heads(attention.kv_heads);
  }
  void operator()(const LatentAttention& attention) const { require(attention.heads, "heads"); }
  void operator()(const GatedDelta& mixer) const {
    require(mixer.key_heads, "key heads");
    require(mixer.value_heads, "value heads");
  }
  void operator()(const ChannelGatedDelta& mixer) const { require(mixer.heads, "heads"); }
  void operator()(const Lightning& mixer) const { require(mixer.heads, "heads"); }
  void operator()(const Mamba& mixer) const { require(mixer.inner, "inner channels"); }
  void operator()(const Mamba2& mixer) const {
    require(mixer.heads, "heads");
    require(mixer.groups, "groups of B and C");
  }
  void operator()(const DenseMlp& mlp) const { require(mlp.width, "columns of an MLP (ffn)"); }
  void operator()(const MoeMlp& mlp) const { require(mlp.width, "columns of an expert (ffn)"); }

 private:
  // Fewer heads than ranks stand on several of them.
  void require_kv_heads(std::int64_t heads) const {
    if (heads % degree_ == 0 || degree_ % heads == 0) return;
    throw InputError("layout",
                     "a tensor degree of " + std::to_string(degree_) + " neither divides " + std::to_string(heads) +
                         " kv_heads nor is a multiple of them",
                     "a degree that divides them, or a multiple of them, whose ranks share heads");
  }

  int degree_;
};

}  // namespace

void require_divisible(const Model& model, const Layout& layout) {
  if (layout.tensor.degree == 1) return;
  if (is_grid(layout.tensor)) return require_divided_by_grid(model, layout.tensor);
  const Divisor divisor(layout.tensor.degree);
  divisor.require(model.hidden, "hidden channels");
  for (const Layer& layer : model.layers) {
    std::visit(divisor, layer.mixer);
    std::visit(divisor, layer.mlp);
  }
}

bool is_divisible(const Model& model, const Layout& layout) {
  try {
    require_divisible(model, layout);
  } catch (const InputError&) {
    return false;
  }
  return true;
}

void require_divides_sequence(const TensorLayout& tensor, std::int64_t sequence) {
  if (!divides_tokens(tensor)) return;
  try {
    require_divides(tensor.degree, sequence, "tokens of a sequence");
  } catch (const InputError& error) {
    const std::int64_t below = sequence / tensor.degree * tensor.degree;
    throw InputError(error.where(), error.problem(),
                     "sequence: " + (below > 0 ? std::to_string(below) + " or " : "") +
                         std::to_string(below + tensor.degree) + ", or sequence_parallel: false");
  }
}

std::string undivided_batch(const Layout& layout, std::int64_t microbatch, std::int64_t batch) {
  const std::int64_t shards = batch_shards(layout);
  const std::string shared = shards > 1 ? " on each of " + std::to_string(shards) + " data-parallel ranks" : "";
  return "a microbatch of " + std::to_string(microbatch) + shared + " does not divide the batch of " +
         std::to_string(batch) + " sequences";
}

}  // namespace plumb
