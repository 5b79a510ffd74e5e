#include "common/model/lora.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

namespace plumb {
namespace {

struct Entry {
  const char* name;
  std::vector<std::string_view> others;      // names in PEFT's and in Megatron's models
  std::vector<std::string_view> operations;  // of common/model/parameters_*.cpp
};

// By the value of LoraTarget.
const std::vector<Entry>& entries() {
  static const std::vector<Entry> all = {
      {"query", {"q", "q_proj"}, {"attention.q", "linear.q", "lightning.q"}},
      {"key", {"k", "k_proj"}, {"attention.k", "linear.k", "lightning.k"}},
      {"value", {"v", "v_proj"}, {"attention.v", "linear.v", "lightning.v"}},
      {"output",
       {"o", "o_proj", "out_proj", "linear_proj"},
       {"attention.out", "linear.out", "lightning.out", "mamba.out", "mamba2.out"}},
      {"output_gate",
       {"g_proj", "z_proj"},
       {"attention.gate", "linear.z", "linear.gate_down", "linear.gate_up", "lightning.gate"}},
      {"query_down", {"q_a_proj"}, {"attention.q_down"}},
      {"query_up", {"q_b_proj"}, {"attention.q_up"}},
      {"kv_down", {"kv_a_proj_with_mqa"}, {"attention.kv_down"}},
      {"kv_up", {"kv_b_proj"}, {"attention.kv_up"}},
      {"input", {"in_proj"}, {"mamba.in", "mamba2.in"}},
      {"step",
       {"x_proj", "dt_proj", "in_proj_ba"},
       {"linear.beta", "linear.decay", "linear.decay_down", "linear.decay_up", "mamba.x", "mamba.dt"}},
      {"gate", {"gate_proj"}, {"mlp.gate", "mlp.shared.gate"}},
      {"up", {"up_proj"}, {"mlp.up", "mlp.shared.up"}},
      {"down", {"down_proj", "linear_fc2"}, {"mlp.down", "mlp.shared.down"}},
      {"experts", {}, {"mlp.experts.gate", "mlp.experts.up", "mlp.experts.down"}},
      {"router", {}, {"mlp.router", "mlp.shared_gate"}}};
  return all;
}

// Names that stand for several.
const std::map<std::string_view, std::vector<LoraTarget>>& groups() {
  static const auto all_names = [] {
    std::vector<LoraTarget> targets;
    for (std::size_t i = 0; i < entries().size(); ++i) {
      if (static_cast<LoraTarget>(i) != LoraTarget::router) targets.push_back(static_cast<LoraTarget>(i));
    }
    return targets;
  }();
  static const std::map<std::string_view, std::vector<LoraTarget>> map = {
      {"all", all_names},
      {"all-linear", all_names},
      {"linear_qkv", {LoraTarget::query, LoraTarget::key, LoraTarget::value}},
      {"linear_fc1", {LoraTarget::gate, LoraTarget::up}}};
  return map;
}

template <class Range, class Value>
bool contains(const Range& range, const Value& value) {
  return std::ranges::find(range, value) != range.end();
}

const std::vector<std::string_view>& operations_of(LoraTarget target) {
  return entries().at(static_cast<std::size_t>(target)).operations;
}

// "attention.q" of "layers.3.attention.q.weight"; empty for what is no matrix of a decoder layer.
std::string_view matrix_of_layer(const Parameter& parameter) {
  constexpr std::string_view end = ".weight";
  std::string_view name = without_layer_prefix(parameter.name);
  const bool of_layer = name.size() < parameter.name.size();
  if (!is_matmul(parameter.role) || !of_layer || !name.ends_with(end)) return {};
  name.remove_suffix(end.size());
  return name;
}

// A and B of a matrix [out, in] or of the experts' [experts, out, in].
std::array<Parameter, 2> adapters_of(const Parameter& matrix, std::int64_t rank) {
  const std::string owner = matrix.name.substr(0, matrix.name.rfind('.'));
  std::array<Parameter, 2> pair = {matrix, matrix};
  pair[0].name = owner + ".lora_a.weight";
  pair[0].shape[matrix.shape.size() - 2] = rank;
  pair[1].name = owner + ".lora_b.weight";
  pair[1].shape.back() = rank;
  return pair;
}

// Through one block in the order of F: does an operation's input depend on an adapter?
class Reach {
 public:
  explicit Reach(bool below) : stream_(below), branch_(below) {}

