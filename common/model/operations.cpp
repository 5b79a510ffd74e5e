#include "common/model/operations.hpp"

#include <algorithm>

#include "common/base/error.hpp"
#include "common/model/first_equal.hpp"
#include "common/model/operation_list.hpp"

namespace plumb {
namespace {

void require_sequence(const OperationContext& context) {
  if (context.sequence < 1) {
    throw InputError("sequence", "must be at least 1, not " + std::to_string(context.sequence));
  }
}

// Norms in the order of `layer_parameters`.
void add_layer(OperationList& list, const Layer& layer) {
  const bool four = layer.norms == 4;
  list.norm("norm_1", layer.norm);
  add_mixer(list, layer.mixer);
  if (four) list.post_norm("norm_2", layer.norm);
  if (!std::holds_alternative<std::monostate>(layer.mixer)) list.residual("residual_1");
  if (layer.norms > 1) list.norm(four ? "norm_3" : "norm_2", layer.norm);
  add_mlp(list, layer.mlp);
  if (four) list.post_norm("norm_4", layer.norm);
  if (!std::holds_alternative<std::monostate>(layer.mlp)) list.residual("residual_2");
}

// Also of a tied head, whose weights stand with the embedding.
std::vector<Parameter> head_matmul(const Model& model) {
  const std::int64_t outputs = model.vision ? model.vision->classes : model.vocabulary;
  return {Parameter{.name = "head.weight", .shape = {outputs, model.hidden}, .role = ParameterRole::matmul}};
}

// Cross entropy keeps the fp32 log-softmax and the target; its kernels, in fp32, go over 19 elements' worth of the
// logits in F and 7 in I (vocabulary-parallel, arXiv 1909.08053). A class head sees one token of a sequence.
void add_head(OperationList& list, const Model& model) {
  const double share = model.vision ? 1 / list.sequence() : 1;
  const std::int64_t outputs = model.vision ? model.vision->classes : model.vocabulary;
  list.matmul("head", 1, share);
  // F has the logits beside what it keeps; I makes their gradient in its place, and of 16-bit logits a narrow one.
  const double logits = share * list.element() * real(outputs);
  list.pass("loss", OperationKind::loss, {19 * share * real(outputs), 7 * share * real(outputs)},
            {.until_input_gradient = share * (fp32_bytes * real(outputs) + index_bytes)})
      .working = {.forward = logits, .input_gradient = list.element() < fp32_bytes ? logits : 0};
}

// Of tokens whose target is here the weights' row, until what it is subtracted from is scaled; nothing goes back.
void add_target_rows(OperationList& list) {
  const double row = list.element() * list.hidden();
  list.pass("target_rows", OperationKind::lookup, {2 * list.hidden(), 0},
            {.until_input_gradient = row, .until_weight_gradient = row});
}

void put_behind(std::vector<Operation>& all, std::vector<Operation> of_module, const std::string& prefix) {
  for (Operation& operation : of_module) {
    operation.name.insert(0, prefix);
    if (!operation.site.empty()) operation.site.insert(0, prefix);
    all.push_back(std::move(operation));
  }
}

std::string mtp_prefix(std::int64_t module) { return "mtp." + std::to_string(module) + "."; }

// Of a part of the vocabulary: the head's, and behind it those of modules that predict more tokens with the same
// weights. No norm here keeps what their matmuls read.
std::vector<Operation> part_of_head(const Model& model, const OperationContext& context) {
  std::vector<Operation> all;
  for (std::int64_t head = 0; head <= model.mtp_modules; ++head) {
    const std::string prefix = head == 0 ? "" : mtp_prefix(head - 1);
    std::vector<Parameter> parameters = head_matmul(model);
    parameters.front().name.insert(0, prefix);
    OperationList list(model, context, prefix, std::move(parameters));
    add_head(list, model);
    if (model.part == ModelPart::vocabulary_and_target_rows) add_target_rows(list);
    const double input = list.element() * list.hidden();
    std::vector<Operation> own = std::move(list).take();
    for (double* kept : {&own.front().kept_bytes, &own.front().kept_for_weight_bytes, &own.front().kept_as_input_bytes})
      *kept += input;
    put_behind(all, std::move(own), prefix);
  }
  return all;
}

std::vector<Operation> patch_operations(const Model& model, const OperationContext& context) {
  std::vector<Parameter> parameters = embedding_parameters(model);
  const double pixels = real(parameters.front().shape.back());
  OperationList list(model, context, "embedding.", std::move(parameters));
  const double share = (list.sequence() - 1) / list.sequence();  // all but the class token
  Operation& patches = list.matmul("patches", 1, share);
  patches.input_gradient = {};
  patches.kept_bytes = share * list.element() * pixels;
  patches.kept_for_weight_bytes += patches.kept_bytes;
  patches.kept_as_input_bytes = patches.kept_bytes;
  return std::move(list).take();
}

}  // namespace

std::vector<Operation> embedding_operations(const Model& model, const OperationContext& context) {
  require_sequence(context);
  if (model.vision) return patch_operations(model, context);
  OperationList list(model, context, "embedding.", {});
  // Reads and writes a row; adds its position's; dropout with its mask.
  const bool part = is_part_of_vocabulary(model);
  const double behind_lookup = (adds_positions(model) ? 3 : 0) + (context.dropout && !part ? 2.5 : 0);
  if (model.part == ModelPart::without_vocabulary) {
    const double rows = adds_positions(model) ? list.element() * list.hidden() : 0;
    Operation& positions = list.pass("positions", OperationKind::elementwise, {behind_lookup * list.hidden(), 0},
                                     {.until_input_gradient = 0, .until_weight_gradient = rows});
    if (rows > 0) positions.streamed.weight_gradient = positions.streamed.forward;
    return std::move(list).take();
  }
  const double passes = 2 + behind_lookup;
  Operation& lookup = list.pass(
      "embedding", OperationKind::lookup, {passes * list.hidden(), 0},
      {.until_input_gradient = index_bytes, .until_weight_gradient = index_bytes + list.element() * list.hidden()});
  lookup.streamed.weight_gradient = lookup.streamed.forward;
  return std::move(list).take();
}

std::vector<Operation> layer_operations(const Model& model, std::size_t index, const OperationContext& context) {
  require_sequence(context);
  OperationList list(model, context, layer_prefix(index), layer_parameters(model, index));
  add_layer(list, model.layers.at(index));
  return std::move(list).take();
}

std::vector<Operation> head_operations(const Model& model, const OperationContext& context) {
  require_sequence(context);
  OperationList list(model, context, "", head_matmul(model));
  if (model.part == ModelPart::without_vocabulary) {  // the parts keep its output
    list.post_norm("final_norm", model.final_norm);
    return std::move(list).take();
  }
  if (is_part_of_vocabulary(model)) return part_of_head(model, context);
  Operation& norm = list.norm("final_norm", model.final_norm);
  if (model.vision) {  // of its output, the head keeps the class token alone
    const double others = (list.sequence() - 1) / list.sequence() * list.element() * list.hidden();
    norm.kept_bytes -= others;
    norm.kept_for_weight_bytes -= others;
    norm.kept_as_input_bytes -= others;
  }
  add_head(list, model);
  return std::move(list).take();
}

std::vector<Operation> mtp_operations(const Model& model, const OperationContext& context) {
  require_sequence(context);
  if (is_part_of_vocabulary(model)) return {};  // among those of the head
  std::vector<Operation> all;
  for (std::int64_t module = 0; module < model.mtp_modules; ++module) {
    const std::string prefix = mtp_prefix(module);
    std::vector<Parameter> parameters = mtp_parameters(model);
    parameters.push_back(head_matmul(model).front());
    parameters.back().name.insert(0, prefix);
    OperationList list(model, context, prefix, std::move(parameters));
    list.norm("norm_hidden", model.final_norm);
    list.norm("norm_embedding", model.final_norm);
    list.matmul("projection");
    add_layer(list, model.layers.back());
    if (model.part == ModelPart::without_vocabulary) {
      list.post_norm("norm_out", model.final_norm);
    } else {
      list.norm("norm_out", model.final_norm);
      add_head(list, model);
    }
    put_behind(all, std::move(list).take(), prefix);
  }
  return all;
}

OperationTotals totals(const std::vector<Operation>& operations) {
  OperationTotals sum;
  for (const Operation& operation : operations) {
    sum.forward += operation.forward;
    sum.input_gradient += operation.input_gradient;
    sum.weight_gradient += operation.weight_gradient;
    sum.kept_bytes += operation.kept_bytes;
    sum.kept_for_weight_bytes += operation.kept_for_weight_bytes;
  }
  return sum;
}

double mean_keys(const SoftmaxAttention& attention, std::int64_t sequence, std::int64_t before) {
  const std::int64_t end = before + sequence;
  if (!attention.causal) return real(end);
  const double length = real(sequence);
  if (!attention.window || *attention.window >= end) return real(before) + (length + 1) / 2;
  const double window = real(*attention.window);
  // Of the queries in front of which the window is not full yet, each misses one key less than the one before it.
  const double first = std::max(window - real(before) - 1, 0.0);
  return window - first * (first + 1) / (2 * length);
}

Flops model_flops(const Model& model, std::int64_t sequence, std::int64_t sequences) {
  const OperationContext context = {.sequence = sequence};
  Flops per_token;
  const auto count = [&](const std::vector<Operation>& operations) {
    for (const Operation& operation : operations) {
      const bool attention = operation.kind == OperationKind::attention;
      per_token += operation.forward + operation.weight_gradient +
                   (attention ? 2 * operation.forward : operation.input_gradient);
    }
  };
  count(embedding_operations(model, context));
  const std::vector<std::size_t> first = first_equal(model.layers);
  std::vector<std::vector<Operation>> of_block(first.size());
  for (std::size_t block = 1; block <= model.layers.size(); ++block) {
    if (first[block] == block) of_block[block] = layer_operations(model, block - 1, context);
    count(of_block[first[block]]);
  }
  count(head_operations(model, context));
  count(mtp_operations(model, context));
  return per_token * real(sequence) * real(sequences);
}

}  // namespace plumb
