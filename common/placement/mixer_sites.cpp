#include "common/placement/site_list.hpp"

// Dimensions of the mixers' operations. Which weights there are and how they are laid out: parameters_mixer.cpp, with
// the papers.
namespace plumb {
namespace {

NamedShape add(SiteList&, const std::monostate&, const NamedShape& x) { return x; }

// Several values in, the same ones out; the site is named as its first output.
void pass_of(SiteList& list, const std::string& name, OperationKind kind, std::vector<NamedShape>& values,
             const std::vector<NamedShape>& weights = {}) {
  Site site{.name = name, .kind = kind};
  for (NamedShape& value : values) {
    site.inputs.push_back({value});
    const bool first = site.outputs.empty();
    site.outputs.push_back({first ? name : name + "." + std::to_string(site.outputs.size()), value.shape});
  }
  site.weights = weights;
  values = list.add(std::move(site)).outputs;
}

NamedShape out_projection(SiteList& list, const std::string& name, const NamedShape& x, bool bias = false) {
  return list.matmul(name, x, {{Dim::hidden, list.hidden()}}, bias).outputs.front();
}

NamedShape add(SiteList& list, const SoftmaxAttention& attention, const NamedShape& x) {
  const Extent heads{Dim::heads, attention.heads};
  const Extent kv_heads{Dim::kv_heads, attention.kv_heads};
  const Extent size{Dim::channels, attention.head_dim};
  const Extent value_size{Dim::channels, attention.value_dim};
  const NamedShape query = list.matmul("attention.q", x, {heads, size}, attention.qkv_bias).outputs.front();
  const NamedShape key = list.matmul("attention.k", x, {kv_heads, size}, attention.qkv_bias).outputs.front();
  NamedShape value = list.matmul("attention.v", x, {kv_heads, value_size}, attention.qkv_bias).outputs.front();
  std::vector<NamedShape> both{query, key};
  if (attention.qkv_bias) {
    std::vector<NamedShape> all{query, key, value};
    pass_of(list, "attention.bias", OperationKind::elementwise, all);
    both = {all[0], all[1]};
    value = all[2];
  }
  if (attention.qk_norm) {
    pass_of(list, "attention.qk_norm", OperationKind::norm, both,
            {{"attention.q_norm.weight", {size}}, {"attention.k_norm.weight", {size}}});
  }
  if (list.model().positions == Positions::rope) {
    pass_of(list, "attention.rotary", OperationKind::elementwise, both);
  }
  Site core{.name = "attention.core", .kind = OperationKind::attention};
  core.inputs = {{both[0]}, {both[1], true}, {value, true}};
  core.outputs = {{"attention.core", list.of_tokens({heads, value_size})}};
  if (attention.sinks) core.weights = {{"attention.sinks", {heads}}};
  NamedShape y = list.add(std::move(core)).outputs.front();
  if (attention.output_gate) {
    const NamedShape gate = list.matmul("attention.gate", x, {heads, value_size}).outputs.front();
    Site product{.name = "attention.gate.product", .kind = OperationKind::elementwise, .inputs = {{y}, {gate}}};
    product.outputs = {{product.name, y.shape}};
    y = list.add(std::move(product)).outputs.front();
  }
  return out_projection(list, "attention.out", y, attention.out_bias);
}

NamedShape add(SiteList& list, const LatentAttention& attention, const NamedShape& x) {
  const Extent heads{Dim::heads, attention.heads};
  const std::int64_t query_size = attention.nope_dim + attention.rope_dim;
  const auto down = [&](const std::string& name, const std::string& norm, std::int64_t out, std::int64_t normed) {
    const NamedShape low = list.matmul(name, x, {{Dim::low_rank, out}}).outputs.front();
    Site site{.name = norm, .kind = OperationKind::norm, .inputs = {{low}}};
    site.outputs = {{norm, list.of_tokens({{Dim::low_rank, normed}})}};
    // The part of the keys that all heads share and that is rotated is not normed.
    if (out > normed) site.outputs.push_back({"attention.k_rope", list.of_tokens({{Dim::low_rank, out - normed}})});
    site.weights = {{norm + ".weight", {{Dim::low_rank, normed}}}};
    return list.add(std::move(site)).outputs.front();
  };
  NamedShape query = x;
  if (attention.q_lora_rank)
    query = down("attention.q_down", "attention.q_norm", *attention.q_lora_rank, *attention.q_lora_rank);
  const char* const query_name = attention.q_lora_rank ? "attention.q_up" : "attention.q";
  query = list.matmul(query_name, query, {heads, {Dim::channels, query_size}}).outputs.front();
  const NamedShape low = down("attention.kv_down", "attention.kv_norm", attention.kv_lora_rank + attention.rope_dim,
                              attention.kv_lora_rank);
  const NamedShape both =
      list.matmul("attention.kv_up", low, {heads, {Dim::channels, attention.nope_dim + attention.value_dim}})
          .outputs.front();
  std::vector<NamedShape> rotated{query, both};
  pass_of(list, "attention.rotary", OperationKind::elementwise, rotated);
  Site core{.name = "attention.core", .kind = OperationKind::attention};
  core.inputs = {{rotated[0]}, {rotated[1], true}, {list.made_by("attention.k_rope"), true}};
  core.outputs = {{"attention.core", list.of_tokens({heads, {Dim::channels, attention.value_dim}})}};
  return out_projection(list, "attention.out", list.add(std::move(core)).outputs.front());
}

// The part of a recurrence between its projections and its output: a convolution over `channels`, the recurrence, a
// norm. Reads what `projected` lists.
struct Recurrence {
  std::string name;  // "linear"
  std::vector<NamedShape> projected;
  Shape inner;  // of a token, behind the recurrence
  std::vector<NamedShape> weights = {};
};
NamedShape recurrence(SiteList& list, const Recurrence& of) {
  Site core{.name = of.name + ".core", .kind = OperationKind::recurrence};
  for (const NamedShape& value : of.projected) core.inputs.push_back({value});
  core.outputs = {{core.name, list.of_tokens(of.inner)}};
  core.weights = of.weights;
  return list.add(std::move(core)).outputs.front();
}

Site convolution(const std::string& name, std::vector<NamedShape> inputs, const Shape& out, const Extent& channels,
                 std::int64_t taps) {
  Site site{.name = name, .kind = OperationKind::convolution};
  for (NamedShape& input : inputs) site.inputs.push_back({std::move(input)});
  site.outputs = {{name, out}};
  site.weights = {{name + ".weight", {channels, {Dim::features, taps}}}};
  return site;
}

NamedShape add(SiteList& list, const GatedDelta& delta, const NamedShape& x) {
  const Extent value_heads{Dim::heads, delta.value_heads};
  const Extent key_heads{Dim::kv_heads, delta.key_heads};
  const Extent key_size{Dim::channels, delta.key_dim};
  const Extent value_size{Dim::channels, delta.value_dim};
  std::vector<NamedShape> made;
  const auto project = [&](const char* name, const Shape& out) {
    made.push_back(list.matmul(name, x, out).outputs.front());
  };
  project("linear.q", {key_heads, key_size});
  project("linear.k", {key_heads, key_size});
  project("linear.v", {value_heads, value_size});
  project("linear.z", {value_heads, value_size});
  project("linear.beta", {value_heads});
  project("linear.decay", {value_heads});
  const std::int64_t keys = delta.key_heads * delta.key_dim;
  const std::int64_t values = delta.value_heads * delta.value_dim;
  const Extent channels{Dim::width, 2 * keys + values, {keys, keys, values}};
  const NamedShape mixed = list.add(convolution("linear.conv", {made[0], made[1], made[2]}, list.of_tokens({channels}),
                                                channels, delta.conv_kernel))
                               .outputs.front();
  const NamedShape y =
      recurrence(list, {.name = "linear",
                        .projected = {mixed, made[4], made[5]},
                        .inner = {value_heads, value_size},
                        .weights = {{"linear.a_log", {value_heads}}, {"linear.dt_bias", {value_heads}}}});
  Site norm{.name = "linear.norm", .kind = OperationKind::norm, .inputs = {{y}, {made[3]}}};
  norm.outputs = {{norm.name, y.shape}};
  norm.weights = {{"linear.norm.weight", {value_size}}};
  return out_projection(list, "linear.out", list.add(std::move(norm)).outputs.front());
}

NamedShape add(SiteList& list, const ChannelGatedDelta& delta, const NamedShape& x) {
  const Extent heads{Dim::heads, delta.heads};
  const Extent size{Dim::channels, delta.head_dim};
  std::vector<NamedShape> made;
  for (const char* name : {"linear.q", "linear.k", "linear.v"}) {
    made.push_back(list.matmul(name, x, {heads, size}).outputs.front());
  }
  made.push_back(list.matmul("linear.beta", x, {heads}).outputs.front());
  for (const char* name : {"linear.decay", "linear.gate"}) {
    const std::string low_rank = name;
    const NamedShape low = list.matmul(low_rank + "_down", x, {{Dim::low_rank, delta.head_dim}}).outputs.front();
    const NamedShape kept = list.pass(low_rank + ".low_rank", OperationKind::elementwise, low).outputs.front();
    made.push_back(list.matmul(low_rank + "_up", kept, {heads, size}).outputs.front());
  }
  const std::int64_t width = delta.heads * delta.head_dim;
  const Extent channels{Dim::width, 3 * width, {width, width, width}};
  const NamedShape mixed = list.add(convolution("linear.conv", {made[0], made[1], made[2]}, list.of_tokens({channels}),
                                                channels, delta.conv_kernel))
                               .outputs.front();
  const NamedShape y = recurrence(list, {.name = "linear",
                                         .projected = {mixed, made[3], made[4]},
                                         .inner = {heads, size},
                                         .weights = {{"linear.a_log", {heads}}, {"linear.dt_bias", {heads, size}}}});
  Site norm{.name = "linear.norm", .kind = OperationKind::norm, .inputs = {{y}, {made[5]}}};
  norm.outputs = {{norm.name, y.shape}};
  norm.weights = {{"linear.norm.weight", {size}}};
  return out_projection(list, "linear.out", list.add(std::move(norm)).outputs.front());
}

// Its norm is over all heads together: where these are split, each rank norms its own, as Megatron-LM's norms of
// groups do.
NamedShape add(SiteList& list, const Lightning& lightning, const NamedShape& x) {
  const Extent heads{Dim::heads, lightning.heads};
  const Extent size{Dim::channels, lightning.head_dim};
  std::vector<NamedShape> made;
  for (const char* name : {"lightning.q", "lightning.k", "lightning.v"}) {
    made.push_back(list.matmul(name, x, {heads, size}).outputs.front());
  }
  const NamedShape y = recurrence(list, {.name = "lightning", .projected = made, .inner = {heads, size}});
  const NamedShape gate = list.matmul("lightning.gate", x, {heads, size}).outputs.front();
  Site norm{.name = "lightning.norm", .kind = OperationKind::norm, .inputs = {{y}, {gate}}};
  norm.outputs = {{norm.name, y.shape}};
  norm.weights = {{"lightning.norm.weight", {heads, size}}};
  return out_projection(list, "lightning.out", list.add(std::move(norm)).outputs.front());
}

NamedShape add(SiteList& list, const Mamba& mamba, const NamedShape& x) {
  const Extent inner{Dim::width, mamba.inner};
  const Extent state{Dim::features, mamba.state};
  const std::int64_t inputs = mamba.dt_rank + 2 * mamba.state;
  const NamedShape both =
      list.matmul("mamba.in", x, {{Dim::width, 2 * mamba.inner, {mamba.inner, mamba.inner}}}, mamba.proj_bias)
          .outputs.front();
  Site conv = convolution("mamba.conv", {both}, list.of_tokens({inner}), inner, mamba.conv_kernel);
  if (mamba.conv_bias) conv.weights.push_back({"mamba.conv.bias", {inner}});
  const NamedShape mixed = list.add(std::move(conv)).outputs.front();
  const NamedShape low = list.matmul("mamba.x", mixed, {{Dim::low_rank, inputs}}).outputs.front();
  Site parts{.name = "mamba.x.parts",
             .kind = mamba.inner_norms ? OperationKind::norm : OperationKind::elementwise,
             .inputs = {{low}}};
  const Extent rank{Dim::low_rank, mamba.dt_rank};
  parts.outputs = {{parts.name, list.of_tokens({rank})},
                   {parts.name + ".b_c", list.of_tokens({{Dim::features, 2 * mamba.state}})}};
  if (mamba.inner_norms) {
    parts.weights = {
        {"mamba.dt_norm.weight", {rank}}, {"mamba.b_norm.weight", {state}}, {"mamba.c_norm.weight", {state}}};
  }
  const std::vector<NamedShape> taken = list.add(std::move(parts)).outputs;
  const NamedShape step = list.matmul("mamba.dt", taken[0], {inner}, true).outputs.front();
  const NamedShape y = recurrence(list, {.name = "mamba",
                                         .projected = {mixed, step, taken[1]},
                                         .inner = {inner},
                                         .weights = {{"mamba.a_log", {inner, state}}, {"mamba.d", {inner}}}});
  return out_projection(list, "mamba.out", y, mamba.proj_bias);
}

NamedShape add(SiteList& list, const Mamba2& mamba, const NamedShape& x) {
  const std::int64_t inner = mamba.heads * mamba.head_dim;
  const std::int64_t states = mamba.groups * mamba.state;
  const Extent heads{Dim::heads, mamba.heads};
  const Extent size{Dim::channels, mamba.head_dim};
  const Extent channels{Dim::width, inner + 2 * states, {inner, states, states}};
  const NamedShape all =
      list.matmul("mamba2.in", x,
                  {{Dim::width, 2 * inner + 2 * states + mamba.heads, {inner, inner, states, states, mamba.heads}}})
          .outputs.front();
  Site conv = convolution("mamba2.conv", {all}, list.of_tokens({channels}), channels, mamba.conv_kernel);
  if (mamba.conv_bias) conv.weights.push_back({"mamba2.conv.bias", {channels}});
  const NamedShape mixed = list.add(std::move(conv)).outputs.front();
  const NamedShape y =
      recurrence(list, {.name = "mamba2",
                        .projected = {mixed},
                        .inner = {heads, size},
                        .weights = {{"mamba2.a_log", {heads}}, {"mamba2.d", {heads}}, {"mamba2.dt_bias", {heads}}}});
  Site norm{.name = "mamba2.norm", .kind = OperationKind::norm, .inputs = {{y}, {all}}};
  norm.outputs = {{norm.name, y.shape}};
  norm.weights = {{"mamba2.norm.weight", {heads, size}}};
  return out_projection(list, "mamba2.out", list.add(std::move(norm)).outputs.front());
}

}  // namespace

NamedShape add_mixer_sites(SiteList& list, const Mixer& mixer, const NamedShape& x) {
  return std::visit([&](const auto& kind) { return add(list, kind, x); }, mixer);
}

}  // namespace plumb