  [[nodiscard]] bool input(const Operation& operation) const {
    if (is_block_norm(operation)) return stream_;
    if (operation.kind == OperationKind::residual) return stream_ || branch_;
    if (!is_matmul(operation.kind)) return branch_;
    const auto found = outputs_.find(operation.input);
    return found == outputs_.end() ? stream_ : found->second;
  }

  void pass(const Operation& operation, bool adapted) {
    const bool output = input(operation) || adapted;
    outputs_[operation.name] = output;
    if (operation.kind == OperationKind::residual) {
      stream_ = output;
      branch_ = false;
    } else if (is_block_norm(operation)) {
      branch_ = stream_;
    } else {
      branch_ = branch_ || output;
    }
  }

 private:
  // One that begins a branch, and none inside or at the end of it.
  static bool is_block_norm(const Operation& operation) {
    return operation.kind == OperationKind::norm && operation.name.find("norm_") == 0 &&
           operation.kept_as_input_bytes > 0;
  }

  bool stream_;  // the residual
  bool branch_;  // anything since the branch began
  std::map<std::string, bool> outputs_;
};

void freeze_matmul(Operation& operation, std::int64_t rank, double element, bool below) {
  const double times = operation.shape.times;
  const double inputs = static_cast<double>(operation.shape.inputs);
  const double outputs = static_cast<double>(operation.shape.outputs);
  const auto width = static_cast<double>(rank);
  const Flops a = {2 * times * width * inputs};
  const Flops b = {2 * times * width * outputs};
  operation.tuning = {.frozen = true, .adapter_rank = rank, .gradient_below = below};
  operation.weight_gradient = a + b;
  operation.forward += a + b;
  operation.input_gradient = (below ? operation.input_gradient + a : Flops{}) + b;
  operation.kept_as_input_bytes = 0;
  operation.kept_bytes = element * times * width;                                            // x·A, for B's gradient
  operation.kept_for_weight_bytes = rank > 0 ? element * times * (outputs + 2 * width) : 0;  // dy, x·A and dy·B
}

void freeze_other(Operation& operation, bool is_read, bool below) {
  operation.tuning = {.frozen = true, .adapter_rank = 0, .gradient_below = below};
  operation.weight_gradient = {};
  operation.streamed.weight_gradient = 0;
  double output = is_read ? operation.kept_for_weight_bytes : 0;  // as the input of an adapter
  if (operation.kind == OperationKind::convolution) {
    output /= 2;  // the other half is the gradient of the convolution's own output
    operation.kept_bytes -= operation.kept_as_input_bytes;
  } else if (!is_read) {
    operation.kept_bytes -= operation.kept_as_input_bytes;
  }
  operation.kept_for_weight_bytes = output;
  if (below) return;
  operation.input_gradient = {};
  operation.streamed.input_gradient = 0;
  operation.kept_bytes = output;
}

}  // namespace

const std::vector<std::string>& lora_target_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const Entry& entry : entries()) all.emplace_back(entry.name);
    return all;
  }();
  return names;
}

std::vector<LoraTarget> lora_targets_of(std::string_view name) {
  if (const auto group = groups().find(name); group != groups().end()) return group->second;
  for (std::size_t i = 0; i < entries().size(); ++i) {
    if (entries()[i].name == name || contains(entries()[i].others, name)) return {static_cast<LoraTarget>(i)};
  }
  return {};
}

std::vector<std::string> lora_target_words() {
  std::vector<std::string> words = lora_target_names();
  for (const Entry& entry : entries()) words.insert(words.end(), entry.others.begin(), entry.others.end());
  for (const auto& [name, targets] : groups()) words.emplace_back(name);
  return words;
}

std::string describe(const Lora& lora) {
  std::string text = fmt::format("rank {}, alpha {},", lora.rank, lora.alpha);
  for (const LoraTarget target : lora.targets) text += " " + lora_target_names()[static_cast<std::size_t>(target)];
  return text;
}

bool adapts(const Lora& lora, std::string_view operation) {
  return std::ranges::any_of(lora.targets,
                             [&](LoraTarget target) { return contains(operations_of(target), operation); });
}

