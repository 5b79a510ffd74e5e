// Dense MLPs: SwiGLU (arXiv 2002.05202) and GELU.
#include <ATen/ATen.h>

#include "exec/stage/modules/module.hpp"
#include "exec/stage/primitives/functions.hpp"

namespace plumb::exec {

Module make_dense_mlp(const ModuleContext& context, const DenseMlp& mlp) {
  const std::int64_t hidden = context.model.hidden;
  const Module up = make_linear(context, "mlp.up", mlp.width, hidden, mlp.bias);
  const Module down = make_leaving_linear(context, "mlp.down", hidden, mlp.width, mlp.bias);
  if (mlp.activation == Activation::swiglu) {
    const Module gate = make_linear(context, "mlp.gate", mlp.width, hidden, mlp.bias);
    return [=](const at::Tensor& x, const Pass& pass) {
      const at::Tensor gated = gate(x, pass);  // the order in which what these move is placed
      return down(swiglu(gated, up(x, pass)), pass);
    };
  }
  const char* const form = mlp.activation == Activation::gelu ? "tanh" : "none";
  return [=](const at::Tensor& x, const Pass& pass) { return down(at::gelu(up(x, pass), form), pass); };
}

}  // namespace plumb::exec