std::vector<LoraTarget> lora_targets_in(const Model& model) {
  std::set<std::string> names;
  for (std::size_t layer = 0; layer < model.layers.size(); ++layer) {
    for (const Parameter& parameter : layer_parameters(model, layer)) names.emplace(matrix_of_layer(parameter));
  }
  std::vector<LoraTarget> targets;
  for (std::size_t i = 0; i < entries().size(); ++i) {
    const auto has = [&](std::string_view operation) { return names.contains(std::string(operation)); };
    if (std::ranges::any_of(entries()[i].operations, has)) targets.push_back(static_cast<LoraTarget>(i));
  }
  return targets;
}

std::vector<Parameter> with_adapters(std::vector<Parameter> parameters, const std::optional<Lora>& lora) {
  if (!lora) return parameters;
  std::vector<Parameter> all;
  for (Parameter& parameter : parameters) {
    const std::string_view matrix = matrix_of_layer(parameter);
    const bool adapted = !matrix.empty() && adapts(*lora, matrix);
    const std::array<Parameter, 2> pair = adapted ? adapters_of(parameter, lora->rank) : std::array<Parameter, 2>{};
    parameter.frozen = true;
    all.push_back(std::move(parameter));
    if (adapted) all.insert(all.end(), pair.begin(), pair.end());
  }
  return all;
}

bool is_adapter(std::string_view parameter) {
  return parameter.ends_with(".lora_a.weight") || parameter.ends_with(".lora_b.weight");
}

bool gradient_goes_below(const Model& model, const std::optional<Lora>& lora, std::size_t block) {
  if (!lora) return block > 0;
  const std::size_t layers = std::min(block == 0 ? 0 : block - 1, model.layers.size());
  for (std::size_t layer = 0; layer < layers; ++layer) {
    if (layer > 0 && model.layers[layer] == model.layers[layer - 1]) continue;
    for (const Parameter& parameter : layer_parameters(model, layer)) {
      if (adapts(*lora, matrix_of_layer(parameter))) return true;
    }
  }
  return false;
}

std::vector<Operation> with_adapters(std::vector<Operation> operations, const Lora& lora, double element, bool below) {
  const auto adapted = [&](const Operation& operation) {
    return is_matmul(operation.kind) && adapts(lora, operation.name);
  };
  std::set<std::string> read;  // whose output an adapter multiplies
  for (const Operation& operation : operations) {
    if (adapted(operation)) read.insert(operation.input);
  }
  Reach reach(below);
  for (Operation& operation : operations) {
    const bool input = reach.input(operation);
    const bool has_adapter = adapted(operation);
    reach.pass(operation, has_adapter);
    if (is_matmul(operation.kind)) {
      freeze_matmul(operation, has_adapter ? lora.rank : 0, element, input);
    } else {
      freeze_other(operation, read.contains(operation.name), input);
    }
  }
  return operations;
}

Flops model_flops(const Model& model, std::int64_t sequence, std::int64_t sequences, const Lora& lora) {
  const OperationContext context = {.sequence = sequence};
  Flops per_token;
  const auto count = [&](std::vector<Operation> operations, std::size_t block) {
    const bool below = gradient_goes_below(model, lora, block);
    for (const Operation& operation : with_adapters(std::move(operations), lora, 1, below)) {
      const bool attention = operation.kind == OperationKind::attention && operation.input_gradient.value > 0;
      per_token += operation.forward + operation.weight_gradient +
                   (attention ? 2 * operation.forward : operation.input_gradient);
    }
  };
  const std::size_t layers = model.layers.size();
  count(embedding_operations(model, context), 0);
  for (std::size_t i = 0; i < layers; ++i) count(layer_operations(model, i, context), i + 1);
  count(head_operations(model, context), layers + 1);
  count(mtp_operations(model, context), layers + 1);
  return per_token * static_cast<double>(sequence) * static_cast<double>(sequences);
}

std::int64_t trained(std::vector<Parameter> block, const std::optional<Lora>& lora) {
  std::int64_t sum = 0;
  for (const Parameter& parameter : with_adapters(std::move(block), lora)) {
    if (!parameter.frozen) sum += elements(parameter);
  }
  return sum;
}

std::int64_t trained_parameters(const Model& model, const std::optional<Lora>& lora) {
  std::int64_t sum = trained(embedding_parameters(model), lora) + trained(final_norm_parameters(model), lora) +
                     trained(head_parameters(model), lora) + trained(mtp_parameters(model), lora);
  for (std::size_t layer = 0; layer < model.layers.size(); ++layer)
    sum += trained(layer_parameters(model, layer), lora);
  return sum;
}

}  // namespace plumb
